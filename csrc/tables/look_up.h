// The trees of a plan that are explained by tables, over the rows of a tile.
#pragma once

#include <functional>

#include "base/aligned.h"
#include "plan/plan.h"
#include "rows/coding.h"
#include "rows/margin.h"
#include "rows/tiles.h"

namespace skshap {

// One thread's work. A tile goes through one tree after the other, and some of its blocks at a time through
// one table after the other, so that a table stays in the cache while it is used and is read from memory once
// for each tile.
template <class T>
class TableRunner {
 public:
  TableRunner(const Plan& plan, const Kernels& kernels, size_t tile);

  // Adds to the sums of features and, unless it is null, to the margin. Returns false when `stop` asked to.
  bool run(const CodeTile& codes, int n_rows, TileSums& sums, TileSums* margin, Margins& margins,
           const std::function<bool()>& stop);

 private:
  void run_tree(const TableTree& tree, const TableBatch& batch, TileSums* margin, Margins& margins);
  void look_up(const TableTree& tree, size_t row_size, size_t first_block, size_t n_blocks);
  void add_level_margin(const TableTree& tree, size_t n_outputs, size_t first_output, TileSums& margin) const;
  void add_pattern_leaf(const PatternLeaf& leaf, size_t row_size, size_t n_outputs);
  void add_sums(const TableBatch& batch, TileSums& sums) const;

  const Plan& plan_;
  const Kernels& kernels_;
  const CodeTile* codes_ = nullptr;
  size_t n_rows_ = 0, n_blocks_ = 0, block_words_ = 0;
  Aligned<uint64_t> words_;  // [block][block_words_]
  Aligned<uint16_t> index_;
  Aligned<T> phi_;  // [row][row_size]
};

// Decisions of a table tree for all blocks of a tile; `words` has room for them.
void decide_blocks(const Plan& plan, const Kernels& kernels, const TableTree& tree, const CodeTile& codes,
                   size_t n_blocks, uint64_t* words);

// Nodes that are decided.
size_t n_decided(const Plan& plan, const TableTree& tree);

// What a runner allocates for each row.
size_t table_row_bytes(const Plan& plan);

}  // namespace skshap
