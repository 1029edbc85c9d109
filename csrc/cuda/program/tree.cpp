#include "cuda/program/tree.h"

#include <algorithm>

namespace skshap {
namespace {

size_t count_places(const Plan& plan) {
  size_t n = cuda_places(plan);
  for (const int32_t player : plan.players) n = std::max(n, static_cast<size_t>(player) + 1);
  return n;
}

}  // namespace

CudaTree::CudaTree(const Plan& plan, const CudaColumns& columns)
    : plan(plan),
      columns_(columns),
      pairs_(plan.interactions()),
      feature_of_column_(column_features(plan)),
      zeros_(plan.n_outputs, 0.0),
      listed_(plan.features.size(), 0),
      counted_(count_places(plan), 0) {}

void CudaTree::open(const Chunk& chunk, const TreeProgram& tree, int32_t begin, int32_t end) {
  width_ = n_used_outputs(plan, chunk);
  is_apart_ = chunk.n_apart > 0;
  nodes.clear();
  copy_.resize(tree.n_inner);
  is_swapped_.resize(tree.n_inner);
  n_sets = 0;
  fits = true;
  if (tree.merged)
    copy_merged(tree);
  else
    copy_part(tree, begin, end);
  label();
  measure_heights();
  count_tracked();
  count_slots();
}

CudaTree::Place& CudaTree::place_beyond(int32_t edge) {
  if (!edge) return root;
  Node& parent = nodes[bit_node(static_cast<uint32_t>(edge))];
  return edge & 1 ? parent.right : parent.left;
}

// Add a copy of an inner node, without children. Return the number of the copy.
int32_t CudaTree::add_node(const TreeProgram& tree, int32_t node, int32_t edge) {
  Node copy{};
  copy.test = plan.decide[tree.decide + node];
  copy.feature = plan.players.empty() ? feature_of_column_[copy.test.column]
                                      : plan.players[tree.decide + static_cast<size_t>(node)];
  copy.apart = is_apart_ && copy.feature < static_cast<int32_t>(plan.features.size());
  copy.next = copy.previous = -1;
  copy.parent = edge ? bit_node(static_cast<uint32_t>(edge)) : -1;
  copy.is_right = edge & 1;
  copy.share = plan.shares[tree.decide + node];
  copy.zero_fraction = copy.edge_fraction = 1;
  const bool categorical = copy.test.flags & kCategorical;
  n_sets += categorical;
  fits = fits && !(categorical && columns_.wide(copy.test.column)) &&
         columns_.first()[copy.test.column] <= kMaxCudaIndex / 2;
  nodes.push_back(copy);
  copy_[node] = static_cast<int32_t>(nodes.size()) - 1;
  is_swapped_[node] = false;
  return copy_[node];
}

void CudaTree::copy_part(const TreeProgram& tree, int32_t begin, int32_t end) {
  const int32_t n_inner = static_cast<int32_t>(tree.n_inner);
  const int32_t* const children = plan.children.data() + tree.children;
  const double* const leaves = plan.leaf_values.data() + tree.leaves;
  subtree_end_.resize(tree.n_inner);
  for (int32_t node = n_inner; node-- > 0;) {
    subtree_end_[node] = node + 1;
    for (const int32_t child : {children[2 * node], children[2 * node + 1]})
      if (child < n_inner) subtree_end_[node] = std::max(subtree_end_[node], subtree_end_[child]);
  }
  const auto is_kept = [&](int32_t child) {
    return child < n_inner && child < end && subtree_end_[child] > begin;
  };
  edge_.assign(tree.n_inner, 0);
  // Nodes are in preorder, and a node is kept if a child of it is.
  for (int32_t i = 0; i < std::min(n_inner, end); ++i) {
    if (!is_kept(i)) continue;
    const int32_t number = add_node(tree, i, edge_[i]);
    place_beyond(edge_[i]) = {number, nullptr};
    Node& node = nodes[number];
    const auto leaf = [&](int32_t child) {
      const bool is_in_part = child >= n_inner && i >= begin;
      return Place{-1, is_in_part ? leaves + static_cast<size_t>(child - n_inner) * width_ : zeros_.data()};
    };
    int32_t left = children[2 * i], right = children[2 * i + 1];
    if (!is_kept(left) && is_kept(right)) {  // the left subtree is cut off
      std::swap(left, right);
      node.test.flags ^= kFlip;
      node.share = 1 - node.share;
      is_swapped_[i] = true;
    }
    node.left = leaf(left);
    node.right = leaf(right);
    if (is_kept(left)) edge_[left] = static_cast<int32_t>(bit_of(number, false));
    if (is_kept(right)) edge_[right] = static_cast<int32_t>(bit_of(number, true));
  }
}

// The plan has, for each node and leaf of a merged tree, the edge to it.
void CudaTree::copy_merged(const TreeProgram& tree) {
  const int32_t* const edges = plan.children.data() + tree.children;
  root = {};
  for (size_t i = 0; i < tree.n_inner; ++i) {
    const int32_t number = add_node(tree, static_cast<int32_t>(i), edges[i]);
    int32_t* last = &place_beyond(edges[i]).first;
    while (*last >= 0) last = &nodes[*last].next;
    *last = number;
  }
  for (size_t leaf = 0; leaf < tree.n_leaves; ++leaf)
    place_beyond(edges[tree.n_inner + leaf]).leaf = plan.leaf_values.data() + tree.leaves + leaf;
}

// Find the place of each node on its path. The tests of the plan say which node is the previous one on the
// same feature. Parents come before their children.
void CudaTree::label() {
  const auto fraction_beyond = [](const Node& node, bool right) {
    return node.zero_fraction * (right ? 1 - node.share : node.share);
  };
  for (Node& node : nodes) {
    node.pair = node.left.is_leaf() && node.right.is_leaf();
    node.tracked = pairs_ && !node.pair;
    node.above_apart = is_apart_ && !node.apart;
    if (node.parent >= 0) {
      const Node& parent = nodes[node.parent];
      node.level = parent.level + 1;
      node.above_apart = node.above_apart && parent.above_apart;
      node.edge_fraction = fraction_beyond(parent, node.is_right);
    }
    if (!node.test.previous) continue;
    const int32_t previous = bit_node(node.test.previous << 1);
    const bool right = ((node.test.flags & kPreviousRight) != 0) != is_swapped_[previous];
    node.previous = copy_[previous];
    node.zero_fraction = fraction_beyond(nodes[node.previous], right);
    nodes[node.previous].tracked = true;
  }
}

int32_t CudaTree::height(const Place& place) const {
  int32_t height = -1;
  bool several = false;
  for (int32_t i = place.first; i >= 0; i = nodes[i].next) {
    height = std::max(height, nodes[i].height);
    several = several || nodes[i].next >= 0;
  }
  return several ? std::max(height + 1, kCudaRegisterFrames) : height;
}

// Measure the heights from the last node to the first: in preorder, children come after their parent.
void CudaTree::measure_heights() {
  n_frames = 0;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    node->height = -1;
    if (fused(*node)) continue;
    node->height = std::max(height(node->left), height(node->right)) + 1;
    n_frames = std::max(n_frames, static_cast<uint32_t>(node->height) + 1);
  }
  n_frames = std::max(n_frames, static_cast<uint32_t>(height(root) + 1));
}

void CudaTree::count_tracked() {
  most_tracked = 0;
  for (const Node& node : nodes) {
    const uint32_t tracked = node.tracked_above + node.tracked;
    most_tracked = std::max(most_tracked, tracked);
    for (const Place& place : {node.left, node.right})
      for (int32_t i = place.first; i >= 0; i = nodes[i].next) nodes[i].tracked_above = tracked;
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
    const std::vector<int32_t>& others = others_above(i);
    for (size_t j = 0; j < others.size(); ++j) {
      if (plan.order < 3) count(pair_of(i, others[j]));
      for (size_t l = 0; l < j && plan.order == 3; ++l) count(triple_of(i, others[j], others[l]));
    }
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
  return static_cast<int32_t>(plan.features.size() + position(plan.pairs, FeaturePair{first, second}));
}

int32_t CudaTree::triple_of(int32_t i, int32_t j, int32_t l) const {
  FeatureTriple triple{nodes[i].feature, nodes[j].feature, nodes[l].feature};
  std::sort(triple.begin(), triple.end());
  return static_cast<int32_t>(plan.features.size() + position(plan.triples, triple));
}

}  // namespace skshap
