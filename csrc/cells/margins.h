// Margins of rows that descend through the trees. A row visits few nodes of a deep tree, but all of its
// units, so this is faster than adding up the margins of the row's cells. Both decide by the codes of the
// row. These trees are kept for later calls.
#pragma once

#include <cstdint>
#include <vector>

#include "base/threads.h"
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

  // Write the margins of the n_rows rows from `first`, the first of a block. Return false if `stop` returned
  // true.
  bool write(const CodeTile& codes, int first, int n_rows, TileSums& margin, const Stop& stop) const;

 private:
  // A row goes to the node `child`, or to the next one if its code plus the bias exceeds the operand, both of
  // 16 bits. A leaf is its own child: no code exceeds its operand.
  struct Node {
    uint16_t operand;
    uint16_t column_and_bias;  // the bias is the lowest bit
    uint32_t child;
  };
  struct Tree {
    size_t nodes, leaf_values;
    int32_t output;  // -1: each leaf holds all outputs
  };

  void add_tree(const Plan& plan, const TreeProgram& tree);
  void descend(const Node* nodes, const uint16_t* codes, uint32_t* arrived) const;

  size_t n_columns_ = 0;
  std::vector<double> constant_;
  std::vector<Tree> trees_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> leaf_of_node_;
  std::vector<double> leaf_values_;  // by tree: [leaf][output]
};

}  // namespace skshap
