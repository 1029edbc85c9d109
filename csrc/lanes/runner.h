// Explains rows by the leaves in a plan's lanes.
#pragma once

#include "base/aligned.h"
#include "base/threads.h"
#include "plan/plan.h"
#include "rows/tiles.h"
#include "simd/kernels.h"

namespace skshap {

// One thread's work. The values of a row do not depend on the other rows.
template <class T>
class LaneRunner {
 public:
  explicit LaneRunner(const Plan& plan);

  // Return the bytes that a LaneRunner allocates.
  static size_t bytes(const Plan& plan);

  // Add to the sums of features and, unless it is null, to the margin. Return false if `stop` returned true.
  bool run(const CodeTile& codes, int n_rows, TileSums& sums, TileSums* margin, const Stop& stop);

 private:
  void read_codes(const CodeTile& codes, int n_rows);
  void run_chunk(const LaneChunk& chunk, int row, double* margin);
  void add_totals(size_t first_output, size_t n_outputs, int row, TileSums& sums);

  const Plan& plan_;
  Aligned<uint16_t> codes_;                      // [row][column]
  Aligned<T> sums_;                              // [slot][output][lane]
  Aligned<double> totals_;                       // [row][feature][output][lane]
  std::vector<double> margins_;                  // by output of a leaf
};

}  // namespace skshap
