// The walk in its general form on a device.
#pragma once

#include <algorithm>

#include "cuda/general.cuh"
#include "cuda/method_model.cuh"
#include "cuda/program/tuning.h"

namespace skshap {

template <class T>
class GeneralModel : public MethodModel<T> {
 public:
  explicit GeneralModel(const MethodContext<T>& context)
      : kernel_(context.plan.order < 3 ? walk_general<T, false> : walk_general<T, true>) {
    const CudaProgram<T>& program = context.program;
    const std::vector<int32_t> list = list_chunks(program, -1);
    n_chunks_ = static_cast<int>(list.size());
    args_ = CudaGeneralArgs<T>{.stream = context.stream,
                               .chunks = context.chunks,
                               .chunk_list = arrays_.upload(list),
                               .n_columns = context.n_columns,
                               .n_slots = context.n_slots,
                               .pairs = context.plan.interactions(),
                               .category_bits = context.category_bits};
    for (const int32_t i : list) {
      const CudaChunk& chunk = program.chunks[i];
      const size_t n_outputs = chunk.output < 0 ? context.plan.n_outputs : 1,
                   height = static_cast<size_t>(program.stream[chunk.begin + 2]);
      args_.warp_memory =
          std::max(args_.warp_memory, kWarp * general_elements(chunk.n_nodes, n_outputs, height));
    }
    const size_t block_bytes = kGeneralWarps * sizeof(T) * args_.warp_memory;
    n_blocks_ = static_cast<int>(std::clamp<size_t>(
        kGeneralBytes / block_bytes, 1, static_cast<size_t>(16) * context.device.multiprocessors));
    this->frame_bytes = block_bytes * n_blocks_;
    this->n_counters = 1;
  }

  void run(const CodedRows<T>& rows, cudaStream_t s) const override {
    CudaGeneralArgs<T> a = args_;
    a.n_tiles = rows.n_tiles;
    a.n_tasks = rows.n_tiles * n_chunks_;
    a.codes = rows.codes;
    a.partial = rows.partial;
    a.memory = static_cast<T*>(rows.frames);
    a.next_task = rows.counters;
    const int n_blocks = std::min(n_blocks_, (a.n_tasks + kGeneralWarps - 1) / kGeneralWarps);
    kernel_<<<n_blocks, kGeneralWarps * kWarp, 0, s>>>(a);
    check_launch("walking the trees");
  }

 private:
  void (*const kernel_)(CudaGeneralArgs<T>);
  DeviceArrays arrays_;
  CudaGeneralArgs<T> args_{};
  int n_chunks_ = 0, n_blocks_ = 0;
};

}  // namespace skshap
