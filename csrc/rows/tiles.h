// Tiles of rows: the loop that explains them, and what a thread stores for one.
#pragma once

#include <algorithm>
#include <functional>

#include "base/aligned.h"
#include "base/threads.h"
#include "plan/plan.h"
#include "rows/coding.h"
#include "rows/gaps.h"

namespace skshap {

// Sums of the rows of a tile: [output][place][row], where a place belongs to a feature, pair or triple.
class TileSums {
 public:
  void resize(size_t n_outputs, size_t n_places, size_t n_rows) {
    n_places_ = n_places;
    n_rows_ = n_rows;
    sums_.resize(n_outputs * n_places * n_rows);
  }
  void clear() { std::fill_n(sums_.data(), sums_.size(), 0.0); }

  // Return the sums of all rows at a place of an output.
  double* at(size_t output, size_t place = 0) const { return at_place(output * n_places_ + place); }
  // Return the sums of all rows at a place, with places counted through all outputs.
  double* at_place(size_t place) const { return sums_.data() + place * n_rows_; }

  // Return the elements from one place to the next.
  size_t stride() const { return n_rows_; }
  size_t n_places() const { return n_places_; }

 private:
  Aligned<double> sums_;
  size_t n_places_ = 0, n_rows_ = 0;
};

// Rows that a thread explains together.
struct Tile {
  Tile(const Plan& plan, int most_rows) {
    codes.allocate(plan, most_rows);
    margin.resize(plan.n_outputs, 1, most_rows);
  }

  int64_t first_row = 0;
  int n_rows = 0;
  CodeTile codes;
  TileSums margin;  // starts with the constants of the plan

  int n_blocks() const { return (n_rows + kBlockRows - 1) / kBlockRows; }
  int block_rows(int block) const { return std::min(kBlockRows, n_rows - block * kBlockRows); }
};

// The rule for dividing rows into tiles. A tile has at most `most_rows` rows, rounded up to whole blocks;
// each thread gets at least `tiles_each` tiles if there are enough rows; all tiles are about equal.
struct TileSize {
  int64_t most_rows, tiles_each;

  int rows(int64_t n_rows, int64_t n_threads) const {
    const int64_t at_once = n_threads * most_rows;
    const int64_t n_tiles = n_threads * std::max(tiles_each, (n_rows + at_once - 1) / at_once);
    const int64_t n_blocks = ((n_rows + n_tiles - 1) / n_tiles + kBlockRows - 1) / kBlockRows;
    return static_cast<int>(std::max<int64_t>(1, n_blocks)) * kBlockRows;
  }
  // Return the number of rows of the largest tile.
  int most() const { return static_cast<int>((most_rows + kBlockRows - 1) / kBlockRows) * kBlockRows; }
};

// Explain rows in up to n_threads threads. Each thread calls make(rows of a tile) for its worker, then
// worker.run(tile, stop), which adds margins to the tile's, writes the values of the tile's rows to the
// result, and returns false when `stop` returned true. Return whether all rows were explained.
template <class Make>
bool explain_tiles(const Plan& plan, const Rows& rows, const Result& result, const TileSize& size,
                   int64_t n_threads, const Stop& interrupted, const Make& make) {
  const int tile_rows = size.rows(rows.n_rows, n_threads);
  const int64_t n_tiles = (rows.n_rows + tile_rows - 1) / tile_rows;
  return work_off(n_tiles, n_threads, interrupted, [&] {
    return [&, tile = Tile(plan, tile_rows), worker = make(tile_rows)](int64_t i, const Stop& stop) mutable {
      tile.first_row = i * tile_rows;
      tile.n_rows = static_cast<int>(std::min<int64_t>(tile_rows, rows.n_rows - tile.first_row));
      code_tile(plan, kernels(), rows, tile.first_row, tile.n_rows, tile.codes);
      for (int32_t o = 0; o < plan.n_outputs; ++o)
        std::fill_n(tile.margin.at(o), tile_rows, plan.constant[o]);
      if (!worker.run(tile, stop)) return false;
      if (result.gaps)
        result.gaps->add(plan, result, tile.first_row, tile.n_rows, tile.margin.at(0), tile.margin.stride());
      for (int row = 0; result.margin && row < tile.n_rows; ++row)
        for (int32_t o = 0; o < plan.n_outputs; ++o)
          result.margin[(tile.first_row + row) * plan.n_outputs + o] = tile.margin.at(o)[row];
      return true;
    };
  });
}

// Call work(number) with a number of the precision's type.
template <class Work>
auto in_precision(Precision precision, const Work& work) {
  return precision == Precision::kSingle ? work(float()) : work(double());
}

}  // namespace skshap
