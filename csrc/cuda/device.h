// The current device, and what its kernels may use.
#pragma once

#include <algorithm>

#include "cuda/memory.h"

namespace skshap {

struct DeviceLimits {
  int multiprocessors;
  size_t shared;  // the most shared memory of a block
};

inline DeviceLimits device_limits() {
  int device = 0, multiprocessors = 0, shared = 0;
  check(cudaGetDevice(&device), "no current device");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "device attribute");
  check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "device attribute");
  return {multiprocessors, static_cast<size_t>(shared)};
}

constexpr const char* kCannotRun = "this device cannot run the kernels";

// Allow a kernel this much shared memory for a block: all that there is. The limit belongs to the kernel, not
// to a launch. If it were the limit of one model, launches for another model that needs more would fail.
template <class Kernel>
void allow_shared(Kernel kernel, size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        kCannotRun);
}

// Return the number of blocks that a multiprocessor runs at a time, but at least 1.
template <class Kernel>
int blocks_at_a_time(Kernel kernel, int n_threads, size_t shared) {
  int blocks = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, n_threads, shared), kCannotRun);
  return std::max(blocks, 1);
}

}  // namespace skshap
