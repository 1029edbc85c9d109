// This source is compiled without C++ exceptions, so that pthread_cleanup_push() is that of C: a handler
// which runs before anything above it on the stack is unwound.
#include "python/gil.h"

#ifndef _WIN32
#include <pthread.h>
#include <unistd.h>
#endif

namespace skshap {
namespace {

#ifdef _WIN32
// Threads exit without unwinding there.
void call_or_sleep(void (*work)(void*), void* argument) { work(argument); }
#else
void sleep_on(void*) {
  for (;;) sleep(3600);
}

// Call work(argument), and sleep if Python exits the thread meanwhile.
void call_or_sleep(void (*work)(void*), void* argument) {
  pthread_cleanup_push(sleep_on, nullptr);
  work(argument);
  pthread_cleanup_pop(0);
}
#endif

struct WorkWithGil {
  void (*work)(void*);
  void* argument;
};

void ensure_gil_and_work(void* p) {
  const WorkWithGil& inner = *static_cast<const WorkWithGil*>(p);
  const PyGILState_STATE gil = PyGILState_Ensure();
  inner.work(inner.argument);
  PyGILState_Release(gil);
}

}  // namespace

void take_gil(PyThreadState* state) {
  call_or_sleep([](void* p) { PyEval_RestoreThread(static_cast<PyThreadState*>(p)); }, state);
}

void with_gil(void (*work)(void*), void* argument) {
  WorkWithGil inner{work, argument};
  call_or_sleep(ensure_gil_and_work, &inner);
}

}  // namespace skshap
