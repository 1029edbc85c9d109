// SHAP values of few rows. A thread takes a leaf, and a block takes the leaves of a chunk for one row.
//
// For each feature of the path, let a_k = z (1 - t_k) + o t_k, and let P_k be w_k v times the product of
// these a_k. The value of a feature is the sum over k of P_k (o - z) / a_k. For features that the row
// satisfies, the terms are P_k (1 - z) / a_k. For all other features, they are -P_k / (1 - t_k), which is the
// same for all of them. If z = o = 0, then P is 0, too.
//
// The sums over the leaves are added up in a fixed order, by lists of the elements of each feature.
#pragma once

#include "cuda/program/program.h"
#include "cuda/shared_memory.cuh"

namespace skshap {

template <class T>
struct CudaLeafArgs {
  const CudaLeafChunk* chunks;  // those of the launch
  const CudaLeafTest* tests;
  const T* zero_fractions;
  const T* values;
  const uint32_t* slot_begins;
  const uint16_t* slot_elements;
  const uint32_t* category_bits;
  int32_t n_columns;
  uint32_t n_slots;      // of all chunks
  const int16_t* codes;  // [tile][column][row of the tile]
  T* partial;            // [tile][slot][row of the tile]
  T t[kMaxFixedNodes], weight[kMaxFixedNodes];
};

// The shared memory of a block: the contribution of each element to its feature, [element][leaf].
template <class T>
struct LeafShared {
  static constexpr size_t bytes(uint32_t length) { return sizeof(T) * length * kChunkOfLeaves; }
  static __device__ __forceinline__ T* contributions() { return shared_memory<T>(); }
};

// Return whether a row with these codes satisfies a test. The columns of the codes are `stride` apart.
__device__ __forceinline__ bool satisfies(const uint16_t* codes, int stride, const CudaLeafTest& test,
                                          const uint32_t* category_bits) {
  const uint32_t code = codes[(test.columns & 0xffff) * stride], set_column = test.columns >> 16;
  bool passes = code >= (test.bounds & 0xffff) && code < test.bounds >> 16;
  if (code == 0xffff) passes = test.set & kMissingPasses;
  if (set_column == kNoSetColumn) return passes;
  const uint32_t category = codes[set_column * stride];
  return passes && category_bits[(test.set & ~kMissingPasses) + (category >> 5)] >> (category & 31) & 1;
}

template <class T, int K>
__global__ void __launch_bounds__(kChunkOfLeaves) explain_leaves(const __grid_constant__ CudaLeafArgs<T> a) {
  constexpr int kTile = cuda_tile_rows<T>();
  T* const contributions = LeafShared<T>::contributions();
  const CudaLeafChunk chunk = a.chunks[blockIdx.x];
  const int64_t tile = blockIdx.y / kTile;
  const int row = blockIdx.y % kTile;
  const uint16_t* const codes = reinterpret_cast<const uint16_t*>(a.codes) + tile * a.n_columns * kTile + row;
  const CudaLeafTest* const tests = a.tests + chunk.elements + threadIdx.x;
  const T* const zero_fractions = a.zero_fractions + chunk.elements + threadIdx.x;

  T P[K];
  const T value = a.values[chunk.values + threadIdx.x];
#pragma unroll
  for (int k = 0; k < K; ++k) P[k] = a.weight[k] * value;
  uint32_t ones = 0;
  for (uint32_t i = 0; i < chunk.length; ++i) {
    const uint4 words = __ldg(reinterpret_cast<const uint4*>(tests + i * kChunkOfLeaves));
    const bool one = satisfies(codes, kTile, {words.x, words.y, words.z, 0}, a.category_bits);
    const T z = __ldg(zero_fractions + i * kChunkOfLeaves);
    ones |= static_cast<uint32_t>(one) << i;
#pragma unroll
    for (int k = 0; k < K; ++k) P[k] *= multiply_add(z, T(1) - a.t[k], one ? a.t[k] : T(0));
  }
  T off = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) off -= P[k] / (T(1) - a.t[k]);
  for (uint32_t i = 0; i < chunk.length; ++i) {
    const T z = __ldg(zero_fractions + i * kChunkOfLeaves);
    T on = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) on += P[k] / multiply_add(z, T(1) - a.t[k], a.t[k]);
    contributions[i * kChunkOfLeaves + threadIdx.x] = ones >> i & 1 ? on * (T(1) - z) : off;
  }
  __syncthreads();

  const int lane = threadIdx.x % kWarp;
  for (uint32_t slot = threadIdx.x / kWarp; slot < chunk.n_slots; slot += kChunkOfLeaves / kWarp) {
    const uint32_t* const begin = a.slot_begins + chunk.slot_begins + slot;
    T sum = 0;
    for (uint32_t i = begin[0] + lane; i < begin[1]; i += kWarp) sum += contributions[a.slot_elements[i]];
    for (int offset = kWarp / 2; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    if (lane == 0) a.partial[(tile * a.n_slots + chunk.first_slot + slot) * kTile + row] = sum;
  }
}

template <class T>
using LeafKernel = void (*)(CudaLeafArgs<T>);

// Return the kernel for a number of quadrature nodes.
template <class T>
LeafKernel<T> leaf_kernel(int n_nodes);

}  // namespace skshap
