// SHAP values by Fast TreeSHAP v2 (Yang, 2021, arXiv:2109.09847): each leaf has a table with one number for
// each set of its path's features that a row may satisfy.
//
// With z_i the zero fraction of feature i on the path, and S the features of the path that the row satisfies,
//     T[S] = integral over t of  prod_{i in S} (z_i (1 - t) + t)  prod_{i not in S} z_i (1 - t)  / (1 - t).
// A leaf of value v contributes -v T[S] to each feature that is not in S, and
// v (1 - z_i) / z_i T[S without i] to each feature i in S. T of the set of all features is not used. See
// docs/mathematics.md.
#pragma once

#include <functional>

#include "base/aligned.h"
#include "plan/plan.h"
#include "rows/coding.h"
#include "rows/margin.h"
#include "rows/tiles.h"

namespace skshap {

// Compile a plan for this method. All trees have tables, which take at most table_bytes.
Plan make_fast_v2_plan(const EnsembleView& ensemble, Precision precision, Index index, size_t table_bytes,
                       int64_t n_threads, const StoredTables* stored = nullptr);

// One thread's work. All blocks of a tile go through one tree after another.
template <class T>
class FastV2 {
 public:
  FastV2(const Plan& plan, const Kernels& kernels, size_t tile);

  // Add to the sums of features and, unless it is null, to the margin. `words` has memory for the decisions
  // of a block. Return false if `stop` returned true.
  bool run(const CodeTile& codes, int n_rows, uint64_t* words, TileSums& sums, TileSums* margin,
           Margins& margins, const std::function<bool()>& stop);

  // Return the bytes that a FastV2 allocates for each row of a tile, and the bytes that do not depend on the
  // rows.
  static size_t row_bytes(const Plan& plan);
  static size_t bytes(const Plan& plan);

 private:
  void add_tree(const Chunk& chunk, const TreeProgram& tree, const LeafTable* leaves, uint64_t* words,
                TileSums* margin, Margins& margins);
  void add_sums(const Chunk& chunk, TileSums& sums) const;

  const Plan& plan_;
  const Kernels& kernels_;
  const CodeTile* codes_ = nullptr;
  int n_rows_ = 0;
  Aligned<T> phi_;  // [block][output][slot][64]
  std::vector<T> values_;
};

}  // namespace skshap
