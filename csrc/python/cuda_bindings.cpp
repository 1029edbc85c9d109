// The boundary between Python and the GPU half. skshapgpu/_cuda.pyi documents it.
#include <pybind11/stl.h>
#include <memory>

#include "background/rescaled_tables.h"
#include "cuda/cuda.h"
#include "cuda/page_locked.h"
#include "cuda/program/leaves.h"
#include "plan/owen_path.h"
#include "python/bindings.h"

namespace skshap {

void bind_packing(py::module_& module);  // packing_bindings.cpp

namespace {

// An array on the device; skshapgpu/_rows/gpu_arrays.py has checked it.
struct DeviceArray {
  Rows rows;
};

void explain_rows(CudaPlan& cuda, const py::array& X, py::array& values, const py::object& margin,
                  const py::object& gap, size_t memory_limit, const py::object& matrices,
                  const py::object& pairs, const py::object& triples, const py::object& labels) {
  const Plan& plan = cuda.plan();
  const Rows rows = checked_rows(plan, X);
  CudaResult result{checked_result(plan, rows.n_rows, values, margin),
                    optional_doubles(gap, "gap", {plan.n_outputs})};
  take_interactions(plan, rows.n_rows, values, matrices, pairs, result.values, triples);
  const double* const row_labels = checked_labels(labels, rows.n_rows, cuda.has_labels());
  run_interruptibly([&](const auto& interrupted) {
    return cuda.explain(rows, row_labels, result, memory_limit, interrupted);
  });
}

int64_t explain_device(CudaPlan& cuda, const DeviceArray& X, double missing, bool allow_nan, double limit,
                       uintptr_t values, bool values_float32, const py::object& gap, size_t memory_limit,
                       uintptr_t stream, uintptr_t matrices, uintptr_t pairs, uintptr_t triples,
                       const py::object& margin, const py::object& labels) {
  const int32_t n_outputs = cuda.plan().n_outputs;
  CudaInput input{missing, allow_nan, limit};
  const CudaResult result{{.values = reinterpret_cast<void*>(values),
                           .is_float32 = values_float32,
                           .margin = optional_doubles(margin, "margin", {X.rows.n_rows, n_outputs}),
                           .matrices = reinterpret_cast<void*>(matrices),
                           .pairs = reinterpret_cast<void*>(pairs),
                           .triples = reinterpret_cast<void*>(triples)},
                          optional_doubles(gap, "gap", {n_outputs})};
  const double* const row_labels = checked_labels(labels, X.rows.n_rows, cuda.has_labels());
  run_interruptibly([&](const auto& interrupted) {
    return cuda.explain_device(X.rows, input, row_labels, result, memory_limit, stream, interrupted);
  });
  return input.refused;
}

// Return a new array of float32 or float64 in page-locked memory, or None if there is no such memory for it.
py::object new_array(const std::vector<py::ssize_t>& shape, const py::dtype& dtype) {
  const size_t bytes = array_bytes(shape, dtype);
  struct OwnedPages {
    void* data = nullptr;
  };
  auto taken = std::make_unique<OwnedPages>();
  OwnedPages& owned_pages = *taken;
  const py::capsule owner(taken.get(), [](void* p) {
    const std::unique_ptr<OwnedPages> owned(static_cast<OwnedPages*>(p));
    if (owned->data) give_back_page_locked(owned->data);
  });
  taken.release();
  {
    const WithoutGil release;  // to lock pages takes time
    owned_pages.data = take_page_locked(bytes);
  }
  if (!owned_pages.data) return py::none();
  return py::array(dtype, shape, owned_pages.data, owner);
}

void bind_devices(py::module_& module) {
  bind_class<DeviceArray>(module, "DeviceArray")
      .def(py::init([](uintptr_t data, bool is_float32, int64_t n_rows, int64_t row_stride,
                       int64_t column_stride) {
             if (n_rows < 0) throw py::value_error("n_rows must not be negative");
             return DeviceArray{{.data = reinterpret_cast<const void*>(data),
                                 .is_float32 = is_float32,
                                 .n_rows = n_rows,
                                 .row_stride = row_stride,
                                 .column_stride = column_stride}};
           }),
           py::arg("data"), py::arg("is_float32"), py::arg("n_rows"), py::arg("row_stride"),
           py::arg("column_stride"));
  bind_class<CudaDevice>(module, "Device")
      .def_readonly("index", &CudaDevice::index)
      .def_readonly("name", &CudaDevice::name)
      .def_readonly("multiprocessors", &CudaDevice::multiprocessors)
      .def_readonly("memory", &CudaDevice::memory)
      .def_readonly("holds_tables", &CudaDevice::holds_tables)
      .def_property_readonly("compute_capability",
                             [](const CudaDevice& d) { return py::make_tuple(d.major, d.minor); });
  module.def("devices", &cuda_devices);
  module.def("allocated_bytes", &cuda_allocated_bytes);
  module.def("new_array", &new_array, py::arg("shape"), py::arg("dtype"));
  module.def("limit_page_locked", &limit_page_locked, py::arg("most_bytes"));
  module.def("page_locked_bytes", &page_locked_bytes);
  module.def("driver_version", &cuda_driver_version);
  module.def("runtime_version", &cuda_runtime_version);
  module.def("compute_capabilities", &cuda_compute_capabilities);
}

void bind_plan(py::module_& module) {
  bind_class<CudaPlan>(module, "CudaPlan")
      .def(py::init([](const Plan& plan, int device, const std::string& method) {
             if (plan.unwalked && !has_owen_leaves(plan)) require_walks(plan);
             const WithoutGil release;
             return std::make_unique<CudaPlan>(plan, device, method);
           }),
           py::arg("plan"), py::arg("device"), py::arg("method") = "chunks", KeepsArgument{})
      .def_static(
          "with_tables",
          [](const Plan& plan, int device) {
            const WithoutGil release;
            return std::make_unique<CudaPlan>(Plan(plan), device);
          },
          py::arg("plan"), py::arg("device"))
      .def_static(
          "rescaled",
          [](const RescaledTables& tables, int device) {
            const WithoutGil release;
            return std::make_unique<CudaPlan>(tables, device);
          },
          py::arg("tables"), py::arg("device"))
      .def("explain", &explain_rows, py::arg("X"), py::arg("values"), py::arg("margin").none(true),
           py::arg("gap").none(true), py::arg("memory_limit"), py::arg("matrices") = py::none(),
           py::arg("pairs") = py::none(), py::arg("triples") = py::none(), py::arg("labels") = py::none())
      .def("explain_device", &explain_device, py::arg("X"), py::arg("missing"), py::arg("allow_nan"),
           py::arg("limit"), py::arg("values"), py::arg("values_float32"), py::arg("gap").none(true),
           py::arg("memory_limit"), py::arg("stream"), py::arg("matrices") = 0, py::arg("pairs") = 0,
           py::arg("triples") = 0, py::arg("margin") = py::none(), py::arg("labels") = py::none());
  module.def("has_leaf_chunks", &has_leaf_chunks, py::arg("plan"));
}

SKSHAP_MODULE(_cuda, module) {
  // The more specific error comes last, because translators are tried in reverse order.
  py::register_exception<CudaError>(module, "CudaError", PyExc_RuntimeError);
  py::register_exception<CudaMemoryError>(module, "CudaMemoryError", PyExc_MemoryError);
  bind_devices(module);
  bind_plan(module);
  bind_call_check(module);
  bind_packing(module);
}

}  // namespace
}  // namespace skshap
