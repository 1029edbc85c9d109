// Waiting for the GIL.
//
// When the interpreter is shutting down, Python before 3.14 exits a thread that waits for the GIL. This would
// unwind the thread's C++ functions, some of which must not throw, and whose runtime may not be that of the
// unwinder: the process would abort or crash. And the stack of the thread may be in use by threads that work
// for it. So such a thread sleeps for the rest of the process, as it does in later versions of Python.
#pragma once

#include <Python.h>

namespace skshap {

// Take the GIL, which PyEval_SaveThread() gave up.
void take_gil(PyThreadState* state);

// Take the GIL, whether the thread has it or not, call work(argument), and give it up. `work` must not throw.
void with_gil(void (*work)(void*), void* argument);

}  // namespace skshap
