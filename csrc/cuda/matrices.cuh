// The matrices, pairs and triples of interactions, from the sums over all chunks.
#pragma once

#include "cuda/program/tuning.h"
#include "cuda/shared_memory.cuh"
#include "cuda/sums.cuh"

namespace skshap {

// Another feature that is on a path with the current feature.
struct CudaPartner {
  int32_t feature, place;  // column of X; place of the pair in the sums
};

struct CudaMatrixArgs {
  const double* sums;  // [row][output][place]
  const int64_t* partner_offsets;
  const CudaPartner* partners;  // by used feature, ascending
  const int32_t* features;
  int32_t n_used, n_places, n_features;
  int64_t n;                       // rows x outputs
  bool subtract;                   // main effects on the diagonal, otherwise the numbers of `values`
  void *values, *matrices, *sets;  // matrices, sets (pairs or triples): or null
  // For add_matrices: the place of each matrix element in the sums of a row, or -1 if the element is zero.
  const int32_t* place_of;
};

// Write the values, and the matrices by rows. A warp takes a row, an output and a used feature. The main
// effect is the SHAP value minus all interactions of the feature.
template <class Out>
__global__ void __launch_bounds__(256) write_matrices(CudaMatrixArgs a) {
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int64_t n_warps = static_cast<int64_t>(gridDim.x) * blockDim.x / 32;
  const int lane = threadIdx.x % 32;
  for (int64_t i = warp; i < a.n * a.n_used; i += n_warps) {
    const int64_t matrix = i / a.n_used;
    const int32_t used = static_cast<int32_t>(i % a.n_used), feature = a.features[used];
    const double* sums = a.sums + matrix * a.n_places;
    if (lane == 0)
      static_cast<Out*>(a.values)[matrix * a.n_features + feature] = static_cast<Out>(sums[used]);
    if (!a.matrices) continue;
    Out* out = static_cast<Out*>(a.matrices) + (matrix * a.n_features + feature) * a.n_features;
    double interactions = 0;
    for (int64_t p = a.partner_offsets[used] + lane; p < a.partner_offsets[used + 1]; p += 32) {
      const CudaPartner partner = a.partners[p];
      const double x = sums[partner.place];
      out[partner.feature] = static_cast<Out>(x);
      interactions += x;
    }
    for (int offset = 16; offset; offset /= 2) interactions += __shfl_down_sync(~0u, interactions, offset);
    if (lane == 0) out[feature] = static_cast<Out>(a.subtract ? sums[used] - interactions : sums[used]);
  }
}

// add_matrices does the work of add_chunks and write_matrices at once. It is used if the sums of a few rows
// fit into shared memory. A block takes kMatrixRows rows of a tile, and an output.

// The shared memory of a block: the places, then the main effects, [place][row], padded against bank
// conflicts.
struct MatrixShared {
  static constexpr int kStride = kMatrixRows + 1;
  static constexpr size_t bytes(size_t n_places, size_t n_used) {
    return sizeof(double) * (n_places + n_used) * kStride;
  }
  static __device__ __forceinline__ double& at(int place, int row) {
    return shared_memory<double>()[place * kStride + row];
  }
};

template <class T, class Out, int kTile>
__global__ void __launch_bounds__(256) add_matrices(CudaSumArgs a, CudaMatrixArgs m) {
  constexpr int kParts = kTile / kMatrixRows;
  const int64_t tile = blockIdx.x / kParts;
  const int part = blockIdx.x % kParts, output = blockIdx.y;
  const T* partial = static_cast<const T*>(a.partial) + tile * a.n_slots * kTile + part * kMatrixRows;
  for (int i = threadIdx.x; i < a.n_places * kMatrixRows; i += blockDim.x) {
    const int place = i / kMatrixRows, row = i % kMatrixRows;
    const int64_t column = static_cast<int64_t>(output) * a.n_places + place;
    double sum = 0;
    for (int64_t p = a.part_offsets[column]; p < a.part_offsets[column + 1]; ++p)
      sum += static_cast<double>(partial[static_cast<int64_t>(a.parts[p]) * kTile + row]);
    MatrixShared::at(place, row) = sum * (place < a.n_undoubled ? a.scale : a.scale / 2);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < a.n_undoubled * kMatrixRows; i += blockDim.x) {
    const int used = i / kMatrixRows, row = i % kMatrixRows;
    double main = MatrixShared::at(used, row);
    if (m.subtract)
      for (int64_t p = m.partner_offsets[used]; p < m.partner_offsets[used + 1]; ++p)
        main -= MatrixShared::at(m.partners[p].place, row);
    MatrixShared::at(a.n_places + used, row) = main;
  }
  __syncthreads();
  const int64_t first = tile * kTile + part * kMatrixRows, n_remaining = a.n_rows - first;
  const int n_rows = n_remaining < kMatrixRows ? static_cast<int>(n_remaining) : kMatrixRows;
  const int n_features = a.n_features, size = n_features * n_features;
  for (int row = threadIdx.x / 32; row < n_rows; row += blockDim.x / 32) {
    const int64_t matrix = (first + row) * a.n_outputs + output;
    Out* values = static_cast<Out*>(m.values) + matrix * n_features;
    for (int f = threadIdx.x % 32; f < n_features; f += 32) {
      const int place = m.place_of[f * (n_features + 1)];
      values[f] = place < 0 ? Out(0) : static_cast<Out>(MatrixShared::at(place - a.n_places, row));
    }
    Out* out = static_cast<Out*>(m.matrices) + matrix * size;
    for (int i = threadIdx.x % 32; i < size; i += 32) {
      const int place = m.place_of[i];
      out[i] = place < 0 ? Out(0) : static_cast<Out>(MatrixShared::at(place, row));
    }
  }
}

template <class Out>
__global__ void __launch_bounds__(256) write_sets(CudaMatrixArgs a) {
  const int64_t n_sets = a.n_places - a.n_used, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < a.n * n_sets; i += step)
    static_cast<Out*>(a.sets)[i] = static_cast<Out>(a.sums[i / n_sets * a.n_places + a.n_used + i % n_sets]);
}

}  // namespace skshap
