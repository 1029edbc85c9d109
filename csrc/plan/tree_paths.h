// Paths of trees. Only here are splits on the same feature merged and their cover fractions multiplied.
//
// A path lists each feature once, however many of its splits are on the feature. A row satisfies a feature if
// it satisfies all splits of the path on it. `decide` evaluates a split only for rows that satisfied the
// earlier splits on its feature, so the latest edge tells whether a row satisfies the feature. If the feature
// is unknown, the path is taken with the feature's zero fraction, the product of the cover fractions of the
// feature's edges.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace skshap {

// All splits of a path on one feature.
struct PathStep {
  int32_t feature;
  uint32_t bit;  // of the latest edge, see bit_of
  double share;  // the zero fraction
};

// Return the bit of an edge. The bit stands for the rows that take the edge, among the rows that are alive at
// its node; see bit_rows.
constexpr uint32_t bit_of(int32_t node, bool right) {
  return static_cast<uint32_t>(kFirstWord + 2 * node) << 1 | right;
}
constexpr int32_t bit_node(uint32_t bit) { return static_cast<int32_t>(bit >> 1) / 2 - kFirstWord / 2; }

// The path from the root of a tree to the current node of a walk.
class TreePath {
 public:
  // Make an empty path of a tree whose features are numbered from 0 to n_features - 1.
  explicit TreePath(size_t n_features = 0) : place_(n_features, kAbsent) {}

  // Return the steps of the path, one for each feature, in the order in which the path meets the features.
  const std::vector<PathStep>& steps() const { return steps_; }

  // Return the step of a feature, or null if the feature is new on the path.
  const PathStep* find(int32_t feature) const {
    return place_[feature] == kAbsent ? nullptr : &steps_[place_[feature]];
  }

  // Continue the path with a split. Calls of `take` follow, one for each edge of the split.
  void enter(int32_t feature) {
    int32_t& place = place_[feature];
    if (place == kAbsent) {
      place = static_cast<int32_t>(steps_.size());
      splits_.push_back({place, true, {feature, 0, 1.0}});
      steps_.push_back(splits_.back().above);
    } else {
      splits_.push_back({place, false, steps_[place]});
    }
  }

  // Take an edge of the last split, given the left child's cover fraction; return the merged step.
  const PathStep& take(uint32_t bit, double left_share) {
    const Split& split = splits_.back();
    const double share = bit & 1 ? 1 - left_share : left_share;
    return steps_[split.place] = {split.above.feature, bit, split.above.share * share};
  }

  // Return the place of the last split's feature among the steps; and whether earlier splits test this
  // feature, too.
  int32_t last_place() const { return splits_.back().place; }
  bool last_is_repeated() const { return !splits_.back().is_new; }

  // Return to the path above the last split.
  void leave() {
    const Split& split = splits_.back();
    if (split.is_new) {
      place_[split.above.feature] = kAbsent;
      steps_.pop_back();
    } else {
      steps_[split.place] = split.above;
    }
    splits_.pop_back();
  }

  // Return how many bytes a path of at most n_splits splits allocates.
  static size_t bytes(size_t n_features, size_t n_splits) {
    return n_features * sizeof(int32_t) + n_splits * (sizeof(PathStep) + sizeof(Split));
  }

 private:
  static constexpr int32_t kAbsent = -1;
  struct Split {
    int32_t place;  // of its feature, among the steps
    bool is_new;
    PathStep above;
  };

  std::vector<PathStep> steps_;
  std::vector<Split> splits_;
  std::vector<int32_t> place_;  // of a feature, among the steps
};

// Return the test of a node without its place on a path.
inline DecideNode test_of(DecideNode node) {
  node.previous = 0;
  node.flags &= kCategorical | kFlip;
  return node;
}

// An inner node as a walk visits it.
struct PathNode {
  int32_t node, feature;
  int32_t parent;            // -1: the root
  bool is_right;             // child of the parent
  uint32_t level;            // nodes above
  const PathStep* previous;  // the path's step on the same feature, or null
};

// An edge as a walk takes it.
struct PathEdge {
  uint32_t bit;      // see bit_of
  uint32_t level;    // number of nodes above the node of the edge
  int32_t place;     // of the feature, among the path's steps
  bool is_repeated;  // whether earlier splits of the path are on the feature
};

// The order in which a walk visits leaves: each leaf at its position in the tree, or first the leaves below a
// node and then the subtrees below it, which is the order of the leaves' numbers.
enum class LeafOrder { kDepthFirst, kByNumber };

// A depth-first walk of the trees of a plan. It visits left children before right ones, so inner nodes come
// in the order of their numbers.
class PathWalk {
 public:
  explicit PathWalk(const Plan& plan)
      : plan_(plan), features_(column_features(plan)), path_(plan.features.size()) {}

  // Call on_node(PathNode) at each inner node and on_leaf(number among the leaves of the tree) at each leaf,
  // while steps() is the path to it.
  template <LeafOrder kOrder, class OnNode, class OnLeaf>
  void run(const TreeProgram& tree, const OnNode& on_node, const OnLeaf& on_leaf) {
    run<kOrder>(tree, on_node, [](const PathEdge&) { return true; }, on_leaf);
  }

  // Also call on_edge(PathEdge) at each edge, before the node or leaf below it; steps() includes the edge. If
  // on_edge returns false, the walk omits the subtree below the edge.
  template <LeafOrder kOrder, class OnNode, class OnEdge, class OnLeaf>
  void run(const TreeProgram& tree, const OnNode& on_node, const OnEdge& on_edge, const OnLeaf& on_leaf) {
    constexpr bool kBelow = kOrder == LeafOrder::kDepthFirst;
    const int32_t n_inner = static_cast<int32_t>(tree.n_inner);
    const int32_t* const children = plan_.children.data() + tree.children;
    tree_ = &tree;
    for (int32_t node = 0;;) {
      if (node < n_inner) {
        const int32_t feature = this->feature(node);
        const bool is_root = edges_.empty();
        on_node(PathNode{.node = node,
                         .feature = feature,
                         .parent = is_root ? -1 : edges_.back().node,
                         .is_right = !is_root && edges_.back().right,
                         .level = static_cast<uint32_t>(edges_.size()),
                         .previous = path_.find(feature)});
        path_.enter(feature);
        edges_.push_back({node, false});
        if (!kBelow)
          for (const bool right : {false, true})
            if (const int32_t child = children[2 * node + right]; child >= n_inner) {
              if (take(node, right, on_edge)) on_leaf(child - n_inner);
            }
        const int32_t left = children[2 * node];
        if ((kBelow || left < n_inner) && take(node, false, on_edge)) {
          node = left;
          continue;
        }
      } else {
        on_leaf(node - n_inner);
      }
      do {
        while (!edges_.empty() && edges_.back().right) {
          edges_.pop_back();
          path_.leave();
        }
        if (edges_.empty()) return;
        edges_.back().right = true;
        node = children[2 * edges_.back().node + 1];
      } while ((!kBelow && node >= n_inner) || !take(edges_.back().node, true, on_edge));
    }
  }

  const std::vector<PathStep>& steps() const { return path_.steps(); }
  const PathStep* find(int32_t feature) const { return path_.find(feature); }

  // Return how many bytes a walk of trees of at most n_levels levels allocates.
  static size_t bytes(const Plan& plan, size_t n_levels) {
    return plan.columns.size() * sizeof(int32_t) + TreePath::bytes(plan.features.size(), n_levels) +
           n_levels * sizeof(Edge);
  }

  // Return the feature of a node of the tree that run() walks.
  int32_t feature(int32_t node) const { return features_[plan_.decide[tree_->decide + node].column]; }

 private:
  struct Edge {
    int32_t node;
    bool right;
  };
  // Take an edge of the last node of the path. Return whether the walk continues below it.
  template <class OnEdge>
  bool take(int32_t node, bool right, const OnEdge& on_edge) {
    const uint32_t bit = bit_of(node, right);
    path_.take(bit, plan_.shares[tree_->decide + node]);
    return on_edge(PathEdge{bit, static_cast<uint32_t>(edges_.size() - 1), path_.last_place(),
                            path_.last_is_repeated()});
  }

  const Plan& plan_;
  const std::vector<int32_t> features_;  // by column
  const TreeProgram* tree_ = nullptr;
  TreePath path_;
  std::vector<Edge> edges_;
};

}  // namespace skshap
