// X -> codes: the one place where x is compared with thresholds.
//
// A numeric column is coded by the number of its thresholds that x has passed, so that
// `x <= threshold` (or `x < threshold`) becomes `code <= rank of the threshold`, exact for every
// comparison rule and precision. A categorical column is coded by the position of its category.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "simd/kernels.h"

namespace skshap {

// Codes of a tile of rows: [column][stride], and the rows of each category by block.
struct CodeTile {
  size_t stride = 0;
  std::vector<uint16_t> narrow;
  std::vector<uint32_t> wide;
  std::vector<CategoryRows> category_rows;  // [block][column]; empty without categorical columns

  void allocate(const Plan& plan, int tile_rows);
  const void* codes(const Plan& plan, int block) const;
};

// Codes rows first_row .. first_row + n_rows - 1; rows past them in the last block repeat a code.
void code_tile(const Plan& plan, const Kernels& kernels, const Rows& rows, int64_t first_row, int n_rows,
               CodeTile& tile);

// Decides nodes of one tree for the rows of a block; `words` is what they write.
void decide_block(const Plan& plan, const Kernels& kernels, const DecideNode* nodes, size_t n_nodes,
                  const CodeTile& codes, int block, uint64_t* words);

}  // namespace skshap
