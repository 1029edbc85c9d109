// The path to a leaf of a tree for Owen values, of which a GPU makes tables (cuda/program/owen_leaves.h), and
// the limits of these.
//
// A table has an entry for each set of players that a row fails: the groups of a path, or the features of a
// group on it.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/tree_paths.h"

namespace skshap {

// The most players of a table.
constexpr int kMostOwenPlayers = 8;
// The bits of a row's word: groups, in the order in which the path meets them, then for each group as many
// bits as it has features on some path of the tree, unless this is one.
constexpr int kOwenGroupBits = kMostOwenPlayers, kOwenFieldBits = 32 - kOwenGroupBits;

// The numbers of an entry are in pieces of so many bytes, the last of which may be narrower, or each in a list
// of its own. All tables of a leaf together have at most kOwenTableBytes.
constexpr size_t kOwenPiece = 16, kOwenTableBytes = size_t{24} << 10;
template <class T>
constexpr int owen_piece() {
  return kOwenPiece / sizeof(T);
}
constexpr size_t rounded_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Entries are computed four at a time.
constexpr size_t kOwenFour = 4;
constexpr size_t owen_entries(size_t n_players) { return std::max(kOwenFour, size_t{1} << n_players); }

// Return the numbers that fit the last piece, which has fewer than the others: 1, 2 or 4.
constexpr uint32_t owen_last_width(uint32_t n_numbers) { return n_numbers == 3 ? 4 : n_numbers; }
// Return the bytes of the pieces of a table, and of its lists.
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

class OwenPath {
 public:
  struct Group {
    int32_t group;
    int n_features;     // on the path
    int field, n_bits;  // the first bit, and their number: 0 if no path has several features of the group
    int32_t steps[kMostOwenPlayers];  // of the path, which are on these features
  };

  explicit OwenPath(const Plan& plan);

  // Begin a tree; return whether it fits the limits in the plan's precision.
  bool open(const TreeProgram& tree);

  // Continue the path of a tree that fits with a split on a feature; return the bits of rows that fail it.
  // Calls of `take` follow, one for each of its edges.
  uint32_t enter(int32_t feature);
  void take(bool right, double left_share) { path_.take(bit_of(0, right), left_share); }
  // Return to the path above the last split.
  void leave();

  const std::vector<Group>& groups() const { return groups_; }
  const PathStep& step(int32_t i) const { return path_.steps()[i]; }

 private:
  static constexpr int32_t kNone = -1;

  // Call take(group, number of features) for the groups of the path that walk_ visits.
  template <class Take>
  void count_groups(const Take& take);

  const Plan& plan_;
  TreePath path_;
  PathWalk walk_;
  std::vector<int32_t> place_;  // of a group, among those of the path
  std::vector<int> most_;       // by group: the most features of it on a path of the tree
  std::vector<int> count_;      // by group
  std::vector<Group> groups_;
  std::vector<uint32_t> bits_;  // by step
  std::vector<bool> is_new_;    // by split: whether its feature is new on the path
  int next_bit_ = kOwenGroupBits;
};

// Return whether a plan has unwalked trees for Owen values, all within the limits, with leaves of one output.
bool has_owen_leaves(const Plan& plan);

}  // namespace skshap
