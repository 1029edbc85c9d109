// Explains the rows of a tile by a plan's tables by intervals.
#pragma once

#include "base/aligned.h"
#include "base/threads.h"
#include "plan/plan.h"
#include "rows/tiles.h"

namespace skshap {

// One thread's work. A tile goes through a few tables at a time, so that each table is read from memory once
// for all rows of the tile. A part of the rows is taken at a time: first their indices in all these tables
// are found, then the entries are looked up.
template <class T>
class IntervalRunner {
 public:
  IntervalRunner(const Plan& plan, size_t tile_rows);

  // Add to the sums of features and, unless it is null, to the margin. Return false if `stop` returned true.
  bool run(const CodeTile& codes, int n_rows, TileSums& sums, TileSums* margin, const Stop& stop);

 private:
  void look_up(const TableWindow& window, size_t first, size_t n_tables, const CodeTile& codes,
               TileSums* margin);

  const Plan& plan_;
  size_t n_rows_ = 0, n_blocks_ = 0, part_rows_ = 0;
  Aligned<uint16_t> index_;  // [table][row of a part]
  Aligned<T> sums_;          // [row][row size of the window]
};

// Return the bytes that an IntervalRunner allocates for each row.
size_t interval_row_bytes(const Plan& plan);

}  // namespace skshap
