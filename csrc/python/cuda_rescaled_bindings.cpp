// The Python boundary of cuda/rescaled.h; skshapgpu/_cuda.pyi documents it.
#include <memory>

#include "cuda/rescaled.h"
#include "python/bindings.h"
#include "python/device_array.h"

namespace skshap {
namespace {

void explain_rows(CudaRescaledPlan& cuda, const py::array& X, py::array& values, const py::object& margin,
                  const py::object& labels, size_t memory_limit) {
  const Rows rows = checked_rows(cuda.plan(), X);
  const Result result = checked_result(cuda.plan(), rows.n_rows, values, margin);
  const double* const p = checked_labels(labels, rows.n_rows, cuda.has_labels());
  Interrupt interrupted;
  bool complete;
  {
    const WithoutGil release;
    complete = cuda.explain(rows, p, result, memory_limit, std::ref(interrupted));
  }
  if (!complete) throw py::error_already_set();
}

int64_t explain_device(CudaRescaledPlan& cuda, const DeviceArray& X, double missing, bool allow_nan,
                       double limit, uintptr_t values, bool values_float32, const py::object& margin,
                       const py::object& labels, size_t memory_limit, uintptr_t stream) {
  CudaInput input{missing, allow_nan, limit};
  const Result result{.values = reinterpret_cast<void*>(values),
                      .is_float32 = values_float32,
                      .margin = optional_doubles(margin, "margin", {X.n_rows, cuda.plan().n_outputs})};
  const double* const p = checked_labels(labels, X.n_rows, cuda.has_labels());
  Interrupt interrupted;
  bool complete;
  {
    const WithoutGil release;
    complete = cuda.explain_device(X.rows(), input, p, result, memory_limit, stream, std::ref(interrupted));
  }
  if (!complete) throw py::error_already_set();
  return input.refused;
}

}  // namespace

void bind_rescaled(py::module_& module) {
  bind_class<CudaRescaledPlan>(module, "CudaRescaledPlan")
      .def(py::init([](const RescaledTables& tables, int device) {
             const WithoutGil release;
             return std::make_unique<CudaRescaledPlan>(tables, device);
           }),
           py::arg("tables"), py::arg("device"))
      .def("explain", &explain_rows, py::arg("X"), py::arg("values"), py::arg("margin").none(true),
           py::arg("labels").none(true), py::arg("memory_limit"))
      .def("explain_device", &explain_device, py::arg("X"), py::arg("missing"), py::arg("allow_nan"),
           py::arg("limit"), py::arg("values"), py::arg("values_float32"), py::arg("margin").none(true),
           py::arg("labels").none(true), py::arg("memory_limit"), py::arg("stream"))
      .def_property_readonly("table_bytes", &CudaRescaledPlan::table_bytes);
}

}  // namespace skshap
