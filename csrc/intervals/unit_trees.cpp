#include "intervals/unit_trees.h"

#include <algorithm>

#include "plan/copied_nodes.h"
#include "plan/tree_paths.h"

namespace skshap {
namespace {

// The limits of a part of merged trees. A part has at most kMostPartLeaves leaves, so that its decisions fit
// a cache. There are about kManyParts parts for threads to share, unless the parts would have fewer than
// kFewPartLeaves leaves. On a GPU, each part is a chunk, which has few leaves.
constexpr size_t kMostPartLeaves = 2048, kFewPartLeaves = 512, kManyParts = 32;

}  // namespace

UnitTrees::UnitTrees(const Plan& plan, const IntervalLayout& layout)
    : plan_(plan), feature_of_column_(column_features(plan)) {
  for (const Chunk& chunk : plan.chunks)
    units_.width = std::max(units_.width, static_cast<int32_t>(n_used_outputs(plan, chunk)));
  reserve(layout);
  std::vector<bool> merged(plan.trees.size(), false);
  for (const MergedTrees& merged_trees : layout.merged) {
    for (const size_t tree : merged_trees.trees) merged[tree] = true;
    const size_t most = std::clamp(merged_trees.n_all_leaves / kManyParts, kFewPartLeaves, kMostPartLeaves);
    add_merged(merged_trees, layout.on_gpu ? kFewPartLeaves : most);
  }
  for (size_t tree = 0; tree < plan.trees.size(); ++tree) {
    if (layout.units.has(tree) || merged[tree]) continue;
    begin_tree(tree);
    copy(0, 1);
    units_.end_tree(chunk_of(plan, tree).output);
  }
  n_walked_ = static_cast<int32_t>(units_.tree_output.size());
  for (size_t tree = 0; tree < plan.trees.size(); ++tree) {
    if (!layout.units.has(tree)) continue;
    begin_tree(tree);
    for (size_t i = layout.units.first_of_tree[tree]; i < layout.units.first_of_tree[tree + 1]; ++i) {
      add_unit(layout.units.units[i]);
      units_.end_tree(chunk_of(plan, tree).output);
    }
  }
  units_.next.resize(units_.test.size(), -1);
}

CodedTrees UnitTrees::trees() const {
  CodedTrees trees;
  trees.n_outputs = plan_.n_outputs;
  trees.n_features = trees.n_players = static_cast<int32_t>(plan_.features.size());
  trees.n_first = n_walked_;
  trees.intercept = plan_.constant.data();
  return units_.trees(trees);
}

void UnitTrees::reserve(const IntervalLayout& layout) {
  size_t n_nodes = 0;
  for (size_t tree = 0; tree < plan_.trees.size(); ++tree)
    if (!layout.units.has(tree)) n_nodes += 2 * plan_.trees[tree].n_inner + 1;
  // Merged trees have fewer nodes than the trees themselves, even with the paths that their parts repeat.
  for (const Unit& unit : layout.units.units) n_nodes += 2 * unit.n_nodes + 1;
  units_.reserve(n_nodes);
  units_.next.reserve(n_nodes);
}

void UnitTrees::begin_tree(size_t tree) {
  const TreeProgram& program = plan_.trees[tree];
  n_inner_ = static_cast<int32_t>(program.n_inner);
  children_ = plan_.children.data() + program.children;
  nodes_ = plan_.decide.data() + program.decide;
  shares_ = plan_.shares.data() + program.decide;
  values_ = plan_.leaf_values.data() + program.leaves;
}

void UnitTrees::add_merged(const MergedTrees& merged, size_t most) {
  const size_t n_leaves = merged.n_all_leaves, n_parts = (n_leaves + most - 1) / most;
  for (size_t i = 0; i < n_parts; ++i) {
    add_part(merged, i * n_leaves / n_parts, (i + 1) * n_leaves / n_parts);
    units_.end_tree(merged.nodes.tree_output[0]);
  }
}

// Copy the nodes above some of the leaves. A place without any of these leaves becomes a leaf of value 0.
void UnitTrees::add_part(const MergedTrees& merged, size_t leaves, size_t leaves_end) {
  struct CopiedPlace {
    int32_t node, parent;
    bool right;
  };
  const CodedTreeArrays& nodes = merged.nodes;
  const int64_t first = units_.tree_offsets.back();
  std::vector<CopiedPlace> places{{0, -1, false}};
  while (!places.empty()) {
    const CopiedPlace place = places.back();
    places.pop_back();
    int32_t last = -1;
    const auto add = [&] {
      const int32_t number = units_.add_node(nodes.cover[place.node]);
      units_.next.push_back(-1);
      if (last >= 0)
        units_.next[first + last] = number;
      else if (place.parent >= 0)
        (place.right ? units_.right : units_.left)[first + place.parent] = number;
      return last = number;
    };
    for (int32_t i = place.node; i >= 0; i = nodes.next[i]) {
      const size_t first_leaf = merged.first_leaf[i];
      if (first_leaf >= leaves_end || first_leaf + merged.n_leaves[i] <= leaves) continue;
      const int32_t number = add();
      if (nodes.left[i] < 0) {
        units_.value.back() = nodes.value[i];
        continue;
      }
      set_test(number, nodes.test[i], nodes.player[i]);
      places.push_back({nodes.right[i], number, true});
      places.push_back({nodes.left[i], number, false});
    }
    if (last < 0) add();
  }
}

// Copy the nodes of the path from the root, with a leaf of value 0 beside each of them, and then the nodes
// below.
void UnitTrees::add_unit(const Unit& unit) {
  const int64_t first = units_.tree_offsets.back();
  int64_t above = -1;  // the node above the next node of the path
  bool right = false;
  double cover = 1;
  const auto attach = [&](int32_t child) {
    if (above >= 0) (right ? units_.right : units_.left)[above] = child;
  };
  for (int32_t node = 0; node != unit.node; node = children_[2 * node + right]) {
    const int32_t number = units_.add_node(cover);
    attach(number);
    set_test(number, node);
    right = unit.is_right_of(node, children_);
    const double share = shares_[node];
    const int32_t other = units_.add_node(right ? share : 1 - share);
    above = first + number;
    (right ? units_.left : units_.right)[above] = other;
    cover = right ? 1 - share : share;
  }
  attach(copy(unit.node, cover));
}

// Copy a node and all nodes below it. Return the number of the copy in its new tree.
int32_t UnitTrees::copy(int32_t node, double cover) {
  const int64_t first = units_.tree_offsets.back();
  const auto add = [&](int64_t from, double share) {
    units_.add_node(share);
    if (from < n_inner_) return true;
    const int32_t width = units_.width;
    std::copy_n(values_ + static_cast<size_t>(from - n_inner_) * width, width, units_.value.end() - width);
    return false;
  };
  return copy_nodes(units_, node, cover, add, [&](int64_t from, int64_t place) {
    set_test(static_cast<int32_t>(place - first), static_cast<int32_t>(from));
    return CopiedChildren{children_[2 * from], children_[2 * from + 1], shares_[from], 1 - shares_[from]};
  });
}

// Give a node the test of a node of the plan.
void UnitTrees::set_test(int32_t number, int32_t node) {
  set_test(number, test_of(nodes_[node]), feature_of_column_[nodes_[node].column]);
}

void UnitTrees::set_test(int32_t number, const DecideNode& test, int32_t feature) {
  units_.test[units_.tree_offsets.back() + number] = test;
  units_.player[units_.tree_offsets.back() + number] = feature;
}

}  // namespace skshap
