#include "cells/builder.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/threads.h"
#include "cells/overlay.h"
#include "cells/program.h"
#include "cells/units.h"
#include "plan/merged_trees.h"

namespace skshap {
namespace {

// After this many units, or this many trees of units, the sums in single precision are added to sums in
// double precision. Threads take these units together.
constexpr size_t kPartUnits = 64, kPartTrees = 128;
// The last of the parts, one in kDividedShare, are divided into parts of kLastUnits units, so that threads
// end at about the same time.
constexpr size_t kDividedShare = 16, kLastUnits = 16;
// The most features of the units of a part, unless one unit has more.
constexpr size_t kPartFeatures = 32;
// If more than this fraction of the units remains, it does not matter which trees also have the same covers.
constexpr double kMostShared = 0.75;
// The number of parts that units may join.
constexpr size_t kOpenParts = 16;

// Positions in the streams of a program have 32 bits, and positions in the tree of a unit 16.
constexpr int64_t kMostLeaves = 1 << 24;
constexpr int kMostHeight = 1 << 14;

size_t padded(size_t n_sums) { return n_sums <= 8 ? 8 : (n_sums + 15) / 16 * 16; }

// Divides the units into parts. A unit joins the open part in which it has the fewest new features.
class PartDivider {
 public:
  PartDivider(const Plan& plan, const UnitWriter& writer, CellProgram& cells)
      : plan_(plan), writer_(writer), cells_(cells), parts_of_feature_(plan.features.size()) {}

  void add(size_t unit, int32_t output) {
    size_t best = kOpenParts, fewest_new = 0;
    for (size_t i = 0; i < kOpenParts; ++i) {
      const Part& part = open_[i];
      if (part.units.empty() || part.output != output || part.is_full()) continue;
      size_t n_new = 0;
      writer_.each_feature(unit, [&](int32_t f) { n_new += parts_of_feature_[f][i] != part.number; });
      if (part.features.size() + n_new > kPartFeatures || (best < kOpenParts && n_new >= fewest_new))
        continue;
      best = i;
      fewest_new = n_new;
    }
    if (best == kOpenParts) best = begin(output);
    Part& part = open_[best];
    part.units.push_back(unit);
    part.n_trees += cells_.units[unit].trees_end - cells_.units[unit].trees;
    writer_.each_feature(unit, [&](int32_t f) {
      if (parts_of_feature_[f][best] == part.number) return;
      parts_of_feature_[f][best] = part.number;
      part.features.push_back(f);
    });
  }

  // Write the parts, and the units in the order of the parts.
  void end() {
    for (Part& part : open_) close(part);
    std::vector<CellUnit> units;
    units.reserve(cells_.units.size());
    std::sort(closed_.begin(), closed_.end(),
              [](const Part& a, const Part& b) { return a.number < b.number; });
    const size_t n_undivided = closed_.size() - closed_.size() / kDividedShare;
    for (size_t i = 0; i < closed_.size(); ++i) {
      const Part& part = closed_[i];
      const size_t feature = cells_.features.size(), n_units = part.units.size();
      cells_.features.insert(cells_.features.end(), part.features.begin(), part.features.end());
      const size_t n_sums = part.features.size() * (part.output < 0 ? plan_.n_outputs : 1);
      for (size_t begin = 0, end; begin < n_units; begin = end) {
        end = i < n_undivided ? n_units : std::min(begin + kLastUnits, n_units);
        const size_t first = units.size();
        for (size_t unit = begin; unit < end; ++unit) units.push_back(cells_.units[part.units[unit]]);
        cells_.parts.push_back({.output = part.output,
                                .units = first,
                                .units_end = units.size(),
                                .features = feature,
                                .features_end = cells_.features.size(),
                                .row_size = padded(n_sums)});
      }
    }
    cells_.units = std::move(units);
  }

 private:
  struct Part {
    int32_t output = 0;
    uint32_t number = 0;
    std::vector<size_t> units;
    size_t n_trees = 0;  // of the units
    std::vector<int32_t> features;

    bool is_full() const { return units.size() >= kPartUnits || n_trees >= kPartTrees; }
  };

  // Begin a part in place of the open part with the most units. Return its position.
  size_t begin(int32_t output) {
    size_t fullest = 0;
    for (size_t i = 0; i < kOpenParts; ++i) {
      if (open_[i].units.empty()) {
        fullest = i;
        break;
      }
      if (open_[i].units.size() > open_[fullest].units.size()) fullest = i;
    }
    close(open_[fullest]);
    open_[fullest].output = output;
    open_[fullest].number = ++n_parts_;
    return fullest;
  }

  void close(Part& part) {
    if (!part.units.empty()) closed_.push_back(std::move(part));
    part = Part();
  }

  const Plan& plan_;
  const UnitWriter& writer_;
  CellProgram& cells_;
  std::array<Part, kOpenParts> open_;
  std::vector<Part> closed_;
  std::vector<std::array<uint32_t, kOpenParts>> parts_of_feature_;  // by feature and open part: a part number
  uint32_t n_parts_ = 0;
};

// Compile the trees of the units. As several of them add to the same sums, they have the same slots.
Plan compile(const Plan& plan, const UnitWriter& writer, int64_t n_threads) {
  Plan like{};
  static_cast<CodedColumns&>(like).n_features = plan.n_features;
  like.features = plan.features;
  like.precision = plan.precision;
  like.index = plan.index;
  CodedTrees trees;
  trees.n_outputs = plan.n_outputs;
  trees.n_features = trees.n_players = static_cast<int32_t>(plan.features.size());
  trees.slots_are_players = true;
  trees.intercept = plan.constant.data();
  return make_plan(writer.trees().trees(trees), like, n_threads);
}

// Takes what is needed of the trees of the units out of their plan.
class UnitTaker {
 public:
  explicit UnitTaker(CellProgram& cells) : cells_(cells), trees_(cells.trees) {}

  void take() {
    cells_.tests.reserve(trees_.decide.size());
    cells_.flags.reserve(trees_.decide.size());
    if (!cells_.margin_trees.any()) cells_.leaf_values.reserve(trees_.leaf_values.size());
    for (size_t number = 0; number < trees_.chunks.size(); ++number) {
      const Chunk& chunk = trees_.chunks[number];
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
        take(trees_.trees[i], number);
        if (has_chains(chunk)) take_chain(i, number);
      }
    }
    trees_.decide = {};
    trees_.shares = {};
    trees_.children = {};
    trees_.leaf_values = {};
    trees_.trees = {};
    for (Chunk& chunk : trees_.chunks) chunk.slots = {};
    trees_.ops.shrink_to_fit();
    trees_.constants_float.shrink_to_fit();
    trees_.constants_double.shrink_to_fit();
    cells_.leaf_values.shrink_to_fit();
  }

 private:
  void take(const TreeProgram& tree, size_t chunk) {
    UnitTree& out = cells_.unit_trees[static_cast<size_t>(tree.source)];
    out.chunk = static_cast<uint32_t>(chunk);
    out.ops = static_cast<uint32_t>(tree.ops);
    out.constants = static_cast<uint32_t>(tree.constants);
    out.tests = static_cast<uint32_t>(cells_.tests.size());
    out.leaf_values = static_cast<uint32_t>(cells_.leaf_values.size());
    out.n_tests = static_cast<uint16_t>(tree.n_inner);
    const int32_t* const children = trees_.children.data() + tree.children;
    for (size_t i = 0; i < tree.n_inner; ++i) {
      const DecideNode& node = trees_.decide[tree.decide + i];
      const auto is_inner = [&](bool right) {
        return static_cast<size_t>(children[2 * i + right]) < tree.n_inner;
      };
      cells_.tests.push_back(
          {node.operand, static_cast<uint16_t>(node.column), static_cast<uint16_t>(node.previous)});
      cells_.flags.push_back(static_cast<uint8_t>((node.flags & kDecideFlags) | node.bias << kBiasShift |
                                                  (is_inner(false) ? kLeftInner : 0) |
                                                  (is_inner(true) ? kRightInner : 0)));
    }
    if (cells_.margin_trees.any()) return;
    // All leaves of rows that fail a test above have the same value.
    const size_t width = n_used_outputs(trees_, trees_.chunks[chunk]);
    const size_t n_less = out.n_above > 0 ? out.n_above - 1 : 0;
    const auto first = trees_.leaf_values.begin() + static_cast<std::ptrdiff_t>(tree.leaves);
    if (out.n_above == 0) cells_.leaf_values.insert(cells_.leaf_values.end(), width, 0.0);
    cells_.leaf_values.insert(cells_.leaf_values.end(), first + static_cast<std::ptrdiff_t>(n_less * width),
                              first + static_cast<std::ptrdiff_t>(tree.n_leaves * width));
  }

  // Walks of other chunks, and in double precision, do not take chains apart.
  bool has_chains(const Chunk& chunk) const {
    return chunk.radau && chunk.output >= 0 && trees_.precision == Precision::kSingle;
  }

  // Take the nodes above a unit out of the program of its tree. A node on a feature that is tested above
  // twice, and a node fused with the unit, stay in the program, as do the nodes below them.
  void take_chain(size_t tree, size_t chunk) {
    UnitTree& out = cells_.unit_trees[static_cast<size_t>(trees_.trees[tree].source)];
    const size_t end = tree + 1 < trees_.trees.size() ? trees_.trees[tree + 1].ops : trees_.ops.size();
    uint32_t* const ops = trees_.ops.data();
    const auto code = [&](size_t i) { return static_cast<uint8_t>(ops[i]); };
    size_t n = 0;
    while (n < out.n_above && code(out.ops + n) == kEnterNew && code(end - 2 - n) == kExitLeafNew) ++n;
    ops[end - 1 - n] = kEnd;
    out.ops += static_cast<uint32_t>(n);
    out.constants += static_cast<uint32_t>(kChainConstants * n);
    out.chain = static_cast<uint32_t>(end_of_constants(tree, chunk) - kChainConstants * n);
    out.n_chain = static_cast<uint16_t>(n);
  }

  // Return the end of the constants of a tree. They are followed by those of the next tree of the chunk, or
  // by the quadrature of the next chunk.
  size_t end_of_constants(size_t tree, size_t chunk) const {
    if (tree + 1 < trees_.chunks[chunk].tree_end) return trees_.trees[tree + 1].constants;
    if (chunk + 1 < trees_.chunks.size()) return trees_.chunks[chunk + 1].quadrature;
    return trees_.constants_float.size() + trees_.constants_double.size();
  }

  CellProgram& cells_;
  Plan& trees_;
};

// Trees with the same output and the same test at their roots.
struct OverlaidTrees {
  int32_t output;
  std::vector<size_t> trees;  // of the plan
};

// Group trees with the same output, in the order of the first tree of each group.
void group_trees(const Plan& plan, int32_t output, const std::vector<size_t>& trees,
                 std::vector<OverlaidTrees>& groups) {
  const auto root = [&](size_t tree) -> const DecideNode& { return plan.decide[plan.trees[tree].decide]; };
  const size_t begin = groups.size();
  for (const size_t tree : trees) {
    size_t group = begin;
    while (group < groups.size() && !is_same_test(plan, root(groups[group].trees.front()), root(tree)))
      ++group;
    if (group == groups.size()) groups.push_back({output, {}});
    groups[group].trees.push_back(tree);
  }
}

// Group the trees of a plan, or a sample of those of each output. Trees with the same output follow each
// other.
std::vector<OverlaidTrees> group_trees(const Plan& plan, bool sample) {
  std::vector<OverlaidTrees> groups;
  for (size_t i = 0; i < plan.chunks.size();) {
    const int32_t output = plan.chunks[i].output;
    std::vector<size_t> trees;
    for (; i < plan.chunks.size() && plan.chunks[i].output == output; ++i)
      for (size_t tree = plan.chunks[i].tree_begin; tree < plan.chunks[i].tree_end; ++tree)
        trees.push_back(tree);
    if (sample) trees = neighbours_in(plan, std::move(trees));
    group_trees(plan, output, trees, groups);
  }
  return groups;
}

}  // namespace

bool can_have_cells(const Plan& plan) {
  return plan.order == 1 && plan.n_leaves <= kMostLeaves && plan.columns.size() <= 1 << 16 &&
         plan.groups.empty() && !plan.tree_algorithm && !plan.wide_codes && !plan.tables.any() &&
         !plan.intervals.any() && !plan.lanes.any() && !plan.cells.any() &&
         std::all_of(plan.columns.begin(), plan.columns.end(),
                     [](const Column& column) { return column.categories.size() <= kMostCellCategories; }) &&
         std::all_of(plan.trees.begin(), plan.trees.end(), [](const TreeProgram& tree) {
           return tree.walked && !tree.merged && tree.height <= kMostHeight;
         });
}

UnitFractions unit_fractions(const Plan& plan) {
  double n_leaves = 0, n_shared = 0;
  Overlay overlay(plan, 2);
  for (const OverlaidTrees& group : group_trees(plan, true)) {
    overlay.lay(group.trees);
    for (const size_t tree : group.trees) n_leaves += static_cast<double>(plan.trees[tree].n_leaves);
    for (const Overlay::Node& node : overlay.nodes()) n_shared += node.n_leaves - node.n_sides_with_leaves;
  }
  const double units = n_leaves > 0 ? 1 - n_shared / n_leaves : 1;
  if (units > kMostShared) return {units, 1};
  std::vector<size_t> trees(plan.trees.size());
  std::iota(trees.begin(), trees.end(), size_t{0});
  double n_walked = static_cast<double>(plan.n_leaves);
  for (const AlikeTrees& alike : find_alike_trees(plan, trees))
    for (const size_t tree : alike.trees)
      n_walked -= (1 - alike.remaining_fraction) * static_cast<double>(plan.trees[tree].n_leaves);
  return {units, n_walked / static_cast<double>(plan.n_leaves)};
}

Plan make_cell_plan(const Plan& plan, int64_t n_threads) {
  Plan out{};
  static_cast<CodedColumns&>(out) = plan;
  out.set_like(plan);
  const auto program = std::make_shared<CellProgram>();
  CellProgram& cells = *program;
  UnitWriter writer(plan, cells, out.category_bits);
  PartDivider parts(plan, writer, cells);
  for (const auto& [output, trees] : group_trees(plan, false)) {
    const size_t first = cells.units.size();
    writer.write(output, trees);
    for (size_t unit = first; unit < cells.units.size(); ++unit) parts.add(unit, output);
  }
  cells.trees = compile(plan, writer, n_threads);
  cells.margin_trees = MarginTrees(plan);
  UnitTaker(cells).take();
  parts.end();
  out.cells.program = program;
  out.cells.n_trees = plan.trees.size();
  out.constant = cells.trees.constant;
  out.base_value = plan.base_value;
  out.leaf_magnitude = plan.leaf_magnitude;
  out.n_leaves = plan.n_leaves;
  out.leaf_scale = cells.trees.leaf_scale;
  return out;
}

size_t CellProgram::bytes() const {
  return trees.bytes() + margin_trees.bytes() +
         list_bytes(parts, units, unit_trees, keys, columns, steps, tests, flags, leaf_values, features);
}

size_t OccurringCells::bytes() const { return program ? program->bytes() : 0; }

}  // namespace skshap
