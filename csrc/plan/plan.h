// The compiled ensemble and the whole API of the core.
#pragma once

#include <array>
#include <functional>
#include <stdexcept>
#include <vector>

#include "base/types.h"
#include "plan/coded_trees.h"
#include "plan/interval_tables.h"
#include "plan/leaf_lanes.h"
#include "plan/occurring_cells.h"
#include "plan/program.h"
#include "plan/tables.h"

namespace skshap {

// The places of a tree's programs in the plan's streams.
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
  // slot -> position in Plan::features; or the number of features, for values that nobody needs
  std::vector<int32_t> slots;
  std::vector<int32_t> pairs;  // slot of a pair -> position in Plan::pairs
  std::vector<int32_t> triples;
};

// Two or three features that occur on one path, ascending, as positions in Plan::features.
using FeaturePair = std::array<int32_t, 2>;
using FeatureTriple = std::array<int32_t, 3>;

struct TreeAlgorithm;  // cpu/tree_algorithm.h

// The compiled ensemble.
struct Plan : CodedColumns {
  int32_t n_outputs;
  Precision precision;
  int order;  // of interactions: 1 for values only, 2 for pairs as well, 3 for triples as well
  Index index;
  const TreeAlgorithm* tree_algorithm = nullptr;  // instead of the walk; values only
  std::vector<int32_t> groups;         // for Owen values: the group of each feature, from 0; else empty
  bool unwalked = false;               // for Owen values: no walk computes them, see plan/owen_trees.h
  std::vector<FeaturePair> pairs;      // ascending; from order 2
  std::vector<FeatureTriple> triples;  // ascending; of order 3
  std::vector<TreeProgram> trees;
  std::vector<Chunk> chunks;
  std::vector<DecideNode> decide;
  std::vector<double> shares;  // by inner node: cover fraction of its left child
  // By inner node, for path-dependent Owen values: the player of the node's feature. It is a position in
  // `features` or, beyond the last feature, a group. Empty for other values. In a tree where the features of
  // a group are apart, only these features are players of their own.
  std::vector<int32_t> players;
  std::vector<uint32_t> ops;
  std::vector<float> constants_float;  // only the array of the plan's precision is filled
  std::vector<double> constants_double;
  // [node][2]: inner nodes in preorder, then leaves, which are their own children. Merged trees have the edge
  // to each node here instead, as a bit (see bit_rows).
  std::vector<int32_t> children;
  // [leaf][1 or n_outputs]: the values of the leaves less the expected value of the tree. An offset that all
  // leaves share would otherwise use up the digits of the precision.
  std::vector<double> leaf_values;
  std::vector<double> constant;        // per output: intercept and expected values of the trees
  std::vector<double> base_value;      // per output: the expected margin
  std::vector<double> leaf_magnitude;  // per output: sum over the trees of the largest |leaf_values|
  int64_t n_leaves;
  double leaf_scale;  // a power of two; phi is computed from leaf values divided by it
  Tables tables;
  IntervalTables intervals;
  LeafLanes lanes;       // if there are any, they explain all trees
  OccurringCells cells;  // likewise

  bool interactions() const { return order >= 2; }

  size_t bytes() const;
};

// Return the bytes of a number in the plan's precision.
inline size_t element_bytes(const Plan& plan) { return plan.precision == Precision::kSingle ? 4 : 8; }

// Return the chunk of a tree.
inline const Chunk& chunk_of(const Plan& plan, size_t tree) {
  return *std::upper_bound(plan.chunks.begin(), plan.chunks.end(), tree,
                           [](size_t i, const Chunk& chunk) { return i < chunk.tree_end; });
}

// Return the number of outputs of the trees of a chunk.
inline size_t n_used_outputs(const Plan& plan, const Chunk& chunk) {
  return chunk.output < 0 ? plan.n_outputs : 1;
}

template <class T>
const std::vector<T>& constants(const Plan& plan) {
  if constexpr (sizeof(T) == 4)
    return plan.constants_float;
  else
    return plan.constants_double;
}

// Return the size, in elements, of the stack on which the trees of a chunk are walked.
size_t walk_stack(const Plan& plan, const Chunk& chunk);

// Compile an ensemble. Throw std::invalid_argument if it exceeds the core's integer ranges. The order of the
// Shapley-Taylor index is at most 2. Without `walks`, the plan has the same chunks and trees but no programs
// of the walk: tables explain all its trees.
Plan make_plan(const EnsembleView& ensemble, Precision precision, int order = 1,
               Index index = Index::kShapley, bool walks = true, int64_t n_threads = 1);

// Compile coded trees for path-dependent values with the precision and the index of `like`, whose columns
// they test.
Plan make_plan(const CodedTrees& trees, const Plan& like, int64_t n_threads);

// Compile a plan for Shapley or Banzhaf values against background data: `rows` with weights that add up to 1.
// Tables take at most table_bytes. Throw std::invalid_argument if a path has more than 64 different features.
//
// `groups` is the group of each player; with it, the values are Owen values.
//
// With `stored`, the contents of the tables are taken from there, whatever their size, and no table is
// filled. tables/stored_tables.h says how, and which errors are thrown.
struct StoredTables;
Plan make_background_plan(const EnsembleView& ensemble, Precision precision, const Rows& rows,
                          const double* weights, Index index, size_t table_bytes, int64_t n_threads,
                          const StoredTables* stored = nullptr, const int32_t* groups = nullptr);

// The error thrown if the tables that all trees must have need more bytes than is allowed.
struct TableMemoryError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Compile a plan for path-dependent values. Trees that use the same split throughout each level get tables,
// which take at most table_bytes.
Plan make_level_plan(const EnsembleView& ensemble, Precision precision, Index index, size_t table_bytes,
                     int64_t n_threads, const StoredTables* stored = nullptr);

class Gaps;  // rows/gaps.h

// The arrays that explain() fills.
// - values: [row][output][feature].
// - margin: [row][output], or null.
// - pairs, of a plan for interactions, or null: [row][output][pair], half of each pair's interaction.
// - matrices, of a plan for interactions, or null: [row][output][feature][feature], with each pair in both of
//   its places. The diagonal has the value of each feature minus its pairs, or the Banzhaf value itself. With
//   Shapley-Taylor, the diagonal is the contribution of the feature when it alone is known.
// - triples, of a plan of order 3, or null: [row][output][triple], not halved.
// - gaps, or null: the additivity gaps of the rows.
// - zeroed: whether all values are 0 already. Then the values of unused features are not written if such
//   features are many.
struct Result {
  void* values;
  bool is_float32;
  double* margin;
  void* matrices = nullptr;
  void* pairs = nullptr;
  void* triples = nullptr;
  Gaps* gaps = nullptr;  // CPU only
  bool zeroed = false;   // CPU only

  bool needs_margins() const { return margin || gaps; }
};

// Explain rows. `interrupted` is called periodically, only from the calling thread. If it returns true, the
// work ends early. Return whether the work was completed.
bool explain(const Plan& plan, const Rows& rows, const Result& result, int n_threads,
             const std::function<bool()>& interrupted);

// Return the bytes that one thread of explain() allocates, and the bytes that each of several threads adds
// for the sums that they share.
size_t scratch_bytes(const Plan& plan);
size_t shared_bytes(const Plan& plan);

}  // namespace skshap
