#include "cells/margins.h"

#include <algorithm>

#include "base/threads.h"

namespace skshap {
namespace {

// The leaves of a tree, on average, from which on descending was faster in measurements.
constexpr int64_t kLeastLeaves = 800;
// The number of rows that descend together, so that their loads from memory overlap, and the number of levels
// after which they may have arrived.
constexpr int kTogether = 8, kLevels = 4;
constexpr size_t kMostColumns = 1 << 15;  // that fit the 16 bits with the bias
// The most codes that are copied row by row for one tree after another: they and a tree stay in the L2 cache.
constexpr size_t kMostCodes = 1 << 17;

}  // namespace

MarginTrees::MarginTrees(const Plan& plan) : n_columns_(plan.columns.size()) {
  const bool categorical = std::any_of(plan.columns.begin(), plan.columns.end(),
                                       [](const Column& column) { return column.categorical; });
  if (plan.n_leaves < kLeastLeaves * static_cast<int64_t>(plan.trees.size()) || categorical ||
      n_columns_ > kMostColumns)
    return;
  constant_ = plan.constant;
  nodes_.reserve(2 * static_cast<size_t>(plan.n_leaves));
  leaf_of_node_.reserve(2 * static_cast<size_t>(plan.n_leaves));
  for (const Chunk& chunk : plan.chunks)
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      check_interrupt();
      const TreeProgram& tree = plan.trees[i];
      trees_.push_back({.nodes = nodes_.size(), .leaf_values = leaf_values_.size(), .output = chunk.output});
      add_tree(plan, tree);
      const auto values = plan.leaf_values.begin() + static_cast<std::ptrdiff_t>(tree.leaves);
      const size_t n_values = tree.n_leaves * n_used_outputs(plan, chunk);
      leaf_values_.insert(leaf_values_.end(), values, values + static_cast<std::ptrdiff_t>(n_values));
    }
}

// Add the nodes of a tree, level by level, so that the children of a node are next to each other.
void MarginTrees::add_tree(const Plan& plan, const TreeProgram& tree) {
  const int32_t* const children = plan.children.data() + tree.children;
  std::vector<int32_t> order{0};
  order.reserve(2 * tree.n_inner + 1);
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t node = static_cast<size_t>(order[i]);
    if (node >= tree.n_inner) {
      nodes_.push_back({0xffff, 0, static_cast<uint32_t>(i)});
      leaf_of_node_.push_back(static_cast<uint32_t>(node - tree.n_inner));
      continue;
    }
    const DecideNode& test = plan.decide[tree.decide + node];
    nodes_.push_back({static_cast<uint16_t>(test.operand),
                      static_cast<uint16_t>(test.column << 1 | test.bias),
                      static_cast<uint32_t>(order.size())});
    leaf_of_node_.push_back(0);
    const bool flipped = test.flags & kFlip;
    order.push_back(children[2 * node + flipped]);
    order.push_back(children[2 * node + !flipped]);
  }
}

size_t MarginTrees::bytes() const {
  return list_bytes(constant_, trees_, nodes_, leaf_of_node_, leaf_values_);
}

bool MarginTrees::write(const CodeTile& codes, int first, int n_rows, TileSums& margin,
                        const Stop& stop) const {
  for (size_t o = 0; o < constant_.size(); ++o) std::fill_n(margin.at(o) + first, n_rows, constant_[o]);
  const int most = static_cast<int>(kMostCodes / n_columns_) / kTogether * kTogether;
  std::vector<uint16_t> row_codes;
  for (const int end = first + n_rows; first < end; first += n_rows) {
    n_rows = std::min(std::max(most, kTogether), end - first);
    const size_t n_copied = static_cast<size_t>((n_rows + kTogether - 1) / kTogether * kTogether);
    row_codes.resize(n_copied * n_columns_);
    for (size_t column = 0; column < n_columns_; ++column) {
      const uint16_t* const from = codes.narrow.data() + column * codes.stride + first;
      for (size_t i = 0; i < n_copied; ++i) row_codes[i * n_columns_ + column] = from[i];
    }
    for (const Tree& tree : trees_) {
      if (stop()) return false;
      const size_t first_output = static_cast<size_t>(std::max(tree.output, 0)),
                   n_outputs = tree.output < 0 ? constant_.size() : 1;
      const Node* const nodes = nodes_.data() + tree.nodes;
      const uint32_t* const leaf_of_node = leaf_of_node_.data() + tree.nodes;
      const double* const values = leaf_values_.data() + tree.leaf_values;
      for (int row = 0; row < n_rows; row += kTogether) {
        uint32_t arrived[kTogether];
        descend(nodes, row_codes.data() + static_cast<size_t>(row) * n_columns_, arrived);
        const int n = std::min(kTogether, n_rows - row);
        for (size_t o = 0; o < n_outputs; ++o) {
          double* const to = margin.at(first_output + o) + first + row;
          for (int i = 0; i < n; ++i) to[i] += values[leaf_of_node[arrived[i]] * n_outputs + o];
        }
      }
    }
  }
  return true;
}

// Find the nodes at which rows arrive, given their codes row by row.
void MarginTrees::descend(const Node* nodes, const uint16_t* codes, uint32_t* arrived) const {
  uint32_t at[kTogether] = {};
  const auto go_down = [&] {
    uint32_t moved = 0;
    for (int i = 0; i < kTogether; ++i) {
      const Node node = nodes[at[i]];
      const uint16_t code = codes[static_cast<size_t>(i) * n_columns_ + (node.column_and_bias >> 1)],
                     biased = static_cast<uint16_t>(code + (node.column_and_bias & 1));
      const uint32_t next = node.child + (biased > node.operand);
      moved |= next ^ at[i];
      at[i] = next;
    }
    return moved != 0;
  };
  do {
    for (int level = 1; level < kLevels; ++level) go_down();
  } while (go_down());
  std::copy_n(at, kTogether, arrived);
}

}  // namespace skshap
