// Values of functions of the margin against background data; skshapgpu/_core.pyi documents it.
#include "background/rescaled_tables.h"
#include "python/arguments.h"
#include "python/ensemble_view.h"
#include "python/plan_results.h"

namespace skshap {
namespace {

Link link_named(const std::string& name) {
  if (name == "logistic") return Link::kLogistic;
  if (name == "log_loss") return Link::kLogLoss;
  if (name == "squared_error") return Link::kSquaredError;
  if (name == "exp") return Link::kExp;
  if (name == "gumbel") return Link::kGumbel;
  if (name == "normal") return Link::kNormal;
  throw py::value_error(
      "link must be 'logistic', 'log_loss', 'squared_error', 'exp', 'gumbel' or 'normal', not '" + name +
      "'");
}

RescaledPlan compile_rescaled(const py::dict& ensemble, const std::string& precision,
                              const py::array& background, const py::array& weights, const std::string& link,
                              double scale) {
  const Precision plan_precision = precision_named(precision);
  const Link which = link_named(link);
  const BackgroundRows data = background_rows(ensemble, background, weights);
  return with_view(ensemble, [&](const EnsembleView& view) {
    return make_rescaled_plan(view, plan_precision, data.rows, data.weights, which, scale);
  });
}

RescaledTables compile_rescaled_tables(const RescaledPlan& plan, const py::dict& ensemble,
                                       const py::array& background, size_t table_bytes, int64_t n_threads) {
  require_threads(n_threads);
  require_floats(background, "background");
  if (background.ndim() != 2 || background.shape(1) != plan.plan.n_inputs)
    throw py::value_error("background must be that of the plan");
  if (feature_count(ensemble) != plan.plan.n_inputs)
    throw py::value_error("the ensemble must be that of the plan");
  const Rows rows = rows_of(background);
  return with_view(ensemble, [&](const EnsembleView& view) {
    return make_rescaled_tables(plan, view, rows, table_bytes, n_threads);
  });
}

// Return the number of terms of each output.
std::vector<size_t> term_counts(const RescaledTables& tables) {
  std::vector<size_t> counts;
  for (const SeparableSlope& slope : tables.slopes) counts.push_back(slope.n_terms);
  return counts;
}

void explain_rescaled_rows(const RescaledPlan& plan, const py::array& X, py::array& values,
                           const py::object& margin, int n_threads, const py::object& labels, bool zeroed,
                           const py::object& slopes) {
  require_threads(n_threads);
  const Rows rows = host_rows(plan.plan, X);
  const Result result = checked_result(plan.plan, rows.n_rows, values, margin, zeroed);
  const double* const p = checked_labels(labels, rows.n_rows, has_labels(plan.link));
  const py::ssize_t n_background = static_cast<py::ssize_t>(plan.weights.size());
  const double* const s =
      optional_doubles(slopes, "slopes", {rows.n_rows, py::ssize_t{plan.plan.n_outputs}, n_background});
  run_interruptibly([&](const auto& interrupted) {
    return explain_rescaled(plan, rows, p, s, result, n_threads, interrupted);
  });
}

py::object costs_of_rescaled_tables(const RescaledPlan& plan, size_t table_bytes) {
  const std::optional<RescaledTableCosts> costs = rescaled_table_costs(plan, table_bytes);
  if (!costs) return py::none();
  py::dict out;
  out["n_patterns"] = costs->n_patterns;
  out["table_bytes"] = costs->bytes;
  return out;
}

// Return the margins of the background rows: [row][output].
py::array_t<double> background_margin(const RescaledPlan& plan) {
  const py::ssize_t n = static_cast<py::ssize_t>(plan.weights.size());
  py::array_t<double> out({n, py::ssize_t{plan.plan.n_outputs}});
  for (py::ssize_t o = 0; o < out.shape(1); ++o)
    for (py::ssize_t row = 0; row < n; ++row) out.mutable_at(row, o) = plan.margins[o * n + row];
  return out;
}

}  // namespace

void bind_rescaled_plans(py::module_& module) {
  bind_class<RescaledPlan>(module, "RescaledPlan")
      .def(py::init(&compile_rescaled), py::arg("ensemble"), py::arg("precision"), py::arg("background"),
           py::arg("weights"), py::arg("link"), py::arg("scale"))
      .def("explain", &explain_rescaled_rows, py::arg("X"), py::arg("values"), py::arg("margin").none(true),
           py::arg("n_threads"), py::arg("labels") = py::none(), py::arg("zeroed") = false,
           py::arg("slopes") = py::none())
      .def_property_readonly("background_margin", &background_margin)
      .def_property_readonly("constant", [](const RescaledPlan& plan) { return copy_of(plan.plan.constant); })
      .def_property_readonly("leaf_magnitude",
                             [](const RescaledPlan& plan) { return copy_of(plan.plan.leaf_magnitude); })
      .def("table_costs", &costs_of_rescaled_tables, py::arg("table_bytes"))
      .def("info", &outer_info<RescaledPlan>);
  bind_class<RescaledTables>(module, "RescaledTables")
      .def(py::init(&compile_rescaled_tables), py::arg("plan"), py::arg("ensemble"), py::arg("background"),
           py::arg("table_bytes"), py::arg("n_threads") = 1)
      .def_property_readonly("n_terms", &term_counts);
}

}  // namespace skshap
