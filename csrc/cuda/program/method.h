// How a GPU explains trees without tables.
#pragma once

namespace skshap {

// The methods: the walk, in chunks for many rows or in smaller chunks for few rows; leaf by leaf for very few
// rows, if the plan allows it (cuda/program/leaves.h); and the method of GPUTreeShap.
enum class CudaMethod { kChunks, kSmallChunks, kLeaves, kGpuTreeShap };

}  // namespace skshap
