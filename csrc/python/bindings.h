// Code that the Python modules share: checks of arrays, and the handling of Ctrl-C.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <chrono>

#include "base/threads.h"
#include "plan/plan.h"
#include "python/gil.h"

// Define a module. A free-threaded Python enables its GIL when it imports a module that does not declare that
// it needs none. docs/how_it_works.md says which locks stand in for the GIL.
#ifdef SKSHAPGPU_FREE_THREADED
#define SKSHAP_MODULE(name, module) PYBIND11_MODULE(name, module, pybind11::mod_gil_not_used())
#else
#define SKSHAP_MODULE(name, module) PYBIND11_MODULE(name, module)
#endif

namespace skshap {

namespace py = pybind11;

// Bind a class, as py::class_ does. pybind11 enters every object in a map, in order to find the Python object
// of a C++ object that a function returns by reference, which none does here. If there is no memory for the
// entry, pybind11 would end the process, or free the object without destroying it. Here, the object has no
// entry then.
template <class T>
py::class_<T> bind_class(py::module_& module, const char* name) {
  static void (*init_instance)(py::detail::instance*, const void*);
  py::class_<T> bound(module, name);
  py::detail::type_info* const type = py::detail::get_type_info(typeid(T));
  init_instance = type->init_instance;
  type->init_instance = [](py::detail::instance* object, const void* holder) {
    try {
      init_instance(object, holder);
    } catch (const std::bad_alloc&) {
      py::detail::value_and_holder value = object->get_value_and_holder(py::detail::get_type_info(typeid(T)));
      value.set_instance_registered(true);  // so that pybind11 does not try to enter it
      init_instance(object, holder);
      value.set_instance_registered(false);
    }
  };
  return bound;
}

// For constructors: the new object keeps the first argument alive, as with py::keep_alive<1, 2>. If there is
// no memory for that, pybind11 would end the process when it frees the object.
struct KeepsArgument {};

// Return whether an array has this type, in native byte order, and is aligned, so that its elements can be
// read in place.
template <class T>
bool holds(const py::handle& array) {
  constexpr int kAligned = 0x0100;  // NPY_ARRAY_ALIGNED
  return py::isinstance<py::array_t<T, 0>>(array) &&
         (py::reinterpret_borrow<py::array>(array).flags() & kAligned);
}
inline bool is_float32(const py::handle& array) { return holds<float>(array); }
inline bool is_float64(const py::handle& array) { return holds<double>(array); }

inline void check_array(const py::array& array, const char* name, std::vector<py::ssize_t> shape) {
  const bool shape_ok = array.ndim() == static_cast<py::ssize_t>(shape.size()) &&
                        std::equal(shape.begin(), shape.end(), array.shape());
  if (!shape_ok) throw py::value_error(std::string(name) + " has a wrong shape");
  if (!(array.flags() & py::array::c_style) || !array.writeable())
    throw py::value_error(std::string(name) + " must be C-contiguous and writeable");
}

// Return the bytes of an array of float32 or float64.
inline size_t array_bytes(const std::vector<py::ssize_t>& shape, const py::dtype& dtype) {
  if (!dtype.is(py::dtype::of<float>()) && !dtype.is(py::dtype::of<double>()))
    throw py::type_error("dtype must be float32 or float64");
  size_t bytes = static_cast<size_t>(dtype.itemsize());
  for (const py::ssize_t n : shape) {
    if (n < 0) throw py::value_error("shape must not be negative");
    if (n && bytes > SIZE_MAX / 2 / static_cast<size_t>(n)) throw std::bad_alloc();
    bytes *= static_cast<size_t>(n);
  }
  return bytes;
}

inline void require_floats(const py::array& array, const char* name) {
  if (!is_float32(array) && !is_float64(array))
    throw py::type_error(std::string(name) + " must be float32 or float64");
}

inline Rows rows_of(const py::array& array) {
  return {.data = array.data(),
          .is_float32 = is_float32(array),
          .n_rows = array.shape(0),
          .row_stride = array.strides(0),
          .column_stride = array.strides(1)};
}

inline void require_walks(const Plan& plan) {
  if (plan.unwalked) throw py::value_error("the plan has no walks: make one of it by interval_plan");
}

// Check X and return its rows.
inline Rows checked_rows(const CodedColumns& coded, const py::array& X, bool may_be_packed = false) {
  require_floats(X, "X");
  const bool is_packed = may_be_packed && X.ndim() == 2 && X.shape(1) != coded.n_inputs;
  if (X.ndim() != 2 || X.shape(1) != (is_packed ? coded.n_used_inputs : coded.n_inputs))
    throw py::value_error("X must have shape (n_rows, " + std::to_string(coded.n_inputs) + ")");
  Rows rows = rows_of(X);
  rows.packed = is_packed;
  return rows;
}

// Check X, which may have only the columns that trees test, and return the rows of X.
inline Rows host_rows(const CodedColumns& coded, const py::array& X) { return checked_rows(coded, X, true); }
inline Rows host_rows(const Plan& plan, const py::array& X) {
  require_walks(plan);
  return host_rows(static_cast<const CodedColumns&>(plan), X);
}

inline void require_threads(int n_threads) {
  if (n_threads < 1) throw py::value_error("n_threads must be at least 1");
}

// Return the data of an array of float64 that has a number for each row.
inline const double* doubles_by_row(const py::object& numbers, const char* name, py::ssize_t n_rows) {
  if (!is_float64(numbers)) throw py::type_error(std::string(name) + " must be float64");
  const auto array = py::reinterpret_borrow<py::array>(numbers);
  if (array.ndim() != 1 || array.shape(0) != n_rows || !(array.flags() & py::array::c_style))
    throw py::value_error(std::string(name) + " must be contiguous, one for each row");
  return static_cast<const double*>(array.data());
}

// Return the data of a float64 result.
inline double* checked_doubles(const py::object& result, const char* name,
                               const std::vector<py::ssize_t>& shape) {
  if (!is_float64(result)) throw py::type_error(std::string(name) + " must be a float64 array");
  auto array = py::reinterpret_borrow<py::array>(result);
  check_array(array, name, shape);
  return static_cast<double*>(array.mutable_data());
}
inline double* optional_doubles(const py::object& result, const char* name,
                                const std::vector<py::ssize_t>& shape) {
  return result.is_none() ? nullptr : checked_doubles(result, name, shape);
}

// Check the results that every method has, and return them. The arguments of a call keep the arrays alive.
inline Result checked_result(const Plan& plan, py::ssize_t n_rows, py::array& values,
                             const py::object& margin, bool zeroed = false) {
  require_floats(values, "values");
  check_array(values, "values", {n_rows, plan.n_outputs, plan.n_features});
  return {.values = values.mutable_data(),
          .is_float32 = is_float32(values),
          .margin = optional_doubles(margin, "margin", {n_rows, plan.n_outputs}),
          .zeroed = zeroed};
}

// Return the data of labels, one for each row, or null for a link without labels. The arguments of a call
// keep the array of labels alive.
inline const double* checked_labels(const py::object& labels, py::ssize_t n_rows, bool has_labels) {
  const double* const data = labels.is_none() ? nullptr : doubles_by_row(labels, "labels", n_rows);
  if (has_labels != (data != nullptr))
    throw py::value_error("labels belong to the links 'log_loss' and 'squared_error'");
  return data;
}

// Return the data of an optional result that has the same dtype as the values.
inline void* optional_array(const py::object& result, const char* name, const py::array& like,
                            const std::vector<py::ssize_t>& shape) {
  if (result.is_none()) return nullptr;
  if (is_float32(like) ? !is_float32(result) : !is_float64(result))
    throw py::type_error(std::string(name) + " must be an array of the dtype of values");
  auto array = py::reinterpret_borrow<py::array>(result);
  check_array(array, name, shape);
  return array.mutable_data();
}

// Add the results of interactions to the result.
inline void take_interactions(const Plan& plan, py::ssize_t n_rows, const py::array& values,
                              const py::object& matrices, const py::object& pairs, Result& result,
                              const py::object& triples = py::none()) {
  if (!plan.interactions() && !(matrices.is_none() && pairs.is_none()))
    throw py::value_error("the plan was not compiled for interactions");
  const py::ssize_t n_outputs = plan.n_outputs, n_features = plan.n_features;
  result.matrices = optional_array(matrices, "matrices", values, {n_rows, n_outputs, n_features, n_features});
  result.pairs = optional_array(pairs, "pairs", values,
                                {n_rows, n_outputs, static_cast<py::ssize_t>(plan.pairs.size())});
  if (plan.order < 3 && !triples.is_none()) throw py::value_error("the plan was not compiled for triples");
  result.triples = optional_array(triples, "triples", values,
                                  {n_rows, n_outputs, static_cast<py::ssize_t>(plan.triples.size())});
}

// A scope in which the calling thread does not hold the GIL.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { take_gil(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// A function of Python without arguments that raises an exception if the calls of its thread are to end, or
// null. Each of the two modules has its own. It is set at import, possibly while another thread computes.
inline std::atomic<PyObject*> call_check{nullptr};

inline void bind_call_check(py::module_& module) {
  module.def(
      "check_calls_with", [](const py::function& check) { call_check = py::function(check).release().ptr(); },
      py::arg("check"));
}

// A function that asks Python periodically, from a thread without the GIL, whether a signal has arrived or
// the thread's calls are to end. If so, a Python exception is set.
class Interrupt {
 public:
  bool operator()() {
    const auto now = Clock::now();
    if (now - last_ < std::chrono::milliseconds(100)) return false;
    last_ = now;
    bool interrupted = false;
    with_gil([](void* p) { *static_cast<bool*>(p) = PyErr_CheckSignals() != 0 || !may_continue(); },
             &interrupted);
    return interrupted;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static bool may_continue() {
    PyObject* const check = call_check.load();
    if (!check) return true;
    PyObject* const checked = PyObject_CallObject(check, nullptr);
    Py_XDECREF(checked);
    return checked != nullptr;
  }

  Clock::time_point last_ = Clock::now();
};

// Compile without the GIL; a signal ends it.
template <class Make>
auto compile_interruptibly(const Make& make) {
  Interrupt interrupted;
  try {
    const InterruptScope scope(std::ref(interrupted));
    const WithoutGil release;
    return make();
  } catch (const Interrupted&) {
    throw py::error_already_set();
  }
}

// Run `work` without the GIL. The argument of `work` tells it whether a signal has arrived.
template <class Work>
void run_interruptibly(const Work& work) {
  Interrupt interrupted;
  bool complete;
  {
    const WithoutGil release;
    complete = work(std::ref(interrupted));
  }
  if (!complete) throw py::error_already_set();
}

}  // namespace skshap

template <>
struct pybind11::detail::process_attribute<skshap::KeepsArgument>
    : pybind11::detail::process_attribute_default<skshap::KeepsArgument> {
  static void precall(function_call& call) {
    const handle object = call.init_self, argument = call.args[1];
    try {
      add_patient(object.ptr(), argument.ptr());
    } catch (const std::bad_alloc&) {
      reinterpret_cast<instance*>(object.ptr())->has_patients =
          with_internals([&](internals& all) { return all.patients.count(object.ptr()) > 0; });
      argument.dec_ref();
      throw;
    }
  }
};
