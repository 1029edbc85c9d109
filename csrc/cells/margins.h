// Margins of rows that descend through the trees. A row visits few nodes of a deep tree, but all of its
// units, so this is faster than adding up the margins of the row's cells. Both decide by the codes of the
// row. These trees are kept for later calls. So leaves take no nodes, as they do in
// background/leaf_weights.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "rows/coding.h"
#include "rows/tiles.h"

namespace skshap {

class MarginTrees {
 public:
  // Copy the trees of a plan, or nothing if cells are faster.
  explicit MarginTrees(const Plan& plan);
  MarginTrees() = default;

  bool any() const { return !trees_.empty(); }
  size_t bytes() const;

  // Write the margins of the n_rows rows from `first`.
  void write(const CodeTile& codes, int first, int n_rows, TileSums& margin) const;

 private:
  // An inner node. The row goes to the second child if its code plus the bias exceeds the operand, both of 16
  // bits.
  struct Node {
    uint16_t operand;
    uint16_t column_and_bias;  // the bias is the lowest bit
    int32_t children[2];       // a node of the tree, or ~leaf
  };
  struct Tree {
    size_t nodes, leaf_values;
    int32_t output;  // -1: each leaf holds all outputs
    bool is_leaf;
  };

  void descend(const Tree& tree, const uint16_t* codes, size_t stride, int32_t* leaves) const;

  std::vector<double> constant_;
  std::vector<Tree> trees_;
  std::vector<Node> nodes_;
  std::vector<double> leaf_values_;  // by tree: [leaf][output]
};

}  // namespace skshap
