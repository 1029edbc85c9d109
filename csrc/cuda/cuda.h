// The GPU half of the core, in the form that the bindings see: without CUDA types.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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
// Return the compute capabilities (major, minor) for which the kernels are compiled.
std::vector<std::pair<int, int>> cuda_compute_capabilities();

// Return the bytes of device memory and page-locked memory that this module holds now.
size_t cuda_allocated_bytes();

// The arrays that a call fills. They are on the host. For explain_device, they are on the device, but the
// margin is on the host.
struct CudaResult {
  Result values;
  double* gap = nullptr;  // on the host, or null: of each output the largest |base + sum of values - margin|
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

struct RescaledTables;

// A plan uploaded to one device. Several threads may use it: calls on it wait for each other.
class CudaPlan {
 public:
  // Upload a plan that is explained by a method: "chunks" for many rows, "small_chunks" for few rows,
  // "leaves" for very few rows if the plan allows it (cuda/program/leaves.h), or one that has registered
  // itself.
  CudaPlan(const Plan& plan, int device, const std::string& method);
  // Take over a plan and upload it. Drop the contents of its tables and the patterns, which may be large,
  // from host memory.
  CudaPlan(Plan&& plan, int device);
  // Upload the tables of rescaled outputs.
  CudaPlan(const RescaledTables& tables, int device);
  ~CudaPlan();
  CudaPlan(const CudaPlan&) = delete;
  CudaPlan& operator=(const CudaPlan&) = delete;

  // Explain rows on the host, with the result on the host. `labels` are those of the rows, or null.
  // `memory_limit` is the number of device bytes for a call's buffers; 0 allows a part of the free memory.
  // Return whether the work was completed, like skshap::explain.
  bool explain(const Rows& rows, const double* labels, const CudaResult& result, size_t memory_limit,
               const std::function<bool()>& interrupted);
  // Explain rows on the device, with the values on the device, but labels on the host. The work is queued in
  // `stream`. Return when all work is queued and the rows are checked or, if a margin or a gap is requested,
  // when all work is done.
  bool explain_device(const Rows& rows, CudaInput& input, const double* labels, const CudaResult& result,
                      size_t memory_limit, uintptr_t stream, const std::function<bool()>& interrupted);

  const Plan& plan() const;
  bool has_labels() const;

  class Pipeline;

 private:
  std::unique_ptr<Plan> own_;  // or null
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace skshap
