// Leaves for Owen values on a device: the data that are the same in all calls, and the launches.
#pragma once

#include <algorithm>

#include "cuda/memory.h"
#include "cuda/owen_leaves.cuh"
#include "plan/quadrature.h"

namespace skshap {

template <class T>
class OwenModel {
 public:
  // Upload the leaves to the current device, whose blocks have at most `max_shared` bytes of shared memory.
  // `n_columns` and `n_slots` count the columns and slots of all kernels.
  void upload(const CudaOwenLeaves<T>& from, size_t max_shared, int multiprocessors, int32_t n_columns,
              uint32_t n_slots, const DeviceBuffer& category_bits) {
    if (from.chunks.empty()) return;
    if (max_shared < kOwenBlockBytes + owen_warp_bytes<T>(kMostPostponed, 0, 0, false))
      throw std::invalid_argument("tables for Owen values do not fit the shared memory of this GPU");
    multiprocessors_ = multiprocessors;
    n_chunks_ = static_cast<int32_t>(from.chunks.size());
    chunks_ = skshap::upload(from.chunks);
    stream_ = skshap::upload(from.stream);
    stages_ = skshap::upload(from.stages);
    CudaOwenArgs<T>& a = args_;
    a.chunks = chunks_.as<CudaOwenChunk>();
    a.stream = stream_.as<uint32_t>();
    a.stages = stages_.as<uint32_t>();
    a.category_bits = category_bits.as<uint32_t>();
    a.n_columns = n_columns;
    a.n_slots = n_slots;
    a.n_postponed = static_cast<uint32_t>(from.most_postponed);
    for (const CudaOwenChunk& chunk : from.chunks) a.max_slots = std::max(a.max_slots, chunk.n_slots);
    for (int n_nodes = 1; n_nodes <= kMostOwenNodes; ++n_nodes) {
      std::vector<double> t, weights;
      quadrature(Index::kShapley, n_nodes, t, weights);
      std::transform(t.begin(), t.end(), a.t[n_nodes], [](double x) { return static_cast<T>(x); });
      std::transform(weights.begin(), weights.end(), a.weight[n_nodes],
                     [](double x) { return static_cast<T>(x); });
    }
    const auto most_warps = [&](bool shared) {
      const size_t warp_bytes = owen_warp_bytes<T>(a.n_postponed, a.max_slots, n_columns, shared);
      return static_cast<int>(std::min<size_t>((max_shared - kOwenBlockBytes) / warp_bytes, owen_warps<T>()));
    };
    const bool shared = most_warps(true) >= kLeastWarps;
    n_warps_ = most_warps(shared);
    kernel_ = owen_kernel<T>(shared);
    shared_ = kOwenBlockBytes + n_warps_ * owen_warp_bytes<T>(a.n_postponed, a.max_slots, n_columns, shared);
    check(cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(max_shared)),
          "this device cannot run the kernels");
  }

  // Queue the work for coded rows.
  void run(const int16_t* codes, int32_t n_tiles, T* partial, cudaStream_t stream) const {
    if (!n_chunks_ || !n_tiles) return;
    CudaOwenArgs<T> a = args_;
    a.n_tiles = n_tiles;
    // Few rows are divided among all multiprocessors.
    const int64_t n = (static_cast<int64_t>(n_tiles) * n_chunks_ + multiprocessors_ - 1) / multiprocessors_;
    a.block_tiles = static_cast<int32_t>(std::clamp<int64_t>(n, 1, n_warps_));
    a.n_groups = (n_tiles + a.block_tiles - 1) / a.block_tiles;
    a.codes = codes;
    a.partial = partial;
    // Long jobs are divided, so that the number of tasks fits its type.
    const int32_t at_once = std::max(1, INT32_MAX / a.n_groups);
    for (int32_t first = 0; first < n_chunks_; first += at_once) {
      a.chunks = args_.chunks + first;
      a.n_tasks = a.n_groups * std::min(at_once, n_chunks_ - first);
      kernel_<<<std::min(multiprocessors_, a.n_tasks), n_warps_ * kWarp, shared_, stream>>>(a);
      check_launch("looking up Owen values");
    }
  }

 private:
  // If a block would have fewer warps than this, codes and phi are in the caches.
  static constexpr int kLeastWarps = 6;
  static_assert(kOwenBlockBytes + owen_warp_bytes<T>(kMostPostponed, 0, 0, false) <= 2 * kLeastStageBytes,
                "GPUs that hold tables by intervals hold these, too");

  DeviceBuffer chunks_, stream_, stages_;
  CudaOwenArgs<T> args_{};
  OwenKernel<T> kernel_ = nullptr;
  int32_t n_chunks_ = 0;
  int n_warps_ = 0, multiprocessors_ = 0;
  size_t shared_ = 0;
};

}  // namespace skshap
