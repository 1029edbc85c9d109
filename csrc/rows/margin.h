// Margins of rows, from the same decisions as their values, because the values must add up to them.
#pragma once

#include "base/aligned.h"
#include "plan/plan.h"
#include "simd/kernels.h"

namespace skshap {

// Add the values of the leaves that the rows of a block reach to margin[output * stride + row]; `args` has
// room for the leaves, and for one output the margin.
void add_leaf_values(const Kernels& kernels, const ReachArgs& args, size_t n_outputs, double* margin,
                     size_t stride);

class Margins {
 public:
  Margins(const Plan& plan, const Kernels& kernels);

  // Add the leaf values that the n_rows rows of a block reach in a tree to margin[output * stride + row],
  // which has room for 64 rows and is aligned to 64 bytes. Words of all nodes of the tree are read, including
  // those of leaves.
  void add(const TreeProgram& tree, size_t n_outputs, const uint64_t* words, int n_rows, double* margin,
           size_t stride);

 private:
  const Plan& plan_;
  const Kernels& kernels_;
  Aligned<uint64_t> reach_;
};

// Return the largest number of nodes of a tree, and of inner nodes.
size_t most_nodes(const Plan& plan);
size_t most_inner_nodes(const Plan& plan);

}  // namespace skshap
