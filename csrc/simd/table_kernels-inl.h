// Kernels that fill tables against background data, and look up rows in tables.
//
// simd/kernels-inl.h includes this file and says why everything has internal linkage.
#pragma once

#include <algorithm>
#include <cstddef>

#include "simd/kernels.h"

namespace skshap {
namespace {

// A permutation, which is the same for all rows, moves the targets within a vector of phi to their places.
template <class S>
void lookup(const LookupArgs<typename S::T>& args) {
  using T = typename S::T;
  constexpr uint32_t W = S::kWidth;
  const size_t n_targets = args.n_targets;
  for (uint32_t first = 0, end; first < args.n_targets; first = end) {
    const uint32_t window = args.targets[first] / W;
    int32_t from[W];
    for (uint32_t i = 0; i < W; ++i) from[i] = -1;
    for (end = first; end < args.n_targets && args.targets[end] / W == window; ++end)
      from[args.targets[end] % W] = static_cast<int32_t>(end - first);
    const auto permutation = S::permutation(from);
    const T* const table = args.table + first;
    T* phi = args.phi + window * W;
    const size_t row_size = args.row_size;
    for (const uint16_t *index = args.index, *last = index + args.n_rows; index != last;
         ++index, phi += row_size) {
      const typename S::V entry = S::load_unaligned(table + *index * n_targets);
      S::store(phi, S::add(S::load(phi), S::permute(permutation, entry)));
    }
  }
}

void leaf_table(const LeafTableArgs& args) {
  const int d = args.n_features;
  const size_t size = size_t{1} << d;
  double* __restrict const z = args.sums, * __restrict const on = z + size, * __restrict const less = on + size, * __restrict const off = less + size;
  for (size_t x = size; x < 4 * size; ++x) z[x] = 0;
  const double* __restrict factors = args.factors;
  for (int k = 0; k < args.n_nodes; ++k, factors += 4 * size) {
    // z[x] is the weight of the data that satisfy all features that x does not satisfy, times t to the number
    // of features that only x satisfies.
    for (size_t x = 0; x < size; ++x) z[x] = args.weights[size - 1 - x] * factors[x];
    for (size_t bit = 1; bit < size; bit *= 2)
      for (size_t high = 0; high < size; high += 2 * bit)
        for (size_t x = high; x < high + bit; ++x) z[x + bit] += z[x];
    for (size_t x = 0; x < size; ++x) {
      on[x] += factors[size + x] * z[x];
      less[x] += factors[2 * size + x] * z[x];
      off[x] += factors[3 * size + x] * z[x];
    }
  }
  const size_t n_outputs = args.n_outputs, entry = d * n_outputs;
  for (int i = 0; i < d; ++i) {
    const size_t bit = size_t{1} << i;
    for (size_t o = 0; o < n_outputs; ++o) {
      const double value = args.values[o];
      double* __restrict const out = args.out + i * n_outputs + o;
      for (size_t high = 0; high < size; high += 2 * bit)
        for (size_t x = high; x < high + bit; ++x) {
          out[x * entry] = -off[x] * value;
          out[(x + bit) * entry] = (on[x + bit] - less[x]) * value;
        }
    }
  }
}

// Replace each z[x] by the sum of z over the subsets of x.
void add_subsets(double* __restrict z, size_t size) {
  size_t bit = 1;
  if (size >= 8) {  // the first three bits, in registers
    for (double *p = z, *end = z + size; p != end; p += 8) {
      p[1] += p[0], p[3] += p[2], p[5] += p[4], p[7] += p[6];
      p[2] += p[0], p[3] += p[1], p[6] += p[4], p[7] += p[5];
      p[4] += p[0], p[5] += p[1], p[6] += p[2], p[7] += p[3];
    }
    bit = 8;
  }
  for (; bit < size; bit *= 2)
    for (size_t high = 0; high < size; high += 2 * bit)
      for (size_t x = high; x < high + bit; ++x) z[x + bit] += z[x];
}

void subset_sums(const SubsetSumsArgs& args) {
  const size_t size = size_t{1} << args.n_features;
  double* __restrict const z = args.scratch, * __restrict const product = z + size;
  for (size_t x = 0; x < args.n_sums * size; ++x) args.sums[x] = 0;
  for (int k = 0; k < args.n_nodes; ++k) {
    const double* __restrict const on = args.on + k * size;
    for (size_t x = 0; x < size; ++x) z[x] = args.weights[size - 1 - x] * on[x];
    add_subsets(z, size);
    for (int less = 0; less < args.n_off; ++less) {
      const double* __restrict const off = args.off + (3 * k + less) * size;
      for (size_t x = 0; x < size; ++x) product[x] = z[x] * off[x];
      for (int sum = 0; sum < args.n_sums; ++sum) {
        if (args.off_of_sum[sum] != less) continue;
        const double c = args.coefficients[k * args.n_sums + sum];
        double* __restrict const to = args.sums + sum * size;
        for (size_t x = 0; x < size; ++x) to[x] += c * product[x];
      }
    }
  }
}

}  // namespace
}  // namespace skshap
