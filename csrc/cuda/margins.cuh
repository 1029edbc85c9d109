// The margins of coded rows, and how far values and margins are apart.
#pragma once

#include "cuda/codes.cuh"
#include "cuda/program/margins.h"
#include "plan/gpu_limits.h"

namespace skshap {

// The trees whose margins one thread adds up for a row.
struct CudaMarginGroup {
  int32_t tree_begin, tree_end;
  int32_t first_sum;  // among the sums of a row
  int32_t width;      // values of a leaf
  bool merged;
};

struct CudaMarginArgs {
  const CudaMarginGroup* groups;
  const int64_t* tree_nodes;
  const CudaNode* nodes;
  const double* leaf_values;
  const uint32_t* category_bits;
  const int16_t* codes;
  int32_t n_columns, n_sums;
  double* sums;  // [tile][sum][row of the tile]
};

__device__ __forceinline__ uint4 margin_node(const CudaMarginArgs& a, int64_t node) {
  return __ldg(reinterpret_cast<const uint4*>(a.nodes + node));
}
__device__ __forceinline__ int32_t child_of(const CudaMarginArgs& a, const int16_t* codes, int stride,
                                            uint4 n) {
  return static_cast<int32_t>(goes_left(codes, stride, n.x, n.y, a.category_bits) ? n.z : n.w);
}

// Add up the values of the leaves that a row reaches in a merged tree.
inline __device__ __noinline__ double merged_margin(const CudaMarginArgs& a, const int16_t* codes, int stride,
                                                    int64_t root) {
  int32_t others[kMostGpuLevels + 1];  // nodes in the places of the path that are still to be visited
  int n_others = 0;
  double sum = 0;
  for (int64_t node = root;;) {
    if (node >= 0) {
      const uint4 n = margin_node(a, node);
      if (n.x == kJoinedNodes) {
        others[n_others++] = static_cast<int32_t>(n.w);
        node = static_cast<int32_t>(n.z);
      } else {
        node = child_of(a, codes, stride, n);
      }
      continue;
    }
    sum += a.leaf_values[~node];
    if (!n_others) return sum;
    node = others[--n_others];
  }
}

template <int kTile>
__global__ void __launch_bounds__(kTile) add_margins(CudaMarginArgs a) {
  const CudaMarginGroup group = a.groups[blockIdx.y];
  const int64_t tile = blockIdx.x;
  const int16_t* codes = a.codes + tile * a.n_columns * kTile + threadIdx.x;
  double* sums = a.sums + (tile * a.n_sums + group.first_sum) * kTile + threadIdx.x;
  for (int o = 0; o < group.width; ++o) sums[o * kTile] = 0;
  double sum = 0;
  for (int32_t tree = group.tree_begin; tree < group.tree_end; ++tree) {
    int64_t node = a.tree_nodes[tree];
    if (group.merged) {
      sum += merged_margin(a, codes, kTile, node);
      continue;
    }
    while (node >= 0) node = child_of(a, codes, kTile, margin_node(a, node));
    const double* values = a.leaf_values + ~node * group.width;
    if (group.width == 1)
      sum += *values;
    else
      for (int o = 0; o < group.width; ++o) sums[o * kTile] += values[o];
  }
  if (group.width == 1) *sums = sum;
}

struct CudaMarginSumArgs {
  const int64_t* offsets;  // the first sum of each output in `parts`
  const int32_t* parts;
  const double* constant;  // per output
  const double* sums;
  int64_t n_rows;
  int32_t n_outputs, n_sums;
  double* margin;  // [row][output]
};

template <int kTile>
__global__ void __launch_bounds__(256) finish_margins(CudaMarginSumArgs a) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.n_rows * a.n_outputs) return;
  const int64_t row = i / a.n_outputs, output = i % a.n_outputs;
  const double* sums = a.sums + row / kTile * a.n_sums * kTile + row % kTile;
  double margin = a.constant[output];
  for (int64_t p = a.offsets[output]; p < a.offsets[output + 1]; ++p)
    margin += sums[static_cast<int64_t>(a.parts[p]) * kTile];
  a.margin[i] = margin;
}

struct CudaGapArgs {
  const void* values;
  const double* margin;
  const double* base;  // per output
  int64_t n_rows;
  int32_t n_outputs, n_features;
  unsigned long long* gap;  // per output: bits of the largest gap; NaN is larger than any number
};

// Find the largest gap of each output. A warp takes a row and an output.
template <class Out>
__global__ void __launch_bounds__(256) find_gaps(CudaGapArgs a) {
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int64_t n_warps = static_cast<int64_t>(gridDim.x) * blockDim.x / 32;
  const int lane = threadIdx.x % 32;
  for (int64_t i = warp; i < a.n_rows * a.n_outputs; i += n_warps) {
    const Out* values = static_cast<const Out*>(a.values) + i * a.n_features;
    double sum = 0;
    for (int64_t f = lane; f < a.n_features; f += 32) sum += values[f];
    for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
    if (lane) continue;
    const int32_t output = static_cast<int32_t>(i % a.n_outputs);
    const double gap = fabs(sum + a.base[output] - a.margin[i]);
    const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(gap));
    if (bits > *reinterpret_cast<volatile unsigned long long*>(a.gap + output))
      atomicMax(a.gap + output, bits);
  }
}

}  // namespace skshap
