// Work shared by threads.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace skshap {

// Runs work(calling) in up to n_threads threads: with true in the calling one, with false in the others.
// Throws what one of them threw, after all have ended.
template <class Work>
void run_threads(int64_t n_threads, const Work& work) {
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto guarded = [&](bool calling) {
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

}  // namespace skshap
