#include "rows/margin.h"

#include <algorithm>

namespace skshap {
namespace {

// leaf_sums takes time for each leaf, descend for each level; they were measured to break even here.
constexpr size_t kLeavesPerLevel = 9;

}  // namespace

size_t most_inner_nodes(const Plan& plan) {
  size_t most = 0;
  for (const Chunk& chunk : plan.chunks) most = std::max(most, chunk.max_inner);
  return most;
}

Margins::Margins(const Plan& plan, const Kernels& kernels) : plan_(plan), kernels_(kernels) {
  reach_.resize(2 * most_inner_nodes(plan) + 1);
}

void Margins::add(const TreeProgram& tree, size_t n_outputs, const uint64_t* words, int n_rows,
                  double* margin, size_t stride) {
  const double* leaves = plan_.leaf_values.data() + tree.leaves;
  int32_t reached[kBlockRows];
  const ReachArgs args{plan_.children.data() + tree.children,
                       static_cast<int32_t>(tree.n_inner),
                       tree.height,
                       n_rows,
                       words,
                       leaves,
                       reach_.data(),
                       margin,
                       reached};
  if (n_outputs == 1 && tree.n_inner < kLeavesPerLevel * tree.height) {
    kernels_.leaf_sums(args);
    return;
  }
  kernels_.descend(args);
  for (size_t o = 0; o < n_outputs; ++o)
    for (int row = 0; row < n_rows; ++row) margin[o * stride + row] += leaves[reached[row] * n_outputs + o];
}

}  // namespace skshap
