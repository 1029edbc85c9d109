// The dynamic shared memory of a block. Each kernel that uses it has a type for its layout, from which the
// host has the bytes to request, and the device the place of each part.
#pragma once

#include "cuda/lanes.cuh"

namespace skshap {

// Return where it begins.
template <class X>
__device__ __forceinline__ X* shared_memory() {
  extern __shared__ __align__(128) char block_memory[];
  return reinterpret_cast<X*>(block_memory);
}

// The sums of the slots of a chunk: [warp][slot][lane].
template <class T>
struct WarpSums {
  static constexpr size_t bytes(int n_warps, size_t n_slots) { return sizeof(T) * n_warps * n_slots * kWarp; }
  static __device__ __forceinline__ T* of(int warp, uint32_t n_slots) {
    return shared_memory<T>() + warp * n_slots * kWarp;
  }
};

}  // namespace skshap
