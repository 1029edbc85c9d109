#include "rows/margin.h"

#include <algorithm>

namespace skshap {
namespace {

// find_leaves takes time for each leaf, and descend for each level. In measurements, both took the same time
// with this many leaves per level.
constexpr int32_t kLeavesPerLevel = 32;
constexpr int32_t kMostNumbered = 1 << 16;  // leaves that find_leaves can number

}  // namespace

size_t most_nodes(const Plan& plan) {
  return largest_of(plan.trees, [](const TreeProgram& tree) { return tree.n_inner + tree.n_leaves; });
}

size_t most_inner_nodes(const Plan& plan) { return largest_of(plan.chunks, &Chunk::max_inner); }

void add_leaf_values(const Kernels& kernels, const ReachArgs& args, size_t n_outputs, double* margin,
                     size_t stride) {
  if (args.merged) {
    kernels.leaf_sums(args);
    return;
  }
  const bool is_small = args.n_inner < std::min(kMostNumbered, kLeavesPerLevel * args.height);
  (is_small ? kernels.find_leaves : kernels.descend)(args);
  for (size_t o = 0; o < n_outputs; ++o)
    for (int row = 0; row < args.n_rows; ++row)
      margin[o * stride + row] += args.leaf_values[args.leaves[row] * n_outputs + o];
}

Margins::Margins(const Plan& plan, const Kernels& kernels) : plan_(plan), kernels_(kernels) {
  reach_.resize(most_nodes(plan));
}

void Margins::add(const TreeProgram& tree, size_t n_outputs, const uint64_t* words, int n_rows,
                  double* margin, size_t stride) {
  int32_t reached[kBlockRows];
  const ReachArgs args{.children = plan_.children.data() + tree.children,
                       .n_inner = static_cast<int32_t>(tree.n_inner),
                       .n_leaves = static_cast<int32_t>(tree.n_leaves),
                       .merged = tree.merged,
                       .height = tree.height,
                       .n_rows = n_rows,
                       .words = words,
                       .leaf_values = plan_.leaf_values.data() + tree.leaves,
                       .reach = reach_.data(),
                       .margin = margin,
                       .leaves = reached};
  add_leaf_values(kernels_, args, n_outputs, margin, stride);
}

}  // namespace skshap
