// Trees laid over each other: nodes of several trees are one node of the overlay if they have the same test,
// and if all nodes above them do, too.
//
// Boosting with a low learning rate makes such trees. Unlike merged trees (see plan/merged_trees.h), they may
// have other covers, so that they are walked one by one. But a row takes the same ways in all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace skshap {

class Overlay {
 public:
  // An inner node of a tree.
  struct Member {
    uint32_t tree;  // position in trees()
    int32_t node;
  };
  // A node of the overlay. Nodes are in preorder: those below a node follow it, up to `end`.
  struct Node {
    size_t members, members_end;  // in members()
    int32_t parent;               // or -1
    int32_t end;
    uint32_t n_sides_with_leaves;  // sides, 0 to 2, on which some member has a leaf
    uint32_t n_leaves;             // of the members, on these sides
  };

  // Nodes with fewer than `least_members` members, and those below, are left out.
  explicit Overlay(const Plan& plan, size_t least_members = 1) : plan_(plan), least_members_(least_members) {}

  // Lay trees over each other that have the same test at their roots.
  void lay(const std::vector<size_t>& trees);

  const std::vector<size_t>& trees() const { return trees_; }  // of the plan
  const std::vector<Node>& nodes() const { return nodes_; }
  // By node, the members: the first one of each is the one whose tests the others have.
  const std::vector<Member>& members() const { return members_; }
  const DecideNode& test(const Member& member) const {
    return plan_.decide[tree(member).decide + static_cast<size_t>(member.node)];
  }
  const TreeProgram& tree(const Member& member) const { return plan_.trees[trees_[member.tree]]; }

 private:
  // A node that is to be added, with its members at the end of open_members_.
  struct OpenNode {
    size_t members;
    int32_t parent;
  };

  void open(int32_t parent);
  void add_node(const OpenNode& open);
  void find_ends();

  const Plan& plan_;
  const size_t least_members_;
  std::vector<size_t> trees_;
  std::vector<Node> nodes_;
  std::vector<Member> members_;
  std::vector<OpenNode> open_;
  std::vector<Member> open_members_;
  // The inner nodes on a side of a node, the first of each group with the same test, and the group of each.
  std::vector<Member> side_, firsts_;
  std::vector<size_t> group_of_, places_;
};

}  // namespace skshap
