// What threads need that work off tiles of rows: buffers of their own, and who does which tile.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace skshap {

// A buffer aligned to cache lines and to the widest vectors.
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

// Asked now and then whether to stop.
using Stop = std::function<bool()>;

// Every thread calls make() for its worker, and worker(tile, stop), which returns false when `stop` asked
// it to, for the tiles that it gets. `interrupted` is called from the calling thread only. Returns whether
// all tiles were done; rethrows what a worker threw.
template <class Make>
bool work_off(int64_t n_tiles, int64_t n_threads, const Stop& interrupted, const Make& make) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> stopped{false};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&](const Stop& stop) {
    try {
      auto worker = make();
      for (int64_t i; !stopped && (i = next++) < n_tiles;)
        if (!worker(i, stop)) stopped = true;
    } catch (...) {
      const std::lock_guard<std::mutex> lock(error_mutex);
      error = std::current_exception();
      stopped = true;
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int64_t i = 1; i < std::min(n_threads, n_tiles); ++i)
      threads.emplace_back(work, Stop([&] { return stopped.load(); }));
  } catch (const std::system_error&) {
    // The system has no more threads: those that started, and this one, do all the work.
  }
  work([&] {
    if (interrupted()) stopped = true;
    return stopped.load();
  });
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  return !stopped;
}

}  // namespace skshap
