#include "background/leaf_vectors.h"

#include <algorithm>
#include <cmath>

#include "plan/quadrature.h"
#include "simd/kernels.h"

namespace skshap {
namespace {

// For each sum: the power of t by which it is divided, and by how much the exponent of 1 - t is reduced.
constexpr int kOnOfSum[] = {1, 1, 0, 2, 2, 2, 1, 1, 0};
constexpr int kOffOfSum[] = {0, 1, 1, 0, 1, 2, 1, 2, 2};

}  // namespace

const LeafVectors::Rule& LeafVectors::rule(uint32_t n) {
  Rule& out = rules_[n];
  if (!out.coefficients.empty()) return out;
  const size_t size = size_t{1} << n;
  std::vector<double> t, weights, on(n + 1, 1.0), off(n + 1, 1.0);
  quadrature(index_, quadrature_nodes(index_, static_cast<int>(n)), t, weights);
  for (size_t k = 0; k < t.size(); ++k) {
    for (uint32_t i = 1; i <= n; ++i) {
      on[i] = on[i - 1] * t[k];
      off[i] = off[i - 1] * (1 - t[k]);
    }
    for (int sum = 0; sum < kSums; ++sum) {
      const double weight = weights[k] * (sum < kPairOn ? 1 : pair_weight(index_, t[k]) / 2);
      out.coefficients.push_back(weight / std::pow(t[k], kOnOfSum[sum]));
    }
    for (size_t x = 0; x < size; ++x) out.on.push_back(on[__builtin_popcountll(x)]);
    for (uint32_t less = 0; less <= 2; ++less)
      for (size_t x = 0; x < size; ++x) {
        const uint32_t q = n - __builtin_popcountll(x);
        out.off.push_back(q < less ? 0 : off[q - less]);
      }
  }
  return out;
}

void LeafVectors::sum_up(uint32_t n, const double* weights) {
  const Rule& leaf_rule = rule(n);
  const size_t size = size_t{1} << n;
  n_ = n;
  if (sums_.size() < size * kSums) sums_.resize(size * kSums);
  if (scratch_.size() < 2 * size) scratch_.resize(2 * size);
  kernels().subset_sums({.weights = weights,
                         .n_features = static_cast<int>(n),
                         .n_nodes = static_cast<int>(leaf_rule.coefficients.size()) / kSums,
                         .n_sums = kSums,
                         .coefficients = leaf_rule.coefficients.data(),
                         .on = leaf_rule.on.data(),
                         .off = leaf_rule.off.data(),
                         .off_of_sum = kOffOfSum,
                         .n_off = 3,
                         .scratch = scratch_.data(),
                         .sums = sums_.data()});
}

template <class T>
void LeafVectors::write(size_t x, double value, T* out) const {
  const uint32_t n = n_;
  const double *const less = sum(kLess), on = sum(kOn)[x], off = -sum(kOff)[x] * value;
  for (uint32_t i = 0; i < n; ++i)
    out[i] = static_cast<T>(x >> i & 1 ? (on - less[x ^ size_t{1} << i]) * value : off);
  const double mixed = sum(kMixed)[x], neither = sum(kPairOff)[x] * value, both = sum(kPairOn)[x];
  const double *const mixed_less = sum(kMixedLess), *const pair_less = sum(kPairLess);
  T one[kMostSubsetBits];  // by feature: the pair with any feature not in x
  double without[kMostSubsetBits];
  std::fill_n(one, n, static_cast<T>(neither));
  for (size_t rest = x; rest; rest &= rest - 1) {
    const int i = __builtin_ctzll(rest);
    const size_t less_i = x ^ size_t{1} << i;
    one[i] = static_cast<T>((mixed_less[less_i] - mixed) * value);
    without[i] = pair_less[less_i];
  }
  T* to = out + n;
  for (uint32_t i = 0; i < n; to += n - 1 - i, ++i) {
    if (!(x >> i & 1)) {
      std::copy(one + i + 1, one + n, to);
      continue;
    }
    std::fill_n(to, n - 1 - i, one[i]);
    const double* const least = sum(kPairLeast);
    const size_t less_i = x ^ size_t{1} << i;
    for (size_t rest = x >> i >> 1 << i << 1; rest; rest &= rest - 1) {
      const uint32_t j = __builtin_ctzll(rest);
      // In this order of subtractions, the result is exactly zero if one of the two features changes nothing.
      const double interaction = (both - without[i]) - (without[j] - least[less_i ^ size_t{1} << j]);
      to[j - i - 1] = static_cast<T>(interaction * value);
    }
  }
}

// In measurements, going through the patterns was faster only if there were few of them for the length of the
// path.
bool LeafVectors::prefers_sums(uint32_t n, size_t n_patterns) {
  return n <= kMostSubsetBits && (n_patterns >> (n / 2)) > 0;
}

size_t LeafVectors::bytes(const Plan& plan, uint32_t longest) {
  const uint32_t n = std::min(longest, kMostSubsetBits);
  // The rules of all shorter paths together take about as much memory as the rule of the longest, and growing
  // vectors double this.
  const size_t rules = size_t{4} * 4 * quadrature_nodes(plan.index, static_cast<int>(n)) << n;
  return 8 * (rules + ((kSums + 2) << n));
}

template void LeafVectors::write(size_t, double, float*) const;
template void LeafVectors::write(size_t, double, double*) const;

}  // namespace skshap
