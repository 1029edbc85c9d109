#include "intervals/layout.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "plan/quadrature.h"
#include "simd/kernels.h"

namespace skshap {
namespace {

// Features of a window, or of a table of several units: for one output, their sums fill a cache line in
// single precision.
constexpr size_t kWindowFeatures = 16;
// Larger tables than these never pay. Several share the numbers of 16 bits.
constexpr uint32_t kMostEntries = (1 << 16) / kTablesAtOnce;
// Models that use more features would need many windows; laying out their tables was measured to take longer
// than the tables save.
constexpr size_t kMostFeatures = 32;

class Layout {
 public:
  Layout(const Plan& plan, const IntervalPrices& prices, const IntervalLimits& limits)
      : plan_(plan),
        prices_(prices),
        limits_(limits),
        most_entries_(std::min(limits.most_entries, kMostEntries)) {
    out_.plan = &plan;
  }

  IntervalLayout lay_out() {
    // The index is computed from codes of 16 bits.
    if (plan_.wide_codes || plan_.features.size() > kMostFeatures) {
      out_.units.first_of_tree.assign(plan_.trees.size() + 1, 0);
    } else {
      out_.units = find_units(plan_, most_entries_, limits_.least_leaves);
      pack();
      if (drop_trees()) pack();
    }
    sum_costs();
    return std::move(out_);
  }

 private:
  void pack() {
    out_.tables = pack_units(plan_, out_.units, most_entries_, kWindowFeatures);
    out_.windows = group_tables(out_.tables, kWindowFeatures);
  }

  size_t n_leaves(size_t tree) const { return plan_.trees[tree].n_inner + 1; }
  size_t n_leaf_outputs(size_t tree) const { return n_used_outputs(plan_, chunk_of(plan_, tree)); }
  double walk_seconds(size_t tree) const {
    // Each further output of a leaf takes about this fraction of the work for the first.
    const double work = 1 + 0.7 * static_cast<double>(n_leaf_outputs(tree) - 1);
    return static_cast<double>(n_leaves(tree)) * work *
           (prices_.leaf + prices_.leaf_node * chunk_of(plan_, tree).n_nodes);
  }
  size_t row_bytes(const PackedWindow& window) const {
    return padded_sums(window_sums(plan_, window)) * element_bytes(plan_);
  }
  double lookup_seconds(const PackedTable& table, size_t row_bytes) const {
    const double bytes = static_cast<double>(table.n_entries) * static_cast<double>(row_bytes);
    const double lines = std::max(1.0, static_cast<double>(row_bytes) / kRowBytes);
    return lines *
           (prices_.lookup + prices_.doubling * std::max(0.0, std::log2(bytes / prices_.small_bytes)));
  }
  double build_seconds(const PackedTable& table, const Unit& unit, size_t row_bytes) const {
    const double lines = std::max(1.0, static_cast<double>(row_bytes) / kRowBytes);
    const double walk = (unit.n_nodes + 1) * (prices_.leaf + 4 * prices_.leaf_node);
    return unit.n_nodes * prices_.unit_node + unit.n_entries * (walk + prices_.entry * lines) +
           (table.units.size() > 1 ? table.n_entries * prices_.lookup * lines : 0);
  }

  // Drop the units of trees that are walked in less time; return whether there are any.
  bool drop_trees() {
    std::vector<double> seconds(plan_.trees.size(), 0.0);
    for (const PackedWindow& window : out_.windows)
      for (const size_t i : window.tables) {
        const PackedTable& table = out_.tables[i];
        const double each = limits_.n_rows * lookup_seconds(table, row_bytes(window)) /
                            static_cast<double>(table.units.size());
        for (const size_t unit : table.units)
          seconds[out_.units.units[unit].tree] +=
              each + build_seconds(table, out_.units.units[unit], row_bytes(window));
      }
    std::vector<Unit> kept;
    std::vector<size_t> first{0};
    for (size_t tree = 0; tree < plan_.trees.size(); ++tree) {
      if (seconds[tree] < limits_.n_rows * walk_seconds(tree))
        kept.insert(kept.end(), out_.units.units.begin() + out_.units.first_of_tree[tree],
                    out_.units.units.begin() + out_.units.first_of_tree[tree + 1]);
      first.push_back(kept.size());
    }
    if (kept.size() == out_.units.units.size()) return false;
    out_.units.units = std::move(kept);
    out_.units.first_of_tree = std::move(first);
    return true;
  }

  void sum_costs() {
    IntervalCosts& costs = out_.costs;
    TableCost tables{0, 0, 0, out_.tables.size(), 0, 0, 0};
    std::map<int, TableCost> walked;
    for (size_t tree = 0; tree < plan_.trees.size(); ++tree) {
      const int n_nodes = quadrature_nodes(plan_.index, plan_.trees[tree].n_features);
      TableCost& cost = out_.units.has(tree)
                            ? tables
                            : walked.try_emplace(n_nodes, TableCost{n_nodes, 0, 0, 0, 0, 0, 0}).first->second;
      cost.n_nodes = std::max(cost.n_nodes, n_nodes);
      ++cost.n_trees;
      cost.n_leaves += n_leaves(tree);
    }
    for (const PackedWindow& window : out_.windows) {
      const size_t bytes = row_bytes(window);
      for (const size_t i : window.tables) {
        const PackedTable& table = out_.tables[i];
        tables.bytes +=
            table.n_entries * (bytes + sizeof(double) * (window.output < 0 ? plan_.n_outputs : 1));
        costs.lookup_seconds += lookup_seconds(table, bytes);
        for (const size_t unit : table.units)
          costs.build_seconds += build_seconds(table, out_.units.units[unit], bytes);
      }
    }
    costs.bytes = tables.bytes;
    for (const auto& [n_nodes, cost] : walked) costs.groups.push_back({false, cost});
    if (tables.n_trees) costs.groups.push_back({true, tables});
  }

  const Plan& plan_;
  const IntervalPrices prices_;
  const IntervalLimits limits_;
  const uint32_t most_entries_;
  IntervalLayout out_;
};

}  // namespace

size_t window_sums(const Plan& plan, const PackedWindow& window) {
  return window.features.size() * (window.output < 0 ? plan.n_outputs : 1);
}

size_t padded_sums(size_t n_sums) { return n_sums <= 8 ? 8 : (n_sums + 15) / 16 * 16; }

IntervalLayout lay_out_intervals(const Plan& plan, const IntervalPrices& prices,
                                 const IntervalLimits& limits) {
  return Layout(plan, prices, limits).lay_out();
}

}  // namespace skshap
