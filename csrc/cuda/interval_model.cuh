// The tables by intervals on a device.
#pragma once

#include <algorithm>
#include <iterator>

#include "cuda/intervals.cuh"
#include "cuda/method_model.cuh"

namespace skshap {

template <class T>
class IntervalModel : public MethodModel<T> {
 public:
  explicit IntervalModel(const MethodContext<T>& context) : stream_(upload_stream(context)) {
    const CudaIntervals& from = context.program.intervals;
    std::copy(std::begin(from.n_parts), std::end(from.n_parts), n_parts_);
    const size_t stage_bytes = IntervalShared::stage_bytes(context.device.shared);
    shared_ = IntervalShared::bytes(stage_bytes);
    args_ = CudaIntervalArgs<T>{.parts = arrays_.upload(from.parts),
                                .columns = arrays_.upload(from.columns),
                                .targets = arrays_.upload(from.targets),
                                .stages = arrays_.upload(from.stages),
                                .stream = stream_.template as<char>(),
                                .stage_bytes = static_cast<uint32_t>(stage_bytes),
                                .n_columns = context.n_columns,
                                .n_slots = context.n_slots,
                                .n_sums = context.n_sums,
                                .first_sum = context.n_sums - static_cast<int32_t>(from.margins.size()),
                                .scale = context.plan.leaf_scale};
    for (size_t form = 0; form < std::size(kIntervalForms); ++form)
      for (const bool margins : {false, true})
        if (n_parts_[form])
          allow_shared(interval_kernel<T>(kIntervalForms[form], margins).kernel, context.max_shared());
  }

  void run(const CodedRows<T>& rows, cudaStream_t s) const override {
    CudaIntervalArgs<T> a = args_;
    a.n_rows = static_cast<int64_t>(rows.n_tiles) * cuda_tile_rows<T>();
    a.codes = rows.codes;
    a.partial = rows.partial;
    a.margins = rows.margin_sums;
    for (size_t form = 0; form < std::size(kIntervalForms); ++form) {
      const IntervalKernel<T> kernel = interval_kernel<T>(kIntervalForms[form], a.margins != nullptr);
      const dim3 grid(static_cast<unsigned>((a.n_rows + kernel.n_rows - 1) / kernel.n_rows),
                      static_cast<unsigned>(n_parts_[form]));
      if (!grid.y) continue;
      kernel.kernel<<<grid, kernel.n_threads, shared_, s>>>(a);
      check_launch("looking up values");
      a.parts += grid.y;
    }
  }

 private:
  // Write the stream to the device, piece by piece.
  static DeviceBuffer upload_stream(const MethodContext<T>& context) {
    DeviceBuffer buffer;
    buffer.reserve(context.program.intervals.stream_bytes, kNoModelRoom);
    char* to = buffer.template as<char>();
    write_intervals<T>(context.plan, context.program.intervals, [&](const char* piece, size_t bytes) {
      check(cudaMemcpy(to, piece, bytes, cudaMemcpyHostToDevice), kCopyingModel);
      to += bytes;
    });
    check(cudaStreamSynchronize(nullptr), kCopyingModel);  // see upload()
    return buffer;
  }

  DeviceArrays arrays_;
  const DeviceBuffer stream_;
  CudaIntervalArgs<T> args_{};
  size_t n_parts_[std::size(kIntervalForms)] = {};  // by form
  size_t shared_ = 0;
};

}  // namespace skshap
