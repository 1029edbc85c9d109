// The trees of a plan as the walk reads them: chunks, and the streams of their trees. plan/tree_writer.h and
// plan/walk_writer.h write it from coded trees. Whoever asks for a tree's paths, such as the builders of
// tables and the writers for a GPU, reads the same streams, without operations and constants.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.h"
#include "plan/program.h"

namespace skshap {

// The places of a tree in the streams of a WalkProgram.
struct TreeProgram {
  size_t decide, n_inner, ops, constants, children, leaves;
  int height;
  int n_features;  // most different ones on a path
  bool walked;     // false: explained by tables, without ops and constants
  int32_t source;  // the tree of the ensemble
  bool merged;     // see plan/merged_trees.h; such trees are for path-dependent values only
  size_t n_leaves;
  bool adds_margin = true;  // false if the tree, for Owen values, is also listed in another form
};

// Consecutive trees with the same output and number of quadrature nodes. They are few enough to stay in the
// L2 cache and to be summed in single precision.
struct Chunk {
  int32_t output;  // -1: each leaf holds all outputs
  int n_nodes;     // K
  bool radau;      // walked by simd/scalar_walk_kernel-inl.h, by Gauss-Radau quadrature; else Gauss-Legendre
  int n_apart;     // for Owen values, in trees where the features of a group are apart: see TreeShape
  bool balanced;   // for Owen values: see plan/balance.h; groups have slots, too, behind the features
  int height;
  int n_values;  // that a walk keeps on its stack
  size_t tree_begin, tree_end;
  size_t quadrature;  // t_k, then w_k, in the constants
  size_t max_inner;
  // slot -> position in CodedColumns::features; or the number of features, for values that nobody needs
  std::vector<int32_t> slots;
  std::vector<int32_t> pairs;  // slot of a pair -> position in WalkProgram::pairs
  std::vector<int32_t> triples;
};

// Two or three features that occur on one path, ascending, as positions in CodedColumns::features.
using FeaturePair = std::array<int32_t, 2>;
using FeatureTriple = std::array<int32_t, 3>;

struct WalkProgram {
  int32_t n_outputs = 0;
  Precision precision = Precision::kDouble;
  int order = 1;  // of interactions: 1 for values only, 2 for pairs as well, 3 for triples as well
  Index index = Index::kShapley;
  std::vector<FeaturePair> pairs;      // ascending; from order 2
  std::vector<FeatureTriple> triples;  // ascending; of order 3
  std::vector<TreeProgram> trees;
  std::vector<Chunk> chunks;
  std::vector<DecideNode> decide;
  std::vector<double> shares;  // by inner node: cover fraction of its left child
  // By inner node, for path-dependent Owen values: the player of the node's feature. It is a position in
  // CodedColumns::features or, beyond the last feature, a group. Empty for other values. In a tree where the
  // features of a group are apart, only these features are players of their own.
  std::vector<int32_t> players;
  std::vector<uint32_t> ops;
  std::vector<float> constants_float;  // only the array of the program's precision is filled
  std::vector<double> constants_double;
  // [node][2]: inner nodes in preorder, then leaves, which are their own children. Merged trees have the edge
  // to each node here instead, as a bit (see bit_rows).
  std::vector<int32_t> children;
  // [leaf][1 or n_outputs]: the values of the leaves less the expected value of the tree. An offset that all
  // leaves share would otherwise use up the digits of the precision.
  std::vector<double> leaf_values;

  // Take from another program what this one is to compute, and in which precision.
  void set_like(const WalkProgram& other) {
    n_outputs = other.n_outputs;
    precision = other.precision;
    order = other.order;
    index = other.index;
  }

  bool interactions() const { return order >= 2; }

  size_t bytes() const {
    return list_bytes(decide, shares, players, ops, constants_float, constants_double, children, leaf_values);
  }
};

// Return the bytes of a number in the program's precision.
inline size_t element_bytes(const WalkProgram& program) {
  return program.precision == Precision::kSingle ? 4 : 8;
}

// Return the chunk of a tree.
inline const Chunk& chunk_of(const WalkProgram& program, size_t tree) {
  return *std::upper_bound(program.chunks.begin(), program.chunks.end(), tree,
                           [](size_t i, const Chunk& chunk) { return i < chunk.tree_end; });
}

// Return the number of outputs of the trees of a chunk.
inline size_t n_used_outputs(const WalkProgram& program, const Chunk& chunk) {
  return chunk.output < 0 ? program.n_outputs : 1;
}

template <class T>
const std::vector<T>& constants(const WalkProgram& program) {
  if constexpr (sizeof(T) == 4)
    return program.constants_float;
  else
    return program.constants_double;
}

// Return the size, in elements, of the stack on which the trees of a chunk are walked.
size_t walk_stack(const WalkProgram& program, const Chunk& chunk);

}  // namespace skshap
