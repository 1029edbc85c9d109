#include "cells/builder.h"

#include <algorithm>

#include "base/threads.h"
#include "cells/units.h"

namespace skshap {
namespace {

// After this many units, the sums in single precision are added to sums in double precision. Threads take
// these units together.
constexpr size_t kPartUnits = 64;
// The most features of the units of a part, unless one unit has more.
constexpr size_t kPartFeatures = 32;

size_t padded(size_t n_sums) { return n_sums <= 8 ? 8 : (n_sums + 15) / 16 * 16; }

// Divide the units, which are in the order of the trees, into parts.
class PartDivider {
 public:
  PartDivider(const Plan& plan, const UnitWriter& writer, OccurringCells& cells)
      : plan_(plan), writer_(writer), cells_(cells), part_of_feature_(plan.features.size(), 0) {}

  void add(size_t unit, int32_t output) {
    size_t n_new = 0;
    writer_.each_feature(unit, [&](int32_t feature) { n_new += part_of_feature_[feature] != number_; });
    if (number_ == 0 || cells_.parts.back().output != output ||
        unit - cells_.parts.back().units == kPartUnits || n_features() + n_new > kPartFeatures)
      begin(unit, output);
    CellPart& part = cells_.parts.back();
    part.units_end = unit + 1;
    writer_.each_feature(unit, [&](int32_t feature) {
      if (part_of_feature_[feature] == number_) return;
      part_of_feature_[feature] = number_;
      cells_.features.push_back(feature);
    });
    part.features_end = cells_.features.size();
    part.row_size = padded(n_features() * (output < 0 ? plan_.n_outputs : 1));
  }

 private:
  size_t n_features() const { return cells_.parts.back().features_end - cells_.parts.back().features; }

  void begin(size_t unit, int32_t output) {
    ++number_;
    const size_t first = cells_.features.size();
    cells_.parts.push_back({output, unit, unit, first, first, 0});
  }

  const Plan& plan_;
  const UnitWriter& writer_;
  OccurringCells& cells_;
  std::vector<size_t> part_of_feature_;  // the last part with the feature, counted from 1
  size_t number_ = 0;
};

// Compile the trees of the units.
Plan compile(const Plan& plan, const UnitWriter& writer, int64_t n_threads) {
  Plan like{};
  static_cast<CodedColumns&>(like).n_features = plan.n_features;
  like.features = plan.features;
  like.columns.resize(writer.n_columns());
  like.precision = plan.precision;
  like.index = plan.index;
  CodedTrees trees;
  trees.n_outputs = plan.n_outputs;
  trees.n_features = trees.n_players = static_cast<int32_t>(plan.features.size());
  trees.intercept = plan.constant.data();
  return make_plan(writer.trees().trees(trees), like, n_threads);
}

}  // namespace

bool can_have_cells(const Plan& plan) {
  return plan.order == 1 && plan.groups.empty() && !plan.tree_algorithm && !plan.wide_codes &&
         !plan.tables.any() && !plan.intervals.any() && !plan.lanes.any() && !plan.cells.any() &&
         std::all_of(plan.columns.begin(), plan.columns.end(),
                     [](const Column& column) { return column.categories.size() <= kMostCellCategories; }) &&
         std::all_of(plan.trees.begin(), plan.trees.end(),
                     [](const TreeProgram& tree) { return tree.walked && !tree.merged; });
}

Plan make_cell_plan(const Plan& plan, int64_t n_threads) {
  Plan out{};
  static_cast<CodedColumns&>(out) = plan;
  out.n_outputs = plan.n_outputs;
  out.precision = plan.precision;
  out.order = plan.order;
  out.index = plan.index;
  OccurringCells& cells = out.cells;
  UnitWriter writer(plan, cells);
  PartDivider parts(plan, writer, cells);
  for (const Chunk& chunk : plan.chunks)
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      check_interrupt();
      const size_t first = cells.units.size();
      writer.write(chunk, plan.trees[i]);
      for (size_t unit = first; unit < cells.units.size(); ++unit) parts.add(unit, chunk.output);
    }
  const auto trees = std::make_shared<Plan>(compile(plan, writer, n_threads));
  for (size_t number = 0; number < trees->chunks.size(); ++number)
    for (size_t i = trees->chunks[number].tree_begin; i < trees->chunks[number].tree_end; ++i) {
      CellUnit& unit = cells.units[static_cast<size_t>(trees->trees[i].source)];
      unit.tree = static_cast<uint32_t>(i);
      unit.chunk = static_cast<uint32_t>(number);
    }
  cells.trees = trees;
  cells.n_trees = plan.trees.size();
  out.constant = trees->constant;
  out.base_value = plan.base_value;
  out.leaf_magnitude = plan.leaf_magnitude;
  out.n_leaves = plan.n_leaves;
  out.leaf_scale = trees->leaf_scale;
  return out;
}

size_t OccurringCells::bytes() const {
  return (trees ? trees->bytes() : 0) + parts.size() * sizeof(CellPart) + units.size() * sizeof(CellUnit) +
         keys.size() * sizeof(CellKey) + columns.size() * sizeof(IndexColumn) +
         steps.size() * sizeof(IndexStep) + digits.size() * sizeof(CellDigit) +
         unit_columns.size() * sizeof(UnitColumn) + class_codes.size() * 2 + features.size() * 4;
}

}  // namespace skshap
