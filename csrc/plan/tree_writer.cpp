#include "plan/tree_writer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "base/threads.h"

namespace skshap {

TreeWriter::TreeWriter(const CodedTrees& trees, const MeasuredTrees& measured, bool walks, WalkProgram& out)
    : trees_(trees),
      measured_(measured),
      walks_(walks),
      width_(trees.value_width),
      out_(out),
      writer_(trees, measured, out),
      path_(trees.n_players),
      slot_of_player_(trees.n_players, -1) {}

// --- Chunks ---

void TreeWriter::write_chunk(const std::vector<int32_t>& trees) {
  begin_chunk(trees.front());
  for (const int32_t tree : trees) {
    write_tree(tree);
    if (!walks_) writer_.clear();
  }
}

void TreeWriter::begin_chunk(int32_t first_tree) {
  const TreeShape& shape = measured_.shapes()[first_tree];
  for (const int32_t player : slot_players_) slot_of_player_[player] = -1;
  slot_players_.clear();
  Chunk chunk{};
  chunk.output = trees_.tree_output[first_tree];
  chunk.n_nodes = shape.n_nodes;
  chunk.radau = shape.radau;
  chunk.n_apart = shape.n_apart;
  chunk.balanced = shape.balanced;
  chunk.tree_begin = chunk.tree_end = out_.trees.size();
  chunk.quadrature = writer_.n_constants();
  if (trees_.slots_are_players) {
    chunk.slots.resize(trees_.n_players);
    std::iota(chunk.slots.begin(), chunk.slots.end(), 0);
  }
  out_.chunks.push_back(chunk);
  // The kernels for an arbitrary K have no fused subtrees.
  fuse_ = shape.n_nodes <= kMaxFixedValueNodes && !out_.interactions();
  radau_ = chunk.radau;
  writer_.begin_chunk(chunk);
}

uint32_t TreeWriter::slot(int32_t player) {
  if (trees_.slots_are_players) return static_cast<uint32_t>(player);
  int32_t& slot = slot_of_player_[player];
  if (slot < 0) {
    Chunk& chunk = out_.chunks.back();
    slot = static_cast<int32_t>(chunk.slots.size());
    if (chunk.slots.size() >= kMaxSlots) throw std::invalid_argument("a tree uses too many features");
    chunk.slots.push_back(chunk.balanced ? player : std::min(player, trees_.n_features));
    slot_players_.push_back(player);
  }
  return static_cast<uint32_t>(slot);
}

// --- The programs of a tree ---

void TreeWriter::write_tree(int32_t tree) {
  check_interrupt();
  begin_tree(tree, measured_.shapes()[tree]);
  stack_.clear();
  push_place(root_, -1, false);
  while (!stack_.empty()) {
    const WriterVisit item = stack_.back();
    stack_.pop_back();
    switch (item.stage) {
      case kVisit: visit(item); break;
      case kBetween: go_right(item); break;
      case kLeave: leave(); break;
      case kJoin: writer_.join(); break;
      case kAddLeaf: add_leaf(item); break;
    }
  }
  end_tree();
}

void TreeWriter::begin_tree(int32_t tree, const TreeShape& shape) {
  tree_ = tree;
  root_ = trees_.tree_offsets[tree];
  first_decide_ = out_.decide.size();
  first_child_ = out_.children.size();
  first_leaf_ = out_.leaf_values.size();
  merged_ = shape.merged;
  edges_to_leaves_.clear();
  find_silent();
  out_.trees.push_back({.decide = first_decide_,
                        .n_inner = 0,
                        .ops = out_.ops.size(),
                        .constants = writer_.n_constants(),
                        .children = first_child_,
                        .leaves = first_leaf_,
                        .height = shape.height,
                        .n_features = shape.n_features,
                        .walked = true,
                        .source = tree,
                        .merged = merged_,
                        .n_leaves = static_cast<size_t>(shape.n_leaves),
                        .adds_margin = trees_.has_margin(tree)});
  Chunk& chunk = out_.chunks.back();
  chunk.tree_end = out_.trees.size();
  chunk.height = std::max(chunk.height, shape.height);
  // Each level keeps the B of its left child, and the B of the earlier nodes in the place of its last node.
  chunk.n_values = std::max(chunk.n_values, (merged_ ? 2 : 1) * shape.height + 2);
  writer_.begin_tree(tree);
}

// If the kernel has silent nodes, find the nodes that have features of the group below them: only the values
// of these features are needed. In trees for Owen values, children follow their parents.
void TreeWriter::find_silent() {
  any_apart_.clear();
  const int n_nodes = out_.chunks.back().n_nodes;
  const bool any = radau_ && out_.chunks.back().n_apart > 0;
  if (!any || !has_silent_operations(out_.precision == Precision::kSingle, n_nodes)) return;
  any_apart_.resize(static_cast<size_t>(trees_.tree_offsets[tree_ + 1] - root_));
  for (size_t i = any_apart_.size(); i-- > 0;) {
    const int64_t node = root_ + static_cast<int64_t>(i);
    any_apart_[i] = !trees_.is_leaf(node) &&
                    (trees_.apart(node) || any_apart_[trees_.left[node]] || any_apart_[trees_.right[node]]);
  }
}

void TreeWriter::end_tree() {
  writer_.end_tree();
  const size_t n_inner = out_.decide.size() - first_decide_;
  out_.trees.back().n_inner = n_inner;
  Chunk& chunk = out_.chunks.back();
  chunk.max_inner = std::max(chunk.max_inner, n_inner);
  if (merged_) {
    out_.children.insert(out_.children.end(), edges_to_leaves_.begin(), edges_to_leaves_.end());
    return;
  }
  // Leaves were numbered ~0, ~1, ... while the number of inner nodes was unknown. Their final numbers follow
  // the inner nodes.
  for (size_t i = first_child_; i < out_.children.size(); ++i)
    if (out_.children[i] < 0) out_.children[i] = static_cast<int32_t>(n_inner) + ~out_.children[i];
  for (size_t leaf = n_inner; leaf <= 2 * n_inner; ++leaf)
    out_.children.insert(out_.children.end(), 2, static_cast<int32_t>(leaf));
}

// Plan the visits of all nodes that take a place.
void TreeWriter::push_place(int64_t first, int32_t parent, bool right) {
  if (trees_.next_of(first, root_) < 0) return stack_.push_back({first, kVisit, parent, right, false});
  const size_t begin = stack_.size();
  for (int64_t node = first; node >= 0; node = trees_.next_of(node, root_)) {
    stack_.push_back({node, trees_.is_leaf(node) ? kAddLeaf : kVisit, parent, right, true});
    if (node != first && !trees_.is_leaf(node)) stack_.push_back({node, kJoin, parent, right, true});
  }
  std::reverse(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
}

void TreeWriter::visit(const WriterVisit& item) {
  const Label n = label(item.node, item.parent, item.right);
  // If several nodes take a place, the C of the place is computed before the first of them; see go_right().
  const bool right = item.right && !item.shared;
  if (is_leaf(n.left)) return writer_.pair(n, right, labels_);
  const int32_t index = last_inner();
  const bool right_leaf = is_leaf(n.right);
  path_.enter(trees_.player[item.node]);
  const PathStep& left = take(n, false);
  if (fuse_ && is_pair(n.left) && (right_leaf || is_pair(n.right))) {
    write_fused(n, index, right);
    path_.leave();
    return;
  }
  if (radau_ && right && !n.silent_below) writer_.middle(n, 0);
  writer_.enter(n, left.share);
  labels_.push_back(n);
  stack_.push_back({item.node, kLeave, 0, false, false});
  if (!right_leaf) {
    push_place(n.right, index, true);
    stack_.push_back({n.right, kBetween, 0, false, trees_.next_of(n.right, root_) >= 0});
  }
  push_place(n.left, index, false);
}

void TreeWriter::write_fused(const Label& n, int32_t index, bool right) {
  const Label first = label(n.left, index, false);
  if (is_leaf(n.right)) return writer_.fused(n, first, nullptr, right);
  take(n, true);
  const Label second = label(n.right, index, true);
  writer_.fused(n, first, &second, right);
}

// Go from the left to the right child of a node. With Gauss-Radau quadrature, visit() writes the operation
// for this, unless several nodes take the place of the child.
void TreeWriter::go_right(const WriterVisit& item) {
  const Label& n = labels_.back();
  const PathStep& step = take(n, true);
  if (!radau_ || item.shared) writer_.middle(n, step.share);
}

void TreeWriter::leave() {
  const Label n = labels_.back();
  labels_.pop_back();
  path_.leave();
  writer_.exit(n, labels_);
}

// Add a leaf to the earlier nodes in the same place.
void TreeWriter::add_leaf(const WriterVisit& item) {
  write_leaf(item.node);
  edges_to_leaves_.push_back(edge(item.parent, item.right));
  writer_.add_leaf(item.node);
}

// Find the place of a node on the path. Write the node's decision and its children.
Label TreeWriter::label(int64_t node, int32_t parent, bool right_of_parent) {
  Label n{};
  int64_t left = root_ + trees_.left[node], right = root_ + trees_.right[node];
  n.flip = is_leaf(left) && !is_leaf(right);
  if (n.flip) std::swap(left, right);
  if (left > std::numeric_limits<int32_t>::max() || right > std::numeric_limits<int32_t>::max())
    throw std::invalid_argument("the ensemble has more than 2,147,483,647 nodes");
  n.left = static_cast<int32_t>(left);
  n.right = static_cast<int32_t>(right);
  const int32_t f = trees_.player[node];
  const PathStep* const previous = path_.find(f);
  n.slot = slot(f);
  n.apart = trees_.apart(node);
  n.repeated = previous != nullptr || n.apart;
  n.silent = !any_apart_.empty() && !n.apart;
  n.silent_below = n.silent && !any_apart_[node - root_];
  n.zero_fraction = previous ? previous->share : 1.0;
  n.others = 1;
  if (radau_)
    for (const PathStep& step : path_.steps())
      if (step.feature != f) n.others *= step.share;
  n.share = left_share(trees_.cover[left], trees_.cover[right]);
  n.word = static_cast<uint32_t>(kFirstWord + 2 * (out_.decide.size() - first_decide_));
  write_decision(node, n, previous);
  out_.shares.push_back(n.share);
  if (trees_.is_apart) out_.players.push_back(f);

  write_children(n, parent, right_of_parent);
  return n;
}

void TreeWriter::write_children(const Label& n, int32_t parent, bool right_of_parent) {
  if (merged_) {
    out_.children.push_back(edge(parent, right_of_parent));
    for (const bool right : {false, true}) {
      if (!is_leaf(right ? n.right : n.left)) continue;
      write_leaf(right ? n.right : n.left);
      edges_to_leaves_.push_back(edge(last_inner(), right));
    }
    return;
  }
  if (parent >= 0) out_.children[first_child_ + 2 * parent + right_of_parent] = last_inner();
  for (const int64_t child : {n.left, n.right})
    out_.children.push_back(trees_.is_leaf(child) ? write_leaf(child) : 0);
}

int32_t TreeWriter::write_leaf(int64_t node) {
  const size_t index = (out_.leaf_values.size() - first_leaf_) / width_;
  for (int32_t o = 0; o < width_; ++o) out_.leaf_values.push_back(measured_.leaf(tree_, node, o));
  return ~static_cast<int32_t>(index);
}

void TreeWriter::write_decision(int64_t node, const Label& n, const PathStep* previous) {
  DecideNode d = trees_.test[node];
  if (n.flip) d.flags ^= kFlip;
  if (previous) {
    d.previous = previous->bit >> 1;
    if (previous->bit & 1) d.flags |= kPreviousRight;
  }
  out_.decide.push_back(d);
}

}  // namespace skshap
