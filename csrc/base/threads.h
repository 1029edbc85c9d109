// Work shared by threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace skshap {

// Run work(calling) in up to n_threads threads: with true in the calling thread, with false in the others.
// Once all have ended, rethrow an exception that one of them threw.
template <class Work>
void run_threads(int64_t n_threads, const Work& work) {
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto guarded = [&](bool calling) {
    // The runtime allocates a thread's exception state at its first use, and terminates the process if that
    // fails. Allocate it now, while there is memory, rather than when std::bad_alloc is thrown.
    static_cast<void>(std::current_exception());
    try {
      work(calling);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(error_mutex);
      error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int64_t i = 1; i < n_threads; ++i) threads.emplace_back(guarded, false);
  } catch (const std::system_error&) {
    // The system has no more threads: those that started, and this one, do all the work.
  }
  guarded(true);
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

// A function that is called periodically and returns whether to stop.
using Stop = std::function<bool()>;

// Divide tiles among threads. Every thread calls make() for its worker, then worker(tile, stop) for one tile
// after the other; the worker returns false when `stop` returned true. `interrupted` is called from the
// calling thread only. Return whether all tiles were done; throw as run_threads does.
template <class Make>
bool work_off(int64_t n_tiles, int64_t n_threads, const Stop& interrupted, const Make& make) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> stopped{false};
  run_threads(std::min(n_threads, n_tiles), [&](bool calling) {
    const Stop stop = [&, calling] {
      if (calling && interrupted()) stopped = true;
      return stopped.load();
    };
    try {
      auto worker = make();
      for (int64_t i; !stopped && (i = next++) < n_tiles;)
        if (!worker(i, stop)) stopped = true;
    } catch (...) {
      stopped = true;
      throw;
    }
  });
  return !stopped;
}

}  // namespace skshap
