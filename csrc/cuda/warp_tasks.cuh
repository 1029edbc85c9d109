// The tasks of kernels whose warps run independently. A task is a chunk, with 32 rows for each warp of a
// block.
#pragma once

#include "cuda/shared_memory.cuh"

namespace skshap {

// A lane's row of a task.
template <class T>
struct TaskRow {
  const int16_t* codes;
  T* phi;          // the sums of the chunk's slots
  int stride;      // of phi
  int64_t number;  // of the row, among the rows of all tiles
};

// Call work(chunk, row) for each task of a warp, and leave the sums in a.partial. While they are added up,
// the sums are in shared memory, which begins with WarpSums, or in a.partial if a.max_slots is 0.
template <class T, class Args, class Work>
__device__ __forceinline__ void for_tasks(const Args& a, int tile_rows, int n_warps, const Work& work) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, parts = tile_rows / kWarp;
  T* const shared_phi = WarpSums<T>::of(warp, a.max_slots) + lane;
  for (int32_t task = blockIdx.x; task < a.n_tasks; task += gridDim.x) {
    const int32_t rows = task % a.n_groups * n_warps + warp, tile = rows / parts;
    if (tile >= a.n_tiles) continue;
    const auto chunk = a.chunks[task / a.n_groups];
    const int in_tile = rows % parts * kWarp + lane;
    T* const partial =
        a.partial + (static_cast<size_t>(tile) * a.n_slots + chunk.first_slot) * tile_rows + in_tile;
    const TaskRow<T> row{a.codes + static_cast<size_t>(tile) * a.n_columns * tile_rows + in_tile,
                         a.max_slots ? shared_phi : partial, a.max_slots ? kWarp : tile_rows,
                         static_cast<int64_t>(tile) * tile_rows + in_tile};
    for (uint32_t slot = 0; slot < chunk.n_slots; ++slot) row.phi[slot * row.stride] = 0;
    work(chunk, row);
    if (a.max_slots)
      for (uint32_t slot = 0; slot < chunk.n_slots; ++slot)
        partial[slot * tile_rows] = row.phi[slot * row.stride];
  }
}

}  // namespace skshap
