// The GPU half of the core, as the bindings see it: no CUDA types.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace skshap {

// A CUDA call failed; the message is one sentence for users.
struct CudaError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The device has too little memory.
struct CudaMemoryError : CudaError {
  using CudaError::CudaError;
};

struct CudaDevice {
  int index;
  std::string name;
  int major, minor, multiprocessors;
  size_t memory;
};

// Devices that the kernels can run on; throws CudaError that says why there are none.
std::vector<CudaDevice> cuda_devices();
int cuda_driver_version();   // 0: no driver
int cuda_runtime_version();  // that this was built with

// Memory of devices, and page-locked memory, that this module holds now.
size_t cuda_allocated_bytes();

// What a call fills. The arrays lie on the device for explain_device, which gives no margin, else on the
// host.
struct CudaResult {
  Result values;
  double* gap;  // host, or null: for each output the largest |base + sum of values - margin|
};

// What numbers mean in rows on the device (rows from the host have been checked and have NaN), and what was
// found there.
struct CudaInput {
  double missing;        // means missing, besides NaN
  bool allow_nan;        // else missing values are refused
  double limit;          // magnitudes from here on are refused, unless NaN
  int64_t refused = -1;  // the first such value, as row * n_features + feature; the result is void then

  bool refuses() const { return !allow_nan || limit == limit; }
};

// A plan uploaded to one device. Safe to use from several threads: calls on it wait for each other.
class CudaPlan {
 public:
  // `gputreeshap`: by that paper's own method instead of the quadrature.
  CudaPlan(const Plan& plan, int device, bool gputreeshap);
  ~CudaPlan();
  CudaPlan(const CudaPlan&) = delete;
  CudaPlan& operator=(const CudaPlan&) = delete;

  // Rows and result on the host. `memory_limit`: device bytes for a call's buffers, 0 for a part of
  // what is free. Returns whether it was completed, as skshap::explain.
  bool explain(const Rows& rows, const CudaResult& result, size_t memory_limit,
               const std::function<bool()>& interrupted);
  // Rows and result on the device, in the order of `stream`; returns when all work is queued and the rows are
  // checked, or, if a gap is asked for, done.
  bool explain_device(const Rows& rows, CudaInput& input, const CudaResult& result, size_t memory_limit,
                      uintptr_t stream, const std::function<bool()>& interrupted);

  const Plan& plan() const { return plan_; }

  class Impl;  // for one precision

 private:
  const Plan& plan_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skshap
