// SHAP values by the recursions of TreeSHAP (Lundberg et al., 2020, algorithm 2) and Fast TreeSHAP v1 (Yang,
// 2021, arXiv:2109.09847), one row at a time: the baselines that the walk is compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/tree_paths.h"

namespace skshap {

// One thread's work on any tree of a plan for SHAP values.
//
// The plan says which splits are on the same feature (plan/tree_paths.h). The zero fractions are multiplied
// here, row by row, in the precision of the weights that they are divided out of, and for Fast TreeSHAP v1
// only as long as the row satisfies the feature.
template <class T>
class Recursion {
 public:
  explicit Recursion(const Plan& plan);

  // Add the values of the rows of a block to phi[output][slot][64]; `words` was written by `decide`.
  void add_tree(const Chunk& chunk, const TreeProgram& tree, const uint64_t* words, int n_rows, T* phi);

  // Return the bytes that a Recursion allocates.
  static size_t bytes(const Plan& plan);

 private:
  // A feature of the path, for all splits on it together.
  struct Element {
    uint32_t slot;
    bool satisfied;  // whether the row satisfies it: the one fraction
    T zero_fraction;
  };
  struct Path {
    Element* elements;
    T* weights;
    int n_elements;    // L
    int n_weights;     // L + 1, or the number of satisfied features + 1
    T unsatisfied;     // Fast TreeSHAP v1: product of the zero fractions of features that are not satisfied
    bool unreachable;  // no row comes here, whatever is known, so nothing below has a value
    Element split;     // at a node: its feature as the path above left it; it is not among the elements
  };
  struct Node {
    int32_t parent, level;
    bool right;     // the right child of its parent
    bool repeated;  // a node above splits on its feature
    uint32_t slot;
    int32_t children[2];
    T shares[2];
  };

  void open_tree(const Chunk& chunk, const TreeProgram& tree);
  template <bool kFast>
  void explain_row(const uint64_t* words, int row, T* phi);
  template <bool kFast>
  void descend(const Path& above, T share, bool satisfied, Path& below) const;
  template <bool kFast>
  void extend(const Element& element, Path& path) const;
  template <bool kFast>
  T unwind(const Path& path, const Element& element, T* weights) const;
  template <bool kFast>
  void take_out(const Node& node, Path& path) const;
  template <bool kFast>
  void add_leaf(const Path& path, const T* values, T* phi) const;

  const Plan& plan_;
  PathWalk walk_;
  std::vector<uint32_t> slot_of_;  // by feature: its slot in the chunk
  std::vector<T> reciprocals_;
  std::vector<Element> elements_;
  std::vector<T> weights_, leaf_values_;
  std::vector<Path> paths_;  // by level
  std::vector<Node> nodes_;  // inner nodes, in preorder
  int32_t n_inner_ = 0;
  size_t n_outputs_ = 1, output_stride_ = 0;
};

}  // namespace skshap
