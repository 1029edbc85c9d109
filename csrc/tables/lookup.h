// Explains the rows of a tile, for the trees of a plan that have tables.
#pragma once

#include <optional>

#include "base/aligned.h"
#include "plan/plan.h"
#include "rows/coding.h"
#include "rows/margin.h"
#include "rows/tiles.h"
#include "tables/pattern_vectors.h"

namespace skshap {

// One thread's work. A tile goes through one tree after another. Within a tree, a few blocks of the tile at a
// time go through one table after another. So a table stays in the cache while it is used, and is read from
// memory once for each tile.
template <class T>
class TableRunner {
 public:
  TableRunner(const Plan& plan, size_t tile);

  // Add to the sums of features and, unless it is null, to the margin. Return false if `stop` returned true.
  bool run(const CodeTile& codes, int n_rows, TileSums& sums, TileSums* margin, Margins& margins,
           const Stop& stop);

 private:
  void run_tree(const TableTree& tree, const TableBatch& batch, TileSums* margin, Margins& margins);
  void lookup(const TableTree& tree, size_t row_size, size_t first_block, size_t n_blocks);
  void add_pattern_leaf(const PatternLeaf& leaf, const TableBatch& batch);

  const Plan& plan_;
  const CodeTile* codes_ = nullptr;
  size_t n_rows_ = 0, n_blocks_ = 0, block_words_ = 0;
  Aligned<uint64_t> words_;  // [block][block_words_]
  Aligned<uint16_t> index_;
  Aligned<T> phi_;                         // [row][row_size]
  std::optional<PatternVectors> vectors_;  // if there are leaves without a table
  std::vector<double> numbers_;
};

// Return the bytes that a TableRunner allocates for each row, and the bytes that do not depend on the rows.
size_t table_row_bytes(const Plan& plan);
size_t table_runner_bytes(const Plan& plan);

}  // namespace skshap
