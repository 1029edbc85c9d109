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
  explicit LeafModel(const MethodContext<T>& context)
      : chunks_(upload(context.program.leaves.chunks)),
        tests_(upload(context.program.leaves.tests)),
        zero_fractions_(upload(context.program.leaves.zero_fractions)),
        values_(upload(context.program.leaves.values)),
        slot_begins_(upload(context.program.leaves.slot_begins)),
        slot_elements_(upload(context.program.leaves.slot_elements)),
        category_bits_(upload(context.program.leaves.category_bits)),
        n_columns_(context.n_columns),
        n_slots_(context.n_slots) {
    const std::vector<CudaLeafChunk>& chunks = context.program.leaves.chunks;
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (launches_.empty() || launches_.back().n_nodes != chunks[i].n_nodes)
        begin_launch(context, i, chunks[i].n_nodes);
      LeafLaunch& launch = launches_.back();
      ++launch.n_chunks;
      launch.shared = std::max(launch.shared, sizeof(T) * chunks[i].length * kChunkOfLeaves);
    }
  }

  void run(const CodedRows<T>& rows, cudaStream_t s) const override {
    constexpr int kTile = cuda_tile_rows<T>();
    for (const LeafLaunch& launch : launches_) {
      CudaLeafArgs<T> a = launch.args;
      for (int64_t first = 0; first < rows.n_rows; first += kMostLeafRows) {
        const int64_t tile = first / kTile;
        a.codes = rows.codes + tile * n_columns_ * kTile;
        a.partial = rows.partial + tile * n_slots_ * kTile;
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

  void begin_launch(const MethodContext<T>& context, size_t chunk, int n_nodes) {
    LeafLaunch launch{.args = {.chunks = chunks_.template as<CudaLeafChunk>() + chunk,
                               .tests = tests_.template as<CudaLeafTest>(),
                               .zero_fractions = zero_fractions_.template as<T>(),
                               .values = values_.template as<T>(),
                               .slot_begins = slot_begins_.template as<uint32_t>(),
                               .slot_elements = slot_elements_.template as<uint16_t>(),
                               .category_bits = category_bits_.template as<uint32_t>(),
                               .n_columns = n_columns_,
                               .n_slots = n_slots_},
                      .n_chunks = 0,
                      .n_nodes = n_nodes,
                      .shared = 0};
    std::vector<double> t, weights;
    quadrature(context.plan.index, n_nodes, t, weights);
    for (int k = 0; k < n_nodes; ++k) {
      launch.args.t[k] = static_cast<T>(t[k]);
      launch.args.weight[k] = static_cast<T>(weights[k]);
    }
    allow_shared(leaf_kernel<T>(n_nodes), context.max_shared());
    launches_.push_back(launch);
  }

  DeviceBuffer chunks_, tests_, zero_fractions_, values_, slot_begins_, slot_elements_, category_bits_;
  const int32_t n_columns_;
  const uint32_t n_slots_;
  std::vector<LeafLaunch> launches_;
};

}  // namespace skshap
