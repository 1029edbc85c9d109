#include "background/leaf_vectors.h"

#include <algorithm>
#include <cmath>

#include "plan/quadrature.h"
#include "simd/kernels.h"

namespace skshap {
namespace {

// For each sum, the power of t that is divided out, and by how much the exponent of 1 - t is reduced.
constexpr int kOnOfSum[] = {1, 1, 0, 2, 2, 2, 1, 1, 0};
constexpr int kOffOfSum[] = {0, 1, 1, 0, 1, 2, 1, 2, 2};

}  // namespace

LeafVectors::LeafVectors(Index index, int order)
    : index_(index), order_(order), n_sums_(order > 1 ? kSums : kPairOn), moments_(kMoments * kMoments) {
  for (uint32_t a = 0; a < kMoments; ++a)
    for (uint32_t b = 0; b < kMoments; ++b) {
      double& moment = moments_[a * kMoments + b];
      if (index == Index::kBanzhaf)
        moment = std::ldexp(1.0, -static_cast<int>(a + b));
      else  // a! b! / (a + b + 1)!
        moment = b ? moments_[a * kMoments + b - 1] * b / (a + b + 1) : 1.0 / (a + 1);
    }
}

// Return half of the integral for a pair's derivative, with the weight of pair_weight.
double LeafVectors::pair_moment(uint32_t a, uint32_t b) const {
  return index_ == Index::kTaylor ? moment(a, b + 1) : moment(a, b) / 2;
}

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
    for (int sum = 0; sum < n_sums_; ++sum) {
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
  const Rule& of = rule(n);
  const size_t size = size_t{1} << n;
  n_ = n;
  if (sums_.size() < size * n_sums_) sums_.resize(size * n_sums_);
  if (scratch_.size() < 2 * size) scratch_.resize(2 * size);
  kernels().subset_sums({weights, static_cast<int>(n), static_cast<int>(of.coefficients.size()) / n_sums_,
                         n_sums_, of.coefficients.data(), of.on.data(), of.off.data(), kOffOfSum,
                         order_ > 1 ? 3 : 2, scratch_.data(), sums_.data()});
}

template <class T>
void LeafVectors::write(size_t x, double value, T* out) const {
  const uint32_t n = n_;
  const double *const less = sum(kLess), on = sum(kOn)[x], off = -sum(kOff)[x] * value;
  for (uint32_t i = 0; i < n; ++i)
    out[i] = static_cast<T>(x >> i & 1 ? (on - less[x ^ size_t{1} << i]) * value : off);
  if (order_ < 2) return;
  const double mixed = sum(kMixed)[x], neither = sum(kPairOff)[x] * value, both = sum(kPairOn)[x];
  const double *const mixed_less = sum(kMixedLess), *const pair_less = sum(kPairLess);
  T one[kMostSubsetBits];  // by feature: paired with any that is not in x
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
      // Subtracted in this order, the result is exactly zero if one of the two features changes nothing.
      const double of_pair = (both - without[i]) - (without[j] - least[less_i ^ size_t{1} << j]);
      to[j - i - 1] = static_cast<T>(of_pair * value);
    }
  }
}

template <class T>
void LeafVectors::write(uint32_t n, uint64_t x, const uint64_t* patterns, const double* weights,
                        size_t n_patterns, double value, T* out) {
  const uint64_t all = ~uint64_t{0} >> (64 - n);
  const uint32_t q = __builtin_popcountll(all & ~x);
  numbers_.assign(leaf_numbers(order_, n), 0.0);
  double mixed[kMaxPathFeatures] = {}, off = 0, pair_off = 0;
  double* const pairs = numbers_.data() + n;
  for (size_t b = 0; b < n_patterns; ++b) {
    if ((x | patterns[b]) != all) continue;
    const uint64_t only_x = all & ~patterns[b];
    const uint32_t p = __builtin_popcountll(only_x);
    const double w = weights[b];
    if (q) off += w * moment(p, q - 1);
    if (order_ > 1 && q > 1) pair_off += w * pair_moment(p, q - 2);
    if (!p) continue;
    const double of_one = w * moment(p - 1, q);
    const double of_mixed = order_ > 1 && q ? w * pair_moment(p - 1, q - 1) : 0;
    const double of_two = order_ > 1 && p > 1 ? w * pair_moment(p - 2, q) : 0;
    for (uint64_t rest = only_x; rest;) {
      const uint32_t i = __builtin_ctzll(rest);
      rest &= rest - 1;
      numbers_[i] += of_one;
      mixed[i] += of_mixed;
      if (order_ < 2) continue;
      for (uint64_t others = rest; others; others &= others - 1)
        pairs[pair_number(n, i, __builtin_ctzll(others))] += of_two;
    }
  }
  for (uint32_t i = 0; i < n; ++i) out[i] = static_cast<T>((x >> i & 1 ? numbers_[i] : -off) * value);
  if (order_ < 2) return;
  for (uint32_t i = 0, number = n; i < n; ++i)
    for (uint32_t j = i + 1; j < n; ++j, ++number) {
      const bool has_i = x >> i & 1, has_j = x >> j & 1;
      const double of_pair = has_i && has_j ? numbers_[number]
                             : has_i        ? -mixed[i]
                             : has_j        ? -mixed[j]
                                            : pair_off;
      out[number] = static_cast<T>(of_pair * value);
    }
}

// Going through the patterns was measured to be faster only if there are few for the length of the path.
bool LeafVectors::prefers_sums(uint32_t n, size_t n_patterns) {
  return n <= kMostSubsetBits && (n_patterns >> (n / 2)) > 0;
}

size_t LeafVectors::bytes(const Plan& plan, uint32_t longest) {
  const uint32_t n = std::min(longest, kMostSubsetBits);
  // The rules of shorter paths together take as much again, and vectors that grow take twice as much.
  const size_t rules = size_t{4} * 4 * quadrature_nodes(plan.index, static_cast<int>(n)) << n;
  return 8 * (rules + ((kSums + 2) << n) + kMoments * kMoments + leaf_numbers(plan.order, longest));
}

template void LeafVectors::write(size_t, double, float*) const;
template void LeafVectors::write(size_t, double, double*) const;
template void LeafVectors::write(uint32_t, uint64_t, const uint64_t*, const double*, size_t, double, float*);
template void LeafVectors::write(uint32_t, uint64_t, const uint64_t*, const double*, size_t, double, double*);

}  // namespace skshap
