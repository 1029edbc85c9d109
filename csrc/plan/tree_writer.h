// The second pass over coded trees. It labels the nodes and writes the programs of chunks.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/tree_paths.h"
#include "plan/tree_shapes.h"
#include "plan/walk_writer.h"

namespace skshap {

class TreeWriter {
 public:
  // Write to `out`, which has the precision, the order and the index of the whole plan. Without `walks`, the
  // programs of the walk are not written.
  TreeWriter(const CodedTrees& trees, const MeasuredTrees& measured, bool walks, WalkProgram& out);

  // Add a chunk of trees, each with an inner node.
  void write_chunk(const std::vector<int32_t>& trees);

 private:
  enum Stage : uint8_t { kVisit, kBetween, kLeave, kJoin, kAddLeaf };
  struct WriterVisit {
    int64_t node;
    Stage stage;
    int32_t parent;  // preorder number
    bool right;      // child of the parent
    bool shared;     // takes its place with other nodes
  };

  void begin_chunk(int32_t first_tree);
  uint32_t slot(int32_t player);
  void write_tree(int32_t tree);
  void begin_tree(int32_t tree, const TreeShape& shape);
  void find_silent();
  void end_tree();
  void push_place(int64_t first, int32_t parent, bool right);
  void visit(const WriterVisit& item);
  void write_fused(const Label& n, int32_t index, bool right);
  void go_right(const WriterVisit& item);
  void add_leaf(const WriterVisit& item);
  void leave();
  Label label(int64_t node, int32_t parent, bool right_of_parent);
  void write_children(const Label& n, int32_t parent, bool right_of_parent);
  int32_t write_leaf(int64_t node);
  void write_decision(int64_t node, const Label& n, const PathStep* previous);

  // Return whether the place that a node takes first has no other node, and the node is a leaf; or whether
  // the node has two leaves.
  bool is_leaf(int64_t place) const { return trees_.is_leaf(place) && trees_.next_of(place, root_) < 0; }
  bool is_pair(int64_t place) const {
    return !trees_.is_leaf(place) && trees_.next_of(place, root_) < 0 &&
           is_leaf(root_ + trees_.left[place]) && is_leaf(root_ + trees_.right[place]);
  }
  // Return the edge to a child of a node as a bit, or the edge to the root if there is no parent.
  static int32_t edge(int32_t parent, bool right) {
    return parent < 0 ? 0 : static_cast<int32_t>(bit_of(parent, right));
  }
  int32_t last_inner() const { return static_cast<int32_t>(out_.decide.size() - first_decide_) - 1; }
  // Take an edge of the last node of the path.
  const PathStep& take(const Label& n, bool right) { return path_.take(n.word << 1 | right, n.share); }

  const CodedTrees& trees_;
  const MeasuredTrees& measured_;
  const bool walks_;
  const int32_t width_;
  WalkProgram& out_;
  WalkWriter writer_;
  TreePath path_;
  std::vector<Label> labels_;  // the nodes of the path
  std::vector<WriterVisit> stack_;
  std::vector<int32_t> slot_of_player_, slot_players_;
  int32_t tree_ = 0;
  int64_t root_ = 0;
  bool fuse_ = false, radau_ = false;  // of the chunk
  size_t first_decide_ = 0, first_child_ = 0, first_leaf_ = 0;
  bool merged_ = false;                   // the tree
  std::vector<uint8_t> any_apart_;        // by node of a tree with silent nodes: see find_silent()
  std::vector<int32_t> edges_to_leaves_;  // of a merged tree
};

}  // namespace skshap
