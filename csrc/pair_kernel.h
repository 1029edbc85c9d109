// Sums over the subsets of x, for leaf_vectors.cpp. Included by each kernels_*.cpp, as kernel.h is.
#pragma once

#include <cstddef>

#include "pair_kernels.h"

namespace skshap {
namespace {

// z[x] becomes the sum of z over the subsets of x.
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
