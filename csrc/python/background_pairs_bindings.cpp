// Interactions against background data; skshapgpu/_core.pyi documents it.
#include "background/pair_tables.h"
#include "python/arguments.h"
#include "python/ensemble_view.h"
#include "python/plan_results.h"

namespace skshap {
namespace {

BackgroundPairsPlan compile_background_pairs(const py::dict& ensemble, const std::string& precision,
                                             const py::array& background, const py::array& weights,
                                             const std::string& name, size_t count_bytes, int n_threads) {
  const Precision plan_precision = precision_named(precision);
  const Index index = index_named(name);
  require_threads(n_threads);
  const BackgroundRows data = background_rows(ensemble, background, weights);
  return with_view(ensemble, [&](const EnsembleView& view) {
    return make_background_pairs_plan(view, plan_precision, data.rows, data.weights, index, count_bytes,
                                      n_threads);
  });
}

py::object explain_background_pairs_rows(const BackgroundPairsPlan& plan, const py::array& X,
                                         py::array& values, const py::object& margin, int n_threads,
                                         const py::object& matrices, const py::object& pairs,
                                         const py::object& base_value, bool zeroed) {
  require_threads(n_threads);
  const Rows rows = host_rows(plan.plan, X);
  Result result = checked_result(plan.plan, rows.n_rows, values, margin, zeroed);
  take_interactions(plan.plan, rows.n_rows, values, matrices, pairs, result);
  const std::unique_ptr<Gaps> gaps = gaps_of(plan.plan, base_value);
  result.gaps = gaps.get();
  run_interruptibly([&](const auto& interrupted) {
    return explain_background_pairs(plan, rows, result, n_threads, interrupted);
  });
  return largest_of(gaps);
}

Plan fill_pair_tables(const BackgroundPairsPlan& plan, size_t table_bytes, int n_threads) {
  require_threads(n_threads);
  return compile_interruptibly([&] { return make_pair_tables(plan, table_bytes, n_threads); });
}

py::object costs_of_pair_tables(const BackgroundPairsPlan& plan, size_t table_bytes) {
  const std::optional<PairTableCosts> costs = pair_table_costs(plan, table_bytes);
  if (!costs) return py::none();
  py::dict out;
  out["n_lookups"] = costs->n_lookups;
  out["n_numbers"] = costs->n_numbers;
  out["n_tests"] = costs->n_tests;
  out["table_bytes"] = costs->bytes;
  return out;
}

}  // namespace

void bind_background_pairs(py::module_& module) {
  bind_class<BackgroundPairsPlan>(module, "BackgroundPairsPlan")
      .def(py::init(&compile_background_pairs), py::arg("ensemble"), py::arg("precision"),
           py::arg("background"), py::arg("weights"), py::arg("index"), py::arg("count_bytes"),
           py::arg("n_threads") = 1)
      .def("explain", &explain_background_pairs_rows, py::arg("X"), py::arg("values"),
           py::arg("margin").none(true), py::arg("n_threads"), py::arg("matrices") = py::none(),
           py::arg("pairs") = py::none(), py::arg("base_value") = py::none(), py::arg("zeroed") = false)
      .def_property_readonly(
          "pairs", [](const BackgroundPairsPlan& plan) { return features_of(plan.plan, plan.plan.pairs); })
      .def("table_costs", &costs_of_pair_tables, py::arg("table_bytes"))
      .def("with_tables", &fill_pair_tables, py::arg("table_bytes"), py::arg("n_threads") = 1)
      .def("info", [](const BackgroundPairsPlan& plan) {
        py::dict out = outer_info(plan);
        out["table_bytes"] = plan.count_bytes();
        return out;
      });
}

}  // namespace skshap
