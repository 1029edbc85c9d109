#include "cells/margins.h"

#include <algorithm>

#include "base/threads.h"

namespace skshap {
namespace {

// The leaves of a tree, on average, from which on descending was faster in measurements.
constexpr int64_t kLeastLeaves = 2000;
// The number of rows that descend together, so that their loads from memory overlap.
constexpr int kTogether = 8;
constexpr size_t kMostColumns = 1 << 15;  // that fit the 16 bits with the bias

}  // namespace

MarginTrees::MarginTrees(const Plan& plan) {
  const bool categorical = std::any_of(plan.columns.begin(), plan.columns.end(),
                                       [](const Column& column) { return column.categorical; });
  if (plan.n_leaves < kLeastLeaves * static_cast<int64_t>(plan.trees.size()) || categorical ||
      plan.columns.size() > kMostColumns)
    return;
  constant_ = plan.constant;
  for (const Chunk& chunk : plan.chunks)
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      check_interrupt();
      const TreeProgram& tree = plan.trees[i];
      trees_.push_back({.nodes = nodes_.size(),
                        .leaf_values = leaf_values_.size(),
                        .output = chunk.output,
                        .is_leaf = tree.n_inner == 0});
      const auto values = plan.leaf_values.begin() + static_cast<std::ptrdiff_t>(tree.leaves);
      const size_t n_values = tree.n_leaves * n_used_outputs(plan, chunk);
      leaf_values_.insert(leaf_values_.end(), values, values + static_cast<std::ptrdiff_t>(n_values));
      const auto n_inner = static_cast<int32_t>(tree.n_inner);
      for (int32_t node = 0; node < n_inner; ++node) {
        const DecideNode& test = plan.decide[tree.decide + node];
        const int32_t* const children = plan.children.data() + tree.children + 2 * node;
        const auto child = [&](int side) {
          const int32_t number = children[side];
          return number < n_inner ? number : ~(number - n_inner);
        };
        const int passing = test.flags & kFlip ? 1 : 0;
        nodes_.push_back({.operand = static_cast<uint16_t>(test.operand),
                          .column_and_bias = static_cast<uint16_t>(test.column << 1 | test.bias),
                          .children = {child(passing), child(1 - passing)}});
      }
    }
}

size_t MarginTrees::bytes() const { return list_bytes(constant_, trees_, nodes_, leaf_values_); }

void MarginTrees::write(const CodeTile& codes, int first, int n_rows, TileSums& margin) const {
  for (size_t o = 0; o < constant_.size(); ++o) std::fill_n(margin.at(o) + first, n_rows, constant_[o]);
  for (const Tree& tree : trees_) {
    const size_t first_output = static_cast<size_t>(std::max(tree.output, 0)),
                 n_outputs = tree.output < 0 ? constant_.size() : 1;
    for (int row = first; row < first + n_rows; row += kTogether) {
      int32_t leaves[kTogether] = {};
      if (!tree.is_leaf) descend(tree, codes.narrow.data() + row, codes.stride, leaves);
      const int n = std::min(kTogether, first + n_rows - row);
      for (size_t o = 0; o < n_outputs; ++o)
        for (int i = 0; i < n; ++i)
          margin.at(first_output + o)[row + i] +=
              leaf_values_[tree.leaf_values + static_cast<size_t>(leaves[i]) * n_outputs + o];
    }
  }
}

void MarginTrees::descend(const Tree& tree, const uint16_t* codes, size_t stride, int32_t* leaves) const {
  const Node* const nodes = nodes_.data() + tree.nodes;
  int32_t at[kTogether] = {};
  for (int32_t all = 0; all >= 0;) {
    all = -1;
    for (int i = 0; i < kTogether; ++i) {
      const Node& node = nodes[std::max(at[i], 0)];
      const uint16_t code = codes[(node.column_and_bias >> 1) * stride + i],
                     biased = static_cast<uint16_t>(code + (node.column_and_bias & 1));
      const int32_t child = node.children[biased > node.operand];
      at[i] = at[i] < 0 ? at[i] : child;
      all &= at[i];
    }
  }
  for (int i = 0; i < kTogether; ++i) leaves[i] = ~at[i];
}

}  // namespace skshap
