// How a GPU explains trees without tables.
#pragma once

namespace skshap {

// By the walk, in chunks for many rows or in smaller ones for few; for very few rows leaf by leaf, if the
// plan allows it (cuda/program/leaves.h); or by the method of GPUTreeShap.
enum class CudaMethod { kChunks, kSmallChunks, kLeaves, kGpuTreeShap };

}  // namespace skshap
