// Writes the sums of a tile's rows to the arrays of results.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/plan.h"
#include "rows/tiles.h"
#include "simd/kernels.h"

namespace skshap {

// Write the values of an output from the sums of used features. Zeros are written first, unless the memory is
// zeroed already.
template <class Out>
void scatter_values(const Plan& plan, const std::vector<const double*>& columns, int n_rows, bool zeroed,
                    Out* out, double* totals) {
  constexpr size_t kFeatures = 16;
  const size_t row_size = static_cast<size_t>(plan.n_outputs) * plan.n_features;
  Out buffer[kBlockRows * kFeatures];
  std::vector<const double*> part(kFeatures);
  for (int row = 0; row < n_rows && !zeroed; ++row)
    std::fill_n(out + row * row_size, plan.n_features, Out(0));
  for (int begin = 0; begin < n_rows; begin += kBlockRows) {
    const size_t n = static_cast<size_t>(std::min(kBlockRows, n_rows - begin));
    for (size_t first = 0; first < columns.size(); first += kFeatures) {
      const size_t n_columns = std::min(kFeatures, columns.size() - first);
      for (size_t i = 0; i < n_columns; ++i) part[i] = columns[first + i] + begin;
      kernels().of<Out>().write_rows({.columns = part.data(),
                                      .n_columns = n_columns,
                                      .n_rows = n,
                                      .row_size = kFeatures,
                                      .rows = buffer,
                                      .totals = totals ? totals + begin : nullptr});
      for (size_t row = 0; row < n; ++row) {
        Out* const to = out + (begin + row) * row_size;
        for (size_t i = 0; i < n_columns; ++i) to[plan.features[first + i]] = buffer[row * kFeatures + i];
      }
    }
  }
}

// Write the values of rows from the sums of features, for the outputs of `sums`, beginning with first_output.
// Out is the type of the result's values. Add the values of each row, as they are written, to
// totals[output][row] unless this is null. If the result is `zeroed` and few features are used, only the
// values of used features are written.
template <class Out>
void write_values_as(const Plan& plan, const Result& result, const TileSums& sums, size_t first_output,
                     int64_t first_row, int n_rows, const TileSums* totals) {
  const size_t n_used = plan.features.size(), n_features = plan.n_features,
               row_size = plan.n_outputs * n_features;
  const bool scattered = 4 * n_used < n_features;
  std::vector<const double*> columns(scattered ? n_used : n_features, sums.zeros());
  for (size_t o = 0; o < sums.n_outputs(); ++o) {
    for (size_t i = 0; i < n_used; ++i) columns[scattered ? i : plan.features[i]] = sums.at(o, i);
    Out* const to = static_cast<Out*>(result.values) + first_row * row_size + (first_output + o) * n_features;
    double* const total = totals ? totals->at(first_output + o) : nullptr;
    if (scattered)
      scatter_values(plan, columns, n_rows, result.zeroed, to, total);
    else
      kernels().of<Out>().write_rows({.columns = columns.data(),
                                      .n_columns = n_features,
                                      .n_rows = static_cast<size_t>(n_rows),
                                      .row_size = row_size,
                                      .rows = to,
                                      .totals = total});
  }
}

inline void write_values(const Plan& plan, const Result& result, const TileSums& sums, size_t first_output,
                         int64_t first_row, int n_rows, const TileSums* totals) {
  const auto write = result.is_float32 ? write_values_as<float> : write_values_as<double>;
  write(plan, result, sums, first_output, first_row, n_rows, totals);
}

// Write out[place] from the sums of a row and output.
template <class Out>
void write_places(const TileSums& sums, int32_t output, int row, Out* out) {
  const double* const from = sums.at(output) + row;
  for (size_t i = 0; i < sums.n_places(); ++i) out[i] = static_cast<Out>(from[i * sums.stride()]);
}

// Write out[feature][feature] from the sums of features and of pairs, which are `stride` elements apart. The
// diagonal has the value of each feature minus its pairs, or its Banzhaf value. `main` has memory for one
// element per used feature.
template <class Out>
void write_matrix(const Plan& plan, const double* values, const double* pairs, size_t stride, double* main,
                  Out* out) {
  const size_t n = plan.n_features, n_used = plan.features.size();
  std::fill_n(out, n * n, Out(0));
  for (size_t i = 0; i < n_used; ++i) main[i] = values[i * stride];
  for (size_t i = 0; i < plan.pairs.size(); ++i) {
    const double x = pairs[i * stride];
    if (plan.index != Index::kBanzhaf)
      for (const int32_t feature : plan.pairs[i]) main[feature] -= x;
    const size_t first = plan.features[plan.pairs[i][0]], second = plan.features[plan.pairs[i][1]];
    out[first * n + second] = out[second * n + first] = static_cast<Out>(x);
  }
  for (size_t i = 0; i < n_used; ++i) out[plan.features[i] * (n + 1)] = static_cast<Out>(main[i]);
}

}  // namespace skshap
