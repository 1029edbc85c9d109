// The Python boundary of cuda/baselines/packing.h; skshapgpu/_cuda.pyi documents it.
#include <pybind11/stl.h>

#include "cuda/baselines/packing.h"
#include "python/bindings.h"

namespace skshap {
namespace {

py::dict path_summary(const Plan& plan, const std::string& packing) {
  PackedPaths packed;
  std::vector<uint32_t> lengths;
  {
    const WithoutGil release;
    const PathSet set = make_paths(plan);
    packed = pack_paths(set, packing_named(packing));
    for (const LeafPath& path : set.paths) lengths.push_back(path.length);
  }
  py::dict out;
  out["lengths"] = lengths;
  out["n_bins"] = packed.bins.size() - 1;
  out["utilisation"] = packed.utilisation;
  return out;
}

}  // namespace

void bind_packing(py::module_& module) {
  module.def(
      "pack",
      [](const std::vector<uint8_t>& sizes, const std::string& packing) {
        const Bins bins = pack(sizes, packing_named(packing));
        return std::make_pair(bins.bin, bins.n_bins);
      },
      py::arg("sizes"), py::arg("packing"));
  module.def("path_summary", &path_summary, py::arg("plan"), py::arg("packing"));
}

}  // namespace skshap
