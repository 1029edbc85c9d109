// Tables by intervals, leaves in lanes, and cells that occur; skshapgpu/_core.pyi documents it.
#include <map>

#include "cells/builder.h"
#include "intervals/builder.h"
#include "lanes/builder.h"
#include "python/arguments.h"
#include "python/plan_results.h"

namespace skshap {
namespace {

IntervalLayout lay_out(const Plan& plan, uint32_t most_entries, double n_rows,
                       std::map<std::string, double> prices, double most_bytes, bool on_gpu) {
  if (plan.order != 1 || plan.tree_algorithm)
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
  return compile_interruptibly([&] { return lay_out_intervals(plan, interval_prices, limits); });
}

Plan compile_intervals(const Plan& plan, const IntervalLayout& layout, int n_threads, bool unwalked) {
  require_threads(n_threads);
  if (layout.plan != &plan) throw py::value_error("the layout is of another plan");
  if (unwalked && !plan.unwalked) throw py::value_error("only trees for Owen values can be unwalked");
  return compile_interruptibly([&] { return make_interval_plan(plan, layout, n_threads, unwalked); });
}

// Return a plan with leaves in lanes, or None without lanes.
py::object or_none(Plan plan) { return plan.lanes.any() ? py::cast(std::move(plan)) : py::none(); }

py::object compile_lanes(const Plan& plan, size_t most_bytes) {
  if (!can_have_lanes(plan)) return py::none();
  return or_none(compile_interruptibly([&] { return make_lane_plan(plan, most_bytes); }));
}

py::object compile_background_lanes(const py::dict& ensemble, const std::string& precision,
                                    const py::array& background, const py::array& weights,
                                    const std::string& index, size_t most_bytes, int n_threads) {
  const Precision plan_precision = precision_named(precision);
  const Index which = index_named(index);
  require_threads(n_threads);
  const BackgroundRows data = background_rows(ensemble, background, weights);
  if (data.rows.n_rows > kBlockRows) throw py::value_error("there are too many background rows for lanes");
  return or_none(with_view(ensemble, [&](const EnsembleView& view) {
    return make_background_lane_plan(view, plan_precision, data.rows, data.weights, which, most_bytes,
                                     n_threads);
  }));
}

py::object unit_fractions_of(const Plan& plan) {
  if (!can_have_cells(plan)) return py::none();
  const UnitFractions fractions = compile_interruptibly([&] { return unit_fractions(plan); });
  return py::make_tuple(fractions.units, fractions.walked);
}

Plan compile_cells(const Plan& plan, int n_threads) {
  require_threads(n_threads);
  if (!can_have_cells(plan)) throw py::value_error("these trees cannot be explained by cells");
  return compile_interruptibly([&] { return make_cell_plan(plan, n_threads); });
}

py::dict layout_info(const IntervalLayout& layout) {
  py::dict out;
  out["groups"] = list_of(layout.costs.groups);
  out["table_bytes"] = layout.costs.tables.bytes;
  out["lookup_seconds"] = layout.costs.lookup_seconds;
  out["build_seconds"] = layout.costs.build_seconds;
  return out;
}

}  // namespace

void bind_intervals(py::module_& module) {
  bind_class<IntervalLayout>(module, "IntervalLayout")
      .def(py::init(&lay_out), py::arg("plan"), py::arg("most_entries"), py::arg("n_rows"), py::arg("prices"),
           py::arg("most_bytes") = std::numeric_limits<double>::infinity(), py::arg("on_gpu") = false,
           KeepsArgument{})
      .def("info", &layout_info);
  module.def("interval_plan", &compile_intervals, py::arg("plan"), py::arg("layout"),
             py::arg("n_threads") = 1, py::arg("unwalked") = false);
  module.def("unit_fractions", &unit_fractions_of, py::arg("plan"));
  module.def("cell_plan", &compile_cells, py::arg("plan"), py::arg("n_threads") = 1);
  module.def("lane_plan", &compile_lanes, py::arg("plan"), py::arg("most_bytes"));
  module.def("background_lane_plan", &compile_background_lanes, py::arg("ensemble"), py::arg("precision"),
             py::arg("background"), py::arg("weights"), py::arg("index"), py::arg("most_bytes"),
             py::arg("n_threads") = 1);
}

}  // namespace skshap
