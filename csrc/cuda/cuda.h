// The GPU half of the core, in the form that the bindings see: without CUDA types.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/program/method.h"
#include "plan/plan.h"

namespace skshap {

// An error of a CUDA call. The message is one sentence for users.
struct CudaError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The error raised if the device has too little memory.
struct CudaMemoryError : CudaError {
  using CudaError::CudaError;
};

struct CudaDevice {
  int index;
  std::string name;
  int major, minor, multiprocessors;
  size_t memory;
  bool holds_tables;  // whether its shared memory holds tables by intervals and tables for Owen values
};

// Return the devices on which the kernels can run. If there are none, throw a CudaError that says why.
std::vector<CudaDevice> cuda_devices();
int cuda_driver_version();   // 0: no driver
int cuda_runtime_version();  // of the build

// Return the bytes of device memory and page-locked memory that this module holds now.
size_t cuda_allocated_bytes();

// The arrays that a call fills. They are on the host. For explain_device, they are on the device, and there
// is no margin.
struct CudaResult {
  Result values;
  double* gap;  // on the host, or null: for each output the largest |base + sum of values - margin|
};

// The rules for reading and checking numbers in rows on the device, and the result of the check. Rows from
// the host have been checked before, and have NaN for missing values.
struct CudaInput {
  double missing;        // a number that means missing, besides NaN
  bool allow_nan;        // otherwise missing values are rejected
  double limit;          // numbers of this magnitude or more are rejected; NaN: no limit
  int64_t refused = -1;  // first rejected number, as row * n_features + feature; then values are invalid

  bool refuses() const { return !allow_nan || limit == limit; }
};

// A plan uploaded to one device. Several threads may use it: calls on it wait for each other.
class CudaPlan {
 public:
  CudaPlan(const Plan& plan, int device, CudaMethod method);
  // Take over a plan and upload it. Drop the contents of its tables and the patterns, which may be large,
  // from host memory.
  CudaPlan(Plan&& plan, int device);
  ~CudaPlan();
  CudaPlan(const CudaPlan&) = delete;
  CudaPlan& operator=(const CudaPlan&) = delete;

  // Explain rows on the host, with the result on the host. `memory_limit` is the number of device bytes for a
  // call's buffers; 0 allows a part of the free memory. Return whether the work was completed, like
  // skshap::explain.
  bool explain(const Rows& rows, const CudaResult& result, size_t memory_limit,
               const std::function<bool()>& interrupted);
  // Explain rows on the device, with the result on the device. The work is queued in `stream`. Return when
  // all work is queued and the rows are checked or, if a gap is requested, when all work is done.
  bool explain_device(const Rows& rows, CudaInput& input, const CudaResult& result, size_t memory_limit,
                      uintptr_t stream, const std::function<bool()>& interrupted);

  const Plan& plan() const { return plan_; }

  class Impl;  // for one precision

 private:
  void upload(int device, CudaMethod method);

  std::unique_ptr<Plan> own_;  // or null
  const Plan& plan_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skshap
