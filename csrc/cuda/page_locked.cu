#include "cuda/page_locked.h"

#include <cuda_runtime.h>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <vector>

#include "base/process_singleton.h"
#include "base/threads.h"
#include "cuda/memory.h"

namespace skshap {
namespace {

constexpr size_t kUnit = 2 << 20;
// A block is used for results of at least 1 / kLargestPart of its size.
constexpr size_t kLargestPart = 2;
// Sizes whose requests are counted.
constexpr size_t kMostSizes = 64;

std::atomic<size_t> most_bytes{0};

#ifdef __linux__
// Touch the pages of memory that was just mapped, with several threads.
void touch(char* data, size_t bytes) {
  constexpr size_t kPage = 4096;
  share_items(static_cast<int64_t>(bytes / kUnit), memory_threads(), [&] {
    return [&](int64_t unit) {
      for (size_t i = 0; i < kUnit; i += kPage) data[static_cast<size_t>(unit) * kUnit + i] = 0;
    };
  });
}

// Return page-locked memory, or null. Touching pages with several threads and then locking them takes a fifth
// of the time of cudaHostAlloc. The memory is shared with processes that are forked later. If it were
// private, the system would copy its pages for one of the two processes, and the GPU would write to the pages
// of the other.
char* allocate(size_t bytes) {
  void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  madvise(p, bytes, MADV_HUGEPAGE);
  touch(static_cast<char*>(p), bytes);
  if (cudaHostRegister(p, bytes, cudaHostRegisterPortable) == cudaSuccess) return static_cast<char*>(p);
  cudaGetLastError();  // so that the next call does not report this error
  munmap(p, bytes);
  return nullptr;
}
void deallocate(char* data, size_t bytes) noexcept {
  ignore(cudaHostUnregister(data));
  munmap(data, bytes);
}
#else
char* allocate(size_t bytes) {
  void* data = nullptr;
  if (cudaHostAlloc(&data, bytes, cudaHostAllocPortable) == cudaSuccess) return static_cast<char*>(data);
  cudaGetLastError();  // so that the next call does not report this error
  return nullptr;
}
void deallocate(char* data, size_t) noexcept { ignore(cudaFreeHost(data)); }
#endif

struct PageLockedBlock {
  char* data;
  size_t bytes;
  bool used;
};

class PageLockedStore {
 public:
  void* take(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes = (bytes + kUnit - 1) / kUnit * kUnit;
    PageLockedBlock* best = nullptr;
    for (PageLockedBlock& block : blocks_)
      if (!block.used && block.bytes >= bytes && block.bytes / kLargestPart <= bytes &&
          (!best || block.bytes < best->bytes))
        best = &block;
    if (best) {
      best->used = true;
      return best->data;
    }
    if (bytes > most_bytes || !is_asked_again(bytes)) return nullptr;
    free_beyond(most_bytes - bytes);
    if (n_bytes_ + bytes > most_bytes) return nullptr;  // the rest is in use
    blocks_.reserve(blocks_.size() + 1);
    char* const data = allocate(bytes);
    if (!data) return nullptr;
    blocks_.push_back({data, bytes, true});
    n_bytes_ += bytes;
    return data;
  }

  void give_back(const void* data) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto position = std::find_if(blocks_.begin(), blocks_.end(),
                                       [&](const PageLockedBlock& block) { return block.data == data; });
    if (position == blocks_.end()) return;  // of the process that was forked
    // Move the block to the end: the block that was given back last is freed last.
    position->used = false;
    std::rotate(position, position + 1, blocks_.end());
    free_beyond(most_bytes);
  }

  bool contains(const char* data, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::any_of(blocks_.begin(), blocks_.end(), [&](const PageLockedBlock& block) {
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
  // Record a request for about this many bytes. Return whether there was one before.
  bool is_asked_again(size_t bytes) {
    const auto alike = [&](size_t size) {
      return size / kLargestPart <= bytes && bytes / kLargestPart <= size;
    };
    if (std::any_of(requested_sizes_.begin(), requested_sizes_.end(), alike)) return true;
    if (requested_sizes_.size() == kMostSizes) requested_sizes_.erase(requested_sizes_.begin());
    requested_sizes_.push_back(bytes);
    return false;
  }

  // Free unused blocks, the oldest first, until all blocks together have at most this many bytes.
  void free_beyond(size_t bytes) noexcept {
    for (size_t i = 0; i < blocks_.size() && n_bytes_ > bytes;) {
      if (blocks_[i].used) {
        ++i;
        continue;
      }
      deallocate(blocks_[i].data, blocks_[i].bytes);
      n_bytes_ -= blocks_[i].bytes;
      blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  std::mutex mutex_;
  std::vector<PageLockedBlock> blocks_;
  std::vector<size_t> requested_sizes_;
  size_t n_bytes_ = 0;
};

}  // namespace

void* take_page_locked(size_t bytes) { return process_singleton<PageLockedStore>().take(bytes); }

void give_back_page_locked(void* data) noexcept { process_singleton<PageLockedStore>().give_back(data); }

bool is_page_locked(const void* data, size_t bytes) {
  return process_singleton<PageLockedStore>().contains(static_cast<const char*>(data), bytes);
}

void limit_page_locked(size_t bytes) {
  most_bytes = bytes;
  process_singleton<PageLockedStore>().shrink();
}

size_t page_locked_bytes() { return process_singleton<PageLockedStore>().n_bytes(); }

}  // namespace skshap
