// A buffer aligned to cache lines and to the widest vectors.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>

namespace skshap {

template <class T>
class Aligned {
 public:
  void resize(size_t n) {
    size_ = n;
    data_.reset(static_cast<T*>(std::aligned_alloc(64, (n * sizeof(T) + 63) / 64 * 64)));
    if (!data_ && n) throw std::bad_alloc();
  }
  T* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

}  // namespace skshap
