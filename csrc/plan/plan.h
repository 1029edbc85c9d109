// The compiled ensemble and the whole API of the core.
#pragma once

#include <functional>
#include <stdexcept>
#include <vector>

#include "base/types.h"
#include "plan/coded_trees.h"
#include "plan/interval_tables.h"
#include "plan/leaf_lanes.h"
#include "plan/occurring_cells.h"
#include "plan/tables.h"
#include "plan/walk_program.h"

namespace skshap {

struct TreeAlgorithm;  // cpu/tree_algorithm.h

// The compiled ensemble.
struct Plan : CodedColumns, WalkProgram {
  const TreeAlgorithm* tree_algorithm = nullptr;  // instead of the walk; values only
  std::vector<int32_t> groups;         // for Owen values: the group of each feature, from 0; else empty
  bool unwalked = false;               // for Owen values: no walk computes them, see plan/owen_trees.h
  std::vector<double> constant;        // per output: intercept and expected values of the trees
  std::vector<double> base_value;      // per output: the expected margin
  std::vector<double> leaf_magnitude;  // per output: sum over the trees of the largest |leaf_values|
  int64_t n_leaves;
  double leaf_scale;  // a power of two; phi is computed from leaf values divided by it
  Tables tables;
  IntervalTables intervals;
  LeafLanes lanes;       // if there are any, they explain all trees
  OccurringCells cells;  // likewise

  size_t bytes() const;
};

// Compile an ensemble. Throw std::invalid_argument if it exceeds the core's integer ranges. The order of the
// Shapley-Taylor index is at most 2. Without `walks`, the plan has the same chunks and trees but no programs
// of the walk: tables explain all its trees.
Plan make_plan(const EnsembleView& ensemble, Precision precision, int order = 1,
               Index index = Index::kShapley, bool walks = true, int64_t n_threads = 1);

// Compile coded trees for path-dependent values with the precision and the index of `like`, whose columns
// they test. Without `walks`, the plan has no programs of the walk, as above.
Plan make_plan(const CodedTrees& trees, const Plan& like, int64_t n_threads, bool walks = true);

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
