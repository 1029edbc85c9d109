// Leaves for Owen values on a device: the data that are the same in all calls, and the launches.
#pragma once

#include <algorithm>

#include "cuda/method_model.cuh"
#include "cuda/owen_leaves.cuh"
#include "cuda/program/tuning.h"
#include "plan/quadrature.h"

namespace skshap {

template <class T>
class OwenModel : public MethodModel<T> {
 public:
  explicit OwenModel(const MethodContext<T>& context) : multiprocessors_(context.device.multiprocessors) {
    const CudaOwenLeaves<T>& from = context.program.owen_leaves;
    const size_t max_shared = context.max_shared();
    if (max_shared < kLeastShared)
      throw std::invalid_argument("tables for Owen values do not fit the shared memory of this GPU");
    n_chunks_ = static_cast<int32_t>(from.chunks.size());
    CudaOwenArgs<T>& a = args_;
    a = CudaOwenArgs<T>{.chunks = arrays_.upload(from.chunks),
                        .stream = arrays_.upload(from.stream),
                        .stages = arrays_.upload(from.stages),
                        .category_bits = context.category_bits,
                        .n_columns = context.n_columns,
                        .n_slots = context.n_slots,
                        .n_postponed = static_cast<uint32_t>(from.most_postponed)};
    for (const CudaOwenChunk& chunk : from.chunks) a.max_slots = std::max(a.max_slots, chunk.n_slots);
    for (int n_nodes = 1; n_nodes <= kMostOwenNodes; ++n_nodes) {
      std::vector<double> t, weights;
      quadrature(Index::kShapley, n_nodes, t, weights);
      std::transform(t.begin(), t.end(), a.t[n_nodes], [](double x) { return static_cast<T>(x); });
      std::transform(weights.begin(), weights.end(), a.weight[n_nodes],
                     [](double x) { return static_cast<T>(x); });
    }
    const auto most_warps = [&](bool shared) {
      const size_t most = (max_shared - sizeof(OwenShared<T>)) / owen_warp(a, shared).bytes();
      return static_cast<int>(std::min<size_t>(most, owen_warps<T>()));
    };
    const bool shared = most_warps(true) >= kLeastOwenWarps;
    n_warps_ = most_warps(shared);
    kernel_ = owen_kernel<T>(shared);
    shared_ = OwenShared<T>::bytes(n_warps_, owen_warp(a, shared));
    allow_shared(kernel_, max_shared);
  }

  void run(const CodedRows<T>& rows, cudaStream_t stream) const override {
    const int32_t n_tiles = rows.n_tiles;
    CudaOwenArgs<T> a = args_;
    a.n_tiles = n_tiles;
    // Few rows are divided among all multiprocessors.
    const int64_t n = (static_cast<int64_t>(n_tiles) * n_chunks_ + multiprocessors_ - 1) / multiprocessors_;
    a.block_tiles = static_cast<int32_t>(std::clamp<int64_t>(n, 1, n_warps_));
    a.n_groups = (n_tiles + a.block_tiles - 1) / a.block_tiles;
    a.codes = rows.codes;
    a.partial = rows.partial;
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
  static constexpr size_t kLeastShared = OwenShared<T>::bytes(1, {0, kMostPostponed, 0});
  static_assert(kLeastShared <= 2 * kLeastStageBytes, "GPUs that hold tables by intervals hold these, too");

  DeviceArrays arrays_;
  CudaOwenArgs<T> args_{};
  OwenKernel<T> kernel_ = nullptr;
  int32_t n_chunks_ = 0;
  const int multiprocessors_;
  int n_warps_ = 0;
  size_t shared_ = 0;
};

}  // namespace skshap
