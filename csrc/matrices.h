// The interactions of a row and output as a matrix.
#pragma once

#include <algorithm>

#include "plan.h"

namespace skshap {

// Writes out[feature][feature] from the sums of features and of pairs, that lie `stride` elements apart; on
// the diagonal stands what the pairs of a feature leave of its value, or its Banzhaf value. `main` has room
// for an element of each used feature.
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
