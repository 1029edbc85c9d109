// Margins of rows. They are computed from the decisions used for the values, because the values must add up
// to the margins.
#pragma once

#include "base/aligned.h"
#include "plan/plan.h"
#include "simd/kernels.h"

namespace skshap {

// Add the values of the leaves that the rows of a block reach to margin[output * stride + row]. `args` has
// memory for the leaves and, for one output, for the margin.
void add_leaf_values(const Kernels& kernels, const ReachArgs& args, size_t n_outputs, double* margin,
                     size_t stride);

class Margins {
 public:
  Margins(const Plan& plan, const Kernels& kernels);

  // Add the leaf values that the n_rows rows of a block reach in a tree to margin[output * stride + row]. The
  // margin has memory for 64 rows and is aligned to 64 bytes. The words of all nodes of the tree are read,
  // including the words of leaves.
  void add(const TreeProgram& tree, size_t n_outputs, const uint64_t* words, int n_rows, double* margin,
           size_t stride);

 private:
  const Plan& plan_;
  const Kernels& kernels_;
  Aligned<uint64_t> reach_;
};

// Return the largest number of nodes of a tree, and the largest number of inner nodes.
size_t most_nodes(const Plan& plan);
size_t most_inner_nodes(const Plan& plan);

}  // namespace skshap
