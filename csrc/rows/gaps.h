// The additivity check: it compares the base value plus the written values with the margin of each row.
#pragma once

#include <cmath>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace skshap {

// The largest gap of each output, over all rows that threads have added. It stays NaN once a gap is NaN.
class Gaps {
 public:
  explicit Gaps(std::vector<double> base_value)
      : base_value_(std::move(base_value)), largest_(base_value_.size(), 0.0) {}

  // Add rows, given their margins and the totals of their values, both as [output * stride + row].
  void add(int n_rows, const double* margin, const double* totals, size_t stride) {
    std::vector<double> largest(largest_.size(), 0.0);
    for (size_t o = 0; o < largest.size(); ++o)
      for (size_t i = o * stride, end = i + static_cast<size_t>(n_rows); i < end; ++i)
        include(std::fabs(base_value_[o] + totals[i] - margin[i]), largest[o]);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t o = 0; o < largest.size(); ++o) include(largest[o], largest_[o]);
  }

  const std::vector<double>& largest() const { return largest_; }

 private:
  static void include(double gap, double& largest) {
    if (!(gap <= largest) && !std::isnan(largest)) largest = gap;
  }

  const std::vector<double> base_value_;
  std::vector<double> largest_;
  std::mutex mutex_;
};

}  // namespace skshap
