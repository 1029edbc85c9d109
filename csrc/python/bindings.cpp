// The boundary to Python: it checks arguments and releases the GIL. skshapgpu/_core.pyi documents it.
#include "python/bindings.h"

#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>

#include "background/background_pairs.h"
#include "background/leaf_weights.h"
#include "background/pair_tables.h"
#include "background/rescaled_tables.h"
#include "base/numbers.h"
#include "cpu/tree_algorithm.h"
#include "cpu/walk_time.h"
#include "intervals/builder.h"
#include "plan/columns.h"
#include "plan/owen_path.h"
#include "plan/owen_trees.h"
#include "python/arguments.h"
#include "python/ensemble_view.h"
#include "python/table_bindings.h"
#include "simd/kernels.h"
#include "tables/fast_v2.h"
#include "tables/tree_costs.h"

namespace skshap {

void bind_arrays(py::module_& module);      // array_bindings.cpp
void bind_dependence(py::module_& module);  // dependence_bindings.cpp
void bind_linear(py::module_& module);      // linear_bindings.cpp

namespace {

// The method by which a plan computes path-dependent values. The names of the methods are in
// skshapgpu/_engine/algorithms.py.
struct NamedMethod {
  Method method;
  const TreeAlgorithm* tree_algorithm;
};

NamedMethod method_named(const std::string& name) {
  if (name == "walk") return {Method::kWalk, nullptr};
  if (name == "fast_v2") return {Method::kFastV2, nullptr};
  std::string names = "'walk'";
  for (const TreeAlgorithm* algorithm : tree_algorithms()) {
    if (name == algorithm->name) return {Method::kWalk, algorithm};
    names += std::string(", '") + algorithm->name + "'";
  }
  throw py::value_error("method must be " + names + " or 'fast_v2', not '" + name + "'");
}

Plan compile(const py::dict& ensemble, const std::string& precision, int order, const std::string& name,
             const std::string& tables, size_t table_bytes, int n_threads, const std::string& method_name,
             const py::object& stored) {
  const Precision plan_precision = precision_named(precision);
  const Index index = index_named(name);
  const NamedMethod method = method_named(method_name);
  if (order < 1 || order > kMaxOrder)
    throw py::value_error("order must be 1, 2 or 3, not " + std::to_string(order));
  if (order == 3 && index == Index::kTaylor)
    throw py::value_error("the index 'STII' is of order 2 at most, not 3");
  if (method.tree_algorithm && (order > 1 || index != Index::kShapley))
    throw py::value_error("the method '" + method_name + "' computes SHAP values only: order 1, index 'SII'");
  require_threads(n_threads);
  const std::unique_ptr<StoredTables> contents = stored_tables_of(stored);
  if (tables == "none" && method.method == Method::kFastV2) {
    if (order != 1) throw py::value_error("only plans of order 1 have tables");
    return with_view(ensemble, [&](const EnsembleView& view) {
      return make_fast_v2_plan(view, plan_precision, index, table_bytes, n_threads, contents.get());
    });
  }
  if (tables == "none") {
    if (contents) throw py::value_error("a plan without tables takes none that were stored");
    return with_view(ensemble, [&](const EnsembleView& view) {
      Plan plan = make_plan(view, plan_precision, order, index, true, n_threads);
      if (method.tree_algorithm) set_algorithm(plan, *method.tree_algorithm);
      return plan;
    });
  }
  if (tables != "level_uniform")
    throw py::value_error("tables must be 'none' or 'level_uniform', not '" + tables + "'");
  if (order != 1) throw py::value_error("only plans of order 1 have tables");
  if (method.method != Method::kWalk || method.tree_algorithm)
    throw py::value_error("the method '" + method_name + "' has no tables of this kind");
  return with_view(ensemble, [&](const EnsembleView& view) {
    return make_level_plan(view, plan_precision, index, table_bytes, n_threads, contents.get());
  });
}

IntervalLayout lay_out(const Plan& plan, uint32_t most_entries, double n_rows,
                       std::map<std::string, double> prices, double most_bytes, bool on_gpu) {
  if (plan.order != 1 || plan.method != Method::kWalk || plan.tree_algorithm)
    throw py::value_error("only plans for values, by the walk or background data, have tables by intervals");
  if (plan.intervals.any()) throw py::value_error("the plan has tables by intervals");
  const auto price = [&](const char* name) {
    const auto entry = prices.extract(name);
    if (!entry) throw py::value_error(std::string("prices must have ") + name);
    return entry.mapped();
  };
  const IntervalPrices interval_prices{.leaf = price("leaf"),
                                       .leaf_node = price("leaf_node"),
                                       .table = price("table"),
                                       .lookup = price("lookup"),
                                       .doubling = price("doubling"),
                                       .small_bytes = price("small_bytes"),
                                       .line_bytes = price("line_bytes"),
                                       .built_leaf = price("built_leaf"),
                                       .built_table = price("built_table"),
                                       .unit_node = price("unit_node"),
                                       .entry = price("entry"),
                                       .byte = price("byte")};
  const IntervalLimits limits{most_entries, price("least_leaves"), n_rows, most_bytes, on_gpu};
  if (!prices.empty()) throw py::value_error("there is no price '" + prices.begin()->first + "'");
  const WithoutGil release;
  return lay_out_intervals(plan, interval_prices, limits);
}

Plan compile_intervals(const Plan& plan, const IntervalLayout& layout, int n_threads, bool unwalked) {
  require_threads(n_threads);
  if (layout.plan != &plan) throw py::value_error("the layout is of another plan");
  if (unwalked && !plan.unwalked) throw py::value_error("only trees for Owen values can be unwalked");
  const WithoutGil release;
  return make_interval_plan(plan, layout, n_threads, unwalked);
}

// Return the group of each player, or null.
std::vector<int32_t> groups_of(const py::dict& ensemble, const py::object& groups) {
  if (groups.is_none()) return {};
  const auto list = groups.cast<std::vector<int32_t>>();
  const auto player = attribute<int32_t>(ensemble, "player", -1);
  const auto* const end = player.data() + player.size();
  const py::ssize_t n_players =
      player.size() ? 1 + *std::max_element(player.data(), end) : ensemble["n_features"].cast<py::ssize_t>();
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
  const Rows rows = background_rows(ensemble, background, weights);
  const double* const p = static_cast<const double*>(weights.data());
  const std::vector<int32_t> list = groups_of(ensemble, groups);
  return with_view(ensemble, [&](const EnsembleView& view) {
    return make_background_plan(view, plan_precision, rows, p, index, table_bytes, n_threads, contents.get(),
                                list.empty() ? nullptr : list.data());
  });
}

BackgroundPairsPlan compile_background_pairs(const py::dict& ensemble, const std::string& precision,
                                             const py::array& background, const py::array& weights,
                                             const std::string& name, size_t count_bytes, int n_threads) {
  const Precision plan_precision = precision_named(precision);
  const Index index = index_named(name);
  require_threads(n_threads);
  const Rows rows = background_rows(ensemble, background, weights);
  const double* const p = static_cast<const double*>(weights.data());
  return with_view(ensemble, [&](const EnsembleView& view) {
    return make_background_pairs_plan(view, plan_precision, rows, p, index, count_bytes, n_threads);
  });
}

void add_leaf_weights_of(const py::dict& ensemble, const py::array& rows, const py::array& weights,
                         const py::object& weight_at, int n_threads) {
  require_threads(n_threads);
  require_floats(rows, "rows");
  if (rows.ndim() != 2) throw py::value_error("rows must have two dimensions");
  require_weights(weights, rows.shape(0));
  double* const out = optional_doubles(weight_at, "weight_at", {ensemble["left"].cast<py::array>().size()});
  if (!out) throw py::type_error("weight_at must be a float64 array");
  const double* const w = static_cast<const double*>(weights.data());
  const py::ssize_t n_columns = rows.shape(1);
  Rows row_view = rows_of(rows);
  Interrupt interrupted;
  const bool complete = with_view(ensemble, [&](const EnsembleView& view) {
    row_view.packed = n_columns != view.n_features;
    if (row_view.packed && n_columns != UsedFeatures(view).view().n_features)
      throw std::invalid_argument("rows must have all columns, or those that trees test");
    return add_leaf_weights(view, row_view, w, n_threads, std::ref(interrupted), out);
  });
  if (!complete) throw py::error_already_set();
}

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
  const Rows rows = background_rows(ensemble, background, weights);
  const double* const p = static_cast<const double*>(weights.data());
  return with_view(ensemble, [&](const EnsembleView& view) {
    return make_rescaled_plan(view, plan_precision, rows, p, which, scale);
  });
}

RescaledTables compile_rescaled_tables(const RescaledPlan& plan, const py::dict& ensemble,
                                       const py::array& background, size_t table_bytes, int64_t n_threads) {
  require_threads(n_threads);
  require_floats(background, "background");
  if (background.ndim() != 2 || background.shape(1) != plan.plan.n_inputs)
    throw py::value_error("background must be that of the plan");
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

using BaseValue = std::optional<std::vector<double>>;

// Return the receiver of the additivity gaps, or null if there are no base values. There is one base value
// for each output.
std::unique_ptr<Gaps> gaps_of(const Plan& plan, const BaseValue& base_value) {
  if (!base_value) return nullptr;
  if (base_value->size() != static_cast<size_t>(plan.n_outputs))
    throw py::value_error("base_value must have one element for each output");
  return std::make_unique<Gaps>(*base_value);
}

py::object largest_of(const std::unique_ptr<Gaps>& gaps) {
  if (!gaps) return py::none();
  return copy_of(gaps->largest());
}

py::object explain_rows(const Plan& plan, const py::array& X, py::array& values, const py::object& margin,
                        int n_threads, const py::object& matrices, const py::object& pairs,
                        const py::object& triples, const BaseValue& base_value, bool zeroed) {
  require_threads(n_threads);
  const Rows rows = host_rows(plan, X);
  Result result = checked_result(plan, rows.n_rows, values, margin);
  take_interactions(plan, rows.n_rows, values, matrices, pairs, result, triples);
  result.zeroed = zeroed;
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

py::object explain_background_pairs_rows(const BackgroundPairsPlan& plan, const py::array& X,
                                         py::array& values, const py::object& margin, int n_threads,
                                         const py::object& matrices, const py::object& pairs,
                                         const BaseValue& base_value, bool zeroed) {
  require_threads(n_threads);
  const Rows rows = host_rows(plan.plan, X);
  Result result = checked_result(plan.plan, rows.n_rows, values, margin);
  result.zeroed = zeroed;
  take_interactions(plan.plan, rows.n_rows, values, matrices, pairs, result);
  const std::unique_ptr<Gaps> gaps = gaps_of(plan.plan, base_value);
  result.gaps = gaps.get();
  run_interruptibly([&](const auto& interrupted) {
    return explain_background_pairs(plan, rows, result, n_threads, interrupted);
  });
  return largest_of(gaps);
}

void explain_rescaled_rows(const RescaledPlan& plan, const py::array& X, py::array& values,
                           const py::object& margin, int n_threads, const py::object& labels, bool zeroed) {
  require_threads(n_threads);
  const Rows rows = host_rows(plan.plan, X);
  Result result = checked_result(plan.plan, rows.n_rows, values, margin);
  result.zeroed = zeroed;
  const double* const p = checked_labels(labels, rows.n_rows, has_labels(plan.link));
  run_interruptibly([&](const auto& interrupted) {
    return explain_rescaled(plan, rows, p, result, n_threads, interrupted);
  });
}

Plan fill_pair_tables(const BackgroundPairsPlan& plan, size_t table_bytes, int n_threads) {
  require_threads(n_threads);
  const WithoutGil release;
  return make_pair_tables(plan, table_bytes, n_threads);
}

py::object table_costs(const BackgroundPairsPlan& plan, size_t table_bytes) {
  const std::optional<PairTableCosts> costs = pair_table_costs(plan, table_bytes);
  if (!costs) return py::none();
  py::dict out;
  out["n_lookups"] = costs->n_lookups;
  out["n_numbers"] = costs->n_numbers;
  out["n_tests"] = costs->n_tests;
  out["table_bytes"] = costs->bytes;
  return out;
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

py::array_t<double> base_value(const Plan& plan) { return copy_of(plan.base_value); }

py::array_t<double> constant(const Plan& plan) { return copy_of(plan.constant); }

py::array_t<double> leaf_magnitude(const Plan& plan) { return copy_of(plan.leaf_magnitude); }

py::array_t<int32_t> feature_pairs(const Plan& plan) {
  py::array_t<int32_t> out({static_cast<py::ssize_t>(plan.pairs.size()), py::ssize_t{2}});
  int32_t* p = out.mutable_data();
  for (const FeaturePair pair : plan.pairs) {
    *p++ = plan.features[pair.first];
    *p++ = plan.features[pair.second];
  }
  return out;
}

py::array_t<int32_t> feature_triples(const Plan& plan) {
  py::array_t<int32_t> out({static_cast<py::ssize_t>(plan.triples.size()), py::ssize_t{3}});
  int32_t* p = out.mutable_data();
  for (const FeatureTriple triple : plan.triples) {
    *p++ = plan.features[triple.first];
    *p++ = plan.features[triple.second];
    *p++ = plan.features[triple.third];
  }
  return out;
}

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

py::dict layout_info(const IntervalLayout& layout) {
  py::dict out;
  out["groups"] = list_of(layout.costs.groups);
  out["table_bytes"] = layout.costs.tables.bytes;
  out["lookup_seconds"] = layout.costs.lookup_seconds;
  out["build_seconds"] = layout.costs.build_seconds;
  return out;
}

py::dict info(const Plan& plan) {
  size_t n_repeated = 0;
  for (const DecideNode& node : plan.decide) n_repeated += node.previous != 0;
  py::dict out;
  out["n_trees"] = plan.trees.size() + plan.intervals.n_trees;
  out["n_leaves"] = plan.n_leaves;
  out["n_repeated"] = n_repeated;
  out["groups"] = list_of(tree_groups(plan));
  const bool leaf_tables = plan.method == Method::kFastV2;
  out["n_table_trees"] = leaf_tables ? plan.trees.size() : plan.tables.trees.size() + plan.intervals.n_trees;
  out["n_lookups"] = leaf_tables ? plan.tables.leaf_tables.size()
                                 : plan.tables.lookups.size() + plan.intervals.tables.size();
  out["n_chunks"] = plan.chunks.size();
  out["n_features_used"] = plan.features.size();
  out["n_leaves_without_table"] = plan.tables.leaves.size();
  out["n_patterns"] = plan.tables.patterns.size();
  out["table_bytes"] = plan.tables.table_bytes() + plan.intervals.table_bytes();
  out["table_seconds"] = plan.tables.seconds;
  out["borrowed_bytes"] = plan.tables.borrowed_bytes();
  out["bytes"] = plan.bytes();
  out["scratch_bytes_per_thread"] = scratch_bytes(plan);
  out["shared_bytes_per_thread"] = shared_bytes(plan);
  out["precision"] = plan.precision == Precision::kSingle ? "single" : "double";
  out["instruction_set"] = kernels().name;
  return out;
}

// Return the information about a plan that contains another plan.
template <class OuterPlan>
py::dict outer_info(const OuterPlan& plan) {
  py::dict out = info(plan.plan);
  out["scratch_bytes_per_thread"] = scratch_bytes(plan);
  out["shared_bytes_per_thread"] = 0;
  out["bytes"] = plan.bytes();
  return out;
}

size_t parse_numbers(std::string_view text, py::array& numbers) {
  const size_t n = static_cast<size_t>(numbers.size());
  check_array(numbers, "numbers", {numbers.size()});
  if (holds<double>(numbers)) return read_numbers(text, static_cast<double*>(numbers.mutable_data()), n);
  if (holds<int64_t>(numbers)) return read_numbers(text, static_cast<int64_t*>(numbers.mutable_data()), n);
  throw py::type_error("numbers must be float64 or int64");
}

PYBIND11_MODULE(_core, module) {
  py::register_exception<TableMemoryError>(module, "TableMemoryError", PyExc_MemoryError);
  py::class_<Plan>(module, "Plan")
      .def(py::init(&compile), py::arg("ensemble"), py::arg("precision"), py::arg("order") = 1,
           py::arg("index") = "SII", py::arg("tables") = "none", py::arg("table_bytes") = size_t{1} << 28,
           py::arg("n_threads") = 1, py::arg("method") = "walk", py::arg("stored") = py::none())
      .def("explain", &explain_rows, py::arg("X"), py::arg("values"), py::arg("margin").none(true),
           py::arg("n_threads"), py::arg("matrices") = py::none(), py::arg("pairs") = py::none(),
           py::arg("triples") = py::none(), py::arg("base_value") = py::none(), py::arg("zeroed") = false)
      .def_property_readonly("pairs", &feature_pairs)
      .def_property_readonly("triples", &feature_triples)
      .def_property_readonly("base_value", &base_value)
      .def_property_readonly("constant", &constant)
      .def_property_readonly("leaf_magnitude", &leaf_magnitude)
      .def("contents", &contents)
      .def("info", &info);
  py::class_<IntervalLayout>(module, "IntervalLayout")
      .def(py::init(&lay_out), py::arg("plan"), py::arg("most_entries"), py::arg("n_rows"), py::arg("prices"),
           py::arg("most_bytes") = std::numeric_limits<double>::infinity(), py::arg("on_gpu") = false,
           py::keep_alive<1, 2>())
      .def("info", &layout_info);
  module.def("interval_plan", &compile_intervals, py::arg("plan"), py::arg("layout"),
             py::arg("n_threads") = 1, py::arg("unwalked") = false);
  module.def("background_plan", &compile_background, py::arg("ensemble"), py::arg("precision"),
             py::arg("background"), py::arg("weights"), py::arg("index"), py::arg("table_bytes"),
             py::arg("n_threads") = 1, py::arg("stored") = py::none(), py::arg("groups") = py::none());
  module.def("owen_plan", &compile_owen, py::arg("ensemble"), py::arg("precision"), py::arg("groups"),
             py::arg("n_threads") = 1);
  module.def("has_owen_leaves", &has_owen_leaves, py::arg("plan"));
  py::class_<RescaledPlan>(module, "RescaledPlan")
      .def(py::init(&compile_rescaled), py::arg("ensemble"), py::arg("precision"), py::arg("background"),
           py::arg("weights"), py::arg("link"), py::arg("scale"))
      .def("explain", &explain_rescaled_rows, py::arg("X"), py::arg("values"), py::arg("margin").none(true),
           py::arg("n_threads"), py::arg("labels") = py::none(), py::arg("zeroed") = false)
      .def_property_readonly("background_margin", &background_margin)
      .def_property_readonly("constant", [](const RescaledPlan& plan) { return constant(plan.plan); })
      .def_property_readonly("leaf_magnitude",
                             [](const RescaledPlan& plan) { return leaf_magnitude(plan.plan); })
      .def("table_costs", &costs_of_rescaled_tables, py::arg("table_bytes"))
      .def("info", &outer_info<RescaledPlan>);
  py::class_<RescaledTables>(module, "RescaledTables")
      .def(py::init(&compile_rescaled_tables), py::arg("plan"), py::arg("ensemble"), py::arg("background"),
           py::arg("table_bytes"), py::arg("n_threads") = 1)
      .def_property_readonly("n_terms", &term_counts);
  py::class_<BackgroundPairsPlan>(module, "BackgroundPairsPlan")
      .def(py::init(&compile_background_pairs), py::arg("ensemble"), py::arg("precision"),
           py::arg("background"), py::arg("weights"), py::arg("index"), py::arg("count_bytes"),
           py::arg("n_threads") = 1)
      .def("explain", &explain_background_pairs_rows, py::arg("X"), py::arg("values"),
           py::arg("margin").none(true), py::arg("n_threads"), py::arg("matrices") = py::none(),
           py::arg("pairs") = py::none(), py::arg("base_value") = py::none(), py::arg("zeroed") = false)
      .def_property_readonly("pairs",
                             [](const BackgroundPairsPlan& plan) { return feature_pairs(plan.plan); })
      .def("table_costs", &table_costs, py::arg("table_bytes"))
      .def("with_tables", &fill_pair_tables, py::arg("table_bytes"), py::arg("n_threads") = 1)
      .def("info", [](const BackgroundPairsPlan& plan) {
        py::dict out = outer_info(plan);
        out["table_bytes"] = plan.count_bytes();
        return out;
      });
  bind_call_check(module);
  bind_arrays(module);
  bind_dependence(module);
  bind_linear(module);
  module.def("add_leaf_weights", &add_leaf_weights_of, py::arg("ensemble"), py::arg("rows"),
             py::arg("weights"), py::arg("weight_at"), py::arg("n_threads") = 1);
  module.def("parse_numbers", &parse_numbers, py::arg("text"), py::arg("numbers"));
  module.def("walk_seconds", &walk_seconds, py::arg("plan"), py::arg("X"));
  module.def("instruction_set", [] { return std::string(kernels().name); });
  module.def("instruction_sets", &supported_kernels);
}

}  // namespace
}  // namespace skshap
