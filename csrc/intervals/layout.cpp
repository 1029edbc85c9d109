#include "intervals/layout.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "plan/gpu_limits.h"
#include "plan/quadrature.h"
#include "simd/kernels.h"

namespace skshap {
namespace {

// The most features of a window, or of a table of several units. For one output, the sums of this many
// features fill a cache line in single precision.
constexpr size_t kWindowFeatures = 16;
// Tables larger than this never save time. Several tables share the numbers of 16 bits.
constexpr uint32_t kMostEntries = (1 << 16) / kTablesAtOnce;
// The fraction of a large model's trees for which tables are laid out first, in two blocks. If these tables
// save less than kLeastSaving of the time for their trees, the model gets no tables. The fraction is smaller
// if there are few rows, for which little time can be saved.
constexpr int64_t kManyLeaves = 8192;
constexpr double kMostSampled = 0.125, kSampledPerRow = 4e-6;
constexpr size_t kLeastTrees = 2;  // of a block
constexpr double kLeastSaving = 0.08;
// The factor by which tables of a sample may take more memory for each leaf than tables of all trees.
constexpr double kSharing = 2;

// The time to merge trees: for each of their leaves, and for each leaf that remains to be compiled. It is
// relative to the time for a node of a unit.
constexpr double kMergedLeaf = 0.5, kRemainingLeaf = 1.5;

// The time to pack a unit, relative to the time for one of its nodes.
constexpr double kPackedUnit = 5;

class IntervalLayoutBuilder {
 public:
  IntervalLayoutBuilder(const Plan& plan, const IntervalPrices& prices, const IntervalLimits& limits)
      : plan_(plan),
        prices_(prices),
        limits_(limits),
        most_entries_(std::min(limits.most_entries, limits.on_gpu ? most_gpu_entries() : kMostEntries)) {
    out_.plan = &plan;
    out_.on_gpu = limits.on_gpu;
  }

  IntervalLayout lay_out() {
    // The index is computed from codes of 16 bits, and has at least two possible values.
    if (most_entries_ < 2 || plan_.wide_codes || plan_.features.size() > most_features() ||
        !has_possible_codes() || !sample_pays()) {
      out_.units.first_of_tree.assign(plan_.trees.size() + 1, 0);
    } else {
      out_.units = find_units(plan_, most_entries_, limits_.least_leaves);
      pack();
      if (drop_trees()) pack();
    }
    sum_costs(merge());
    return std::move(out_);
  }

 private:
  void pack() {
    out_.tables = pack_units(plan_, out_.units, most_entries_, kWindowFeatures);
    out_.windows = group_tables(out_.tables, kWindowFeatures);
  }

  size_t most_features() const { return limits_.on_gpu ? kMostGpuFeatures : kMostFeatures; }
  uint32_t most_gpu_entries() const {
    const size_t n_sums = plan_.features.size() * static_cast<size_t>(plan_.n_outputs) <= 8 ? 8 : 16;
    return std::min(kMostGpuEntries,
                    static_cast<uint32_t>(kMostGpuTableBytes / (n_sums * element_bytes(plan_))));
  }
  bool has_possible_codes() const {
    return !limits_.on_gpu ||
           std::all_of(plan_.columns.begin(), plan_.columns.end(), [](const Column& column) {
             return column.thresholds_float.size() + column.thresholds_double.size() <= kMostGpuCode;
           });
  }

  size_t n_leaves(size_t tree) const { return plan_.trees[tree].n_inner + 1; }
  // Return the number of Gauss-Legendre nodes of a tree, to which the prices refer.
  int n_nodes(size_t tree) const { return quadrature_nodes(plan_.index, plan_.trees[tree].n_features); }
  // Return the number of outputs of a leaf, given the output of its tree, or -1.
  size_t n_outputs(int32_t output) const { return output < 0 ? plan_.n_outputs : 1; }
  // Return the seconds for explaining a row by a tree without tables by intervals.
  double seconds_without(size_t tree) const {
    return plan_.tables.against_background ? background_seconds(tree) : walk_seconds(tree);
  }
  double background_seconds(size_t tree) const {
    const TableTree& tables = table_tree_of(plan_, tree);
    return static_cast<double>(n_leaves(tree)) * prices_.leaf +
           background_seconds(tables.lookups, tables.lookups_end, prices_.table);
  }
  // Return the seconds to look up a row in some background tables, given the price of a table.
  double background_seconds(size_t first, size_t end, double price) const {
    double seconds = 0;
    for (size_t i = first; i < end; ++i) {
      const size_t bytes = plan_.tables.lookups[i].n_targets * element_bytes(plan_);
      seconds += price * std::max(1.0, static_cast<double>(bytes) / kRowBytes);
    }
    return seconds;
  }
  double walk_seconds(size_t tree) const {
    // Each further output of a leaf takes about this fraction of the work for the first output.
    const double work = 1 + 0.7 * static_cast<double>(n_outputs(chunk_of(plan_, tree).output) - 1);
    return static_cast<double>(n_leaves(tree)) * work * (prices_.leaf + prices_.leaf_node * n_nodes(tree));
  }
  size_t row_bytes(const PackedWindow& window) const {
    return padded_sums(size(window.features) * n_outputs(window.output)) * element_bytes(plan_);
  }
  size_t table_bytes(const PackedTable& table, size_t row_bytes) const {
    return table.n_entries * (row_bytes + sizeof(double) * n_outputs(table.output));
  }
  double lines(size_t row_bytes) const {
    return std::max(1.0, static_cast<double>(row_bytes) / prices_.line_bytes);
  }
  double lookup_seconds(const PackedTable& table, size_t row_bytes) const {
    const double bytes = static_cast<double>(table.n_entries) * static_cast<double>(row_bytes);
    return lines(row_bytes) *
           (prices_.lookup + prices_.doubling * std::max(0.0, std::log2(bytes / prices_.small_bytes)));
  }
  double build_seconds(const PackedTable& table, const Unit& unit, size_t row_bytes) const {
    const double entry = plan_.tables.against_background
                             ? background_seconds(unit.lookups, unit.lookups_end, prices_.built_table)
                             : (unit.n_nodes + 1) * prices_.built_leaf;
    const double n_written = unit.n_entries + (table.units.size() > 1 ? table.n_entries : 0);
    return unit.n_nodes * prices_.unit_node + unit.n_entries * entry +
           n_written * prices_.entry * lines(row_bytes) +
           prices_.byte * static_cast<double>(table_bytes(table, row_bytes)) /
               static_cast<double>(table.units.size());
  }

  // Return whether tables of a sample of the trees save time.
  bool sample_pays() {
    const size_t n_trees = plan_.trees.size();
    if (plan_.n_leaves < kManyLeaves || n_trees < 4 * kLeastTrees) return true;
    const double part = std::min(kMostSampled, kSampledPerRow * limits_.n_rows);
    const size_t n_sampled =
        std::max(kLeastTrees, static_cast<size_t>(part / 2 * static_cast<double>(n_trees)));
    std::vector<bool> chosen(n_trees, false);
    for (const size_t first : {n_trees / 4, 3 * n_trees / 4})
      std::fill_n(chosen.begin() + static_cast<std::ptrdiff_t>(first), n_sampled, true);
    out_.units = find_units(plan_, most_entries_, limits_.least_leaves, chosen);
    pack();
    const std::vector<double> with = table_seconds();
    double without = 0, saved = 0;
    for (size_t tree = 0; tree < n_trees; ++tree) {
      if (!chosen[tree]) continue;
      const double tree_seconds = limits_.n_rows * seconds_without(tree);
      without += tree_seconds;
      if (out_.units.has(tree)) saved += std::max(0.0, tree_seconds - with[tree]);
    }
    if (saved >= kLeastSaving * without && sampled_bytes_fit(chosen)) return true;
    out_.units = {};
    out_.tables.clear();
    out_.windows.clear();
    return false;
  }

  // Return whether the memory of tables for all trees is expected to be within the limit, given the tables of
  // a sample. In the tables of all trees, more units share a table than in a sample.
  bool sampled_bytes_fit(const std::vector<bool>& chosen) const {
    double bytes = 0, n_sampled = 0;
    for (const PackedWindow& window : out_.windows)
      for (const size_t i : window.tables)
        bytes += static_cast<double>(table_bytes(out_.tables[i], row_bytes(window)));
    for (size_t tree = 0; tree < chosen.size(); ++tree)
      if (chosen[tree]) n_sampled += static_cast<double>(n_leaves(tree));
    return bytes * static_cast<double>(plan_.n_leaves) / n_sampled <= kSharing * limits_.most_bytes;
  }

  // Return, for each tree, the seconds to build its tables and to look up all rows in them.
  std::vector<double> table_seconds() const {
    std::vector<double> seconds(plan_.trees.size(), 0.0);
    for (const PackedWindow& window : out_.windows)
      for (const size_t i : window.tables) {
        const PackedTable& table = out_.tables[i];
        const double lookup_share = limits_.n_rows * lookup_seconds(table, row_bytes(window)) /
                                    static_cast<double>(table.units.size());
        for (const size_t unit : table.units)
          seconds[out_.units.units[unit].tree] +=
              lookup_share + build_seconds(table, out_.units.units[unit], row_bytes(window));
      }
    return seconds;
  }

  // Drop the units of trees for which tables save no time, unless packing the remaining units again takes
  // longer than this saves. Return whether units were dropped.
  bool drop_trees() {
    const std::vector<double> seconds = table_seconds();
    std::vector<Unit> kept;
    std::vector<size_t> first{0};
    double saved = 0;
    for (size_t tree = 0; tree < plan_.trees.size(); ++tree) {
      const double without = limits_.n_rows * seconds_without(tree);
      if (seconds[tree] >= without && out_.units.has(tree)) saved += seconds[tree] - without;
      if (seconds[tree] < without)
        kept.insert(kept.end(), out_.units.units.begin() + out_.units.first_of_tree[tree],
                    out_.units.units.begin() + out_.units.first_of_tree[tree + 1]);
      first.push_back(kept.size());
    }
    const double packing = kPackedUnit * prices_.unit_node * static_cast<double>(kept.size());
    if (kept.size() == out_.units.units.size() || saved < packing) return false;
    out_.units.units = std::move(kept);
    out_.units.first_of_tree = std::move(first);
    return true;
  }

  // Return whether a tree may be merged: if the layout is for a GPU, only trees within its limits may be.
  bool may_be_merged(size_t tree) const {
    if (!limits_.on_gpu) return true;
    const TreeProgram& program = plan_.trees[tree];
    const auto first = plan_.decide.begin() + static_cast<std::ptrdiff_t>(program.decide);
    return program.height <= kMostGpuLevels && n_nodes(tree) <= kMaxFixedNodes &&
           plan_.columns.size() <= kMostGpuCode &&
           std::all_of(first, first + static_cast<std::ptrdiff_t>(program.n_inner),
                       [&](const DecideNode& node) {
                         return plan_.columns[node.column].categories.size() <= kMostGpuCode;
                       });
  }

  // Merge the trees that are walked, if this saves time. Return, for each tree, the fraction of its leaves
  // that remain.
  std::vector<double> merge() {
    std::vector<double> remaining_fraction(plan_.trees.size(), 1.0);
    if (plan_.tables.against_background || !plan_.groups.empty()) return remaining_fraction;
    std::vector<size_t> walked;
    for (size_t tree = 0; tree < plan_.trees.size(); ++tree)
      if (!out_.units.has(tree) && may_be_merged(tree)) walked.push_back(tree);
    for (const AlikeTrees& alike : find_alike_trees(plan_, walked)) {
      double n_before = 0, walking = 0;
      for (const size_t tree : alike.trees) {
        n_before += static_cast<double>(n_leaves(tree));
        walking += limits_.n_rows * walk_seconds(tree);
      }
      const auto seconds = [&](double n_remaining) {
        return prices_.unit_node * (kMergedLeaf * n_before + kRemainingLeaf * n_remaining);
      };
      if (seconds(alike.remaining_fraction * n_before) > (1 - alike.remaining_fraction) * walking) continue;
      out_.merged.push_back(merge_trees(plan_, alike));
      const double n_remaining = static_cast<double>(out_.merged.back().n_all_leaves);
      for (const size_t tree : alike.trees) remaining_fraction[tree] = n_remaining / n_before;
      out_.costs.build_seconds += seconds(n_remaining);
    }
    return remaining_fraction;
  }

  // Sum up the costs. `remaining_fraction` is, for each tree, the fraction of its leaves that remain.
  void sum_costs(const std::vector<double>& remaining_fraction) {
    IntervalCosts& costs = out_.costs;
    TableCost& tables = costs.tables;
    tables.n_lookups = out_.tables.size();
    std::map<int, TableCost> without;
    for (size_t tree = 0; tree < plan_.trees.size(); ++tree) {
      const int n = n_nodes(tree);
      TableCost& cost = out_.units.has(tree) ? tables : without.try_emplace(n, TableCost{n}).first->second;
      cost.n_nodes = std::max(cost.n_nodes, n);
      ++cost.n_trees;
      cost.n_leaves += n_leaves(tree);
      if (out_.units.has(tree)) continue;
      if (!plan_.tables.against_background) {
        cost.n_walked += static_cast<size_t>(remaining_fraction[tree] * static_cast<double>(n_leaves(tree)));
        continue;
      }
      costs.lookup_seconds += background_seconds(tree);
      cost.add_lookups(plan_, table_tree_of(plan_, tree));
    }
    for (const PackedWindow& window : out_.windows) {
      const size_t bytes = row_bytes(window);
      for (const size_t i : window.tables) {
        const PackedTable& table = out_.tables[i];
        tables.bytes += table_bytes(table, bytes);
        costs.lookup_seconds += lookup_seconds(table, bytes);
        for (const size_t unit : table.units)
          costs.build_seconds += build_seconds(table, out_.units.units[unit], bytes);
      }
    }
    for (const auto& [n_nodes, cost] : without)
      costs.groups.push_back({plan_.tables.against_background, cost});
    if (tables.n_trees) costs.groups.push_back({true, tables});
  }

  const Plan& plan_;
  const IntervalPrices prices_;
  const IntervalLimits limits_;
  const uint32_t most_entries_;
  IntervalLayout out_;
};

}  // namespace

size_t padded_sums(size_t n_sums) { return n_sums <= 8 ? 8 : (n_sums + 15) / 16 * 16; }

IntervalLayout lay_out_intervals(const Plan& plan, const IntervalPrices& prices,
                                 const IntervalLimits& limits) {
  return IntervalLayoutBuilder(plan, prices, limits).lay_out();
}

}  // namespace skshap
