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

// Code as many tiles of at most most_rows rows at a time as fit in kCodedBytes, and call work(tiles), which
// returns whether to continue. Return whether all rows were done.
template <class Work>
bool work_on_tiles(const CodedColumns& coded, size_t most_rows, const Rows& rows, int64_t n_threads,
                   const Stop& interrupted, const Work& work) {
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

// Take all rows through chunks of trees, of at most most_nodes nodes or of one tree only. begin(tree) is the
// number of nodes of the trees before a tree. Each thread has a copy of the worker and calls
// worker.add(first tree, end, tiles, stop) for one chunk after another, which returns false if `stop`
// returned true. Return whether all rows were done.
template <class Begin, class Worker>
bool work_on_trees(const CodedColumns& coded, const Rows& rows, size_t n_trees, size_t most_nodes,
                   const Begin& begin, int n_threads, const Stop& interrupted, const Worker& worker) {
  most_nodes = std::min(most_nodes, begin(n_trees) / n_threads + 1);
  std::vector<size_t> chunks{0};
  for (size_t tree = 1; tree < n_trees; ++tree)
    if (begin(tree + 1) - begin(chunks.back()) > most_nodes) chunks.push_back(tree);
  if (n_trees) chunks.push_back(n_trees);
  const auto add = [&](const std::vector<CodedTile>& tiles) {
    return work_off(static_cast<int64_t>(chunks.size()) - 1, n_threads, interrupted, [&] {
      return [&, own = worker](int64_t i, const Stop& stop) mutable {
        return own.add(chunks[i], chunks[i + 1], tiles, stop);
      };
    });
  };
  return work_on_tiles(coded, coded_tile_rows(coded), rows, n_threads, interrupted, add);
}

}  // namespace skshap
