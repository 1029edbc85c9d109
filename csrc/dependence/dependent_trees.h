// Trees as functions of the features of a grid, given the other features of a row.
//
// On a path, the splits on the grid's features select cells, which are the region of the path's leaf. All
// other splits select rows. So if a row satisfies the other splits, it adds the value of the leaf at each
// cell of the region. Nodes that split on features of the grid are left out of the trees. Each remaining node
// has an edge from the nearest remaining node above it: (the number of that node in the tree + 1) << 1, plus
// 1 if the edge goes to the right. Edge 0 means that there is no node above. Leaves whose region is empty are
// left out, too.
#pragma once

#include <vector>

#include "dependence/cells.h"
#include "plan/coded_trees.h"

namespace skshap {

// The most axes of a grid.
constexpr size_t kMostAxes = 2;

struct DependentTree {
  size_t inner, n_inner;  // inner nodes, in preorder
  size_t leaf, n_leaves;  // ordered by the node above
  size_t leaf_begin;      // places of the leaves below edge 0, and below each inner node
  int32_t output;         // -1: each leaf has a value for each output
};

struct DependentTrees {
  CodedColumns coded;
  std::vector<Cells> axes;
  std::vector<DependentTree> trees;
  std::vector<DecideNode> tests;  // of inner nodes
  std::vector<uint32_t> inner_edges;
  std::vector<uint32_t> inner_ends;  // number in the tree of the next inner node that is not below the node
  std::vector<uint32_t> leaf_edges;
  std::vector<uint32_t> leaf_begins;  // counted from DependentTree::leaf
  std::vector<double> leaf_values;    // [leaf][1 or output], less the center of the tree
  std::vector<size_t> run_begins;     // [leaf][axis], and the end
  std::vector<Run> runs;
  std::vector<double> constant;        // per output: the intercept and the centers
  std::vector<double> leaf_magnitude;  // per output: sum over the trees of the largest |leaf_values|

  int32_t n_outputs() const { return static_cast<int32_t>(constant.size()); }
  size_t n_leaves() const { return leaf_edges.size(); }
  // Return the first leaf of a tree, or the number of leaves behind the last tree.
  size_t first_leaf(size_t tree) const { return tree < trees.size() ? trees[tree].leaf : n_leaves(); }
  // Return the number of values of a leaf.
  size_t width() const { return leaf_edges.empty() ? 1 : leaf_values.size() / leaf_edges.size(); }
  size_t bytes() const;
};

// An axis of a grid: columns of X, and points. The points are rows of which only these columns matter.
struct GridAxis {
  std::vector<int32_t> inputs;
  Rows points;
};

DependentTrees make_dependent_trees(const EnsembleView& ensemble, const std::vector<GridAxis>& axes,
                                    int64_t n_threads);

}  // namespace skshap
