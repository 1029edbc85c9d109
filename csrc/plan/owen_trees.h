// The trees whose walks add up to the Owen values of an ensemble.
//
// The Owen value of a feature is an integral over two variables: the probability s that each of the other
// features of its group is known, and the probability t that each other group is known, as a whole. So a tree
// is walked once for each group that has several features on one of its paths. In this walk, the features of
// the group are players, which are known with probability s, and each other group is one player. The leaves
// may also be divided by the number of nodes that they need for s, with a walk for each part, if that takes
// less time.
//
// A feature may also be the only one of its group on all paths through a split. Then the feature gets the
// value of the group, from a walk in which the groups are players, and the group's own walk omits these
// paths. See docs/mathematics.md, and plan/balance.h about groups whose walks take fewer nodes.
#pragma once

#include <vector>

#include "plan/balance.h"
#include "plan/plan.h"

namespace skshap {

// Set the groups of a plan's features, given the group of each player of the ensemble.
void set_groups(Plan& plan, const int32_t* groups);

// Compile an ensemble for Owen values: a plan without walks. intervals/builder.h makes a plan of its trees
// that explains rows, and a GPU may explain the trees leaf by leaf (cuda/program/owen_leaves.h).
Plan make_owen_plan(const EnsembleView& ensemble, Precision precision, const int32_t* groups,
                    int64_t n_threads);

class OwenTrees {
 public:
  // Copy coded trees whose players are features. `groups` has the group of each feature. The copies of a tree
  // follow each other, and the trees keep their order. If the first trees are `unwalked`, there is one copy
  // of each of them, with the features as players.
  OwenTrees(const CodedTrees& trees, const std::vector<int32_t>& groups, bool unwalked);

  CodedTrees trees() const;
  // Return the first copy of each tree and, at the end, the number of copies.
  const std::vector<int32_t>& first_copies() const { return first_copies_; }
  // Return the group whose features are apart in each copy, or -1.
  const std::vector<int32_t>& apart() const { return apart_; }

 private:
  static constexpr int32_t kNone = -1;
  // Sets of leaves, as bits. The set of a leaf is the number of nodes that the features of a group on its
  // path need.
  static constexpr int32_t kMaxSets = 64;
  static constexpr uint64_t kAllLeaves = ~uint64_t{0}, kWithoutGroup = 1;

  template <class Visit>
  void visit_nodes(int32_t tree, const Visit& visit) const;
  void find_groups(int32_t tree);
  void inherit_companions(int32_t tree);
  void find_leaves(int32_t tree, int32_t apart);
  int32_t size_if_balanced(int32_t group) const { return balanced_ ? balance_.size_of(group) : 0; }
  size_t cost(int32_t tree, uint64_t sets) const;
  void add_copies(int32_t tree, bool is_unit);
  size_t add_copies(int32_t tree, bool is_unit, bool has_players, bool adds);
  size_t copy_by_nodes(int32_t tree, int32_t group, bool is_unit, bool adds);
  void copy(int32_t tree, int32_t apart, uint64_t sets);
  void copy_unwalked(int32_t tree);
  // Return whether the feature of a split is a player of its own in the walk in which the groups are players.
  bool is_alone_at(int32_t tree, int64_t node) const {
    return by_path_ ? is_only_[node - from_.tree_offsets[tree]] != 0
                    : most_of_group_[groups_[from_.player[node]]] == 1;
  }

  const CodedTrees from_;
  const std::vector<int32_t>& groups_;
  const Balance balance_;
  int32_t n_first_ = 0;
  // For the tree that is copied: the most features of each group on one path; its groups, in ascending order;
  // and the most groups on one path.
  std::vector<int32_t> most_of_group_, groups_of_tree_;
  int32_t most_groups_ = 0;
  // By node of that tree: whether the feature is the only one of its group on all paths through this node,
  // and on all paths through the nodes above it that split on the feature. This list is used if by_path_ is
  // true; otherwise all paths of a tree count.
  std::vector<uint8_t> is_only_;
  bool by_path_ = false, balanced_ = false;
  std::vector<int64_t> met_of_group_, met_of_feature_;  // splits met so far, of all trees
  std::vector<int32_t> splits_, features_of_group_;     // of a path, by feature and by group
  std::vector<uint64_t> sets_of_node_;                  // by node: the sets of leaves below it
  std::vector<int32_t> most_others_;                    // by set: the most other groups on the path of a leaf
  std::vector<int32_t> first_copies_{0}, apart_;
  CodedTreeArrays copies_;
  std::vector<uint8_t> is_apart_, adds_margin_, is_balanced_;
  std::vector<int32_t> n_saving_;
};

}  // namespace skshap
