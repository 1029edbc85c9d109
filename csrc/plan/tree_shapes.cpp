#include "plan/tree_shapes.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "base/threads.h"
#include "plan/quadrature.h"

namespace skshap {
namespace {

// Each inner node has some numbers for each quadrature node, and the stack of a walk has some numbers for
// each level. Within these limits, the numbers take about a gigabyte. No training produces larger trees. A
// model file could contain a chain of nodes, whose memory would grow with the square of its length.
constexpr int kMaxNodes = 512;
constexpr int64_t kMaxStackNodes = 1 << 20;

}  // namespace

double left_share(double left, double right) {
  const double sum = left + right;
  if (!(sum > 0)) return 0.5;
  return std::isfinite(sum) ? left / sum : left / 2 / (left / 2 + right / 2);
}

// One thread's work: measures trees.
class MeasuredTrees::Measurer {
 public:
  Measurer(const CodedTrees& trees, Index index, bool interactions)
      : trees_(trees), index_(index), interactions_(interactions), n_tests_(trees.n_players, 0) {}

  // Return the shape of a tree without the magnitude of its leaves. Write the center of each output.
  TreeShape measure(int32_t tree, Center* centers) {
    TreeShape shape;
    const PathPlayers most = list_leaves(trees_.tree_offsets[tree], shape);
    shape.n_leaves = static_cast<int64_t>(leaves_.size());
    shape.n_features = most.distinct;
    shape.balanced = trees_.is_balanced(tree);
    int n_radau = radau_nodes(index_, most.distinct), n_legendre = quadrature_nodes(index_, most.distinct);
    if (most.apart > 0) {
      shape.n_apart = quadrature_nodes(index_, most.apart);
      if (trees_.n_saving && trees_.n_saving[tree] == most.apart) --shape.n_apart;
      n_radau = n_legendre = shape.n_apart * quadrature_nodes(index_, most.others + 1);
    }
    shape.radau = n_radau <= kMaxFixedValueNodes && trees_.tree_output[tree] >= 0 && !interactions_;
    shape.n_nodes = walked_nodes(shape.radau ? n_radau : n_legendre, interactions_);
    for (int32_t o = 0; o < trees_.value_width; ++o) {
      const LeafSums sums = sum(o, 0);
      // A row reaches several leaves of a merged tree, so an offset of each leaf would not be an offset of
      // their sum.
      const double center = shape.merged ? 0 : sums.expected;
      const LeafSums centered = center == 0 ? sums : sum(o, center);
      centers[o] = {center, sums.largest, centered.largest, centered.expected};
    }
    return shape;
  }

 private:
  struct MeasuredLeaf {
    int64_t node;
    double share;  // of the root's cover
  };

  struct ShapeVisit {
    int64_t node;
    double share;
    size_t depth;
  };

  // The most players of a kind on a path of a tree.
  struct PathPlayers {
    int distinct = 0, apart = 0, others = 0;
  };

  // List the leaves of a tree. Find its height and whether it is merged.
  PathPlayers list_leaves(int64_t root, TreeShape& shape) {
    PathPlayers now, most;
    size_t height = 0;
    leaves_.clear();
    const auto push_place = [&](int64_t first, double share, size_t depth) {
      for (int64_t node = first; node >= 0; node = trees_.next_of(node, root)) {
        stack_.push_back({node, share, depth});
        shape.merged = shape.merged || node != first;
      }
    };
    push_place(root, 1.0, 0);
    while (!stack_.empty()) {
      // One by one: a copy of the struct would wait for the stores that wrote it.
      const int64_t node = stack_.back().node;
      const double share = stack_.back().share;
      const size_t depth = stack_.back().depth;
      stack_.pop_back();
      while (path_.size() > depth) leave(now);
      if (trees_.is_leaf(node)) {
        height = std::max(height, depth);
        most.distinct = std::max(most.distinct, now.distinct);
        most.apart = std::max(most.apart, now.apart);
        most.others = std::max(most.others, now.distinct - now.apart);
        leaves_.push_back({node, share});
        continue;
      }
      const int64_t left = root + trees_.left[node], right = root + trees_.right[node];
      const double r = left_share(trees_.cover[left], trees_.cover[right]);
      enter(node, now);
      push_place(right, share * (1 - r), depth + 1);
      push_place(left, share * r, depth + 1);
    }
    while (!path_.empty()) leave(now);
    shape.height = static_cast<int>(height);
    return most;
  }

  // Append an inner node to the path. `now` counts the players of the path.
  void enter(int64_t node, PathPlayers& now) {
    path_.push_back(node);
    if (n_tests_[trees_.player[node]]++ > 0) return;
    ++now.distinct;
    now.apart += trees_.apart(node);
  }

  // Remove the last node of the path.
  void leave(PathPlayers& now) {
    const int64_t node = path_.back();
    path_.pop_back();
    if (--n_tests_[trees_.player[node]] > 0) return;
    --now.distinct;
    now.apart -= trees_.apart(node);
  }

  // The expected value of the leaves less the center; and the largest magnitude of the leaves less the
  // center.
  struct LeafSums {
    double expected = 0, largest = 0;
  };
  LeafSums sum(int32_t o, double center) const {
    LeafSums sums;
    for (const MeasuredLeaf& leaf : leaves_) {
      const double centered = trees_.value[leaf.node * trees_.value_width + o] - center,
                   magnitude = std::fabs(centered);
      sums.expected += leaf.share * centered;
      if (!(magnitude <= sums.largest)) sums.largest = magnitude;  // NaN, too
    }
    return sums;
  }

  const CodedTrees& trees_;
  const Index index_;
  const bool interactions_;
  std::vector<int32_t> n_tests_;  // by player: number of nodes of the path that test it
  std::vector<int64_t> path_;     // the nodes above the node that is visited
  std::vector<ShapeVisit> stack_;
  std::vector<MeasuredLeaf> leaves_;  // of the tree that is measured
};

MeasuredTrees::MeasuredTrees(const CodedTrees& trees, Plan& plan, int64_t n_threads)
    : trees_(trees),
      plan_(plan),
      shapes_(trees_.n_trees),
      centers_(static_cast<size_t>(trees_.n_trees) * trees_.value_width, 0.0),
      rest_(trees_.n_outputs, 0.0) {
  std::vector<Center> centers(centers_.size());
  share_items(trees_.n_trees, n_threads, [&] {
    return [&, measurer = Measurer(trees_, plan.index, plan.interactions())](int64_t i) mutable {
      shapes_[i] = measurer.measure(static_cast<int32_t>(i), centers.data() + i * trees_.value_width);
    };
  });
  plan_.constant.assign(trees_.intercept, trees_.intercept + trees_.n_outputs);
  plan_.leaf_magnitude.assign(trees_.n_outputs, 0.0);
  plan_.n_leaves = 0;
  for (int32_t tree = 0; tree < trees_.n_trees; ++tree) {
    require_limits(tree);
    TreeShape& shape = shapes_[tree];
    plan_.n_leaves += shape.n_leaves;
    for (int32_t o = 0; o < trees_.value_width; ++o)
      shape.magnitude = std::max(
          shape.magnitude, accept(tree, o, centers[static_cast<size_t>(tree) * trees_.value_width + o]));
  }
  plan_.base_value = plan_.constant;
  for (int32_t o = 0; o < trees_.n_outputs; ++o) plan_.base_value[o] += rest_[o];
  choose_scale();
}

void MeasuredTrees::require_limits(int32_t tree) const {
  const TreeShape& shape = shapes_[tree];
  if (shape.n_nodes > kMaxNodes && shape.n_apart)
    throw std::invalid_argument(
        "a path has " + std::to_string(shape.n_features) +
        " different features and groups, too many for Owen values: use smaller groups, or index='SV'");
  if (shape.n_nodes > kMaxNodes)
    throw std::invalid_argument("tree " + std::to_string(tree) + " has a path of " +
                                std::to_string(shape.n_features) + " different features, more than " +
                                std::to_string(2 * kMaxNodes));
  if (int64_t{shape.height} * shape.n_nodes > kMaxStackNodes)
    throw std::invalid_argument("tree " + std::to_string(tree) + " is too deep: it has " +
                                std::to_string(shape.height) + " levels, and a path of " +
                                std::to_string(shape.n_features) + " different features");
}

// Move the expected value of a tree from its leaves into the constant of the output. Return the largest
// magnitude of its leaves after that. Values and interactions are differences of leaves and do not change. An
// offset that all leaves share, such as the mean of the target in a forest, would otherwise use up the digits
// of the precision. The expected value stays in the leaves only if moving it would overflow.
double MeasuredTrees::accept(int32_t tree, int32_t o, const Center& center) {
  const size_t output = std::max(trees_.tree_output[tree], 0) + o;
  const double constant = plan_.constant[output] + center.center;
  const bool moved = std::isfinite(center.centered_largest) && std::isfinite(constant);
  if (moved) {
    if (trees_.has_margin(tree)) plan_.constant[output] = constant;
    centers_[static_cast<size_t>(tree) * trees_.value_width + o] = center.center;
  }
  const double largest = moved ? center.centered_largest : center.largest;
  plan_.leaf_magnitude[output] += largest;
  // Because of rounding, the expected value of the centered leaves is not exactly 0. The base value needs the
  // remainder: the constant and the leaves may be much smaller than the center.
  rest_[output] += moved ? center.rest : center.center;
  return largest;
}

void MeasuredTrees::choose_scale() {
  // Leaf values are scaled to about 1, exactly, so that the leaf values and their differences stay in the
  // range of the precision.
  const double largest = largest_of(shapes_, &TreeShape::magnitude);
  int exponent = 0;
  if (largest > 0) std::frexp(largest, &exponent);
  // The scale and its inverse are powers of two that are normal numbers.
  constexpr int most = 1 - std::numeric_limits<double>::min_exponent;
  exponent = std::clamp(exponent, -most, most);
  plan_.leaf_scale = std::ldexp(1.0, exponent);
  inverse_scale_ = std::ldexp(1.0, -exponent);
}

}  // namespace skshap
