// The nodes above units, which are walked by themselves in single precision; see CellChainArgs.
#pragma once

#include <vector>

#include "base/aligned.h"
#include "cells/program.h"
#include "simd/cell_kernels.h"
#include "simd/kernels.h"

namespace skshap {

// The chain of the nodes above the tree of one unit after another.
class UnitChain {
 public:
  // Return about the bytes of the chain of a unit with so many columns.
  static size_t bytes(size_t n_columns) { return n_columns * (kMaxFixedValueNodes + 2) * sizeof(float); }

  // Take the chain of a tree. `phi` has the sums of the features.
  void take(const CellProgram& cells, const UnitTree& tree, float* phi) {
    n_ = tree.n_chain;
    if (n_ == 0) return;
    const Chunk& chunk = cells.trees.chunks[tree.chunk];
    const std::vector<float>& numbers = constants<float>(cells.trees);
    const float* const nodes = numbers.data() + chunk.quadrature;
    const float* number = numbers.data() + tree.chain + kChainConstants * n_;
    const uint32_t* const ops = cells.trees.ops.data() + tree.ops - n_;
    for (auto* list : {&zero_fractions_, &ends_, &gains_, &dead_}) list->clear();
    phi_.clear();
    for (size_t i = 0; i < n_; ++i) {
      number -= kChainConstants;
      const float z = number[0];
      zero_fractions_.push_back(z);
      ends_.push_back(number[1]);
      for (int k = 0; k < chunk.n_nodes; ++k) gains_.push_back((1 - z) / (z + (1 - z) * nodes[k]));
      phi_.push_back(phi + static_cast<size_t>(ops[i] >> kSlotShift) * kBlockRows);
    }
    leaf_ = number[2];
    for (int k = 0; k < chunk.n_nodes; ++k) dead_.push_back(1 / (1 - nodes[k]));
  }

  // Walk a chain of at least one node, and the rest of its tree. The arguments are those of the tree, with
  // the operations and constants from the unit on. `deltas` has room for kBlockRows numbers of each column.
  void walk(WalkArgs<float> args, float* deltas) const {
    const CellChainArgs chain{.n_features = n_,
                              .n_nodes = args.n_nodes,
                              .words = args.words + kFirstWord,
                              .nodes = args.nodes,
                              .weights = args.weights,
                              .zero_fractions = zero_fractions_.data(),
                              .gains = gains_.data(),
                              .dead = dead_.data(),
                              .ends = ends_.data(),
                              .leaf = leaf_,
                              .phi = phi_.data(),
                              .n_cells = static_cast<size_t>(args.n_rows),
                              .deltas = deltas,
                              .c = args.stack,
                              .b = root_b(args)};
    kernels().cells->begin_chain(chain);
    args.words += 2 * n_;
    args.weights = nullptr;
    run_walk(kernels(), 1, false, args);
    kernels().cells->end_chain(chain);
  }

 private:
  size_t n_ = 0;  // features
  float leaf_ = 0;
  std::vector<float> zero_fractions_, ends_, gains_, dead_;
  std::vector<float*> phi_;
};

}  // namespace skshap
