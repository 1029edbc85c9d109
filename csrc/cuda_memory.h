// Owners of what CUDA gives: device memory, page-locked memory, streams; and its errors as exceptions.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "cuda.h"

namespace skshap {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // not left for the next call to find
  const std::string message = std::string("CUDA: ") + what + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) throw CudaMemoryError(message);
  throw CudaError(message);
}
inline void check_launch(const char* what) { check(cudaGetLastError(), what); }

class UseDevice {
 public:
  explicit UseDevice(int device) {
    check(cudaGetDevice(&before_), "no current device");
    check(cudaSetDevice(device), "cannot use the device");
  }
  ~UseDevice() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

inline std::atomic<size_t> cuda_allocated{0};

// Memory of the device, or page-locked memory of the host; grows, never shrinks.
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
  void reserve(size_t size, const char* what) {
    if (size <= size_) return;
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
    if (data_) kHost ? cudaFreeHost(data_) : cudaFree(data_);
    cuda_allocated -= size_;
    data_ = nullptr;
    size_ = 0;
  }
  void* data_ = nullptr;
  size_t size_ = 0;
};
using DeviceBuffer = Buffer<false>;
using HostBuffer = Buffer<true>;

template <class X>
DeviceBuffer upload(const std::vector<X>& x) {
  DeviceBuffer buffer;
  buffer.reserve(x.size() * sizeof(X), "the model does not fit the device's memory");
  if (!x.empty())
    check(cudaMemcpy(buffer.as<X>(), x.data(), x.size() * sizeof(X), cudaMemcpyHostToDevice),
          "copying the model");
  return buffer;
}

struct Stream {
  cudaStream_t stream = nullptr;
  cudaEvent_t done = nullptr;
  Stream() {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
    check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "creating an event");
  }
  ~Stream() {
    cudaEventDestroy(done);
    cudaStreamDestroy(stream);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

}  // namespace skshap
