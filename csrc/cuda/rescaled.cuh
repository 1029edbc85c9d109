// The kernels of rescaled values. They find the index of each lookup and the factors alpha of each row. The
// lookups multiply each term by its factor.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "background/secants.h"
#include "cuda/program/tuning.h"
#include "cuda/tables.cuh"

namespace skshap {

constexpr int kRescaledTile = 64;  // rows of a tile of codes and of partial sums

// --- Indices ---

struct RescaledIndex {
  uint32_t bits, n_bits;
};

struct RescaledIndexArgs {
  const CudaTableTree* trees;
  const CudaTableNode* nodes;
  const RescaledIndex* lookups;
  const uint32_t* bits;
  const uint32_t* category_bits;
  const int16_t* codes;  // [tile][column][row of the tile]
  int32_t n_trees, n_columns;
  uint32_t max_words;  // of a tree
  int64_t n_rows;      // padded to tiles
  uint16_t* indices;   // [lookup][row]
};

// The shared memory of a block: the decisions at the nodes of a tree, [warp][word].
struct IndexShared {
  static constexpr size_t bytes(int n_warps, size_t n_words) { return sizeof(uint32_t) * n_warps * n_words; }
  static __device__ __forceinline__ uint32_t* words(int warp, uint32_t n_words) {
    return shared_memory<uint32_t>() + warp * n_words;
  }
};

// A warp takes 32 rows through the trees blockIdx.y, blockIdx.y + gridDim.y... The decisions of all its rows
// at a node are a word, and the index of a row consists of bits of these words.
__global__ void __launch_bounds__(kIndexWarps* kWarp) find_rescaled_indices(RescaledIndexArgs a) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  uint32_t* const words = IndexShared::words(warp, a.max_words);
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + warp) * kWarp;
  if (first >= a.n_rows) return;
  const int64_t row = first + lane;
  const int16_t* const codes =
      a.codes + row / kRescaledTile * a.n_columns * kRescaledTile + row % kRescaledTile;
  if (lane < kFirstWord) words[lane] = ~uint32_t{0};
  for (int32_t t = blockIdx.y; t < a.n_trees; t += gridDim.y) {
    const CudaTableTree tree = a.trees[t];
    decide_tree(tree, a.nodes, codes, kRescaledTile, a.category_bits, words);
    for (int32_t l = tree.lookups; l < tree.lookups_end; ++l) {
      const RescaledIndex lookup = a.lookups[l];
      uint32_t index = 0;
      for (uint32_t i = 0; i < lookup.n_bits; ++i)
        index |= (bit_rows(words, __ldg(a.bits + lookup.bits + i)) >> lane & 1) << i;
      a.indices[l * a.n_rows + row] = static_cast<uint16_t>(index);
    }
  }
}

// --- The factors of the terms ---

struct RescaledSlope {
  int32_t n_nodes, n_terms;
  int32_t first_row, n_rows;  // of alpha: as many as there are terms, padded with zeros
  size_t nodes, factors;
};

struct RescaledFactorArgs {
  const RescaledSlope* slopes;  // by output
  const double *nodes, *factors;
  Link link;
  double scale;
  const double* margin;  // [row][output]
  const double* labels;  // or null
  int64_t n_rows, n_padded;
  int32_t n_outputs;
  void* alpha;  // [term of all outputs][row]
};

// A thread takes a row, an output (blockIdx.y), and kTerms terms at a time.
template <class T, int kTerms>
__global__ void __launch_bounds__(128) find_rescaled_factors(RescaledFactorArgs a) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= a.n_padded) return;
  const int64_t read = row < a.n_rows ? row : a.n_rows - 1;
  const RescaledSlope slope = a.slopes[blockIdx.y];
  const double margin = a.margin[read * a.n_outputs + blockIdx.y], label = a.labels ? a.labels[read] : 0;
  T* const alpha = static_cast<T*>(a.alpha) + static_cast<int64_t>(slope.first_row) * a.n_padded + row;
  for (int32_t first = 0; first < slope.n_rows; first += kTerms) {
    double sum[kTerms];
#pragma unroll
    for (int k = 0; k < kTerms; ++k) sum[k] = 0;
    for (int32_t j = 0; j < slope.n_nodes; ++j) {
      const double s = secant_slope(a.link, a.scale, margin, __ldg(a.nodes + slope.nodes + j), label);
      const double* const factors = a.factors + slope.factors + static_cast<size_t>(j) * slope.n_terms;
#pragma unroll
      for (int k = 0; k < kTerms; ++k)
        if (first + k < slope.n_terms) sum[k] += s * __ldg(factors + first + k);
    }
#pragma unroll
    for (int k = 0; k < kTerms; ++k)
      if (first + k < slope.n_rows) alpha[(first + k) * a.n_padded] = static_cast<T>(sum[k]);
  }
}

// --- The lookups ---

// A part of the entries of a lookup that fits into shared memory: [index][16 bytes of targets][term]. Each
// entry is padded to an odd number of pieces of 16 bytes, so that different entries are in different banks.
struct alignas(16) RescaledStage {
  size_t data;        // in units of 16 bytes
  uint32_t n_pieces;  // of 16 bytes; 0 if the entries are too large for shared memory
  uint32_t entry;     // pieces of an entry
  uint32_t lookup;
  uint32_t panel;       // the first row of alpha that a thread has in registers
  uint32_t first_term;  // the first row of alpha of this part
  uint32_t n_terms;     // if these rows are not the rows of the panel, they are read from memory
  uint32_t targets, n_targets;
};

struct RescaledChunk {
  int32_t stages, stages_end;
  uint32_t first_slot, n_slots;
};

template <class T>
struct RescaledLookupArgs {
  const RescaledChunk* chunks;
  const RescaledStage* stages;
  const uint32_t* targets;  // slots of the chunk
  const uint4* data;
  const uint16_t* indices;
  const T* alpha;
  int64_t n_rows;  // padded to tiles
  int32_t n_blocks;
  uint32_t n_slots;     // of all chunks
  uint32_t shared_phi;  // slots of phi in shared memory, or 0
  uint32_t buffer;      // pieces of each of the two buffers
  T* partial;           // [tile][slot of all chunks][row of the tile]
};

// A vector of targets: as many targets as 16 bytes hold.
template <class T>
struct RescaledPiece;
template <>
struct RescaledPiece<float> {
  static constexpr int kSize = 4;
  float x[4] = {};
  __device__ __forceinline__ void add(float alpha, const uint4& v) {
    x[0] = fmaf(alpha, __uint_as_float(v.x), x[0]);
    x[1] = fmaf(alpha, __uint_as_float(v.y), x[1]);
    x[2] = fmaf(alpha, __uint_as_float(v.z), x[2]);
    x[3] = fmaf(alpha, __uint_as_float(v.w), x[3]);
  }
};
template <>
struct RescaledPiece<double> {
  static constexpr int kSize = 2;
  double x[2] = {};
  __device__ __forceinline__ void add(double alpha, const uint4& v) {
    x[0] = fma(alpha, __hiloint2double(static_cast<int>(v.y), static_cast<int>(v.x)), x[0]);
    x[1] = fma(alpha, __hiloint2double(static_cast<int>(v.w), static_cast<int>(v.z)), x[1]);
  }
};

template <class T>
constexpr int rescaled_threads() {
  return sizeof(T) == 4 ? 1024 : 512;
}

// The shared memory of a block: two stages, then the sums of the slots of a chunk, [slot][thread].
template <class T>
struct RescaledShared {
  static constexpr size_t bytes(uint32_t n_pieces, uint32_t n_slots) {
    return 2 * sizeof(uint4) * n_pieces + sizeof(T) * rescaled_threads<T>() * n_slots;
  }
  static __device__ __forceinline__ uint4* stage(uint32_t number, uint32_t n_pieces) {
    return shared_memory<uint4>() + number * n_pieces;
  }
  static __device__ __forceinline__ T* sums(uint32_t n_pieces) {
    return reinterpret_cast<T*>(stage(2, n_pieces));
  }
};

// Multiply the terms of a row's entry by their factors, of which `alpha` has those of the stage's panel, and
// add the products to the sums of the entry's targets.
template <class T, int kTerms>
__device__ __forceinline__ void add_rescaled_entry(const RescaledLookupArgs<T>& a, const RescaledStage& stage,
                                                   const uint4* entry, int64_t row, const T (&alpha)[kTerms],
                                                   T* phi, int stride) {
  constexpr int kSize = RescaledPiece<T>::kSize;
  const bool has_all_terms = stage.n_terms == kTerms;
  for (uint32_t first = 0; first < stage.n_targets; first += kSize) {
    RescaledPiece<T> sum;
    if (has_all_terms) {
#pragma unroll
      for (int k = 0; k < kTerms; ++k) sum.add(alpha[k], entry[k]);
    } else {
      for (uint32_t k = 0; k < stage.n_terms; ++k)
        sum.add(__ldg(a.alpha + (stage.first_term + k) * a.n_rows + row), entry[k]);
    }
    entry += stage.n_terms;
#pragma unroll
    for (int i = 0; i < kSize; ++i)
      if (first + i < stage.n_targets) phi[__ldg(a.targets + stage.targets + first + i) * stride] += sum.x[i];
  }
}

// Add up the values of a chunk's lookups. A block takes a chunk, and as many rows as it has threads. The
// entries pass through shared memory, and each stage is loaded one stage in advance.
template <class T, int kTerms>
__global__ void __launch_bounds__(rescaled_threads<T>(), 1) look_up_rescaled(RescaledLookupArgs<T> a) {
  constexpr int kThreads = rescaled_threads<T>();
  const RescaledChunk chunk = a.chunks[blockIdx.x / a.n_blocks];
  const int64_t row = static_cast<int64_t>(blockIdx.x % a.n_blocks) * kThreads + threadIdx.x;
  const bool has_row = row < a.n_rows;
  T* const partial =
      a.partial + (row / kRescaledTile * a.n_slots + chunk.first_slot) * kRescaledTile + row % kRescaledTile;
  T* const phi = a.shared_phi ? RescaledShared<T>::sums(a.buffer) + threadIdx.x : partial;
  const int stride = a.shared_phi ? kThreads : kRescaledTile;
  if (has_row)
    for (uint32_t slot = 0; slot < chunk.n_slots; ++slot) phi[slot * stride] = 0;
  const auto load = [&](int32_t s) {
    if (s < chunk.stages_end) {
      const uint32_t n = a.stages[s].n_pieces;
      const uint4* const from = a.data + a.stages[s].data;
      uint4* const to = RescaledShared<T>::stage(s & 1, a.buffer);
      for (uint32_t i = threadIdx.x; i < n; i += kThreads) __pipeline_memcpy_async(to + i, from + i, 16);
    }
    __pipeline_commit();
  };
  const auto index_of = [&](int32_t s) -> uint32_t {
    if (s >= chunk.stages_end || !has_row) return 0;
    return a.indices[static_cast<int64_t>(a.stages[s].lookup) * a.n_rows + row];
  };
  T alpha[kTerms];
  uint32_t panel = ~uint32_t{0}, next_index = index_of(chunk.stages);
  load(chunk.stages);
  for (int32_t s = chunk.stages; s < chunk.stages_end; ++s) {
    const RescaledStage stage = a.stages[s];
    const uint32_t index = next_index;
    __pipeline_wait_prior(0);
    __syncthreads();  // the stage is loaded, and the other buffer is free
    load(s + 1);
    next_index = index_of(s + 1);
    if (!has_row) continue;
    if (stage.panel != panel) {
      panel = stage.panel;
#pragma unroll
      for (int k = 0; k < kTerms; ++k) alpha[k] = a.alpha[(panel + k) * a.n_rows + row];
    }
    const uint4* entry = (stage.n_pieces ? RescaledShared<T>::stage(s & 1, a.buffer) : a.data + stage.data) +
                         index * stage.entry;
    add_rescaled_entry(a, stage, entry, row, alpha, phi, stride);
  }
  if (a.shared_phi && has_row)
    for (uint32_t slot = 0; slot < chunk.n_slots; ++slot) partial[slot * kRescaledTile] = phi[slot * stride];
}

}  // namespace skshap
