// The walk on a device. All chunks with the same quadrature are a launch.
#pragma once

#include <algorithm>
#include <vector>

#include "cuda/method_model.cuh"
#include "cuda/walk.cuh"
#include "plan/quadrature.h"

namespace skshap {

template <class T>
class WalkModel : public MethodModel<T> {
 public:
  explicit WalkModel(const MethodContext<T>& context)
      : multiprocessors_(context.device.multiprocessors),
        category_sets_(arrays_.upload(context.program.category_sets)) {
    const std::vector<CudaQuadrature>& quadratures = context.program.quadratures;
    for (size_t n_nodes = 1; n_nodes <= kMaxFixedNodes; ++n_nodes)
      for (size_t i = 0; i < quadratures.size(); ++i)
        if (quadratures[i].t.size() == n_nodes)
          plan_launch(context, quadratures[i], list_chunks(context.program, static_cast<int32_t>(i)));
    this->n_counters = static_cast<int>(launches_.size());
  }

  void run(const CodedRows<T>& rows, cudaStream_t s) const override {
    for (size_t i = 0; i < launches_.size(); ++i) {
      const WalkLaunch& launch = launches_[i];
      CudaWalkArgs<T> a = launch.args;
      a.n_tiles = rows.n_tiles;
      const int n_warps = launch.n_warps(rows.n_tiles, multiprocessors_);
      a.n_groups = (rows.n_tiles + n_warps - 1) / n_warps;
      a.n_tasks = a.n_groups * launch.n_chunks;
      a.codes = rows.codes;
      a.partial = rows.partial;
      a.frames = static_cast<T*>(rows.frames);
      a.next_task = rows.counters + i;
      const int n_blocks = std::min(launch.n_blocks[n_warps - 1], a.n_tasks);
      launch.kernel.kernel<<<n_blocks, n_warps * kWarp, launch.shared(n_warps), s>>>(a);
      check_launch("walking the trees");
    }
  }

 private:
  static constexpr int kTile = cuda_tile_rows<T>();

  struct WalkLaunch {
    CudaWalkArgs<T> args{};
    WalkKernel<T> kernel{};
    int n_chunks = 0;
    size_t shared_slots = 0;    // of each warp, in shared memory
    std::vector<int> n_blocks;  // that run at a time, by the number of warps of a block, from 1

    // Return the number of warps of a block, given the number of tiles. With few rows, the tiles are divided
    // among all multiprocessors.
    int n_warps(int32_t n_tiles, int multiprocessors) const {
      const int64_t n = (static_cast<int64_t>(n_tiles) * n_chunks + multiprocessors - 1) / multiprocessors,
                    most = std::min<int64_t>(static_cast<int64_t>(n_blocks.size()), n_tiles);
      return static_cast<int>(std::clamp<int64_t>(n, 1, most));
    }
    size_t shared(int n_warps) const { return WalkShared<T>::bytes(n_warps, shared_slots); }
  };

  void plan_launch(const MethodContext<T>& context, const CudaQuadrature& nodes,
                   const std::vector<int32_t>& list) {
    const Plan& plan = context.plan;
    const int n_nodes = static_cast<int>(nodes.t.size());
    uint32_t max_slots = 0, max_frames = 0;
    for (const int32_t i : list) {
      max_slots = std::max(max_slots, context.program.chunks[i].n_slots);
      max_frames = std::max(max_frames, context.program.chunks[i].n_frames);
    }
    WalkLaunch launch;
    const auto kernel = plan.order == 1   ? walk_kernel<T, 1>
                        : plan.order == 2 ? walk_kernel<T, 2>
                                          : walk_kernel<T, 3>;
    const WalkKernel<T> shared = kernel(n_nodes, true);
    const int most_warps = shared.n_threads / kWarp;
    const size_t shared_slots = std::min<size_t>(max_slots, (context.max_shared() - sizeof(WalkShared<T>)) /
                                                                (WalkShared<T>::warp_bytes(1) * most_warps));
    const bool in_shared = plan.order > 2 || shared_slots == max_slots;
    launch.kernel = in_shared ? shared : kernel(n_nodes, false);
    launch.shared_slots = in_shared ? shared_slots : 0;
    allow_shared(launch.kernel.kernel, context.max_shared());
    int most_running = 0;  // warps
    for (int n_warps = 1; n_warps <= most_warps; ++n_warps) {
      launch.n_blocks.push_back(
          blocks_at_a_time(launch.kernel.kernel, n_warps * kWarp, launch.shared(n_warps)) * multiprocessors_);
      most_running = std::max(most_running, launch.n_blocks.back() * n_warps);
    }
    launch.n_chunks = static_cast<int>(list.size());
    const int in_memory = std::max(0, static_cast<int>(max_frames) - kCudaRegisterFrames);
    launch.args = CudaWalkArgs<T>{.stream = context.stream,
                                  .chunks = context.chunks,
                                  .chunk_list = arrays_.upload(list),
                                  .n_columns = context.n_columns,
                                  .n_slots = context.n_slots,
                                  .max_slots = max_slots,
                                  .category_bits = context.category_bits,
                                  .category_sets = category_sets_,
                                  .warp_frames = in_memory * cuda_frame_elements(n_nodes) * kTile,
                                  .shared_slots = static_cast<uint32_t>(shared_slots)};
    CudaWalkArgs<T>& a = launch.args;
    this->frame_bytes = std::max(this->frame_bytes, sizeof(T) * a.warp_frames * most_running);
    const std::vector<double>& repeated = nodes.s.empty() ? nodes.t : nodes.s;
    for (int k = 0; k < n_nodes; ++k) {
      a.dead[k] = static_cast<T>(dead_lambda(plan.index, nodes.t[k]));
      a.t[k] = static_cast<T>(nodes.t[k]);
      a.weight[k] = static_cast<T>(nodes.weights[k]);
      a.tau[k] = static_cast<T>(1 / (repeated[k] * (1 - repeated[k])));
    }
    launches_.push_back(std::move(launch));
  }

  const int multiprocessors_;
  DeviceArrays arrays_;
  const uint32_t* const category_sets_;
  std::vector<WalkLaunch> launches_;
};

}  // namespace skshap
