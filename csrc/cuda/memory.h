// Owners of CUDA resources: device memory, page-locked memory, streams. They turn CUDA's errors into
// exceptions.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "cuda/cuda.h"

namespace skshap {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // so that the next call does not report this error
  const std::string message = std::string("CUDA: ") + what + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) throw CudaMemoryError(message);
  throw CudaError(message);
}
// Ignore the error of a call that no caller could act upon: where memory is freed, or another error is thrown
// already. The next call must not report it. An error of the device itself comes back with every call.
inline void ignore(cudaError_t error) noexcept {
  if (error != cudaSuccess) cudaGetLastError();
}
inline void check_launch(const char* what) { check(cudaGetLastError(), what); }

class UseDevice {
 public:
  explicit UseDevice(int device) {
    check(cudaGetDevice(&before_), "no current device");
    check(cudaSetDevice(device), "cannot use the device");
  }
  ~UseDevice() { ignore(cudaSetDevice(before_)); }

 private:
  int before_ = 0;
};

inline std::atomic<size_t> cuda_allocated{0};

// Memory of the device, or page-locked memory of the host. It grows and never shrinks.
template <bool kHost>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept : data_(other.data_), size_(other.size_) {
    other.data_ = nullptr, other.size_ = 0;
  }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() { release(); }
  bool holds(size_t size) const { return size <= size_; }
  void reserve(size_t size, const char* what) {
    if (holds(size)) return;
    release();
    check(kHost ? cudaMallocHost(&data_, size) : cudaMalloc(&data_, size), what);
    size_ = size;
    cuda_allocated += size;
  }
  template <class X>
  X* as() const {
    return static_cast<X*>(data_);
  }

 private:
  void release() {
    if (data_) ignore(kHost ? cudaFreeHost(data_) : cudaFree(data_));
    cuda_allocated -= size_;
    data_ = nullptr;
    size_ = 0;
  }
  void* data_ = nullptr;
  size_t size_ = 0;
};
using DeviceBuffer = Buffer<false>;
using HostBuffer = Buffer<true>;

constexpr const char *kNoModelRoom = "the model does not fit the device's memory",
                     *kCopyingModel = "copying the model";

template <class X>
DeviceBuffer upload(const std::vector<X>& x) {
  DeviceBuffer buffer;
  buffer.reserve(x.size() * sizeof(X), kNoModelRoom);
  if (x.empty()) return buffer;
  check(cudaMemcpy(buffer.as<X>(), x.data(), x.size() * sizeof(X), cudaMemcpyHostToDevice), kCopyingModel);
  // A copy from pageable memory may return before it is complete, and other streams do not wait for it.
  check(cudaStreamSynchronize(nullptr), kCopyingModel);
  return buffer;
}

// Lists on the device, one after another: where each list begins in their elements, with the end of the last
// one, and the elements.
template <class X>
struct DeviceLists {
  const int64_t* offsets;
  const X* elements;
};

// The arrays of a model on the device, which do not change.
class DeviceArrays {
 public:
  // Upload an array. Return it on the device.
  template <class X>
  const X* upload(const std::vector<X>& x) {
    return buffers_.emplace_back(skshap::upload(x)).template as<X>();
  }

  template <class X>
  DeviceLists<X> upload_lists(const std::vector<std::vector<X>>& lists) {
    std::vector<int64_t> offsets{0};
    std::vector<X> elements;
    for (const std::vector<X>& list : lists) {
      elements.insert(elements.end(), list.begin(), list.end());
      offsets.push_back(static_cast<int64_t>(elements.size()));
    }
    return {upload(offsets), upload(elements)};
  }

 private:
  std::vector<DeviceBuffer> buffers_;
};

class Event {
 public:
  Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "creating an event"); }
  ~Event() { ignore(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  // Let the event happen when the work that is queued in the stream now is done.
  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "recording an event"); }
  // Let work that is queued in the stream after this call begin after the event.
  void delay(cudaStream_t stream) const {
    check(cudaStreamWaitEvent(stream, event_), "waiting for an event");
  }
  void wait(const char* what) const { check(cudaEventSynchronize(event_), what); }
  void wait() const noexcept { ignore(cudaEventSynchronize(event_)); }

 private:
  cudaEvent_t event_ = nullptr;
};

struct Stream {
  cudaStream_t stream = nullptr;
  Stream() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream"); }
  ~Stream() { ignore(cudaStreamDestroy(stream)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

}  // namespace skshap
