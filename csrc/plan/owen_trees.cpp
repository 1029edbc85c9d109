#include "plan/owen_trees.h"

#include <algorithm>

#include "plan/copied_nodes.h"
#include "plan/quadrature.h"

namespace skshap {

namespace {

// Return the work of a leaf in a walk of n_nodes nodes. A part of the work does not depend on the number of
// nodes.
size_t leaf_work(int n_nodes) { return static_cast<size_t>(n_nodes + 4); }

}  // namespace

void set_groups(Plan& plan, const int32_t* groups) {
  plan.groups.clear();
  for (const int32_t feature : plan.features) plan.groups.push_back(groups[feature]);
}

Plan make_owen_plan(const EnsembleView& ensemble, Precision precision, const int32_t* groups,
                    int64_t n_threads) {
  Plan plan = make_plan(ensemble, precision, 1, Index::kShapley, false, n_threads);
  set_groups(plan, groups);
  plan.unwalked = true;
  return plan;
}

OwenTrees::OwenTrees(const CodedTrees& trees, const std::vector<int32_t>& groups, bool unwalked)
    : from_(trees),
      groups_(groups),
      balance_(groups),
      most_of_group_(balance_.n_groups(), 0),
      met_of_group_(most_of_group_.size(), 0),
      met_of_feature_(groups.size(), 0),
      splits_(groups.size(), 0),
      features_of_group_(most_of_group_.size(), 0) {
  copies_.width = from_.value_width;
  for (int32_t tree = 0; tree < from_.n_trees; ++tree) {
    if (tree == from_.n_first) n_first_ = first_copies_.back();
    if (unwalked && tree < from_.n_first)
      copy_unwalked(tree);
    else
      add_copies(tree, tree >= from_.n_first);
    first_copies_.push_back(static_cast<int32_t>(copies_.tree_output.size()));
  }
  if (from_.n_first >= from_.n_trees) n_first_ = first_copies_.back();
}

CodedTrees OwenTrees::trees() const {
  CodedTrees trees = copies_.trees(from_);
  trees.n_players = trees.n_features + balance_.n_groups();
  trees.n_first = n_first_;
  trees.next = nullptr;
  trees.is_apart = is_apart_.data();
  trees.adds_margin = adds_margin_.data();
  trees.balanced = is_balanced_.data();
  trees.n_saving = n_saving_.data();
  return trees;
}

// Call visit(node, false) for each node of a tree, in preorder, and visit(node, true) after the children of
// an inner node.
template <class Visit>
void OwenTrees::visit_nodes(int32_t tree, const Visit& visit) const {
  struct NodeVisit {
    int64_t node;
    bool leave;
  };
  const int64_t root = from_.tree_offsets[tree];
  std::vector<NodeVisit> stack{{root, false}};
  while (!stack.empty()) {
    const auto [node, leave] = stack.back();
    stack.pop_back();
    visit(node, leave);
    if (leave || from_.is_leaf(node)) continue;
    stack.push_back({node, true});
    stack.push_back({root + from_.right[node], false});
    stack.push_back({root + from_.left[node], false});
  }
}

// Find the groups of a tree, how many features of each group occur on one path, and how many groups occur on
// one path. Find the splits whose feature is the only one of its group on all paths through the split.
void OwenTrees::find_groups(int32_t tree) {
  const int64_t root = from_.tree_offsets[tree];
  for (const int32_t group : groups_of_tree_) most_of_group_[group] = 0;
  groups_of_tree_.clear();
  is_only_.assign(static_cast<size_t>(from_.tree_offsets[tree + 1] - root), 0);
  most_groups_ = 0;
  int32_t n_groups = 0;
  std::vector<int64_t> before;  // by node of the path: earlier splits on other features of its group
  visit_nodes(tree, [&](int64_t node, bool leave) {
    if (from_.is_leaf(node)) return;
    const int32_t feature = from_.player[node], group = groups_[feature];
    const int64_t others = met_of_group_[group] - met_of_feature_[feature];
    if (leave) {
      is_only_[node - root] = features_of_group_[group] == 1 && others == before.back();
      before.pop_back();
      if (--splits_[feature] == 0 && --features_of_group_[group] == 0) --n_groups;
      return;
    }
    if (splits_[feature]++ == 0) {
      int32_t& most = most_of_group_[group];
      if (most == 0) groups_of_tree_.push_back(group);
      if (features_of_group_[group]++ == 0) most_groups_ = std::max(most_groups_, ++n_groups);
      most = std::max(most, features_of_group_[group]);
    }
    before.push_back(others);
    ++met_of_group_[group];
    ++met_of_feature_[feature];
  });
  inherit_companions(tree);
}

// Mark the splits below a split on the same feature that shares some path with other features of its group.
// On the common paths of the two splits, the feature must be the same player.
void OwenTrees::inherit_companions(int32_t tree) {
  const int64_t root = from_.tree_offsets[tree];
  visit_nodes(tree, [&](int64_t node, bool leave) {
    if (from_.is_leaf(node)) return;
    int32_t& n_splits = features_of_group_[groups_[from_.player[node]]];  // with companions, on the path
    uint8_t& is_only = is_only_[node - root];
    if (leave) {
      n_splits -= !is_only;
      return;
    }
    is_only &= n_splits == 0;
    n_splits += !is_only;
  });
}

void OwenTrees::add_copies(int32_t tree, bool is_unit) {
  find_groups(tree);
  const bool any_alone = std::any_of(groups_of_tree_.begin(), groups_of_tree_.end(),
                                     [&](int32_t group) { return most_of_group_[group] == 1; });
  bool has_players = any_alone || groups_of_tree_.empty();
  by_path_ = !is_unit;  // a single copy has all values of a feature of a unit
  balanced_ = !is_unit && std::any_of(groups_of_tree_.begin(), groups_of_tree_.end(), [&](int32_t group) {
    return balance_.size_of(group) == most_of_group_[group];
  });
  if (!has_players && by_path_) {
    const bool balanced = balanced_;
    const size_t work = add_copies(tree, is_unit, true, false);
    by_path_ = balanced_ = false;
    has_players = by_path_ = work < add_copies(tree, is_unit, false, false);
    balanced_ = balanced && has_players;
  }
  add_copies(tree, is_unit, has_players, true);
}

// Copy a tree for each of its groups and, if `has_players`, first with all groups as players. Return the work
// of walking the copies. Unless `adds`, only the work is found, and nothing is copied.
size_t OwenTrees::add_copies(int32_t tree, bool is_unit, bool has_players, bool adds) {
  size_t work = 0;
  bool first = !has_players;
  if (has_players) {
    const int64_t n_nodes = from_.tree_offsets[tree + 1] - from_.tree_offsets[tree];
    work += static_cast<size_t>((n_nodes + 1) / 2) * leaf_work(radau_nodes(Index::kShapley, most_groups_));
    if (adds) copy(tree, kNone, kAllLeaves);
  }
  for (const int32_t group : groups_of_tree_) {
    if (most_of_group_[group] == 1) continue;
    find_leaves(tree, group);
    if (first) {
      work += cost(tree, kAllLeaves);
      if (adds) copy(tree, group, kAllLeaves);
    } else {
      work += copy_by_nodes(tree, group, is_unit, adds);
    }
    first = false;
  }
  return work;
}

// Copy a tree for a group, either once or once for each number of nodes that the leaves need for the group's
// integral, whichever takes less time. A unit is copied once. Return the work; `adds` has the same meaning as
// in add_copies.
size_t OwenTrees::copy_by_nodes(int32_t tree, int32_t group, bool is_unit, bool adds) {
  const uint64_t any = sets_of_node_.front() & ~kWithoutGroup;
  if (!any) return 0;  // where a feature of the group is on a path, it is alone there
  uint64_t set = any;
  const auto next = [&] { return set & ~(set - 1); };
  const size_t joint_work = cost(tree, any);
  size_t divided_work = 0;
  for (; set && !is_unit; set &= set - 1) divided_work += cost(tree, next());
  if (is_unit || divided_work >= joint_work) {
    if (adds) copy(tree, group, any);
    return joint_work;
  }
  for (set = any; set && adds; set &= set - 1) copy(tree, group, next());
  return divided_work;
}

// Find the set of each leaf of a tree, which is the number of nodes that the leaf needs for the integral of a
// group. Find also the sets below each node, and for each set the most other groups on the path of a leaf.
void OwenTrees::find_leaves(int32_t tree, int32_t apart) {
  const int64_t root = from_.tree_offsets[tree];
  sets_of_node_.assign(static_cast<size_t>(from_.tree_offsets[tree + 1] - root), 0);
  most_others_.assign(kMaxSets, 0);
  int32_t n_groups = 0;
  bool is_alone = false;  // whether the path has one feature of the group, which is a player of its own
  visit_nodes(tree, [&](int64_t node, bool leave) {
    if (from_.is_leaf(node)) {
      const int32_t own = is_alone ? 0 : features_of_group_[apart];
      const bool saves = own > 0 && own == size_if_balanced(apart);
      const int32_t set = std::min(quadrature_nodes(Index::kShapley, own) - saves, kMaxSets - 1);
      sets_of_node_[node - root] = uint64_t{1} << set;
      most_others_[set] = std::max(most_others_[set], n_groups - (own > 0));
      return;
    }
    const int32_t feature = from_.player[node], group = groups_[feature];
    if (leave) {
      if (--splits_[feature] == 0 && --features_of_group_[group] == 0) {
        --n_groups;
        is_alone &= group != apart;
      }
      sets_of_node_[node - root] = sets_of_node_[from_.left[node]] | sets_of_node_[from_.right[node]];
      return;
    }
    if (splits_[feature]++ == 0 && features_of_group_[group]++ == 0) ++n_groups;
    is_alone |= group == apart && is_alone_at(tree, node);
  });
}

// Return the work of walking a copy that has the leaves of some sets.
size_t OwenTrees::cost(int32_t tree, uint64_t sets) const {
  const int64_t root = from_.tree_offsets[tree];
  size_t n_leaves = 1;  // one more than inner nodes
  for (size_t i = 0; i < sets_of_node_.size(); ++i)
    n_leaves += (sets_of_node_[i] & sets) && !from_.is_leaf(root + static_cast<int64_t>(i));
  int32_t most_others = 0, most_apart = 0;
  for (int32_t set = 0; set < kMaxSets; ++set) {
    if (!((sets & sets_of_node_.front()) >> set & 1)) continue;
    most_others = std::max(most_others, most_others_[set]);
    most_apart = set;
  }
  return n_leaves * leaf_work(most_apart * quadrature_nodes(Index::kShapley, most_others + 1));
}

// Copy a tree as it is.
void OwenTrees::copy_unwalked(int32_t tree) {
  by_path_ = true;
  is_only_.assign(static_cast<size_t>(from_.tree_offsets[tree + 1] - from_.tree_offsets[tree]), 1);
  balanced_ = false;
  copy(tree, kNone, kAllLeaves);
}

// Copy a tree, with the features of the group `apart` as players unless it is kNone. A subtree without leaves
// of these sets becomes a leaf of value 0. Only a copy with all leaves adds to margins.
void OwenTrees::copy(int32_t tree, int32_t apart, uint64_t sets) {
  const int64_t root = from_.tree_offsets[tree];
  const size_t width = static_cast<size_t>(from_.value_width);
  const auto add = [&](int64_t node, double cover) {
    copies_.add_node(cover);
    copies_.test.back() = from_.test[node];
    is_apart_.push_back(0);
    if (sets != kAllLeaves && !(sets_of_node_[node - root] & sets)) return false;
    if (!from_.is_leaf(node)) return true;
    std::copy_n(from_.value + node * width, width, copies_.value.end() - from_.value_width);
    return false;
  };
  copy_nodes(copies_, root, from_.cover[root], add, [&](int64_t node, int64_t copied) {
    const int32_t feature = from_.player[node], group = groups_[feature];
    const bool is_apart = group == apart, is_alone = apart == kNone && is_alone_at(tree, node);
    copies_.player[copied] = is_apart || is_alone ? feature : from_.n_features + group;
    is_apart_[copied] = is_apart;
    const int64_t left = root + from_.left[node], right = root + from_.right[node];
    return CopiedChildren{left, right, from_.cover[left], from_.cover[right]};
  });
  copies_.end_tree(from_.tree_output[tree]);
  adds_margin_.push_back(sets == kAllLeaves);
  n_saving_.push_back(apart == kNone ? 0 : size_if_balanced(apart));
  is_balanced_.push_back(balanced_ && (apart == kNone || n_saving_.back() > 0));
  apart_.push_back(apart);
}

}  // namespace skshap
