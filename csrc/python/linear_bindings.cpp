// Linear leaves; skshapgpu/_core.pyi documents it.
#include "background/linear_leaves.h"
#include "python/arguments.h"
#include "python/ensemble_view.h"
#include "python/table_bindings.h"
#include "simd/kernels.h"

namespace skshap {
namespace {

LinearPlan compile(const py::dict& ensemble, const std::string& precision, const py::array& background,
                   const py::array& weights, const std::string& index, size_t sum_bytes, int n_threads) {
  const Precision plan_precision = precision_named(precision);
  const Index which = index_named(index);
  if (which == Index::kTaylor) throw py::value_error("index must be 'SII' or 'BII', not 'STII'");
  require_threads(n_threads);
  const BackgroundRows data = background_rows(ensemble, background, weights);
  const LinearAttributes attributes = linear_attributes(ensemble);
  const LinearLeavesView leaves{or_null(attributes.offsets), attributes.feature.data(),
                                attributes.coefficient.data(), attributes.intercept.data()};
  return with_view(
      ensemble,
      [&](const EnsembleView& view) {
        require_ensemble(view.value_width == 1, "linear leaves need trees of one output");
        return make_linear_plan(view, leaves, plan_precision, which, data.rows, data.weights, sum_bytes,
                                n_threads);
      },
      true);
}

void explain_rows(const LinearPlan& plan, const py::array& X, py::array& values, const py::object& margin,
                  int n_threads, const py::object& reach, bool zeroed) {
  require_threads(n_threads);
  const Rows rows = host_rows(plan.plan, X);
  const Result result = checked_result(plan.plan, rows.n_rows, values, margin, zeroed);
  double* const reach_data = optional_doubles(reach, "reach", {rows.n_rows, plan.plan.n_outputs});
  run_interruptibly([&](const auto& interrupted) {
    return explain_linear(plan, rows, result, reach_data, n_threads, interrupted);
  });
}

py::dict info(const LinearPlan& plan) {
  size_t n_linear = 0, n_patterns = 0;
  for (const LinearLeaf& leaf : plan.model.leaves) n_linear += leaf.n_terms > 0;
  for (const PatternSums& sums : plan.sums) n_patterns += sums.patterns.size();
  py::dict out;
  out["n_trees"] = plan.trees.size();
  out["n_leaves"] = plan.model.leaves.size();
  out["n_linear_leaves"] = n_linear;
  out["groups"] = py::list();
  out["n_features_used"] = plan.plan.features.size();
  out["n_patterns"] = n_patterns;
  out["table_bytes"] = plan.sum_bytes();
  out["borrowed_bytes"] = 0;
  out["bytes"] = plan.bytes();
  out["scratch_bytes_per_thread"] = scratch_bytes(plan);
  out["shared_bytes_per_thread"] = 0;
  out["precision"] = plan.plan.precision == Precision::kSingle ? "single" : "double";
  out["instruction_set"] = kernels().name;
  return out;
}

}  // namespace

void bind_linear(py::module_& module) {
  bind_class<LinearPlan>(module, "LinearPlan")
      .def(py::init(&compile), py::arg("ensemble"), py::arg("precision"), py::arg("background"),
           py::arg("weights"), py::arg("index") = "SII", py::arg("sum_bytes") = size_t{1} << 28,
           py::arg("n_threads") = 1)
      .def("explain", &explain_rows, py::arg("X"), py::arg("values"), py::arg("margin").none(true),
           py::arg("n_threads"), py::arg("reach") = py::none(), py::arg("zeroed") = false)
      .def_property_readonly("base_value",
                             [](const LinearPlan& plan) { return copy_of(plan.plan.base_value); })
      .def_property_readonly("constant", [](const LinearPlan& plan) { return copy_of(plan.plan.constant); })
      .def_property_readonly("leaf_magnitude",
                             [](const LinearPlan& plan) { return copy_of(plan.plan.leaf_magnitude); })
      .def("info", &info);
}

}  // namespace skshap
