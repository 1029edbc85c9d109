// The program of the walk: its operations and constants, as described in plan/program.h and
// simd/walk_kernel-inl.h.
#pragma once

#include <vector>

#include "plan/interactions.h"
#include "plan/tree_shapes.h"
#include "plan/walk_program.h"

namespace skshap {

// An inner node whose place on the path is known. If exactly one child is a leaf, it is the right one, and
// `flip` says whether the children were swapped for this.
struct Label {
  int32_t left, right;
  uint32_t slot, word;
  bool flip;
  bool repeated;         // or new, but apart: the kernels know only the nodes of the outer integral
  bool apart;            // for Owen values: a feature of the group whose features are apart
  bool silent;           // the values of its feature are not needed
  bool silent_below;     // nor the values of any node below it
  double share;          // cover fraction of the left child
  double zero_fraction;  // of the path above, if repeated
  double others;         // with Gauss-Radau: product of the zero fractions of the path's other features above
};

class WalkWriter {
 public:
  WalkWriter(const CodedTrees& trees, const MeasuredTrees& measured, WalkProgram& out);

  // Begin a chunk of trees. Write its quadrature nodes and their weights, which are nodes of a double
  // integral if the features of a group are apart.
  void begin_chunk(const Chunk& chunk);
  void begin_tree(int32_t tree) {
    tree_ = tree;
    expected_.clear();
  }
  void end_tree() { op(kEnd, 0); }

  // Write a node. A node with two leaves is a pair. Fused subtrees are written by their root and its pairs,
  // of which the second is null if the right child is a leaf, and any other node in three parts. Fused
  // subtrees that are right children take the place of `middle`. For interactions, `above` holds the nodes of
  // the path, and z is the zero fraction of the node's feature beyond the edge that follows.
  void pair(const Label& n, bool right, const std::vector<Label>& above);
  void fused(const Label& n, const Label& first, const Label* second, bool right);
  void enter(const Label& n, double z);
  void middle(const Label& n, double z);
  void exit(const Label& n, const std::vector<Label>& above);
  // Add the B of the last two nodes, which have the same place; or add the value of a leaf to the B of the
  // last node.
  void join();
  void add_leaf(int64_t node);

  size_t n_constants() const { return single_ ? out_.constants_float.size() : out_.constants_double.size(); }
  // Remove everything written from the plan.
  void clear();

 private:
  void op(uint32_t code, uint32_t slot) { out_.ops.push_back(slot << kSlotShift | code); }
  void fused_op(uint32_t code, const Label& n, bool right) {
    op(code + (right && radau_ ? kRightChild : 0), n.slot);
  }
  void push(double x) {
    if (single_)
      out_.constants_float.push_back(static_cast<float>(x));
    else
      out_.constants_double.push_back(x);
  }
  double leaf(int64_t node, int32_t o) const { return measured_.scaled_leaf(tree_, node, o); }
  double difference(const Label& n, int32_t o) const { return leaf(n.left, o) - leaf(n.right, o); }
  void push_leaf(int64_t node);
  const std::vector<double>& nodes(const Label& n) const { return n.apart ? apart_ : t_; }
  double factor(const Label& n, double t, bool left) const;
  void repeated_pair(const Label& n);
  void silent_subtree(const Label& n, const Label& first, const Label* second);
  void gain_stream(const Label& n);
  void factor_stream(const Label& n);
  void push_shares(const Label& n);
  void split_stream(const Label& n);
  void pair_stream(const Label& n);
  void fused_split(const Label& n);
  void radau_pair(const Label& n);
  void push_end(const Label& n, double difference);
  void radau_root(const Label& n, double left, double right);
  void new_quad(const Label& n, const Label& first, const Label& second);
  double expected(const Label& n, double left, double right) const;
  double expected(const Label& pair, int32_t o) const;
  void push_slopes(const Label& n, int32_t o);
  void slope_stream(const Label& n, int32_t o);
  void lambda_stream(double z);
  void list_interactions(const Label& n, const std::vector<Label>& above);

  const CodedTrees& trees_;
  const MeasuredTrees& measured_;
  WalkProgram& out_;
  const bool single_, interactions_;
  const int32_t width_;
  int32_t tree_ = 0;
  bool radau_ = false, fused_vectors_ = false;  // of the chunk
  std::vector<double> t_, apart_;               // nodes, and for features that are apart
  // With Gauss-Radau: the weight of t = 0, and the expected values of the finished subtrees whose parents are
  // not finished.
  double end_weight_ = 0;
  std::vector<double> expected_;
  InteractionNumbers numbers_;
  std::vector<char> listed_;      // by slot
  std::vector<uint32_t> others_;  // slots
};

}  // namespace skshap
