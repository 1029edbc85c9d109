// The kernels of the walk, which cuda/walk_model.cuh launches.
#pragma once

#include <cuda_runtime.h>

#include "cuda/walk.cuh"

namespace skshap {

// The walk for one K. Each warp of a block has a tile. If there are enough rows, all warps of a
// multiprocessor are in one block, with as many threads as registers allow. So the warps stay at the same
// operations, and thus at the same code.
template <class T>
struct WalkKernel {
  void (*kernel)(CudaWalkArgs<T>);
  int n_threads;  // the most of a block
};
template <class T, int K, bool kPairs, int kThreads>
WalkKernel<T> walk_with(bool shared) {
  constexpr int R = cuda_lane_rows<T>();
  if (shared) return {walk<T, K, R, kCudaRegisterFrames, kPairs, true, kThreads>, kThreads};
  return {walk<T, K, R, kCudaRegisterFrames, kPairs, false, kThreads>, kThreads};
}

// The walk for triples.
template <class T, int K, int kThreads>
WalkKernel<T> triples_with() {
  return {walk<T, K, cuda_lane_rows<T>(), kCudaRegisterFrames, true, true, kThreads, true>, kThreads};
}

template <class T>
WalkKernel<T> walk_kernel(int n_nodes, bool shared);
// Return the kernel for plans with interactions.
template <class T>
WalkKernel<T> pairs_kernel(int n_nodes, bool shared);
// Return the kernel for plans with triples.
template <class T>
WalkKernel<T> triples_kernel(int n_nodes);

}  // namespace skshap
