// A tree with labelled inner nodes, or a part of a tree. The program of a GPU is written from it.
#pragma once

#include <vector>

#include "cuda/program/program.h"
#include "plan/tree_paths.h"

namespace skshap {

class CudaTree {
 public:
  // The place of a child or of the root. It has an inner node, or a leaf. In merged trees
  // (plan/merged_trees.h), it may have several inner nodes, and a leaf as well.
  struct Place {
    int32_t first = -1;            // the first of the inner nodes, or -1
    const double* leaf = nullptr;  // the values of the leaf, or null

    bool is_leaf() const { return first < 0; }
  };

  struct Node {
    DecideNode test;
    int32_t feature;                // or, for Owen values, the player: see Plan::players
    Place left, right;              // if exactly one of them is a leaf, it is the right one
    int32_t next;                   // the next inner node in the same place, or -1
    double share, zero_fraction;    // of the path above, if repeated
    double edge_fraction;           // zero fraction of the parent's feature beyond the edge to this node
    int32_t previous, parent;       // -1: new on the path; none
    bool is_right;                  // child of the parent
    int32_t height;                 // above the fused subtrees; -1 for a pair, trio or quad
    uint32_t level, tracked_above;  // number of nodes above, and of tracked nodes above
    bool pair, tracked;             // whether it has two leaves; whether it has an alive bit
    bool apart;                     // for Owen values: a feature of the group whose features are apart
    bool above_apart;               // whether neither the node nor one above is apart: nobody needs its B
    // Return whether the node has the form of a repeated one. If it has no `previous`, all rows are alive at
    // the node.
    bool repeated() const { return previous >= 0 || apart; }
  };

  CudaTree(const Plan& plan, const CudaColumns& columns);

  // Label a tree or a part of it. The part has the leaves of nodes `begin` to `end`, and a leaf of value 0 in
  // the place of each subtree without such leaves. Merged trees are labelled as a whole.
  void open(const Chunk& chunk, const TreeProgram& tree, int32_t begin, int32_t end);

  // Return whether a node is the root of a pair, trio or quad.
  bool fused(const Node& node) const {
    return node.pair || (!pairs_ && is_pair(node.left) && (node.right.is_leaf() || is_pair(node.right)));
  }

  // Return the height of the nodes of a place. If the place has several nodes, the height includes the frame
  // above them, in which they are added up.
  int32_t height(const Place& place) const;

  // Return the latest nodes on the other features of the path above a node, beginning with the nearest.
  const std::vector<int32_t>& others_above(int32_t i);

  // Return the place of the pair of two nodes' features. Pairs follow the features.
  int32_t pair_of(int32_t i, int32_t j) const;
  // Return the place of the triple of three nodes' features, in a plan of order 3.
  int32_t triple_of(int32_t i, int32_t j, int32_t l) const;

  // Return the number of places: cuda_places() and, for Owen values, one for each group.
  size_t n_places() const { return counted_.size(); }

  const Plan& plan;
  Place root;
  std::vector<Node> nodes;  // in preorder
  uint32_t n_frames = 0;    // above the fused subtrees
  uint32_t most_tracked = 0;
  size_t n_sets = 0;   // of categories
  size_t n_slots = 0;  // of features and interactions
  bool fits = true;    // whether all columns fit the fused form

 private:
  // Return whether a place has a node with two leaves, and nothing else.
  bool is_pair(const Place& place) const {
    return !place.is_leaf() && !place.leaf && nodes[place.first].next < 0 && nodes[place.first].pair;
  }
  // Return the place beyond an edge: a bit for a node of the copy and its side, or 0 for the root.
  Place& place_beyond(int32_t edge);
  int32_t add_node(const TreeProgram& tree, int32_t node, int32_t edge);
  void copy_part(const TreeProgram& tree, int32_t begin, int32_t end);
  void copy_merged(const TreeProgram& tree);
  void label();
  void measure_heights();
  void count_tracked();
  void count_slots();

  const CudaColumns& columns_;
  const bool pairs_;
  const std::vector<int32_t> feature_of_column_;  // positions in Plan::features
  const std::vector<double> zeros_;               // a leaf
  size_t width_ = 1;                              // values of a leaf
  bool is_apart_ = false;                         // whether features of a group are apart
  // By node of the tree: the first node after its subtree; its copy; the edge to the copy; and whether the
  // copy's children are swapped.
  std::vector<int32_t> subtree_end_, copy_, edge_;
  std::vector<uint8_t> is_swapped_;
  std::vector<uint32_t> listed_, counted_;  // when a feature, or a place, was last met
  uint32_t stamp_ = 0, tree_number_ = 0;
  std::vector<int32_t> above_;
};

// Slots, columns and category sets have 16-bit indices in the fused form.
constexpr uint32_t kMaxCudaIndex = 0xffff;

}  // namespace skshap
