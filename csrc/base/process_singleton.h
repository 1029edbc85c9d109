// Objects of which each process has one.
#pragma once

#ifndef _WIN32
#include <pthread.h>
#endif

#include <atomic>

namespace skshap {

// Return the process's single object of this type. The object is never destroyed, because threads and arrays
// may outlive the objects of main(). A child process makes an object of its own, because a thread of the
// parent may have been changing the parent's object at the time of the fork.
template <class T>
T& process_singleton() {
  static std::atomic<T*> current{nullptr};
#ifndef _WIN32  // which cannot fork
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { current.store(nullptr); });
#endif
  T* object = current.load();
  if (object) return *object;
  T* const made = new T;
  if (current.compare_exchange_strong(object, made)) return *made;
  delete made;
  return *object;
}

}  // namespace skshap
