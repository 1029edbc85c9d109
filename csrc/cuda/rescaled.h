// Rescaled values on a GPU, as the bindings see them: no CUDA types.
#pragma once

#include <functional>
#include <memory>

#include "background/rescaled_tables.h"
#include "cuda/cuda.h"

namespace skshap {

// The tables of background/rescaled_tables.h, uploaded to one device. Safe to use from several threads: calls
// on it wait for each other.
class CudaRescaledPlan {
 public:
  CudaRescaledPlan(const RescaledTables& tables, int device);
  ~CudaRescaledPlan();
  CudaRescaledPlan(const CudaRescaledPlan&) = delete;
  CudaRescaledPlan& operator=(const CudaRescaledPlan&) = delete;

  // Explain rows on the host like explain_rescaled(). `memory_limit`: device bytes for a call's buffers;
  // 0 allows a part of the free memory.
  bool explain(const Rows& rows, const double* labels, const Result& result, size_t memory_limit,
               const std::function<bool()>& interrupted);

  // Explain rows on the device; the values of the result are there, too, but labels and margins on the host.
  // Work that is queued in `stream` comes first. Return when the values are there.
  bool explain_device(const Rows& rows, CudaInput& input, const double* labels, const Result& result,
                      size_t memory_limit, uintptr_t stream, const std::function<bool()>& interrupted);

  const Plan& plan() const;
  bool has_labels() const;
  size_t table_bytes() const;  // on the device

  class Impl;  // for one precision

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace skshap
