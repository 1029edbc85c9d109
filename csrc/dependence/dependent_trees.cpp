#include "dependence/dependent_trees.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace skshap {
namespace {

class DependentTreeCompiler {
 public:
  DependentTreeCompiler(const CodedTrees& trees, DependentTrees& out)
      : trees_(trees), out_(out), n_axes_(out.axes.size()) {}

  void add_tree(int32_t number) {
    const int64_t root = trees_.tree_offsets[number];
    tree_ = {.inner = out_.tests.size(),
             .n_inner = 0,
             .leaf = out_.n_leaves(),
             .n_leaves = 0,
             .leaf_begin = out_.leaf_begins.size(),
             .output = trees_.tree_output[number]};
    leaves_.clear();
    regions_.clear();
    RegionNode all{root, 0, {}};
    for (size_t axis = 0; axis < n_axes_; ++axis) {
      all.regions[axis] = regions_.size();
      regions_.push_back({{0, static_cast<uint32_t>(out_.axes[axis].n_cells())}});
    }
    stack_.push_back(all);
    while (!stack_.empty()) {
      const RegionNode item = stack_.back();
      stack_.pop_back();
      if (trees_.is_leaf(item.node))
        leaves_.push_back(item);
      else
        add_inner(root, item);
    }
    find_ends();
    write_leaves(number);
    out_.trees.push_back(tree_);
  }

 private:
  struct RegionNode {
    int64_t node;
    uint32_t edge;
    std::array<size_t, kMostAxes> regions;  // among the regions of the tree
  };

  void add_inner(int64_t root, const RegionNode& item) {
    const DecideNode test = trees_.test[item.node];
    const int64_t left = root + trees_.left[item.node], right = root + trees_.right[item.node];
    size_t axis = 0;
    while (axis < n_axes_ && !out_.axes[axis].has(test.column)) ++axis;
    if (axis == n_axes_) {
      out_.tests.push_back(test);
      out_.inner_edges.push_back(item.edge);
      const uint32_t edge = static_cast<uint32_t>(++tree_.n_inner) << 1;
      stack_.push_back({right, edge | 1, item.regions});
      stack_.push_back({left, edge, item.regions});
      return;
    }
    Runs left_runs, right_runs;
    out_.axes[axis].split(test, out_.coded.category_bits, regions_[item.regions[axis]], left_runs,
                          right_runs);
    push(right, item, axis, std::move(right_runs));
    push(left, item, axis, std::move(left_runs));
  }

  void push(int64_t node, const RegionNode& above, size_t axis, Runs runs) {
    if (runs.empty()) return;
    RegionNode item = above;
    item.node = node;
    item.regions[axis] = regions_.size();
    regions_.push_back(std::move(runs));
    stack_.push_back(item);
  }

  void find_ends() {
    out_.inner_ends.resize(out_.tests.size());
    uint32_t* const ends = out_.inner_ends.data() + tree_.inner;
    for (size_t i = 0; i < tree_.n_inner; ++i) ends[i] = static_cast<uint32_t>(i) + 1;
    for (size_t i = tree_.n_inner; i-- > 0;)
      if (const uint32_t slot = out_.inner_edges[tree_.inner + i] >> 1)
        ends[slot - 1] = std::max(ends[slot - 1], ends[i]);
  }

  void write_leaves(int32_t number) {
    std::stable_sort(leaves_.begin(), leaves_.end(),
                     [](const RegionNode& a, const RegionNode& b) { return a.edge < b.edge; });
    tree_.n_leaves = leaves_.size();
    uint32_t slot = 0;
    for (uint32_t i = 0; i < leaves_.size(); ++i) {
      for (; slot <= leaves_[i].edge >> 1; ++slot) out_.leaf_begins.push_back(i);
      out_.leaf_edges.push_back(leaves_[i].edge);
      for (size_t axis = 0; axis < n_axes_; ++axis) {
        const Runs& region = regions_[leaves_[i].regions[axis]];
        out_.run_begins.push_back(out_.runs.size());
        out_.runs.insert(out_.runs.end(), region.begin(), region.end());
      }
    }
    for (; slot <= tree_.n_inner + 1; ++slot)
      out_.leaf_begins.push_back(static_cast<uint32_t>(leaves_.size()));
    const size_t width = trees_.value_width, first = out_.leaf_values.size();
    for (const RegionNode& leaf : leaves_)
      out_.leaf_values.insert(out_.leaf_values.end(), trees_.value + leaf.node * width,
                              trees_.value + (leaf.node + 1) * width);
    for (size_t o = 0; o < width; ++o) center(number, o, first);
  }

  // Move the middle of the leaf values into the constant: an offset that all leaves share would use up
  // digits.
  void center(int32_t number, size_t o, size_t first) {
    const size_t width = trees_.value_width;
    double least = HUGE_VAL, largest = -HUGE_VAL;
    for (size_t i = first + o; i < out_.leaf_values.size(); i += width) {
      least = std::min(least, out_.leaf_values[i]);
      largest = std::max(largest, out_.leaf_values[i]);
    }
    const size_t output = std::max(trees_.tree_output[number], 0) + o;
    const double middle = least / 2 + largest / 2, constant = out_.constant[output] + middle;
    if (!std::isfinite(constant)) {
      out_.leaf_magnitude[output] += std::max(-least, largest);
      return;
    }
    out_.constant[output] = constant;
    out_.leaf_magnitude[output] += largest - middle;
    for (size_t i = first + o; i < out_.leaf_values.size(); i += width) out_.leaf_values[i] -= middle;
  }

  const CodedTrees& trees_;
  DependentTrees& out_;
  const size_t n_axes_;
  DependentTree tree_;
  std::vector<RegionNode> stack_, leaves_;
  std::vector<Runs> regions_;  // of the tree
};

}  // namespace

size_t DependentTrees::bytes() const {
  return tests.size() * (sizeof(DecideNode) + 3 * sizeof(uint32_t)) + n_leaves() * sizeof(uint32_t) +
         leaf_values.size() * sizeof(double) + run_begins.size() * sizeof(size_t) + runs.size() * sizeof(Run);
}

DependentTrees make_dependent_trees(const EnsembleView& e, const std::vector<GridAxis>& axes,
                                    int64_t n_threads) {
  CodedEnsemble coded(e, n_threads);
  DependentTrees out{};
  out.coded = std::move(coded.columns);
  for (const GridAxis& axis : axes) out.axes.emplace_back(out.coded, axis.inputs, axis.points);
  out.constant.assign(e.intercept, e.intercept + e.n_outputs);
  out.leaf_magnitude.assign(e.n_outputs, 0.0);
  DependentTreeCompiler compiler(coded.trees(), out);
  for (int32_t tree = 0; tree < e.n_trees; ++tree) compiler.add_tree(tree);
  out.run_begins.push_back(out.runs.size());
  return out;
}

}  // namespace skshap
