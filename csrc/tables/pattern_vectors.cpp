#include "tables/pattern_vectors.h"

#include <algorithm>

namespace skshap {

template <class T>
void PatternVectors::write(uint32_t n, uint64_t x, const uint64_t* patterns, const double* weights,
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
    if (q) off += w * moments_.value(p, q - 1);
    if (order_ > 1 && q > 1) pair_off += w * moments_.pair(p, q - 2);
    if (!p) continue;
    const double single = w * moments_.value(p - 1, q);
    const double mixed_share = order_ > 1 && q ? w * moments_.pair(p - 1, q - 1) : 0;
    const double pair_share = order_ > 1 && p > 1 ? w * moments_.pair(p - 2, q) : 0;
    for (uint64_t rest = only_x; rest;) {
      const uint32_t i = __builtin_ctzll(rest);
      rest &= rest - 1;
      numbers_[i] += single;
      if (order_ < 2) continue;
      mixed[i] += mixed_share;
      for (uint64_t others = rest; others; others &= others - 1)
        pairs[pair_number(n, i, __builtin_ctzll(others))] += pair_share;
    }
  }
  for (uint32_t i = 0; i < n; ++i) out[i] = static_cast<T>((x >> i & 1 ? numbers_[i] : -off) * value);
  if (order_ < 2) return;
  for (uint32_t i = 0, number = n; i < n; ++i)
    for (uint32_t j = i + 1; j < n; ++j, ++number) {
      const bool has_i = x >> i & 1, has_j = x >> j & 1;
      const double interaction = has_i && has_j ? numbers_[number]
                                 : has_i        ? -mixed[i]
                                 : has_j        ? -mixed[j]
                                                : pair_off;
      out[number] = static_cast<T>(interaction * value);
    }
}

// Outside of its own game, a group is known as a whole: it is satisfied if all its features are satisfied.
void PatternVectors::write_owen(uint32_t n, uint64_t x, const std::vector<uint64_t>& groups,
                                const uint64_t* patterns, const double* weights, size_t n_patterns,
                                double* out) const {
  const uint64_t all = ~uint64_t{0} >> (64 - n);
  std::fill_n(out, n, 0.0);
  for (size_t i = 0; i < n_patterns; ++i) {
    const uint64_t b = patterns[i];
    if ((x | b) != all) continue;
    // The number of groups that only the row satisfies, that only the background row satisfies, and that
    // neither satisfies.
    uint32_t n_only_x = 0, n_only_b = 0, n_neither = 0;
    for (const uint64_t group : groups) {
      const bool in_x = (x & group) == group, in_b = (b & group) == group;
      n_only_x += in_x && !in_b;
      n_only_b += in_b && !in_x;
      n_neither += !in_x && !in_b;
    }
    for (const uint64_t group : groups) {
      const bool in_x = (x & group) == group, in_b = (b & group) == group;
      if ((in_x && in_b) || n_neither > static_cast<uint32_t>(!in_x && !in_b)) continue;
      const double w = weights[i] * moments_.value(n_only_x - (in_x && !in_b), n_only_b - (in_b && !in_x));
      const uint64_t only_x = group & ~b, only_b = group & ~x;
      const uint32_t p = __builtin_popcountll(only_x), q = __builtin_popcountll(only_b);
      const double on = p ? w * moments_.value(p - 1, q) : 0, off = q ? w * moments_.value(p, q - 1) : 0;
      for (uint64_t rest = only_x; rest; rest &= rest - 1) out[__builtin_ctzll(rest)] += on;
      for (uint64_t rest = only_b; rest; rest &= rest - 1) out[__builtin_ctzll(rest)] -= off;
    }
  }
}

template void PatternVectors::write(uint32_t, uint64_t, const uint64_t*, const double*, size_t, double,
                                    float*);
template void PatternVectors::write(uint32_t, uint64_t, const uint64_t*, const double*, size_t, double,
                                    double*);

}  // namespace skshap
