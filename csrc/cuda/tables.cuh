// Lookups in the tables of plan/tables.h on a GPU. There is a row in each lane, and the decisions of 32 rows
// are a word. A type of lookup has an add_numbers().
#pragma once

#include "cuda/codes.cuh"
#include "cuda/program/tables.h"
#include "cuda/program/tuning.h"
#include "cuda/warp_tasks.cuh"

namespace skshap {

template <class T, class Lookup>
struct CudaTableArgs {
  const CudaTableChunk* chunks;
  const CudaTableTree* trees;
  const CudaTableNode* nodes;
  const Lookup* lookups;
  const uint32_t *bits, *targets;
  const T* numbers;
  const uint32_t* category_bits;
  int32_t n_tasks, n_groups;  // chunks x groups of 32 rows for each warp of a block
  int32_t n_tiles, n_columns;
  uint32_t n_slots;      // of all chunks
  uint32_t max_slots;    // of a chunk if phi is summed in shared memory, otherwise 0
  uint32_t max_words;    // of a tree
  const int16_t* codes;  // [tile][column][row of the tile]
  T* partial;            // [tile][slot of all chunks][row of the tile]
  uint32_t* words;       // [warp][word], or null if the words are in shared memory
};

// The shared memory of a block: WarpSums, then the decisions at the nodes of a tree, [warp][word].
template <class T>
struct TableShared {
  static constexpr size_t word_bytes(int n_warps, size_t n_words) {
    return sizeof(uint32_t) * n_warps * n_words;
  }
  static __device__ __forceinline__ uint32_t* words(int n_warps, uint32_t n_slots) {
    return reinterpret_cast<uint32_t*>(WarpSums<T>::of(n_warps, n_slots));
  }
};

// Decide the nodes of a tree for the rows of a warp. The decisions at a node are a word. `codes` are those of
// the lane's row, whose columns are `stride` apart.
__device__ __forceinline__ void decide_tree(const CudaTableTree& tree, const CudaTableNode* nodes,
                                            const int16_t* codes, int stride, const uint32_t* category_bits,
                                            uint32_t* words) {
  __syncwarp();
#pragma unroll 4
  for (int32_t i = 0; i < tree.n_nodes; ++i) {
    const uint4 n = __ldg(reinterpret_cast<const uint4*>(nodes + tree.nodes + i));
    const uint32_t goes = __ballot_sync(~0u, goes_left(codes, stride, n.x, n.y, category_bits));
    if (threadIdx.x % kWarp == 0) {
      const uint32_t alive = bit_rows(words, n.z);
      words[kFirstWord + 2 * i] = alive;
      words[kFirstWord + 2 * i + 1] = alive & goes;
    }
  }
  __syncwarp();
}

// Add the first n numbers of a vector to the sums of their targets. The targets differ, so all sums are read
// before any sum is written.
template <class T, uint32_t kLoad>
__device__ __forceinline__ void add_vector(const T (&value)[kLoad], const uint32_t* targets, uint32_t n,
                                           T* phi, int stride) {
  uint32_t target[kLoad];
  read_constants(targets, target);
  T sum[kLoad];
#pragma unroll
  for (uint32_t i = 0; i < kLoad; ++i)
    if (i < n) sum[i] = phi[target[i] * stride] + value[i];
#pragma unroll
  for (uint32_t i = 0; i < kLoad; ++i)
    if (i < n) phi[target[i] * stride] = sum[i];
}

// Add the numbers of a row with this index to the sums of their targets.
template <class T>
__device__ __forceinline__ void add_numbers(const CudaTableArgs<T, CudaLookup>& a, const CudaLookup& lookup,
                                            uint32_t index, T* phi, int stride) {
  const T* const entry = a.numbers + lookup.table + static_cast<size_t>(index) * lookup.entry_size;
  const uint32_t *const targets = a.targets + lookup.targets, n_targets = lookup.n_targets;
  // The number of vectors that are loaded before the first one is added: as many as there are registers for.
  constexpr uint32_t kLoad = 16 / sizeof(T), kLoads = sizeof(T) == 4 ? 4 : 3;
  for (uint32_t first = 0; first < n_targets; first += kLoads * kLoad) {
    T value[kLoads][kLoad];
#pragma unroll
    for (uint32_t v = 0; v < kLoads; ++v)
      if (first + v * kLoad < n_targets) read_constants(entry + first + v * kLoad, value[v]);
#pragma unroll
    for (uint32_t v = 0; v < kLoads; ++v) {
      const uint32_t at = first + v * kLoad;
      if (at + kLoad <= n_targets)
        add_vector(value[v], targets + at, kLoad, phi, stride);
      else if (at < n_targets)
        add_vector(value[v], targets + at, n_targets - at, phi, stride);
    }
  }
}

template <class T, class Lookup>
__global__ void __launch_bounds__(kTableWarps* kWarp)
    lookup_tables(const __grid_constant__ CudaTableArgs<T, Lookup> a) {
  constexpr int kTile = cuda_tile_rows<T>();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, n_warps = blockDim.x / kWarp;
  uint32_t* const words = a.words ? a.words + (static_cast<size_t>(blockIdx.x) * n_warps + warp) * a.max_words
                                  : TableShared<T>::words(n_warps, a.max_slots) + warp * a.max_words;
  if (lane < kFirstWord) words[lane] = ~uint32_t{0};
  for_tasks<T>(a, kTile, n_warps, [&](const CudaTableChunk& chunk, const TaskRow<T>& row) {
    for (int32_t t = chunk.trees; t < chunk.trees_end; ++t) {
      const CudaTableTree tree = a.trees[t];
      decide_tree(tree, a.nodes, row.codes, kTile, a.category_bits, words);
      for (int32_t l = tree.lookups; l < tree.lookups_end; ++l) {
        const Lookup lookup = a.lookups[l];
        uint32_t index = 0;
        for (uint32_t i = 0; i < lookup.n_bits; ++i)
          index |= (bit_rows(words, __ldg(a.bits + lookup.bits + i)) >> lane & 1) << i;
        add_numbers(a, lookup, index, row.phi, row.stride);
      }
    }
  });
}

}  // namespace skshap
