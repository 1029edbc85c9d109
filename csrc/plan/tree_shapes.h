// The first pass over coded trees: quadrature nodes, heights and the centers of the leaves.
#pragma once

#include <cmath>
#include <vector>

#include "plan/plan.h"

namespace skshap {

struct TreeShape {
  int n_features = 0;  // most different ones on a path
  int n_nodes = 0;     // K
  int n_apart = 0;     // for Owen values, if the features of a group are apart: nodes of the group's integral
  bool radau = false;  // see Chunk
  bool balanced = false;
  int height = 0;
  int64_t n_leaves = 0;
  bool merged = false;   // whether several nodes take one place
  double magnitude = 0;  // the largest magnitude of its leaves
};

// Coded trees, with each tree's expected value subtracted from its leaves.
class MeasuredTrees {
 public:
  // Measure all trees. Fill the plan's constant, base value, magnitudes, number of leaves and scale.
  MeasuredTrees(const CodedTrees& trees, Plan& plan, int64_t n_threads);

  const std::vector<TreeShape>& shapes() const { return shapes_; }

  // Return the value of a leaf less the center of its tree; and the same divided by the plan's scale.
  double leaf(int32_t tree, int64_t node, int32_t o) const {
    return trees_.value[node * trees_.value_width + o] -
           centers_[static_cast<size_t>(tree) * trees_.value_width + o];
  }
  double scaled_leaf(int32_t tree, int64_t node, int32_t o) const {
    return leaf(tree, node, o) * inverse_scale_;
  }

 private:
  class Measurer;
  // The center of the leaves of a tree, their largest magnitude, and their largest magnitude less the center.
  // `rest` is the part of the center that rounding leaves in them.
  struct Center {
    double center, largest, centered_largest, rest;
  };

  void require_limits(int32_t tree) const;
  double accept(int32_t tree, int32_t o, const Center& center);
  void choose_scale();

  const CodedTrees& trees_;
  Plan& plan_;
  std::vector<TreeShape> shapes_;
  std::vector<double> centers_;  // [tree][value_width]
  std::vector<double> rest_;     // per output: expected values of the centered trees
  double inverse_scale_ = 1;     // a power of two
};

// Return the cover fraction of the left child.
double left_share(double left, double right);

}  // namespace skshap
