#include "cuda/page_locked.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <vector>

#include "base/of_process.h"

namespace skshap {
namespace {

constexpr size_t kUnit = 2 << 20;
// A block is used for results of at least this part of its size.
constexpr size_t kLargestPart = 2;
// The number of requests after which locking pays, to which each so many bytes add one. It takes 0.4 seconds
// for a gigabyte, and saves a few hundredths of one in each call.
constexpr size_t kBytesByRequest = size_t{128} << 20;
// Sizes whose requests are counted.
constexpr size_t kMostSizes = 64;

std::atomic<size_t> most_bytes{0};

struct Block {
  char* data;
  size_t bytes;
  bool used;
};

struct Size {
  size_t bytes, n_asked;
};

class Store {
 public:
  void* take(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes = (bytes + kUnit - 1) / kUnit * kUnit;
    Block* best = nullptr;
    for (Block& block : blocks_)
      if (!block.used && block.bytes >= bytes && block.bytes / kLargestPart <= bytes &&
          (!best || block.bytes < best->bytes))
        best = &block;
    if (best) {
      best->used = true;
      return best->data;
    }
    if (bytes > most_bytes || !pays(bytes)) return nullptr;
    free_beyond(most_bytes - bytes);
    if (n_bytes_ + bytes > most_bytes) return nullptr;  // the rest is in use
    blocks_.reserve(blocks_.size() + 1);
    void* data = nullptr;
    if (cudaHostAlloc(&data, bytes, cudaHostAllocPortable) != cudaSuccess) {
      cudaGetLastError();  // so that the next call does not find it
      return nullptr;
    }
    blocks_.push_back({static_cast<char*>(data), bytes, true});
    n_bytes_ += bytes;
    return data;
  }

  void give_back(const void* data) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found =
        std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) { return block.data == data; });
    if (found == blocks_.end()) return;  // of the process that was forked
    // The block that was given back last is the last one to be freed.
    found->used = false;
    std::rotate(found, found + 1, blocks_.end());
    free_beyond(most_bytes);
  }

  bool contains(const char* data, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::any_of(blocks_.begin(), blocks_.end(), [&](const Block& block) {
      return block.data <= data && data + bytes <= block.data + block.bytes;
    });
  }

  void shrink() {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_beyond(most_bytes);
  }

  size_t n_bytes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return n_bytes_;
  }

 private:
  // Count a request for so many bytes, and return whether there have been enough.
  bool pays(size_t bytes) {
    const auto alike = [&](const Size& size) {
      return size.bytes / kLargestPart <= bytes && bytes / kLargestPart <= size.bytes;
    };
    auto found = std::find_if(sizes_.begin(), sizes_.end(), alike);
    if (found == sizes_.end()) {
      if (sizes_.size() == kMostSizes) sizes_.erase(sizes_.begin());
      found = sizes_.insert(sizes_.end(), {bytes, 0});
    }
    return found->n_asked++ > bytes / kBytesByRequest;
  }

  // Free blocks that are not used, the oldest first, until all have no more than so many bytes.
  void free_beyond(size_t bytes) noexcept {
    for (size_t i = 0; i < blocks_.size() && n_bytes_ > bytes;) {
      if (blocks_[i].used) {
        ++i;
        continue;
      }
      if (cudaFreeHost(blocks_[i].data) != cudaSuccess) cudaGetLastError();
      n_bytes_ -= blocks_[i].bytes;
      blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  std::mutex mutex_;
  std::vector<Block> blocks_;
  std::vector<Size> sizes_;
  size_t n_bytes_ = 0;
};

}  // namespace

void* take_page_locked(size_t bytes) { return of_process<Store>().take(bytes); }

void give_back_page_locked(void* data) noexcept { of_process<Store>().give_back(data); }

bool is_page_locked(const void* data, size_t bytes) {
  return of_process<Store>().contains(static_cast<const char*>(data), bytes);
}

void limit_page_locked(size_t bytes) {
  most_bytes = bytes;
  of_process<Store>().shrink();
}

size_t page_locked_bytes() { return of_process<Store>().n_bytes(); }

}  // namespace skshap
