#include "leaf_vectors.h"

#include <algorithm>
#include <cmath>

namespace skshap {
namespace {

// The sums: t to the power of how many features in x only are taken out, and of those in b only.
constexpr struct {
  int on, off;
} kTerms[] = {{1, 0}, {1, 1}, {0, 1}, {2, 0}, {2, 1}, {2, 2}, {1, 1}, {1, 2}, {0, 2}};

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

// Half of what the pair's derivative is integrated with; see pair_weight.
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
      out.coefficients.push_back(weight / std::pow(t[k], kTerms[sum].on));
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
  const size_t size = size_t{1} << n, n_nodes = of.coefficients.size() / n_sums_;
  z_.resize(2 * size);
  sums_.assign(size * n_sums_, 0.0);
  double *const z = z_.data(), *const product = z + size;
  for (size_t k = 0; k < n_nodes; ++k) {
    const double* const on = of.on.data() + k * size;
    for (size_t x = 0; x < size; ++x) z[x] = weights[size - 1 - x] * on[x];
    for (size_t bit = 1; bit < size; bit *= 2)
      for (size_t high = 0; high < size; high += 2 * bit)
        for (size_t x = high; x < high + bit; ++x) z[x + bit] += z[x];
    for (int less = 0; less <= order_; ++less) {
      const double* const off = of.off.data() + (3 * k + less) * size;
      for (size_t x = 0; x < size; ++x) product[x] = z[x] * off[x];
      for (int sum = 0; sum < n_sums_; ++sum) {
        if (kTerms[sum].off != less) continue;
        const double c = of.coefficients[k * n_sums_ + sum];
        double* const to = sums_.data() + sum * size;
        for (size_t x = 0; x < size; ++x) to[x] += c * product[x];
      }
    }
  }
}

template <class T>
void LeafVectors::all(uint32_t n, const double* weights, double value, T* out) {
  sum_up(n, weights);
  const size_t size = size_t{1} << n, row = leaf_numbers(order_, n);
  const auto of = [&](Sum sum) { return sums_.data() + sum * size; };
  const double *const on = of(kOn), *const less = of(kLess), *const off = of(kOff);
  for (uint32_t i = 0; i < n; ++i) {
    const size_t bit = size_t{1} << i;
    for (size_t high = 0; high < size; high += 2 * bit)
      for (size_t x = high; x < high + bit; ++x) {
        out[x * row + i] = static_cast<T>(-off[x] * value);
        out[(x + bit) * row + i] = static_cast<T>((on[x + bit] - less[x]) * value);
      }
  }
  if (order_ < 2) return;
  const double *const pair_on = of(kPairOn), *const pair_less = of(kPairLess), *const least = of(kPairLeast);
  const double *const mixed = of(kMixed), *const mixed_less = of(kMixedLess), *const pair_off = of(kPairOff);
  T* to = out + n;
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t j = i + 1; j < n; ++j, ++to) {
      const size_t low = size_t{1} << i, high = size_t{1} << j;
      for (size_t above = 0; above < size; above += 2 * high)
        for (size_t between = above; between < above + high; between += 2 * low)
          for (size_t x = between; x < between + low; ++x) {
            const size_t x_i = x + low, x_j = x + high, x_ij = x_i + high;
            to[x * row] = static_cast<T>(pair_off[x] * value);
            to[x_i * row] = static_cast<T>((mixed_less[x] - mixed[x_i]) * value);
            to[x_j * row] = static_cast<T>((mixed_less[x] - mixed[x_j]) * value);
            // In this order it is zero where one of them changes nothing.
            const double both = (pair_on[x_ij] - pair_less[x_j]) - (pair_less[x_i] - least[x]);
            to[x_ij * row] = static_cast<T>(both * value);
          }
    }
}

template <class T>
void LeafVectors::one(uint32_t n, uint64_t x, const uint64_t* patterns, const double* weights,
                      size_t n_patterns, double value, T* out) {
  const uint64_t all = ~uint64_t{0} >> (64 - n);
  const uint32_t q = __builtin_popcountll(all & ~x), n_numbers = leaf_numbers(order_, n);
  numbers_.assign(n_numbers, 0.0);
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

bool LeafVectors::prefers_all(uint32_t n, size_t n_patterns) const {
  return n <= kMostForAll && n_patterns >= 16;
}

size_t LeafVectors::bytes(const Plan& plan, uint32_t longest) {
  const uint32_t n = std::min(longest, kMostForAll);
  // The rules of shorter paths take as much again, and while they grow twice as much.
  const size_t rules = size_t{4} * 4 * quadrature_nodes(plan.index, static_cast<int>(n)) << n;
  return 8 * (rules + ((kSums + 3) << n) + kMoments * kMoments + leaf_numbers(plan.order, longest));
}

template void LeafVectors::all(uint32_t, const double*, double, float*);
template void LeafVectors::all(uint32_t, const double*, double, double*);
template void LeafVectors::one(uint32_t, uint64_t, const uint64_t*, const double*, size_t, double, float*);
template void LeafVectors::one(uint32_t, uint64_t, const uint64_t*, const double*, size_t, double, double*);

}  // namespace skshap
