// The nodes above units, which are walked by themselves in single precision; see CellChainArgs.
#pragma once

#include <vector>

#include "base/aligned.h"
#include "cells/program.h"
#include "simd/cell_kernels.h"
#include "simd/kernels.h"

namespace skshap {

// The chain of the nodes above one unit after another.
class UnitChain {
 public:
  // Return about the bytes that the chains of units with so many columns need.
  static size_t bytes(size_t n_columns) {
    return n_columns * (kBlockRows + kMaxFixedValueNodes + 2) * sizeof(float);
  }

  // Take the chain of a unit. `phi` has the sums of the unit's tree chunk.
  void take(const CellProgram& cells, const CellUnit& unit, float* phi) {
    n_ = unit.n_chain;
    if (n_ == 0) return;
    const Chunk& chunk = cells.trees.chunks[unit.chunk];
    const std::vector<float>& numbers = constants<float>(cells.trees);
    const float* const nodes = numbers.data() + chunk.quadrature;
    const float* number = numbers.data() + unit.chain + kChainConstants * n_;
    const uint32_t* const ops = cells.trees.ops.data() + unit.ops - n_;
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
    grow(deltas_, n_ * kBlockRows);
  }

  // Walk a chain of at least one node, and its unit. The arguments are those of the unit's tree, with the
  // operations and constants from the unit on.
  void walk(WalkArgs<float> args) {
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
                              .deltas = deltas_.data(),
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
  Aligned<float> deltas_;
};

}  // namespace skshap
