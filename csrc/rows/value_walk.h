// The walk of one tree for values without interactions.
#pragma once

#include "plan/plan.h"
#include "simd/kernels.h"

namespace skshap {

// Return the arguments of a walk that adds the values of the n_rows rows of a block to
// phi[output][slot of the chunk][64]. `words` are the decisions of the tree, and the stack has walk_stack()
// elements.
template <class T>
WalkArgs<T> value_walk(const Plan& plan, const Chunk& chunk, const TreeProgram& tree, const uint64_t* words,
                       int n_rows, T* phi, T* stack) {
  const T* const nodes = constants<T>(plan).data() + chunk.quadrature;
  return WalkArgs<T>{.ops = plan.ops.data() + tree.ops,
                     .constants = constants<T>(plan).data() + tree.constants,
                     .words = words,
                     .nodes = nodes,
                     .weights = nodes + chunk.n_nodes,
                     .n_nodes = chunk.n_nodes,
                     .n_outputs = static_cast<int>(n_used_outputs(plan, chunk)),
                     .height = chunk.height,
                     .n_rows = n_rows,
                     .phi = phi,
                     .output_stride = chunk.slots.size() * kBlockRows,
                     .stack = stack};
}

// Walk a tree without interactions with these arguments.
template <class T>
void walk_values(const Plan& plan, const Chunk& chunk, const TreeProgram& tree, const uint64_t* words,
                 int n_rows, T* phi, T* stack) {
  run_walk(kernels(), plan.order, chunk.output < 0, value_walk(plan, chunk, tree, words, n_rows, phi, stack));
}

}  // namespace skshap
