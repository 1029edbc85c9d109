// The check of rows on the device for numbers that must be rejected.
#pragma once

#include "cuda/codes.cuh"
#include "cuda/memory.h"

namespace skshap {

// Check all columns of X, including the columns that no tree uses.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) find_refused(CudaCodeArgs a) {
  const int64_t n = a.n_rows * a.n_inputs, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const char* p =
        static_cast<const char*>(a.X) + i / a.n_inputs * a.row_stride + i % a.n_inputs * a.column_stride;
    a.check.look_at(a.x_single ? *reinterpret_cast<const float*>(p) : *reinterpret_cast<const double*>(p), i);
  }
}

// Performs one check at a time: start() it, launch the kernels that perform it, mark() it as queued, and
// finish() it.
class InputCheck {
 public:
  // Prepare the buffer that records rejected numbers, and the rules for the kernels.
  void start(const CudaInput& input, cudaStream_t stream) {
    if (!none_rejected_) {
      first_.reserve(8, "the rows of a batch do not fit the device's memory");
      any_rejected_.reserve(sizeof(int), "page-locked host memory");
      check(cudaMemsetAsync(first_.as<char>(), 0xff, 8, stream), kChecking);
    }
    none_rejected_ = false;
    auto* const any_rejected = any_rejected_.as<volatile int>();
    *any_rejected = 0;
    rules_ = {input.allow_nan, input.limit, input.missing, first_.as<unsigned long long>(), any_rejected};
  }
  const CudaCheck& rules() const { return rules_; }

  // Queue a check of all columns of X.
  void queue(const Rows& rows, int32_t n_inputs, int multiprocessors, cudaStream_t stream) {
    CudaCodeArgs a{};
    a.read(rows);
    a.n_inputs = n_inputs;
    a.check = rules_;
    find_refused<256><<<8 * multiprocessors, 256, 0, stream>>>(a);
    check_launch(kChecking);
    mark(stream);
  }

  // Let the check be complete when the work that is queued in the stream now is done.
  void mark(cudaStream_t stream) { checked_.record(stream); }

  // Wait for the check; return the position of the first rejected number, or -1.
  int64_t finish(cudaStream_t stream) {
    checked_.wait(kChecking);
    none_rejected_ = !*any_rejected_.as<volatile int>();
    if (none_rejected_) return -1;
    int64_t first = -1;
    check(cudaMemcpyAsync(&first, first_.as<char>(), 8, cudaMemcpyDeviceToHost, stream), kChecking);
    check(cudaStreamSynchronize(stream), kChecking);
    return first;
  }

 private:
  static constexpr const char* kChecking = "checking rows";

  DeviceBuffer first_;
  HostBuffer any_rejected_;
  CudaCheck rules_{};
  bool none_rejected_ = false;  // by the last check; if so, its buffers can be reused as they are
  Event checked_;
};

}  // namespace skshap
