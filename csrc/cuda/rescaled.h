// Rescaled values on a GPU, in the form that the bindings see: without CUDA types.
#pragma once

#include <functional>
#include <memory>

#include "background/rescaled_tables.h"
#include "cuda/cuda.h"

namespace skshap {

// The tables of background/rescaled_tables.h, uploaded to one device. Several threads may use them: calls
// wait for each other.
class CudaRescaledPlan {
 public:
  CudaRescaledPlan(const RescaledTables& tables, int device);
  ~CudaRescaledPlan();
  CudaRescaledPlan(const CudaRescaledPlan&) = delete;
  CudaRescaledPlan& operator=(const CudaRescaledPlan&) = delete;

  // Explain rows on the host like explain_rescaled(). `memory_limit` is the number of device bytes for a
  // call's buffers; 0 allows a part of the free memory.
  bool explain(const Rows& rows, const double* labels, const Result& result, size_t memory_limit,
               const std::function<bool()>& interrupted);

  // Explain rows on the device. The values are on the device, too, but labels and margins are on the host.
  // Work that is queued in `stream` before comes first. Return when the values are complete.
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
