// A tree with labelled inner nodes, from which the program of a GPU is written.
#pragma once

#include <vector>

#include "cuda/program/columns.h"
#include "plan/tree_paths.h"

namespace skshap {

class CudaTree {
 public:
  struct Node {
    int32_t feature;
    int32_t left, right;                   // an inner node, or -1: a leaf
    const double *left_leaf, *right_leaf;  // their values
    double share, zero_fraction;           // of the path above, if repeated
    double edge_fraction;           // zero fraction of the parent's feature beyond the edge that leads here
    int32_t previous, parent;       // -1: new on the path; none
    int32_t height;                 // above the fused subtrees; -1 for a pair, trio or quad
    uint32_t level, tracked_above;  // nodes above, and those of them that are tracked
    bool pair, tracked;             // whether it has two leaves; whether it has an alive bit
    bool repeated() const { return previous >= 0; }
  };

  CudaTree(const Plan& plan, const CudaColumns& columns);

  // Label a tree, unless it is explained by tables.
  void open(const Chunk& chunk, const TreeProgram& tree);

  // Return whether a subtree is a pair, trio or quad.
  bool fused(const Node& node) const {
    return node.pair || (!pairs_ && pair(node.left) && (node.right < 0 || pair(node.right)));
  }

  // Return the latest nodes on the other features of the path above a node, the nearest first.
  const std::vector<int32_t>& others_above(int32_t i);

  // Return the place of the pair of two nodes' features: pairs follow the features.
  int32_t pair_of(int32_t i, int32_t j) const;

  const Plan& plan;
  const TreeProgram* program = nullptr;
  const DecideNode* decide = nullptr;
  const int32_t* children = nullptr;
  std::vector<Node> nodes;
  uint32_t n_frames = 0;  // above the fused subtrees
  uint32_t most_tracked = 0;
  size_t n_sets = 0;   // of categories
  size_t n_slots = 0;  // of features and pairs
  bool fits = true;    // whether all columns fit the fused form

 private:
  bool pair(int32_t i) const { return i >= 0 && nodes[i].pair; }
  void label(size_t width);
  void measure_heights();
  void count_tracked();
  void count_slots();

  const CudaColumns& columns_;
  const bool pairs_;
  PathWalk walk_;
  std::vector<uint32_t> listed_, counted_;  // when a feature, or a place, was last met
  uint32_t stamp_ = 0, tree_number_ = 0;
  std::vector<int32_t> above_;
};

// Slots, columns and category sets have 16-bit indices in the fused form.
constexpr uint32_t kMaxCudaIndex = 0xffff;

}  // namespace skshap
