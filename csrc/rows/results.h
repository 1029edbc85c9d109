// Writes the sums of a tile's rows to the results.
#pragma once

#include <algorithm>

#include "plan/plan.h"
#include "rows/tiles.h"

namespace skshap {

// Write out[row][output][feature] from the sums of features: the input has the sums of a feature together,
// the output the values of a row. Small squares are transposed in a buffer, because lines of the cache that
// lie a power of two apart displace each other. If the output is `zeroed`, only used features are written.
template <class Out>
void write_values(const Plan& plan, const TileSums& sums, int n_rows, bool zeroed, Out* out) {
  constexpr int kRows = 16;
  constexpr size_t kFeatures = 16;
  Out buffer[kFeatures][kRows];
  const size_t n_used = plan.features.size(), n_features = plan.n_features,
               row_size = plan.n_outputs * n_features;
  if (n_used < n_features && !zeroed) std::fill_n(out, n_rows * row_size, Out(0));
  for (int begin = 0; begin < n_rows; begin += kRows) {
    const int n = std::min(kRows, n_rows - begin);
    for (int32_t o = 0; o < plan.n_outputs; ++o)
      for (size_t first = 0; first < n_used; first += kFeatures) {
        const size_t n_here = std::min(kFeatures, n_used - first);
        for (size_t i = 0; i < n_here; ++i) {
          const double* const from = sums.at(o, first + i) + begin;
          for (int row = 0; row < n; ++row) buffer[i][row] = static_cast<Out>(from[row]);
        }
        for (int row = 0; row < n; ++row) {
          Out* const to = out + (begin + row) * row_size + o * n_features;
          for (size_t i = 0; i < n_here; ++i) to[plan.features[first + i]] = buffer[i][row];
        }
      }
  }
}

// Write out[place] from the sums of a row and output.
template <class Out>
void write_places(const TileSums& sums, int32_t output, int row, Out* out) {
  const double* const from = sums.at(output) + row;
  for (size_t i = 0; i < sums.n_places(); ++i) out[i] = static_cast<Out>(from[i * sums.stride()]);
}

// Write out[feature][feature] from the sums of features and of pairs, which are `stride` elements apart. On
// the diagonal is a feature's value minus its pairs, or its Banzhaf value. `main` has room for one element
// per used feature.
template <class Out>
void write_matrix(const Plan& plan, const double* values, const double* pairs, size_t stride, double* main,
                  Out* out) {
  const size_t n = plan.n_features, n_used = plan.features.size();
  std::fill_n(out, n * n, Out(0));
  for (size_t i = 0; i < n_used; ++i) main[i] = values[i * stride];
  for (size_t i = 0; i < plan.pairs.size(); ++i) {
    const FeaturePair pair = plan.pairs[i];
    const double x = pairs[i * stride];
    const size_t first = plan.features[pair.first], second = plan.features[pair.second];
    if (plan.index != Index::kBanzhaf) {
      main[pair.first] -= x;
      main[pair.second] -= x;
    }
    out[first * n + second] = out[second * n + first] = static_cast<Out>(x);
  }
  for (size_t i = 0; i < n_used; ++i) out[plan.features[i] * (n + 1)] = static_cast<Out>(main[i]);
}

}  // namespace skshap
