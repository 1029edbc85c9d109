// Divides coded trees into chunks.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "plan/tree_shapes.h"

namespace skshap {

// Return the trees of each chunk, in the order of the plan. A tree that is a single leaf is in no chunk.
// The trees that come first are in chunks of their own.
std::vector<std::vector<int32_t>> divide_into_chunks(const CodedTrees& trees,
                                                     const std::vector<TreeShape>& shapes, const Plan& plan);

}  // namespace skshap
