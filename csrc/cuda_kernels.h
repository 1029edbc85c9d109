// Kernels of the device pipeline, launched by cuda.cu: codes, walk, margin, sums.
#pragma once

#include <cuda_runtime.h>

#include "cuda_walk.cuh"

namespace skshap {

// Rows of a lane, and of a tile.
template <class T>
constexpr int cuda_lane_rows() {
  return sizeof(T) == 4 ? 2 : 1;
}
template <class T>
constexpr int cuda_tile_rows() {
  return cuda_lane_rows<T>() * kWarp;
}

// Threads of a block of the walk; each of its warps has a tile.
constexpr int kBlockThreads = 128, kBlockTiles = kBlockThreads / kWarp;

// How a walk is launched for one K.
template <class T>
struct WalkKernel {
  void (*kernel)(CudaWalkArgs<T>);
  int n_frames;  // in registers
};
template <class T>
WalkKernel<T> walk_kernel(int n_nodes, bool shared);

}  // namespace skshap
