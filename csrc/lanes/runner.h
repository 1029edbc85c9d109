// Explains rows by the leaves in a plan's lanes.
#pragma once

#include <vector>

#include "base/aligned.h"
#include "base/threads.h"
#include "plan/plan.h"
#include "rows/tiles.h"
#include "simd/kernels.h"

namespace skshap {

// Return the number of sums of a part for a block of rows: for each output, [1 + feature][64]. The sums of
// the margins come first.
size_t n_part_sums(const Plan& plan, const LanePart& part);

// Add the sums of a part to the values and, unless it is null, to the margins of a block of rows.
void add_part(const Plan& plan, const LanePart& part, const double* sums, int n_rows, TileSums& values,
              TileSums* margin);

// One thread's work. The values of a row do not depend on the other rows.
template <class T>
class LaneRunner {
 public:
  // For at most most_rows rows of a block at a time.
  LaneRunner(const Plan& plan, int most_rows);

  // Return the most bytes that a LaneRunner allocates.
  static size_t bytes(const Plan& plan);

  // Write the sums of a part for the rows of a block. The sums of other rows of the block are left as they
  // are.
  void run_part(const LanePart& part, const CodeTile& codes, int block, int n_rows, double* sums);

  // Explain a tile of one block of rows: add to the sums of features and, unless it is null, to the margin.
  // Return false if `stop` returned true.
  bool run(const CodeTile& codes, int n_rows, TileSums& values, TileSums* margin, const Stop& stop);

 private:
  void read_codes(const CodeTile& codes, int block, int n_rows);
  void rank_codes(const LaneChunk& chunk, int row);
  void run_chunk(const LaneChunk& chunk, int row);
  void write_mixed_codes(const LaneChunk& chunk, int row);
  void add_mixed_values(const LaneChunk& chunk, int row);
  void add_lanes(size_t n_outputs, int n_rows, double* sums) const;

  const Plan& plan_;
  Aligned<uint16_t> codes_;        // [row][column]
  Aligned<uint32_t> wide_codes_;   // [row][column], before they are ranked
  Aligned<uint16_t> mixed_codes_;  // [mixed place][lane]
  Aligned<T> sums_;                // [slot][output][lane], then [mixed place][lane]
  Aligned<double> totals_;         // [row][feature][output][lane]
  Aligned<double> margins_;        // [row][output]
  Aligned<double> part_sums_;      // of one part
};

}  // namespace skshap
