// Objects of which each process has one.
#pragma once

#ifndef _WIN32
#include <pthread.h>
#endif

#include <atomic>

namespace skshap {

// Return the object of this type that belongs to the process. It is never destroyed, because threads and
// arrays may outlive the objects of main(). A child process makes its own, because a thread of its parent may
// have been changing the parent's.
template <class T>
T& of_process() {
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
