// Tiles of rows: the loop that explains them, and the numbers that a thread stores for a tile.
#pragma once

#include <algorithm>

#include "base/aligned.h"
#include "base/threads.h"
#include "plan/plan.h"
#include "rows/coding.h"
#include "rows/gaps.h"

namespace skshap {

// The sums of the rows of a tile: [output][place][row]. A place belongs to a feature, pair or triple.
class TileSums {
 public:
  void resize(size_t n_outputs, size_t n_places, size_t n_rows) {
    n_outputs_ = n_outputs;
    n_places_ = n_places;
    n_rows_ = n_rows;
    sums_.resize((n_outputs * n_places + 1) * n_rows);
    clear();
  }
  void clear() { std::fill_n(sums_.data(), sums_.size(), 0.0); }

  // Return the sums of all rows at a place of an output.
  double* at(size_t output, size_t place = 0) const { return at_place(output * n_places_ + place); }
  // Return the sums of all rows at a place. Here, places are numbered through all outputs.
  double* at_place(size_t place) const { return sums_.data() + place * n_rows_; }

  // Return a zero for each row.
  const double* zeros() const { return at(n_outputs_); }

  // Return the number of elements from one place to the next.
  size_t stride() const { return n_rows_; }
  size_t n_outputs() const { return n_outputs_; }
  size_t n_places() const { return n_places_; }

  // Return the bytes for each row.
  static size_t row_bytes(size_t n_outputs, size_t n_places) {
    return (n_outputs * n_places + 1) * sizeof(double);
  }

 private:
  Aligned<double> sums_;
  size_t n_outputs_ = 0, n_places_ = 0, n_rows_ = 0;
};

// Multiply the sums of rows, [row][row_size], by `scale`, and add them to the sums of a tile, for whole
// blocks of rows. The sum at position i of a row is added at place `places[i]` of the tile.
template <class T>
void add_row_sums(const T* rows, size_t row_size, size_t n_blocks, double scale, const uint32_t* places,
                  size_t n_places, const TileSums& sums) {
  for (size_t first = 0; first < n_blocks * kBlockRows; first += kBlockRows)
    for (size_t i = 0; i < n_places; ++i) {
      const T* const from = rows + first * row_size + i;
      double* const to = sums.at_place(places[i]) + first;
      for (size_t row = 0; row < kBlockRows; ++row) to[row] += scale * from[row * row_size];
    }
}

// Rows that a thread explains together.
struct Tile {
  Tile(const Plan& plan, int most_rows) {
    codes.allocate(plan, most_rows);
    margin.resize(plan.n_outputs, 1, most_rows);
    totals.resize(plan.n_outputs, 1, most_rows);
  }

  int64_t first_row = 0;
  int n_rows = 0;
  CodeTile codes;
  TileSums margin;  // starts with the constants of the plan
  TileSums totals;  // of the values, as they are written

  int n_blocks() const { return block_count(n_rows); }
  int block_rows(int block) const { return std::min(kBlockRows, n_rows - block * kBlockRows); }
};

// The rule for dividing rows into tiles. A tile has at most `most_rows` rows, rounded up to whole blocks. If
// several threads work, each gets at least `tiles_per_thread` tiles, if there are enough rows. Tiles are
// about equal unless they are `shrinking`. Then each tile takes a share of the rows that are left, so that
// all threads end at about the same time.
struct TileSize {
  int64_t most_rows, tiles_per_thread;
  bool shrinking = false;

  // Return the first row of each tile, and the number of rows at the end. No tile is larger than the first
  // one.
  std::vector<int64_t> bounds(int64_t n_rows, int64_t n_threads) const {
    const bool shrinks = shrinking && n_threads > 1;
    const int64_t at_once = n_threads * most_rows, least = n_threads > 1 ? tiles_per_thread : 1;
    const int64_t n_tiles = n_threads * std::max(least, (n_rows + at_once - 1) / at_once);
    const int64_t equal = std::max<int64_t>(1, block_count((n_rows + n_tiles - 1) / n_tiles)) * kBlockRows;
    std::vector<int64_t> bounds{0};
    while (bounds.back() < n_rows) {
      const int64_t n_remaining = n_rows - bounds.back();
      const int64_t share = n_remaining / kBlockRows / (2 * n_threads) * kBlockRows;
      const int64_t rows = shrinks ? std::clamp<int64_t>(share, kBlockRows, most()) : equal;
      bounds.push_back(bounds.back() + std::min(rows, n_remaining));
    }
    return bounds;
  }

  // Return the number of rows of the largest tile.
  int most() const { return static_cast<int>(whole_blocks(most_rows)); }
};

// Begin the margins of rows with the constants of the plan, and the totals of the rows' values with zeros.
inline void begin_rows(const Plan& plan, TileSums& margin, TileSums& totals) {
  for (int32_t o = 0; o < plan.n_outputs; ++o) std::fill_n(margin.at(o), margin.stride(), plan.constant[o]);
  totals.clear();
}

// Write margins, and compare them with the totals of the values.
inline void write_margins(const Plan& plan, const Result& result, int64_t first_row, int n_rows,
                          const TileSums& margin, const TileSums& totals) {
  if (result.gaps) result.gaps->add(n_rows, margin.at(0), totals.at(0), margin.stride());
  for (int row = 0; result.margin && row < n_rows; ++row)
    for (int32_t o = 0; o < plan.n_outputs; ++o)
      result.margin[(first_row + row) * plan.n_outputs + o] = margin.at(o)[row];
}

// Explain rows in up to n_threads threads. Each thread calls make(rows of a tile) for its worker, then
// worker.run(tile, stop) for one tile after another. run() adds margins to the tile's margins, writes the
// values of the tile's rows to the result, and adds these values to the tile's totals. It returns false if
// `stop` returned true. Return whether all rows were explained.
template <class Make>
bool explain_tiles(const Plan& plan, const Rows& rows, const Result& result, const TileSize& size,
                   int64_t n_threads, const Stop& interrupted, const Make& make) {
  const std::vector<int64_t> bounds = size.bounds(rows.n_rows, n_threads);
  const int64_t n_tiles = static_cast<int64_t>(bounds.size()) - 1;
  const int64_t largest = bounds[std::min<int64_t>(1, n_tiles)];
  const int tile_rows = static_cast<int>(whole_blocks(largest));
  return work_off(n_tiles, n_threads, interrupted, [&] {
    return [&, tile = Tile(plan, tile_rows), worker = make(tile_rows)](int64_t i, const Stop& stop) mutable {
      tile.first_row = bounds[i];
      tile.n_rows = static_cast<int>(bounds[i + 1] - bounds[i]);
      code_tile(plan, kernels(), rows, tile.first_row, tile.n_rows, tile.codes);
      begin_rows(plan, tile.margin, tile.totals);
      if (!worker.run(tile, stop)) return false;
      write_margins(plan, result, tile.first_row, tile.n_rows, tile.margin, tile.totals);
      return true;
    };
  });
}

}  // namespace skshap
