// The additivity check: base value plus values, as they were written, against the margin of each row.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace skshap {

// The largest gap of each output over all rows that threads add; NaN once a gap is NaN.
class Gaps {
 public:
  explicit Gaps(std::vector<double> base_value)
      : base_value_(std::move(base_value)), largest_(base_value_.size(), 0.0) {}

  // Add rows with margins margin[output * stride + row], whose values have just been written and are still
  // in the cache.
  void add(const Plan& plan, const Result& result, int64_t first_row, int n_rows, const double* margin,
           size_t stride) {
    const size_t first_value = first_row * largest_.size() * plan.n_features;
    std::vector<double> largest(largest_.size(), 0.0);
    if (result.is_float32)
      add_rows(plan, static_cast<const float*>(result.values) + first_value, n_rows, margin, stride, largest);
    else
      add_rows(plan, static_cast<const double*>(result.values) + first_value, n_rows, margin, stride,
               largest);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t o = 0; o < largest.size(); ++o) include(largest[o], largest_[o]);
  }

  const std::vector<double>& largest() const { return largest_; }

 private:
  static void include(double gap, double& largest) {
    if (!(gap <= largest) && !std::isnan(largest)) largest = gap;
  }

  template <class Out>
  void add_rows(const Plan& plan, const Out* values, int n_rows, const double* margin, size_t stride,
                std::vector<double>& largest) const {
    const size_t n_outputs = largest.size(), n_features = plan.n_features;
    // Other features have zeros. Reading these, too, is faster unless they are many.
    const bool all = 4 * plan.features.size() >= n_features;
    for (int row = 0; row < n_rows; ++row)
      for (size_t o = 0; o < n_outputs; ++o) {
        const Out* const from = values + (row * n_outputs + o) * n_features;
        const double sum =
            all ? sum_of(n_features, [from](size_t i) { return from[i]; })
                : sum_of(plan.features.size(), [from, &plan](size_t i) { return from[plan.features[i]]; });
        include(std::fabs(base_value_[o] + sum - margin[o * stride + row]), largest[o]);
      }
  }

  // Return the sum of n numbers, in several parts so that additions need not wait for each other.
  template <class Number>
  static double sum_of(size_t n, const Number& number) {
    constexpr size_t kParts = 8;
    double parts[kParts] = {};
    size_t i = 0;
    for (; i + kParts <= n; i += kParts)
      for (size_t part = 0; part < kParts; ++part) parts[part] += number(i + part);
    for (; i < n; ++i) parts[0] += number(i);
    double sum = 0;
    for (const double part : parts) sum += part;
    return sum;
  }

  const std::vector<double> base_value_;
  std::vector<double> largest_;
  std::mutex mutex_;
};

}  // namespace skshap
