// Trees that begin alike, merged.
//
// Suppose that several trees have the same split at a node, with the same cover fractions, and also at all
// nodes above it. Then C of the walk at this node is the same in all these trees (see
// simd/walk_kernel-inl.h), and the node's contribution to the values is linear in B. So the trees are walked
// as one tree, with the sum of their B, down to the nodes at which they differ. From there on, several nodes
// have the same place in the merged tree, and the B of the place is the sum of their B. Boosting with a low
// learning rate and without sampling makes such trees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace skshap {

struct MergedTrees {
  std::vector<size_t> trees;  // of the plan, ascending
  // One tree. Children come after their parents. The nodes in a place have the same cover, and the first of
  // them is their parent's child; the nodes in the place of the root begin with the first node. A leaf is the
  // last node in its place.
  CodedTreeArrays nodes;
  std::vector<size_t> first_leaf, n_leaves;  // by node: the leaves below it, numbered from left to right
  size_t n_all_leaves = 0;
};

// Trees that begin alike, by a sample.
struct AlikeTrees {
  int32_t output;
  std::vector<size_t> trees;  // of the plan, ascending
  double remaining_fraction;  // fraction of the sample's leaves that remain once its trees are merged
};

// Return some trees that are neighbours in the order of boosting: if any trees are alike, neighbours are. A
// plan has the trees in another order.
std::vector<size_t> neighbours_in(const Plan& plan, std::vector<size_t> trees);

// Find trees that begin alike among `trees`, which are in ascending order; the result is by output. Only
// trees that are walked by Gauss-Radau quadrature can be merged.
std::vector<AlikeTrees> find_alike_trees(const Plan& plan, const std::vector<size_t>& trees);

MergedTrees merge_trees(const Plan& plan, const AlikeTrees& alike);

}  // namespace skshap
