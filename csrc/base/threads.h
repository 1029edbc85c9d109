// Work shared by threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>

namespace skshap {

// Call work(calling) in up to n_threads threads: with true in the calling thread, and with false in as many
// threads of a pool as are free. Each call must take parts of the work until none are left, because a single
// call may have to do all of it. Once all calls have returned, rethrow an exception that one of them threw.
void run_threads(int64_t n_threads, const std::function<void(bool calling)>& work);

// Return the number of threads for work that does little else than read or write memory: n_threads, or the
// number of processors if n_threads is 0, but no more threads than make the work faster.
int64_t memory_threads(int64_t n_threads = 0);

// A function that is called periodically and returns whether to stop.
using Stop = std::function<bool()>;

// Thrown by check_interrupt().
struct Interrupted : std::exception {
  const char* what() const noexcept override { return "interrupted"; }
};

// A scope of work that may be interrupted, such as compiling. `interrupted` is called from the thread that
// made the scope only.
class InterruptScope {
 public:
  explicit InterruptScope(Stop interrupted);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  friend void check_interrupt();

  const InterruptScope* const before_;
  const Stop interrupted_;
  const std::thread::id asking_thread_ = std::this_thread::get_id();
  mutable std::atomic<bool> happened_{false};
};

// Throw Interrupted if this thread, or the thread for which it works, is in a scope that was interrupted.
// This takes some 30 ns: long work calls it for each tree, leaf, table or tile of rows.
void check_interrupt();

// Divide items among threads. Every thread calls make() for its worker, then worker(item, stop) for one item
// after another. The worker returns false if `stop` returned true. `interrupted` is called from the calling
// thread only. Return whether all items were done. Throw as run_threads does.
template <class Make>
bool work_off(int64_t n_items, int64_t n_threads, const Stop& interrupted, const Make& make) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> stopped{false};
  run_threads(std::min(n_threads, n_items), [&](bool calling) {
    const Stop stop = [&, calling] {
      if (calling && interrupted()) stopped = true;
      return stopped.load();
    };
    if (stopped || next >= n_items) return;
    try {
      auto worker = make();
      for (int64_t i; !stopped && (i = next++) < n_items;)
        if (!worker(i, stop)) stopped = true;
    } catch (...) {
      stopped = true;
      throw;
    }
  });
  return !stopped;
}

// Divide items of work that has no result of its own among threads. Every thread calls make() for its worker,
// then worker(item) for one item after another. Throw as run_threads and check_interrupt do.
template <class Make>
void share_items(int64_t n_items, int64_t n_threads, const Make& make) {
  work_off(
      n_items, n_threads, [] { return false; },
      [&] {
        return [worker = make()](int64_t i, const Stop&) mutable {
          check_interrupt();
          worker(i);
          return true;
        };
      });
}

}  // namespace skshap
