// The leaves of a tree, and the groups of leaves that share tables.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "plan/tree_paths.h"

namespace skshap {

// The largest number of bits of an index, and of the pattern of a leaf without a table.
constexpr uint32_t kMaxTableBits = 16, kMaxPatternBits = kMaxPathFeatures;
// The most features on the path of a leaf that has its own table against background data.
constexpr uint32_t kLeafBits = 12;

// The rule that says which leaves have tables: the leaves with at most leaf_bits features on their path.
// Leaves share a table if the table is small. For tables of pairs, they also share a table that has not many
// more indices than the separate tables of these leaves together.
struct TableLimits {
  uint32_t leaf_bits;
  bool is_for_pairs = false;
};

// The leaves of one tree, and the groups of leaves that share tables.
class TreeGroups {
 public:
  struct Leaf {
    size_t value;  // the first value, among the leaf values of the tree
    size_t path;   // in `steps`, if the path has at most kMaxPatternBits features
    uint32_t n_features;
    bool grouped;
  };
  // The subtree below one node. In preorder, its leaves and its inner nodes are consecutive.
  struct Group {
    // The path to the node, in `steps`. The features on which no node of the group splits come first.
    size_t above, n_above;
    int32_t first_node, n_nodes;
    size_t leaves, leaves_end;
    uint32_t n_bits() const { return static_cast<uint32_t>(n_above) + n_nodes; }
  };

  explicit TreeGroups(const Plan& plan) : plan_(plan), walk_(plan) {}
  // Find the leaves and groups of a tree.
  void find(const Chunk& chunk, const TreeProgram& tree, const TableLimits& limits);

  // List each feature of a group once.
  void list_features(const Group& group, std::vector<int32_t>& out) const;

  std::vector<PathStep> steps;
  std::vector<Leaf> leaves;
  std::vector<Group> groups;
  std::vector<int32_t> features;  // features of the tree, in the order in which the nodes first use them

 private:
  void enter(const PathNode& at);
  void add_leaf(int32_t leaf);
  bool grouped() const { return !groups.empty() && leaves.size() < groups.back().leaves_end; }
  bool shares_table(size_t n_below) const;
  void begin_group(int32_t node, int32_t n_below);

  const Plan& plan_;
  TableLimits limits_{};
  PathWalk walk_;
  size_t width_ = 1;
  int32_t n_inner_ = 0;
  std::vector<int32_t> inner_below_;  // by node: the number of inner nodes of its subtree, including the node
  std::vector<char> met_;             // by feature
};

}  // namespace skshap
