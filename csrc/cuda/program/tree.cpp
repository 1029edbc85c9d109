#include "cuda/program/tree.h"

#include <algorithm>

namespace skshap {

CudaTree::CudaTree(const Plan& plan, const CudaColumns& columns)
    : plan(plan),
      columns_(columns),
      pairs_(plan.interactions()),
      walk_(plan),
      listed_(plan.features.size(), 0),
      counted_(plan.features.size() + plan.pairs.size(), 0) {}

void CudaTree::open(const Chunk& chunk, const TreeProgram& tree) {
  program = &tree;
  decide = plan.decide.data() + tree.decide;
  children = plan.children.data() + tree.children;
  if (!tree.walked) return;
  label(n_used_outputs(plan, chunk));
  measure_heights();
  count_tracked();
  count_slots();
}

void CudaTree::label(size_t width) {
  const double* const leaves = plan.leaf_values.data() + program->leaves;
  const int32_t n_inner = static_cast<int32_t>(program->n_inner);
  const auto leaf = [&](int32_t child) {
    return child < n_inner ? nullptr : leaves + static_cast<size_t>(child - n_inner) * width;
  };
  nodes.assign(n_inner, Node{});
  n_sets = 0;
  fits = true;
  walk_.run<LeafOrder::kByNumber>(
      *program,
      [&](const PathNode& at) {
        Node& node = nodes[at.node];
        const int32_t left = children[2 * at.node], right = children[2 * at.node + 1];
        node.feature = at.feature;
        node.left = left < n_inner ? left : -1;
        node.right = right < n_inner ? right : -1;
        node.pair = node.left < 0 && node.right < 0;
        node.left_leaf = leaf(left);
        node.right_leaf = leaf(right);
        node.share = plan.shares[program->decide + at.node];
        node.parent = at.parent;
        node.level = at.level;
        node.previous = at.previous ? bit_node(at.previous->bit) : -1;
        node.zero_fraction = at.previous ? at.previous->share : 1;
        node.edge_fraction = at.parent < 0 ? 1 : walk_.find(nodes[at.parent].feature)->share;
        node.tracked = pairs_ && !node.pair;
        if (at.previous) nodes[node.previous].tracked = true;
        const DecideNode& d = decide[at.node];
        const bool categorical = d.flags & kCategorical;
        n_sets += categorical;
        fits = fits && !(categorical && columns_.wide(d.column)) &&
               columns_.first()[d.column] <= kMaxCudaIndex / 2;
      },
      [](int32_t) {});
}

// Measure the heights from the last node to the first: in preorder, children come after their parent.
void CudaTree::measure_heights() {
  n_frames = 0;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    node->height = -1;
    if (fused(*node)) continue;
    for (const int32_t child : {node->left, node->right})
      if (child >= 0) node->height = std::max(node->height, nodes[child].height);
    n_frames = std::max(n_frames, static_cast<uint32_t>(++node->height) + 1);
  }
}

void CudaTree::count_tracked() {
  most_tracked = 0;
  for (const Node& node : nodes) {
    const uint32_t tracked = node.tracked_above + node.tracked;
    most_tracked = std::max(most_tracked, tracked);
    for (const int32_t child : {node.left, node.right})
      if (child >= 0) nodes[child].tracked_above = tracked;
  }
}

void CudaTree::count_slots() {
  n_slots = 0;
  ++tree_number_;
  const auto count = [&](int32_t place) {
    n_slots += counted_[place] != tree_number_;
    counted_[place] = tree_number_;
  };
  for (int32_t i = 0; i < static_cast<int32_t>(nodes.size()); ++i) {
    count(nodes[i].feature);
    if (!pairs_) continue;
    for (const int32_t other : others_above(i)) count(pair_of(i, other));
  }
}

const std::vector<int32_t>& CudaTree::others_above(int32_t i) {
  above_.clear();
  listed_[nodes[i].feature] = ++stamp_;
  for (int32_t parent = nodes[i].parent; parent >= 0; parent = nodes[parent].parent) {
    uint32_t& listed = listed_[nodes[parent].feature];
    if (listed != stamp_) above_.push_back(parent);
    listed = stamp_;
  }
  return above_;
}

int32_t CudaTree::pair_of(int32_t i, int32_t j) const {
  const auto [first, second] = std::minmax({nodes[i].feature, nodes[j].feature});
  const auto less = [](const FeaturePair& a, const FeaturePair& b) {
    return a.first != b.first ? a.first < b.first : a.second < b.second;
  };
  const auto found = std::lower_bound(plan.pairs.begin(), plan.pairs.end(), FeaturePair{first, second}, less);
  return static_cast<int32_t>(plan.features.size() + (found - plan.pairs.begin()));
}

}  // namespace skshap
