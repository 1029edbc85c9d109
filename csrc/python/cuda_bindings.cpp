// The boundary between Python and the GPU half. skshapgpu/_cuda.pyi documents it.
#include <pybind11/stl.h>
#include <memory>

#include "cuda/cuda.h"
#include "cuda/page_locked.h"
#include "cuda/program/leaves.h"
#include "cuda/program/paths.h"
#include "plan/owen_path.h"
#include "python/bindings.h"
#include "python/device_array.h"

namespace skshap {

void bind_rescaled(py::module_& module);  // cuda_rescaled_bindings.cpp

namespace {

CudaMethod method_named(const std::string& name) {
  if (name == "chunks") return CudaMethod::kChunks;
  if (name == "small_chunks") return CudaMethod::kSmallChunks;
  if (name == "leaves") return CudaMethod::kLeaves;
  if (name == "gputreeshap") return CudaMethod::kGpuTreeShap;
  throw py::value_error("unknown method: " + name);
}

void explain_rows(CudaPlan& cuda, const py::array& X, py::array& values, const py::object& margin,
                  const py::object& gap, size_t memory_limit, const py::object& matrices,
                  const py::object& pairs, const py::object& triples) {
  const Plan& plan = cuda.plan();
  const Rows rows = checked_rows(plan, X);
  CudaResult result{checked_result(plan, rows.n_rows, values, margin), nullptr};
  result.gap = optional_doubles(gap, "gap", {plan.n_outputs});
  take_interactions(plan, rows.n_rows, values, matrices, pairs, result.values, triples);
  Interrupt interrupted;
  bool complete;
  {
    const WithoutGil release;
    complete = cuda.explain(rows, result, memory_limit, std::ref(interrupted));
  }
  if (!complete) throw py::error_already_set();
}

int64_t explain_device(CudaPlan& cuda, const DeviceArray& X, double missing, bool allow_nan, double limit,
                       uintptr_t values, bool values_float32, const py::object& gap, size_t memory_limit,
                       uintptr_t stream, uintptr_t matrices, uintptr_t pairs, uintptr_t triples) {
  CudaInput input{missing, allow_nan, limit};
  const CudaResult result{{.values = reinterpret_cast<void*>(values),
                           .is_float32 = values_float32,
                           .margin = nullptr,
                           .matrices = reinterpret_cast<void*>(matrices),
                           .pairs = reinterpret_cast<void*>(pairs),
                           .triples = reinterpret_cast<void*>(triples)},
                          optional_doubles(gap, "gap", {cuda.plan().n_outputs})};
  Interrupt interrupted;
  bool complete;
  {
    const WithoutGil release;
    complete = cuda.explain_device(X.rows(), input, result, memory_limit, stream, std::ref(interrupted));
  }
  if (!complete) throw py::error_already_set();
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

py::dict path_summary(const Plan& plan, const std::string& packing) {
  PathSet set;
  {
    const WithoutGil release;
    set = make_paths(plan, packing_named(packing));
  }
  std::vector<uint32_t> lengths;
  for (const LeafPath& path : set.paths) lengths.push_back(path.length);
  py::dict out;
  out["lengths"] = lengths;
  out["n_bins"] = set.n_bins;
  out["utilisation"] = set.utilisation;
  return out;
}

PYBIND11_MODULE(_cuda, module) {
  // The more specific error comes last, because translators are tried in reverse order.
  py::register_exception<CudaError>(module, "CudaError", PyExc_RuntimeError);
  py::register_exception<CudaMemoryError>(module, "CudaMemoryError", PyExc_MemoryError);
  bind_class<DeviceArray>(module, "DeviceArray")
      .def(py::init([](uintptr_t data, bool is_float32, int64_t n_rows, int64_t row_stride,
                       int64_t column_stride) {
             if (n_rows < 0) throw py::value_error("n_rows must not be negative");
             return DeviceArray{data, is_float32, n_rows, row_stride, column_stride};
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
  bind_class<CudaPlan>(module, "CudaPlan")
      .def(py::init([](const Plan& plan, int device, const std::string& method) {
             if (plan.unwalked && !has_owen_leaves(plan)) require_walks(plan);
             const CudaMethod named = method_named(method);
             const WithoutGil release;
             return std::make_unique<CudaPlan>(plan, device, named);
           }),
           py::arg("plan"), py::arg("device"), py::arg("method") = "chunks", KeepsArgument{})
      .def_static(
          "with_tables",
          [](const Plan& plan, int device) {
            const WithoutGil release;
            return std::make_unique<CudaPlan>(Plan(plan), device);
          },
          py::arg("plan"), py::arg("device"))
      .def("explain", &explain_rows, py::arg("X"), py::arg("values"), py::arg("margin").none(true),
           py::arg("gap").none(true), py::arg("memory_limit"), py::arg("matrices") = py::none(),
           py::arg("pairs") = py::none(), py::arg("triples") = py::none())
      .def("explain_device", &explain_device, py::arg("X"), py::arg("missing"), py::arg("allow_nan"),
           py::arg("limit"), py::arg("values"), py::arg("values_float32"), py::arg("gap").none(true),
           py::arg("memory_limit"), py::arg("stream"), py::arg("matrices") = 0, py::arg("pairs") = 0,
           py::arg("triples") = 0);
  bind_call_check(module);
  bind_rescaled(module);
  module.def(
      "pack",
      [](const std::vector<uint8_t>& sizes, const std::string& packing) {
        const Bins bins = pack(sizes, packing_named(packing));
        return std::make_pair(bins.bin, bins.n_bins);
      },
      py::arg("sizes"), py::arg("packing"));
  module.def("path_summary", &path_summary, py::arg("plan"), py::arg("packing"));
  module.def("has_leaf_chunks", &has_leaf_chunks, py::arg("plan"));
  module.def("devices", &cuda_devices);
  module.def("allocated_bytes", &cuda_allocated_bytes);
  module.def("new_array", &new_array, py::arg("shape"), py::arg("dtype"));
  module.def("limit_page_locked", &limit_page_locked, py::arg("most_bytes"));
  module.def("page_locked_bytes", &page_locked_bytes);
  module.def("driver_version", &cuda_driver_version);
  module.def("runtime_version", &cuda_runtime_version);
}

}  // namespace
}  // namespace skshap
