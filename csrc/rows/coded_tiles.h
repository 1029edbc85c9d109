// Tiles of rows that are coded once, before trees take the tiles one after another.
#pragma once

#include <algorithm>
#include <vector>

#include "base/threads.h"
#include "plan/coded_trees.h"
#include "rows/coding.h"

namespace skshap {

// The bytes of the codes of a tile, and of all tiles that are coded before the trees begin.
constexpr size_t kCodedTileBytes = 1 << 17, kCodedBytes = size_t{1} << 26;
constexpr size_t kMostCodedRows = 4096;

struct CodedTile {
  CodeTile codes;
  std::vector<uint32_t> categories;  // of each row, [column][stride]; empty if no column is categorical
  int64_t first;
  int n_rows;

  int n_blocks() const { return block_count(n_rows); }

  void code(const CodedColumns& coded, const Rows& rows) {
    code_tile(coded, kernels(), rows, first, n_rows, codes);
    if (codes.category_rows.empty()) return;
    categories.resize(coded.columns.size() * codes.stride);
    for (int row = 0; row < n_rows; row += kBlockRows)
      for (size_t c = 0; c < coded.columns.size(); ++c)
        if (coded.columns[c].categorical)
          list_codes(codes.category_rows[row / kBlockRows * coded.columns.size() + c],
                     &categories[c * codes.stride + row]);
  }

 private:
  static void list_codes(const CategoryRows& groups, uint32_t* to) {
    for (uint32_t i = 0; i < groups.n; ++i)
      for (int row = 0; row < kBlockRows; ++row)
        if (groups.rows[i] >> row & 1) to[row] = groups.code[i];
  }
};

// Return the codes of a tile, [column][stride]. The type of the codes is Code.
template <class Code>
const Code* numeric_codes(const CodedColumns& coded, const CodedTile& tile) {
  return static_cast<const Code*>(tile.codes.codes(coded, 0));
}

// Return the bytes of the codes of a row.
inline size_t coded_row_bytes(const CodedColumns& coded) {
  return std::max<size_t>(code_bytes(coded) / kBlockRows, 1);
}

// Return the most rows of a tile.
inline size_t coded_tile_rows(const CodedColumns& coded) {
  return std::clamp<size_t>(kCodedTileBytes / coded_row_bytes(coded) / kBlockRows * kBlockRows, kBlockRows,
                            kMostCodedRows);
}

// Code as many tiles of rows at a time as fit in kCodedBytes, and call work(tiles), which returns whether to
// continue. Return whether all rows were done.
template <class Work>
bool work_on_tiles(const CodedColumns& coded, const Rows& rows, int64_t n_threads, const Stop& interrupted,
                   const Work& work) {
  const size_t most_rows = coded_tile_rows(coded);
  const auto n_tiles = static_cast<size_t>((rows.n_rows + most_rows - 1) / most_rows);
  std::vector<CodedTile> tiles(
      std::min(n_tiles, std::max<size_t>(kCodedBytes / (coded_row_bytes(coded) * most_rows), 1)));
  for (CodedTile& tile : tiles) tile.codes.allocate(coded, static_cast<int>(most_rows));
  for (int64_t first = 0; first < rows.n_rows;) {
    size_t n = 0;
    for (; n < tiles.size() && first < rows.n_rows; ++n, first += tiles[n - 1].n_rows) {
      tiles[n].first = first;
      tiles[n].n_rows = static_cast<int>(std::min<int64_t>(most_rows, rows.n_rows - first));
    }
    tiles.resize(n);
    const bool is_coded = work_off(static_cast<int64_t>(n), n_threads, interrupted, [&] {
      return [&](int64_t i, const Stop& stop) {
        tiles[i].code(coded, rows);
        return !stop();
      };
    });
    if (!is_coded || !work(tiles)) return false;
  }
  return true;
}

}  // namespace skshap
