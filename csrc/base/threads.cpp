// The pool of threads. It starts with the first work for several threads and lasts as long as the process.
//
// The calling thread always takes part in its work, and at the end it waits only for threads that have
// joined. So a call never depends on a free thread, and calls may be nested or run at once.
#include "base/threads.h"

#ifndef _WIN32
#include <pthread.h>
#include <signal.h>
#endif

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/process_singleton.h"

namespace skshap {
namespace {

// The number of threads that each thread wakes when it joins. If a single thread woke all the others, the
// last of many threads would wait long.
constexpr int64_t kWakes = 4;

// Once a thread has done its part, the other threads usually finish within this time. Sleeping and being
// woken takes longer.
constexpr std::chrono::microseconds kPatience{5};

// Beyond this number, more threads do not read, write or copy memory faster.
constexpr int64_t kMostMemoryThreads = 16;

// The scope of the work that this thread does, or null.
thread_local const InterruptScope* interrupt_scope = nullptr;

// The runtime allocates a thread's exception state at its first use, and terminates the process if that
// fails, as it does for the thread's own variables. Allocate them now, while there is memory, rather than
// when std::bad_alloc is thrown.
void prepare_for_exceptions() {
  static_cast<void>(std::current_exception());
  interrupt_scope = nullptr;
}

// Memory left free for a new thread: for its exception state and for other allocations before it runs. Memory
// of malloc might be kept by malloc, for the calling thread alone, so the reserve is mapped.
#ifdef __linux__
class MemoryReserve {
 public:
  MemoryReserve() : data_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~MemoryReserve() { munmap(data_, kBytes); }
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

 private:
  static constexpr size_t kBytes = 1 << 20;
  void* const data_;
};
#else
struct MemoryReserve {};
#endif

// The work of a calling thread. The thread keeps the job on its stack.
struct Job {
  explicit Job(const std::function<void(bool)>& of, int64_t helpers) : work(of), n_wanted(helpers) {}

  void run(bool calling) {
    try {
      work(calling);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(error_mutex);
      error = std::current_exception();
    }
  }

  const std::function<void(bool)>& work;
  int64_t n_wanted;                   // threads that may still join
  std::atomic<int64_t> n_helping{0};  // threads that have joined and not left
  std::condition_variable helper_left;
  std::mutex error_mutex;
  std::exception_ptr error;
  Job* next = nullptr;  // in the pool's list
};

// A scope in which new threads block all signals except those raised by faults. So the signals of the process
// reach only threads that the process started itself.
class WithoutSignals {
#ifndef _WIN32  // Windows handles signals in separate threads
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_;
#endif
};

class Pool {
 public:
  void run(const std::function<void(bool)>& work, int64_t n_helpers) {
    Job job(work, n_helpers);
    {
      std::unique_lock<std::mutex> lock(mutex_);
      add(job);
      start_threads(n_helpers, lock);
    }
    wake(n_helpers);
    job.run(true);
    finish(job);
    if (job.error) std::rethrow_exception(job.error);
  }

 private:
  void add(Job& job) {
    Job** end = &jobs_;
    while (*end) end = &(*end)->next;
    *end = &job;
    n_wanted_ += job.n_wanted;
  }

  void remove(Job& job) {
    for (Job** at = &jobs_; *at; at = &(*at)->next)
      if (*at == &job) {
        *at = job.next;
        n_wanted_ -= job.n_wanted;
        return;
      }
  }

  // Start the threads that are wanted now and not idle, but no more than the largest job or all processors
  // can use.
  void start_threads(int64_t n_helpers, std::unique_lock<std::mutex>& lock) {
    const int64_t n_processors = std::thread::hardware_concurrency();
    most_threads_ = std::max({most_threads_, n_helpers, n_processors - 1});
    const int64_t n_threads = std::min(most_threads_, n_busy_ + n_wanted_);
    if (n_threads_ >= n_threads) return;
    [[maybe_unused]] const WithoutSignals scope;
    try {
      while (n_threads_ < n_threads) {
        {
          [[maybe_unused]] const MemoryReserve reserve;
          std::thread([this] { help(); }).detach();  // waits for the lock before it allocates
        }
        ++n_threads_;
        started_.wait(lock, [this] { return n_started_ == n_threads_; });
      }
    } catch (const std::exception&) {
      // The system has no more threads, or no memory for them: the threads that run already do all the work.
    }
  }

  void wake(int64_t n_wanted) {
    for (int64_t i = 0; i < std::min(n_wanted, kWakes); ++i) wanted_.notify_one();
  }

  // The life of a thread.
  [[noreturn]] void help() {
    std::unique_lock<std::mutex> lock(mutex_);
    prepare_for_exceptions();
    ++n_started_;
    started_.notify_all();
    while (true) {
      wanted_.wait(lock, [this] { return jobs_ != nullptr; });
      Job& job = *jobs_;
      ++job.n_helping;
      ++n_busy_;
      --n_wanted_;
      if (--job.n_wanted == 0) remove(job);
      const int64_t n_wanted = job.n_wanted;
      lock.unlock();
      wake(n_wanted);
      job.run(false);
      lock.lock();
      --n_busy_;
      // Once the calling thread gets the lock, the job no longer exists.
      if (--job.n_helping == 0) job.helper_left.notify_one();
    }
  }

  void finish(Job& job) {
    if (&process_singleton<Pool>() != this)
      throw std::runtime_error("the process was forked while several threads worked on this call");
    std::unique_lock<std::mutex> lock(mutex_);
    remove(job);
    if (job.n_helping == 0) return;
    lock.unlock();
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (job.n_helping > 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    lock.lock();
    job.helper_left.wait(lock, [&job] { return job.n_helping == 0; });
  }

  std::mutex mutex_;
  std::condition_variable wanted_, started_;
  Job* jobs_ = nullptr;  // jobs that want threads, the oldest first
  int64_t n_wanted_ = 0, n_threads_ = 0, n_started_ = 0, n_busy_ = 0, most_threads_ = 0;
};

}  // namespace

InterruptScope::InterruptScope(Stop interrupted)
    : before_(interrupt_scope), interrupted_(std::move(interrupted)) {
  interrupt_scope = this;
}

InterruptScope::~InterruptScope() { interrupt_scope = before_; }

void check_interrupt() {
  const InterruptScope* const scope = interrupt_scope;
  if (!scope) return;
  if (std::this_thread::get_id() == scope->asking_thread_ && scope->interrupted_()) scope->happened_ = true;
  if (scope->happened_) throw Interrupted();
}

void run_threads(int64_t n_threads, const std::function<void(bool)>& work) {
  static_cast<void>(std::current_exception());
  if (n_threads <= 1) return work(true);
  // The threads of the pool may have been started by another module, with variables of its own: each work
  // sets the variable of its module.
  const InterruptScope* const scope = interrupt_scope;
  process_singleton<Pool>().run(
      [&](bool calling) {
        interrupt_scope = scope;
        work(calling);
      },
      n_threads - 1);
}

int64_t memory_threads(int64_t n_threads) {
  if (!n_threads) n_threads = std::thread::hardware_concurrency();
  return std::clamp<int64_t>(n_threads, 1, kMostMemoryThreads);
}

}  // namespace skshap
