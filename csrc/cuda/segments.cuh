// The stream of operations. The walks read it through shared memory, which is loaded one segment in advance.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "cuda/program/program.h"
#include "cuda/shared_memory.cuh"

namespace skshap {

// The shared memory of a walk: two segments, then the sums of the first slots of a chunk for each warp,
// [warp][slot][lane][R].
template <class T>
struct WalkShared {
  typename CudaProgram<T>::Element segments[2 * kCudaSegment];

  static constexpr size_t warp_bytes(size_t n_slots) { return sizeof(T) * cuda_tile_rows<T>() * n_slots; }
  static constexpr size_t bytes(int n_warps, size_t n_slots) {
    return sizeof(WalkShared) + n_warps * warp_bytes(n_slots);
  }
  __device__ __forceinline__ T* sums(int warp, uint32_t n_slots) {
    return reinterpret_cast<T*>(this + 1) + warp * n_slots * cuda_tile_rows<T>();
  }
};
template <class E>
__device__ __forceinline__ E* shared_segments() {
  return shared_memory<E>();
}

constexpr int padded(int n) { return (n + 3) / 4 * 4; }

// The stream of a chunk in shared memory. All threads of the block load it, one segment ahead of the current
// segment.
template <class E>
struct Segments {
  uint32_t next;      // the operation after the current one, among the elements of both segments
  const E* coming;    // the segment that is loaded next
  uint32_t n_coming;  // how many are still to be loaded

  __device__ __forceinline__ void start(const E* begin, uint32_t n_segments) {
    coming = begin;
    n_coming = n_segments;
    load(0);
    next = kCudaSegment;
    advance();
  }
  // Go to the next segment. All warps call this at the same operation, so none still reads the segment that
  // is overwritten.
  __device__ __forceinline__ void advance() {
    const uint32_t buffer = next < kCudaSegment ? 1 : 0;
    __pipeline_wait_prior(0);
    __syncthreads();
    load(buffer ^ 1);
    next = buffer * kCudaSegment;
  }

 private:
  __device__ __forceinline__ void load(uint32_t buffer) {
    if (n_coming) {
      constexpr int kPart = 16 / sizeof(E);
      for (int i = threadIdx.x * kPart; i < static_cast<int>(kCudaSegment); i += blockDim.x * kPart)
        __pipeline_memcpy_async(shared_segments<E>() + buffer * kCudaSegment + i, coming + i, 16);
      coming += kCudaSegment;
      --n_coming;
    }
    __pipeline_commit();
  }
};

// Take part in the loads and barriers of the block, for a warp without a tile. (Warps may reach one barrier
// at different places of the code.) The function is not inlined, because it would take registers from the
// walk.
template <class E>
__device__ __noinline__ void keep_up(const E* begin, uint32_t n_segments) {
  Segments<E> segments;
  segments.start(begin, n_segments);
  for (uint32_t i = 1; i < n_segments; ++i) segments.advance();
}

}  // namespace skshap
