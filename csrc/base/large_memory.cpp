#include "base/large_memory.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

#include "base/process_singleton.h"

namespace skshap {
namespace {

constexpr size_t kLargePage = 2 << 20;

size_t whole_pages(size_t bytes) { return (bytes + kLargePage - 1) / kLargePage * kLargePage; }

// Sanitizers check accesses against the bounds of memory from operator new, and whether it was freed. So with
// a sanitizer, memory is not mapped.
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr bool kIsMapped = true;

void* allocate(size_t bytes) {
  const size_t mapped = bytes + kLargePage;
  void* const p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  char* const first = static_cast<char*>(p);
  const size_t before = whole_pages(reinterpret_cast<uintptr_t>(p)) - reinterpret_cast<uintptr_t>(p);
  if (before) munmap(first, before);
  munmap(first + before + bytes, mapped - before - bytes);
  madvise(first + before, bytes, MADV_HUGEPAGE);
  return first + before;
}
void deallocate(void* data, size_t bytes) noexcept { munmap(data, bytes); }
// Let the system take the pages when it is short of memory.
void offer(void* data, size_t bytes) noexcept { madvise(data, bytes, MADV_FREE); }
#else
constexpr bool kIsMapped = false;

constexpr std::align_val_t kAlignment{64};
void* allocate(size_t bytes) { return ::operator new(bytes, kAlignment, std::nothrow); }
void deallocate(void* data, size_t) noexcept { ::operator delete(data, kAlignment); }
void offer(void*, size_t) noexcept {}
#endif

// A kept block is used for an array that needs at least 1 / kLargestPart of it, and the remainder of the
// block is freed. Only mapped memory can be divided.
constexpr size_t kLargestPart = kIsMapped ? 2 : 1;

std::atomic<size_t> most_bytes{0};

struct MemoryBlock {
  void* data;
  size_t bytes;  // whole pages
};

class MemoryStore {
 public:
  // Take a kept block of this size, or the first part of a larger one. The data of the block are null if no
  // kept block is suitable.
  MemoryBlock take(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    size_t best = blocks_.size();
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const size_t size = blocks_[i].bytes;
      if (size >= bytes && size / kLargestPart <= bytes &&
          (best == blocks_.size() || size < blocks_[best].bytes))
        best = i;
    }
    if (best == blocks_.size()) return {nullptr, 0};
    const MemoryBlock block = remove(best);
    if (block.bytes > bytes) deallocate(static_cast<char*>(block.data) + bytes, block.bytes - bytes);
    return {block.data, bytes};
  }

  void keep(const MemoryBlock& block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (block.bytes > most_bytes) return deallocate(block.data, block.bytes);
    blocks_.push_back(block);
    offer(block.data, block.bytes);
    n_bytes_ += block.bytes;
    free_beyond(most_bytes);
  }

  // Free kept blocks, the oldest first, until the remaining ones have at most this many bytes.
  void shrink(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_beyond(bytes);
  }

  size_t n_bytes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return n_bytes_;
  }

 private:
  MemoryBlock remove(size_t i) {
    const MemoryBlock block = blocks_[i];
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
    n_bytes_ -= block.bytes;
    return block;
  }

  void free_beyond(size_t bytes) {
    while (n_bytes_ > bytes) {
      const MemoryBlock oldest = remove(0);
      deallocate(oldest.data, oldest.bytes);
    }
  }

  std::mutex mutex_;
  std::vector<MemoryBlock> blocks_;  // in the order in which they were given back
  size_t n_bytes_ = 0;
};

}  // namespace

LargeMemory take_memory(size_t bytes) {
  MemoryStore& store = process_singleton<MemoryStore>();
  const MemoryBlock kept = store.take(whole_pages(bytes));
  if (kept.data) return {kept.data, false};
  void* data = allocate(whole_pages(bytes));
  if (!data) {
    store.shrink(0);
    data = allocate(whole_pages(bytes));
  }
  if (!data) throw std::bad_alloc();
  return {data, kIsMapped};
}

void give_back_memory(void* data, size_t bytes) noexcept {
  try {
    process_singleton<MemoryStore>().keep({data, whole_pages(bytes)});
  } catch (const std::bad_alloc&) {  // a child process first needs memory for its store
    deallocate(data, whole_pages(bytes));
  }
}

void keep_memory(size_t bytes) {
  most_bytes = bytes;
  process_singleton<MemoryStore>().shrink(bytes);
}

size_t kept_memory() { return process_singleton<MemoryStore>().n_bytes(); }

}  // namespace skshap
