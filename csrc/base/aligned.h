// A buffer aligned to cache lines and to the widest vectors.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "base/large_memory.h"

namespace skshap {

constexpr std::align_val_t kAlignment{64};

template <class T>
class Aligned {
 public:
  void resize(size_t n) {
    data_.reset(static_cast<T*>(::operator new(n * sizeof(T), kAlignment)));
    size_ = n;  // not before: if there is no memory, the buffer is as large as it was
  }
  T* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

// Allocator of aligned memory for vectors; it leaves new elements uninitialized.
template <class T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(size_t n) {
    const size_t bytes = n * sizeof(T);
    return static_cast<T*>(bytes < kLargeBytes ? ::operator new(bytes, kAlignment) : take_memory(bytes).data);
  }
  void deallocate(T* p, size_t n) {
    if (n * sizeof(T) < kLargeBytes)
      ::operator delete(p, kAlignment);
    else
      give_back_memory(p, n * sizeof(T));
  }
  template <class U>
  void construct(U* p) {
    ::new (static_cast<void*>(p)) U;
  }
  template <class U, class... X>
  void construct(U* p, X&&... x) {
    ::new (static_cast<void*>(p)) U(std::forward<X>(x)...);
  }
  bool operator==(const AlignedAllocator&) const { return true; }
  bool operator!=(const AlignedAllocator&) const { return false; }
};

// Grow a buffer to at least n elements. Its previous contents are lost: all elements are 0 afterwards.
template <class X>
void grow(Aligned<X>& buffer, size_t n) {
  if (buffer.size() >= n) return;
  buffer.resize(n);
  std::fill_n(buffer.data(), n, X(0));
}

}  // namespace skshap
