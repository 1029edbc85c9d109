// X -> codes. Only here is x compared with thresholds.
//
// The code of a value in a numeric column is the number of the column's thresholds that x has passed, so that
// `x <= threshold` (or `x < threshold`) becomes `code <= rank of the threshold`, exactly for every comparison
// rule and precision. In a categorical column, the code is the position of the value's category.
#pragma once

#include <vector>

#include "plan/coded_trees.h"
#include "plan/tables.h"
#include "simd/kernels.h"

namespace skshap {

// Codes of a tile of rows: [column][stride], and the rows of each category by block.
struct CodeTile {
  size_t stride = 0;
  std::vector<uint16_t> narrow;
  std::vector<uint32_t> wide;
  std::vector<CategoryRows> category_rows;  // [block][column]; empty without categorical columns

  void allocate(const CodedColumns& coded, int tile_rows);
  const void* codes(const CodedColumns& coded, int block) const;
  size_t bytes() const {
    return 2 * narrow.size() + 4 * wide.size() + sizeof(CategoryRows) * category_rows.size();
  }
};

// Return the bytes of the codes of a block.
size_t code_bytes(const CodedColumns& coded);

// Code the rows of a block: n_rows rows from first_row. The codes of the other rows of the block are any.
void code_block(const CodedColumns& coded, const Kernels& kernels, const Rows& rows, int64_t first_row,
                int n_rows, int block, CodeTile& tile);

// Code n_rows rows from first_row.
void code_tile(const CodedColumns& coded, const Kernels& kernels, const Rows& rows, int64_t first_row,
               int n_rows, CodeTile& tile);

// Code all rows in one tile. Throw std::invalid_argument if there are too many.
CodeTile code_all_rows(const CodedColumns& coded, const Rows& rows);

// Group the first n_rows rows of a block by their codes in a categorical column. kMissingCode is a category
// of its own.
void group_by_category(const Column& column, const uint32_t* codes, CategoryRows& out,
                       int n_rows = kBlockRows);

// Decide the nodes of one tree for the rows of a block, and write the decisions to `words`.
void decide_block(const CodedColumns& coded, const Kernels& kernels, const DecideNode* nodes, size_t n_nodes,
                  const CodeTile& codes, int block, uint64_t* words);

// The decisions of the rows of some blocks at the nodes of a tree.
struct Decisions {
  const uint64_t* words;
  size_t block_words, n_blocks;  // the former: from a block to the next

  // Write the number that some bits form, for each row. There are at most 16 bits, the lowest first.
  void index(const uint32_t* bits, uint32_t n_bits, uint16_t* out) const;
};

// Decide the nodes of one tree for n_blocks blocks from first_block, and write block_words(n_nodes) words for
// each block.
Decisions decide_blocks(const CodedColumns& coded, const DecideNode* nodes, size_t n_nodes,
                        const CodeTile& codes, size_t first_block, size_t n_blocks, uint64_t* words);

}  // namespace skshap
