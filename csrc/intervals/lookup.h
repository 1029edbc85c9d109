// Explains the rows of a tile by the tables by intervals of a plan.
#pragma once

#include "base/aligned.h"
#include "base/threads.h"
#include "plan/plan.h"
#include "rows/tiles.h"

namespace skshap {

// One thread's work. A tile goes through one table after the other: first all indices, then all lookups, so
// that a table stays in the cache while it is used.
template <class T>
class IntervalRunner {
 public:
  IntervalRunner(const Plan& plan, size_t tile_rows);

  // Add to the sums of features and, unless it is null, to the margin. Return false when `stop` returned
  // true.
  bool run(const CodeTile& codes, int n_rows, TileSums& sums, TileSums* margin, const Stop& stop);

 private:
  void look_up(const TableWindow& window, const IntervalTable& table, const CodeTile& codes,
               TileSums* margin);

  const Plan& plan_;
  size_t n_rows_ = 0, n_blocks_ = 0;
  Aligned<uint16_t> index_;
  Aligned<T> sums_;  // [row][row size of the window]
};

// Return the bytes that an IntervalRunner allocates for each row.
size_t interval_row_bytes(const Plan& plan);

}  // namespace skshap
