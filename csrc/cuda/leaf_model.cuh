// The leaves of a model on a device, for few rows. They replace the walk.
#pragma once

#include <algorithm>
#include <vector>

#include "cuda/leaves.cuh"
#include "cuda/method_model.cuh"
#include "plan/quadrature.h"

namespace skshap {

template <class T>
class LeafModel : public MethodModel<T> {
 public:
  explicit LeafModel(const MethodContext<T>& context) {
    const CudaLeaves<T>& from = context.program.leaves;
    CudaLeafArgs<T> args{.chunks = arrays_.upload(from.chunks),
                         .tests = arrays_.upload(from.tests),
                         .zero_fractions = arrays_.upload(from.zero_fractions),
                         .values = arrays_.upload(from.values),
                         .slot_begins = arrays_.upload(from.slot_begins),
                         .slot_elements = arrays_.upload(from.slot_elements),
                         .category_bits = arrays_.upload(from.category_bits),
                         .n_columns = context.n_columns,
                         .n_slots = context.n_slots};
    for (const CudaLeafChunk& chunk : from.chunks) {
      if (launches_.empty() || launches_.back().n_nodes != chunk.n_nodes)
        begin_launch(context, args, chunk.n_nodes);
      LeafLaunch& launch = launches_.back();
      ++launch.n_chunks;
      launch.shared = std::max(launch.shared, LeafShared<T>::bytes(chunk.length));
      ++args.chunks;
    }
  }

  void run(const CodedRows<T>& rows, cudaStream_t s) const override {
    constexpr int kTile = cuda_tile_rows<T>();
    for (const LeafLaunch& launch : launches_) {
      CudaLeafArgs<T> a = launch.args;
      for (int64_t first = 0; first < rows.n_rows; first += kMostLeafRows) {
        const int64_t tile = first / kTile;
        a.codes = rows.codes + tile * a.n_columns * kTile;
        a.partial = rows.partial + tile * a.n_slots * kTile;
        const dim3 grid(launch.n_chunks, static_cast<unsigned>(std::min(kMostLeafRows, rows.n_rows - first)));
        leaf_kernel<T>(launch.n_nodes)<<<grid, kChunkOfLeaves, launch.shared, s>>>(a);
        check_launch("explaining the leaves");
      }
    }
  }

 private:
  // Consecutive chunks of the same number of quadrature nodes.
  struct LeafLaunch {
    CudaLeafArgs<T> args;
    unsigned n_chunks;
    int n_nodes;
    size_t shared;
  };

  void begin_launch(const MethodContext<T>& context, const CudaLeafArgs<T>& args, int n_nodes) {
    LeafLaunch launch{.args = args, .n_chunks = 0, .n_nodes = n_nodes, .shared = 0};
    std::vector<double> t, weights;
    quadrature(context.plan.index, n_nodes, t, weights);
    for (int k = 0; k < n_nodes; ++k) {
      launch.args.t[k] = static_cast<T>(t[k]);
      launch.args.weight[k] = static_cast<T>(weights[k]);
    }
    allow_shared(leaf_kernel<T>(n_nodes), context.max_shared());
    launches_.push_back(launch);
  }

  DeviceArrays arrays_;
  std::vector<LeafLaunch> launches_;
};

}  // namespace skshap
