// The boundary to Python: it checks arguments and releases the GIL. skshapgpu/_core.pyi documents it.
#include "python/bindings.h"

#include <pybind11/stl.h>

#include <memory>
#include <numeric>

#include "background/leaf_weights.h"
#include "base/numbers.h"
#include "cpu/tree_algorithm.h"
#include "cpu/walk_time.h"
#include "plan/coded_trees.h"
#include "plan/owen_path.h"
#include "plan/owen_trees.h"
#include "python/arguments.h"
#include "python/ensemble_view.h"
#include "python/plan_results.h"
#include "simd/kernels.h"

namespace skshap {

void bind_arrays(py::module_& module);            // array_bindings.cpp
void bind_background_pairs(py::module_& module);  // background_pairs_bindings.cpp
void bind_dependence(py::module_& module);        // dependence_bindings.cpp
void bind_intervals(py::module_& module);         // interval_bindings.cpp
void bind_linear(py::module_& module);            // linear_bindings.cpp
void bind_rescaled_plans(py::module_& module);    // rescaled_bindings.cpp

py::list list_of(const std::vector<TreeGroup>& groups) {
  py::list out;
  for (const TreeGroup& group : groups) {
    py::dict item;
    item["algorithm"] = group.tables ? "tables" : "quadrature";
    item["n_nodes"] = group.cost.n_nodes;
    item["n_trees"] = group.cost.n_trees;
    item["n_leaves"] = group.cost.n_leaves;
    item["n_walked_leaves"] = group.cost.n_walked;
    item["n_lookups"] = group.cost.n_lookups;
    item["n_places"] = group.cost.n_places;
    item["table_bytes"] = group.cost.bytes;
    out.append(item);
  }
  return out;
}

py::dict info(const Plan& plan) {
  size_t n_repeated = 0;
  for (const DecideNode& node : plan.decide) n_repeated += node.previous != 0;
  py::dict out;
  out["n_trees"] = plan.trees.size() + plan.intervals.n_trees + plan.lanes.n_trees + plan.cells.n_trees;
  out["n_leaves"] = plan.n_leaves;
  out["n_repeated"] = n_repeated;
  out["groups"] = list_of(tree_groups(plan));
  const bool leaf_tables = !plan.tables.leaf_tables.empty();
  out["n_table_trees"] = leaf_tables ? plan.trees.size() : plan.tables.trees.size() + plan.intervals.n_trees;
  out["n_lookups"] = leaf_tables ? plan.tables.leaf_tables.size()
                                 : plan.tables.lookups.size() + plan.intervals.tables.size();
  out["n_chunks"] = plan.chunks.size();
  out["n_features_used"] = plan.features.size();
  out["n_leaves_without_table"] = plan.tables.leaves.size();
  out["n_patterns"] = plan.tables.patterns.size();
  out["lane_steps"] = plan.lanes.n_steps;
  out["n_mixed_places"] =
      std::accumulate(plan.lanes.n_mixed.begin(), plan.lanes.n_mixed.end(), size_t{0});  // see leaf_lanes.h
  out["table_bytes"] =
      plan.tables.table_bytes() + plan.intervals.table_bytes() + plan.lanes.bytes() + plan.cells.bytes();
  out["table_seconds"] = plan.tables.seconds;
  out["borrowed_bytes"] = plan.tables.borrowed_bytes();
  out["bytes"] = plan.bytes();
  out["scratch_bytes_per_thread"] = scratch_bytes(plan);
  out["shared_bytes_per_thread"] = shared_bytes(plan);
  out["precision"] = plan.precision == Precision::kSingle ? "single" : "double";
  out["instruction_set"] = kernels().name;
  return out;
}

namespace {

// Return the algorithm of this name, or null for the walk. The names are in
// skshapgpu/_common/algorithms.py.
const TreeAlgorithm* algorithm_named(const std::string& name) {
  if (name == "walk") return nullptr;
  std::string names = "'walk'";
  for (const TreeAlgorithm* algorithm : tree_algorithms()) {
    if (name == algorithm->name) return algorithm;
    names += std::string(", '") + algorithm->name + "'";
  }
  throw py::value_error("method must be one of " + names + ", not '" + name + "'");
}

Plan compile(const py::dict& ensemble, const std::string& precision, int order, const std::string& name,
             const std::string& tables, size_t table_bytes, int n_threads, const std::string& method,
             const py::object& stored) {
  const Precision plan_precision = precision_named(precision);
  const Index index = index_named(name);
  const TreeAlgorithm* const algorithm = algorithm_named(method);
  const bool has_tables = tables != "none" || (algorithm && algorithm->add_tables);
  if (order < 1 || order > kMaxOrder)
    throw py::value_error("order must be 1, 2 or 3, not " + std::to_string(order));
  if (order == 3 && index == Index::kTaylor)
    throw py::value_error("the index 'STII' is of order 2 at most, not 3");
  if (algorithm && !has_tables && (order > 1 || index != Index::kShapley))
    throw py::value_error("the method '" + method + "' computes SHAP values only: order 1, index 'SII'");
  require_threads(n_threads);
  const std::unique_ptr<StoredTables> contents = stored_tables_of(stored);
  if (has_tables && order != 1) throw py::value_error("only plans of order 1 have tables");
  if (!has_tables && contents) throw py::value_error("a plan without tables takes none that were stored");
  if (tables == "none")
    return with_view(ensemble, [&](const EnsembleView& view) {
      Plan plan = make_plan(view, plan_precision, order, index, !has_tables, n_threads);
      if (algorithm) set_algorithm(plan, *algorithm, {table_bytes, n_threads, contents.get()});
      return plan;
    });
  if (tables != "level_uniform")
    throw py::value_error("tables must be 'none' or 'level_uniform', not '" + tables + "'");
  if (algorithm) throw py::value_error("the method '" + method + "' has no tables of this kind");
  return with_view(ensemble, [&](const EnsembleView& view) {
    return make_level_plan(view, plan_precision, index, table_bytes, n_threads, contents.get());
  });
}

// Return the group of each player, or null.
std::vector<int32_t> groups_of(const py::dict& ensemble, const py::object& groups) {
  if (groups.is_none()) return {};
  const auto list = groups.cast<std::vector<int32_t>>();
  const auto player = attribute<int32_t>(ensemble, "player", -1);
  const auto* const end = player.data() + player.size();
  const py::ssize_t n_players =
      player.size() ? py::ssize_t{1} + *std::max_element(player.data(), end) : feature_count(ensemble);
  const bool valid = std::all_of(list.begin(), list.end(), [&](int32_t group) {
    return group >= 0 && static_cast<size_t>(group) < list.size();
  });
  if (static_cast<py::ssize_t>(list.size()) != n_players || !valid)
    throw py::value_error("groups must have a number, below that of the players, for each player");
  return list;
}

Plan compile_owen(const py::dict& ensemble, const std::string& precision, const py::object& groups,
                  int n_threads) {
  const Precision plan_precision = precision_named(precision);
  require_threads(n_threads);
  if (groups.is_none()) throw py::type_error("groups must be a list");
  const std::vector<int32_t> list = groups_of(ensemble, groups);
  return with_view(ensemble, [&](const EnsembleView& view) {
    return make_owen_plan(view, plan_precision, list.data(), n_threads);
  });
}

Plan compile_background(const py::dict& ensemble, const std::string& precision, const py::array& background,
                        const py::array& weights, const std::string& name, size_t table_bytes, int n_threads,
                        const py::object& stored, const py::object& groups) {
  const Precision plan_precision = precision_named(precision);
  const Index index = index_named(name);
  require_threads(n_threads);
  const std::unique_ptr<StoredTables> contents = stored_tables_of(stored);
  const BackgroundRows data = background_rows(ensemble, background, weights);
  const std::vector<int32_t> list = groups_of(ensemble, groups);
  return with_view(ensemble, [&](const EnsembleView& view) {
    return make_background_plan(view, plan_precision, data.rows, data.weights, index, table_bytes, n_threads,
                                contents.get(), list.empty() ? nullptr : list.data());
  });
}

void add_leaf_weights_of(const py::dict& ensemble, const py::array& rows, const py::array& weights,
                         const py::object& weight_at, int n_threads) {
  require_threads(n_threads);
  require_floats(rows, "rows");
  if (rows.ndim() != 2) throw py::value_error("rows must have two dimensions");
  const double* const w = doubles_by_row(weights, "weights", rows.shape(0));
  double* const out =
      checked_doubles(weight_at, "weight_at", {attribute<int32_t>(ensemble, "left", -1).size()});
  const py::ssize_t n_columns = rows.shape(1);
  Rows row_view = rows_of(rows);
  Interrupt interrupted;
  const bool complete = with_view(ensemble, [&](const EnsembleView& view) {
    const CodedEnsemble coded(view, n_threads);
    row_view.packed = n_columns != coded.columns.n_inputs;
    if (row_view.packed && n_columns != coded.columns.n_used_inputs)
      throw std::invalid_argument("rows must have all columns, or those that trees test");
    return add_leaf_weights(coded, row_view, w, n_threads, std::ref(interrupted), out);
  });
  if (!complete) throw py::error_already_set();
}

py::object explain_rows(const Plan& plan, const py::array& X, py::array& values, const py::object& margin,
                        int n_threads, const py::object& matrices, const py::object& pairs,
                        const py::object& triples, const py::object& base_value, bool zeroed) {
  require_threads(n_threads);
  const Rows rows = host_rows(plan, X);
  Result result = checked_result(plan, rows.n_rows, values, margin, zeroed);
  take_interactions(plan, rows.n_rows, values, matrices, pairs, result, triples);
  const std::unique_ptr<Gaps> gaps = gaps_of(plan, base_value);
  result.gaps = gaps.get();
  run_interruptibly(
      [&](const auto& interrupted) { return explain(plan, rows, result, n_threads, interrupted); });
  return largest_of(gaps);
}

py::tuple walk_seconds(const Plan& plan, const py::array& X) {
  require_walks(plan);
  const Rows rows = checked_rows(plan, X);
  if (plan.order > 1 || rows.n_rows < 1 || rows.n_rows > kMaxTimedRows)
    throw py::value_error("the plan must be of order 1, and X have from 1 to " +
                          std::to_string(kMaxTimedRows) + " rows");
  const WalkTime time = time_walk(plan, rows);
  return py::make_tuple(time.decide, time.walk);
}

size_t parse_numbers(std::string_view text, py::array& numbers) {
  const size_t n = static_cast<size_t>(numbers.size());
  check_array(numbers, "numbers", {numbers.size()});
  if (holds<double>(numbers)) return read_numbers(text, static_cast<double*>(numbers.mutable_data()), n);
  if (holds<int64_t>(numbers)) return read_numbers(text, static_cast<int64_t*>(numbers.mutable_data()), n);
  throw py::type_error("numbers must be float64 or int64");
}

SKSHAP_MODULE(_core, module) {
  py::register_exception<TableMemoryError>(module, "TableMemoryError", PyExc_MemoryError);
  bind_class<Plan>(module, "Plan")
      .def(py::init(&compile), py::arg("ensemble"), py::arg("precision"), py::arg("order") = 1,
           py::arg("index") = "SII", py::arg("tables") = "none", py::arg("table_bytes") = size_t{1} << 28,
           py::arg("n_threads") = 1, py::arg("method") = "walk", py::arg("stored") = py::none())
      .def("explain", &explain_rows, py::arg("X"), py::arg("values"), py::arg("margin").none(true),
           py::arg("n_threads"), py::arg("matrices") = py::none(), py::arg("pairs") = py::none(),
           py::arg("triples") = py::none(), py::arg("base_value") = py::none(), py::arg("zeroed") = false)
      .def_property_readonly("pairs", [](const Plan& plan) { return features_of(plan, plan.pairs); })
      .def_property_readonly("triples", [](const Plan& plan) { return features_of(plan, plan.triples); })
      .def_property_readonly("base_value", [](const Plan& plan) { return copy_of(plan.base_value); })
      .def_property_readonly("constant", [](const Plan& plan) { return copy_of(plan.constant); })
      .def_property_readonly("leaf_magnitude", [](const Plan& plan) { return copy_of(plan.leaf_magnitude); })
      .def("contents", &contents)
      .def("info", &info);
  module.def("background_plan", &compile_background, py::arg("ensemble"), py::arg("precision"),
             py::arg("background"), py::arg("weights"), py::arg("index"), py::arg("table_bytes"),
             py::arg("n_threads") = 1, py::arg("stored") = py::none(), py::arg("groups") = py::none());
  module.def("owen_plan", &compile_owen, py::arg("ensemble"), py::arg("precision"), py::arg("groups"),
             py::arg("n_threads") = 1);
  module.def("has_owen_leaves", &has_owen_leaves, py::arg("plan"));
  bind_call_check(module);
  bind_arrays(module);
  bind_background_pairs(module);
  bind_dependence(module);
  bind_intervals(module);
  bind_linear(module);
  bind_rescaled_plans(module);
  module.def("add_leaf_weights", &add_leaf_weights_of, py::arg("ensemble"), py::arg("rows"),
             py::arg("weights"), py::arg("weight_at"), py::arg("n_threads") = 1);
  module.def("parse_numbers", &parse_numbers, py::arg("text"), py::arg("numbers"));
  module.def("walk_seconds", &walk_seconds, py::arg("plan"), py::arg("X"));
  module.def("instruction_set", [] { return std::string(kernels().name); });
  module.def("instruction_sets", &supported_kernels);
}

}  // namespace
}  // namespace skshap
