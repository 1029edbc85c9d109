// The path to a leaf of a tree for Owen values. A GPU makes tables of such paths
// (cuda/program/owen_leaves.h). Their limits are in plan/gpu_limits.h.
//
// A table has an entry for each set of players that a row may fail. The players are the groups of a path, or
// the features of one group on the path. A path of many groups has no table of the groups, but a list of
// numbers.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/gpu_limits.h"
#include "plan/tree_paths.h"

namespace skshap {

// The numbers of an entry are in pieces of this many bytes, of which the last may be narrower, or each number
// is in a list of its own.
constexpr size_t kOwenPiece = 16;
template <class T>
constexpr int owen_piece() {
  return kOwenPiece / sizeof(T);
}
constexpr size_t rounded_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Entries are computed four at a time.
constexpr size_t kOwenFour = 4;
constexpr size_t owen_entries(size_t n_players) { return std::max(kOwenFour, size_t{1} << n_players); }

// Return how many numbers fit into the last piece, which is narrower than the others: 1, 2 or 4.
constexpr uint32_t owen_last_width(uint32_t n_numbers) { return n_numbers == 3 ? 4 : n_numbers; }
// Return the bytes of the pieces of a table, and the bytes of its lists.
template <class T>
constexpr size_t owen_piece_bytes(size_t n_players, size_t n_numbers) {
  const size_t last = n_numbers % owen_piece<T>(),
               n = n_numbers - last + owen_last_width(static_cast<uint32_t>(last));
  return n * sizeof(T) * owen_entries(n_players);
}
template <class T>
constexpr size_t owen_list_bytes(size_t n_players, size_t n_lists) {
  return rounded_up(n_lists * owen_entries(n_players) * sizeof(T), kOwenPiece);
}

// The numbers of a path of many groups, for each quadrature node and padded to whole pieces. The first is the
// weight. Then each group has its factor, and the number by which the product of all factors is multiplied to
// obtain the value of the group. Both exist twice: for rows that satisfy the group, and for rows that fail
// it.
constexpr size_t kOwenLongLists = 4;
constexpr size_t owen_nodes(size_t n_players) { return (n_players + 1) / 2; }
template <class T>
constexpr size_t owen_long_bytes(size_t n_groups) {
  return (1 + kOwenLongLists * n_groups) * rounded_up(owen_nodes(n_groups) * sizeof(T), kOwenPiece);
}

class OwenPath {
 public:
  struct PathGroup {
    int32_t group, first;  // the first node on it
    int n_features = 0;    // on the path
    int field, n_bits;     // the first bit, and their number: 0 if no path has several features of the group
    int32_t steps[kMostOwenPlayers] = {};  // the steps of the path on these features
  };

  explicit OwenPath(const Plan& plan);

  // A split of the path.
  struct Split {
    int32_t node;
    bool is_new;    // whether its feature is new on the path
    bool right;     // which subtree is visited
    bool second;    // whether the other one was visited before
    uint32_t bits;  // of the rows that fail the split
  };

  // Begin a tree. Return whether the tree is within the limits in the plan's precision.
  bool open(const TreeProgram& tree);

  // Visit the nodes of a tree within the limits. Call on_node() at each inner node, which is the last split
  // of the path, and on_leaf(number among the leaves of the tree) at each leaf. right_first(node) says
  // whether the right subtree is visited before the left one.
  template <class RightFirst, class OnNode, class OnLeaf>
  void walk(const RightFirst& right_first, const OnNode& on_node, const OnLeaf& on_leaf) {
    const int32_t n_inner = static_cast<int32_t>(tree_->n_inner);
    const int32_t* const children = plan_.children.data() + tree_->children;
    for (int32_t node = 0;;) {
      if (node < n_inner) {
        enter(node, right_first(node));
        on_node();
      } else {
        on_leaf(node - n_inner);
        while (splits_.back().second) {
          leave();
          if (splits_.empty()) return;
        }
        splits_.back().right = !splits_.back().right;
        splits_.back().second = true;
      }
      const Split& split = splits_.back();
      path_.take(bit_of(split.node, split.right), plan_.shares[tree_->decide + split.node]);
      node = children[2 * split.node + split.right];
    }
  }

  const std::vector<Split>& splits() const { return splits_; }
  const std::vector<PathGroup>& groups() const { return groups_; }
  const PathStep& step(int32_t i) const { return path_.steps()[i]; }

  // Return the bytes of the tables of the path's features, and the bytes of a table of its groups.
  template <class T>
  size_t own_bytes() const {
    size_t bytes = 0;
    for (const PathGroup& group : groups_)
      if (group.n_features > 1) bytes += owen_piece_bytes<T>(group.n_features, group.n_features);
    return bytes;
  }
  template <class T>
  size_t group_bytes() const {
    const size_t n = groups_.size();
    const auto has_several = [](const PathGroup& group) { return group.n_features > 1; };
    const size_t n_lists = static_cast<size_t>(std::count_if(groups_.begin(), groups_.end(), has_several));
    return owen_piece_bytes<T>(n, n - n_lists) + owen_list_bytes<T>(n, n_lists);
  }
  // Return whether the groups of the path to a leaf have a table.
  template <class T>
  bool has_table() const {
    return groups_.size() <= kMostOwenPlayers && own_bytes<T>() + group_bytes<T>() <= kOwenTableBytes;
  }

 private:
  static constexpr int32_t kNone = -1;
  // Continue the path by a split.
  void enter(int32_t node, bool right);
  // Return the bits of the rows that fail a split whose feature is new on the path.
  uint32_t enter_group(int32_t node, int32_t feature);
  // Return to the path above the last split.
  void leave();
  // Call visit() at each leaf.
  template <class Visit>
  void for_leaves(const Visit& visit) {
    walk([](int32_t) { return false; }, [] {}, [&](int32_t) { visit(); });
  }
  template <class T>
  bool fits() const;

  const Plan& plan_;
  const std::vector<int32_t> feature_of_column_;  // positions in Plan::features
  const TreeProgram* tree_ = nullptr;
  TreePath path_;
  std::vector<int32_t> place_;  // place of a group among the groups of the path
  std::vector<int> most_;       // by node that is the first of its group: the most features of it on a path
  int most_groups_ = 0;         // on a path of the tree
  std::vector<PathGroup> groups_;
  std::vector<uint32_t> bits_;  // by step
  std::vector<Split> splits_;
  int next_bit_ = 0;
};

// Return whether a plan has unwalked trees for Owen values, all within the limits and with leaves of one
// output.
bool has_owen_leaves(const Plan& plan);

}  // namespace skshap
