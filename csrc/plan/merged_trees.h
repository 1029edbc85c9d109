// Trees that begin alike, merged.
//
// If several trees have the same split at a node, with the same cover fractions, and also at all nodes above
// it, then C of the walk is the same there in all of them (see simd/walk_kernel-inl.h), and what the node
// adds to the values is linear in B. So the trees are walked as one, with the sum of their B, down to where
// they part: there, several nodes have the same place in the merged tree, and the sum of their B is that of
// the place. Boosting with a low learning rate and without sampling makes such trees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace skshap {

// Limits of trees that are merged for a GPU (cuda/program/tree.h).
constexpr int kMostGpuLevels = 32;

struct MergedNode {
  DecideNode test;      // without its place on a path
  double share;         // cover fraction of the left child
  int32_t left, right;  // the first nodes in the places of the children; -1 for a leaf
  int32_t next;         // the next node in the same place, or -1; a leaf is the last one
  double value;         // of a leaf
  int32_t feature;      // position in Plan::features
  size_t first_leaf, n_leaves;

  bool is_leaf() const { return left < 0; }
};

struct MergedTrees {
  int32_t output;
  std::vector<size_t> trees;  // of the plan, ascending
  // Children come after their parents; the nodes in the place of the root begin with the first one.
  std::vector<MergedNode> nodes;
  size_t n_leaves = 0;
};

// Trees that begin alike, by a sample.
struct AlikeTrees {
  int32_t output;
  std::vector<size_t> trees;  // of the plan, ascending
  double part_left;           // of the leaves of the sample, once its trees are merged
};

// Find trees that begin alike among `trees`, given in ascending order, by output. Only those that are walked
// by Gauss-Radau quadrature can be merged.
std::vector<AlikeTrees> find_alike_trees(const Plan& plan, const std::vector<size_t>& trees);

MergedTrees merge_trees(const Plan& plan, const AlikeTrees& alike);

}  // namespace skshap
