// Arrays: passes over X and over results, and the memory of large arrays.
#include <pybind11/stl.h>

#include <memory>

#include "base/large_memory.h"
#include "python/bindings.h"
#include "rows/column_magnitudes.h"
#include "rows/number_check.h"

namespace skshap {
namespace {

bool all_numbers_below(const py::array& array, double limit, bool allow_nan, int n_threads) {
  require_floats(array, "array");
  if (array.ndim() != 1 && array.ndim() != 2) throw py::value_error("array must have one or two dimensions");
  const bool is_row = array.ndim() == 1;
  const py::ssize_t n_columns = array.shape(is_row ? 0 : 1);
  if (n_threads < 0 || n_columns > INT32_MAX)
    throw py::value_error("n_threads or a dimension is out of range");
  const Rows rows{.data = array.data(),
                  .is_float32 = is_float32(array),
                  .n_rows = is_row ? 1 : array.shape(0),
                  .row_stride = is_row ? n_columns * array.itemsize() : array.strides(0),
                  .column_stride = array.strides(is_row ? 0 : 1)};
  const WithoutGil release;
  return all_below(rows, static_cast<int32_t>(n_columns), limit, allow_nan, n_threads);
}

py::array_t<double> scale_and_sum_magnitudes(py::array& results, double factor, int n_threads) {
  require_floats(results, "results");
  if (results.ndim() != 3) throw py::value_error("results must have three dimensions");
  check_array(results, "results", {results.shape(0), results.shape(1), results.shape(2)});
  if (n_threads < 0) throw py::value_error("n_threads must not be negative");
  const int64_t n_rows = results.shape(0) * results.shape(1), n_columns = results.shape(2);
  py::array_t<double> sums(n_columns);
  double* const out = sums.mutable_data();
  void* const data = results.mutable_data();
  const bool single = is_float32(results);
  {
    const WithoutGil release;
    if (single)
      scale_and_sum(static_cast<float*>(data), n_rows, n_columns, factor, n_threads, out);
    else
      scale_and_sum(static_cast<double*>(data), n_rows, n_columns, factor, n_threads, out);
  }
  return sums;
}

// Return a new array of float32 or float64, and whether all its elements are 0. A large array may use memory
// that another array gave back.
py::tuple new_array(const std::vector<py::ssize_t>& shape, const py::dtype& dtype) {
  const size_t bytes = array_bytes(shape, dtype);
  if (bytes < kLargeBytes) return py::make_tuple(py::array(dtype, shape), false);
  struct OwnedMemory {
    void* data;
    size_t bytes;
  };
  auto taken = std::make_unique<OwnedMemory>(OwnedMemory{nullptr, bytes});
  OwnedMemory& owned_memory = *taken;
  const py::capsule owner(taken.get(), [](void* p) {
    const std::unique_ptr<OwnedMemory> owned(static_cast<OwnedMemory*>(p));
    if (owned->data) give_back_memory(owned->data, owned->bytes);
  });
  taken.release();
  const LargeMemory memory = take_memory(bytes);
  owned_memory.data = memory.data;
  return py::make_tuple(py::array(dtype, shape, memory.data, owner), memory.is_zero);
}

}  // namespace

void bind_arrays(py::module_& module) {
  module.def("all_below", &all_numbers_below, py::arg("array"), py::arg("limit"), py::arg("allow_nan"),
             py::arg("n_threads") = 1);
  module.def("scale_and_sum", &scale_and_sum_magnitudes, py::arg("results"), py::arg("factor"),
             py::arg("n_threads") = 1);
  module.def("new_array", &new_array, py::arg("shape"), py::arg("dtype"));
  module.def("keep_memory", &keep_memory, py::arg("most_bytes"));
  module.def("kept_memory", &kept_memory);
}

}  // namespace skshap
