// Lookups in tables by intervals. Each thread has several rows, with their codes and sums in registers.
#pragma once

#include <cuda_fp16.h>
#include <cuda_pipeline_primitives.h>

#include <utility>

#include "cuda/program/program.h"
#include "cuda/program/tuning.h"
#include "cuda/shared_memory.cuh"

namespace skshap {

template <class T>
struct CudaIntervalArgs {
  const CudaIntervalPart* parts;  // those of the launch
  const uint32_t* columns;
  const int32_t* targets;
  const uint64_t* stages;
  const char* stream;
  uint32_t stage_bytes;  // of shared memory for one stage
  int32_t n_columns;
  int64_t n_rows;  // of whole tiles
  uint32_t n_slots;
  int32_t n_sums, first_sum;  // margins of a row, and the first one of these tables
  double scale;               // of margins
  const int16_t* codes;       // [tile][column][row of the tile]
  T* partial;                 // [tile][slot of all chunks][row of the tile]
  double* margins;            // [tile][margin][row of the tile], or null
};

// The number of rows of a thread: as many as registers allow.
template <class T, int kSums>
constexpr int interval_rows() {
  return 64 / kSums * 4 / static_cast<int>(sizeof(T));
}

// The kernel for a form of the tables. Its threads are the only block of a multiprocessor.
template <class T>
struct IntervalKernel {
  void (*kernel)(CudaIntervalArgs<T>);
  int n_threads, n_rows;  // of a block
};
// `margins` says whether to add up the margins that are behind the entries.
template <class T>
IntervalKernel<T> interval_kernel(int n_sums, bool margins);

// The shared memory of a block: two stages of tables.
struct IntervalShared {
  // Return the most bytes of a stage, given the shared memory of a block.
  static constexpr size_t stage_bytes(size_t shared) {
    constexpr size_t kUnit = 128;
    return (shared - kStaticSharedBytes) / 2 / kUnit * kUnit;
  }
  static constexpr size_t bytes(size_t stage_bytes) { return 2 * stage_bytes; }
  static __device__ __forceinline__ char* stage(int number, uint32_t stage_bytes) {
    return shared_memory<char>() + number * stage_bytes;
  }
};

// Load a stage to shared memory. Do not wait for the end of the load.
__device__ __forceinline__ void load_stage(char* to, const char* from, uint32_t n_bytes) {
  for (uint32_t i = threadIdx.x * 16; i < n_bytes; i += blockDim.x * 16)
    __pipeline_memcpy_async(to + i, from + i, 16);
}

__device__ __forceinline__ __half2 as_half2(uint32_t bits) { return *reinterpret_cast<__half2*>(&bits); }
__device__ __forceinline__ uint32_t as_bits(__half2 x) { return *reinterpret_cast<uint32_t*>(&x); }

// Add the numbers of a piece of an entry, which has 16 bytes.
template <class T>
__device__ __forceinline__ void add_piece(const char* from, T* sums) {
  constexpr int kN = 16 / sizeof(T);
  T numbers[kN];
  read_vector(from, numbers);
#pragma unroll
  for (int i = 0; i < kN; ++i) sums[i] += numbers[i];
}

// All steps are in one function, whose registers hold the indices and sums of the rows.
template <class T, int kSums, bool kMargins, int kThreads>
__global__ void __launch_bounds__(kThreads, 1)
    look_up_intervals(const __grid_constant__ CudaIntervalArgs<T> a) {
  constexpr int kTile = cuda_tile_rows<T>(), kRows = interval_rows<T, kSums>(), kWords = kRows / 2;
  constexpr int kOfPiece = 16 / sizeof(T), kPieces = kSums / kOfPiece, kEntry = kSums * sizeof(T);
  const CudaIntervalPart part = a.parts[blockIdx.y];
  uint64_t begin = a.stages[part.stages], end = a.stages[part.stages + 1];
  char *stage = IntervalShared::stage(0, a.stage_bytes), *other = IntervalShared::stage(1, a.stage_bytes);
  load_stage(stage, a.stream + begin, static_cast<uint32_t>(end - begin));
  __pipeline_commit();

  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kRows;
  const bool has_rows = row < a.n_rows;
  const int64_t tile = row / kTile;
  const int in_tile = static_cast<int>(row % kTile);
  uint32_t codes[kSums][kWords];  // a word has the codes of two rows
#pragma unroll
  for (int c = 0; c < kSums; ++c) {
    const bool used = has_rows && c < part.n_columns;
    if (used)
      read_vector(a.codes + (tile * a.n_columns + a.columns[part.columns + c]) * kTile + in_tile, codes[c]);
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if (!used) codes[c][i] = 0;
      const uint32_t missing = part.categorical >> c & 1 ? 0 : __vcmpeq2(codes[c][i], ~0u);
      codes[c][i] = (codes[c][i] & ~missing) | (missing & (kIntervalMissing << 16 | kIntervalMissing));
    }
  }
  // Each lane begins with another piece of its entry, so that the pieces are in different banks.
  const uint32_t first_piece = threadIdx.x % kPieces * 16;
  T sums[kRows][kSums] = {}, margins[kRows] = {};

  for (uint32_t i = part.stages; i < part.stages_end; ++i) {
    __pipeline_wait_prior(0);
    __syncthreads();  // the stage is loaded, and no thread reads the other one
    if (i + 1 < part.stages_end) {
      begin = end;
      end = a.stages[i + 2];
      load_stage(other, a.stream + begin, static_cast<uint32_t>(end - begin));
      __pipeline_commit();
    }
    const char* table = stage + interval_alignment<T>();
    for (uint32_t n = *reinterpret_cast<const uint32_t*>(stage); n; --n) {
      const uint4 head = *reinterpret_cast<const uint4*>(table);
      uint32_t counts[kSums / 2];
      fetch(reinterpret_cast<const uint32_t*>(table + kIntervalHead), counts);
      __half2 index[kWords];
#pragma unroll
      for (int r = 0; r < kWords; ++r) index[r] = as_half2(kIntervalStart);
      const char* steps = table + kIntervalHead + 2 * kSums;
#pragma unroll
      for (int c = 0; c < kSums; ++c) {
        uint32_t n_steps = counts[c / 2] >> c % 2 * 16 & 0xffff;
        if (n_steps && part.categorical >> c & 1) {
          const __half* const numbers = reinterpret_cast<const __half*>(steps);
#pragma unroll
          for (int r = 0; r < kWords; ++r)
            index[r] =
                __hadd2(index[r], __halves2half2(numbers[codes[c][r] & 0xffff], numbers[codes[c][r] >> 16]));
          steps += (n_steps + 3) / 4 * 8;
          continue;
        }
        for (; n_steps; --n_steps, steps += 8) {
          const uint2 step = *reinterpret_cast<const uint2*>(steps);
#pragma unroll
          for (int r = 0; r < kWords; ++r)
            index[r] = __hfma2(__hgt2(as_half2(codes[c][r]), as_half2(step.x)), as_half2(step.y), index[r]);
        }
      }
      const char* const entries = table + head.y;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const uint32_t at = as_bits(index[r / 2]) >> r % 2 * 16 & kIntervalIndex;
        const uint32_t first = at * kEntry + first_piece;
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece)
          add_piece(entries + (first ^ piece * 16), sums[r] + piece * kOfPiece);
        if (kMargins && head.w) margins[r] += reinterpret_cast<const T*>(table + head.z)[at];
      }
      table += head.x;
    }
    char* const done = stage;
    stage = other;
    other = done;
  }
  if (!has_rows) return;

  const auto store = [&](int32_t target, auto value_of_row) {
    if (target >= 0) {
      T* const to = a.partial + (tile * a.n_slots + target) * kTile + in_tile;
#pragma unroll
      for (int r = 0; r < kRows; ++r) to[r] = value_of_row(r);
    } else if (target <= kMarginTarget && a.margins) {
      double* const to =
          a.margins + (tile * a.n_sums + a.first_sum + (kMarginTarget - target)) * kTile + in_tile;
#pragma unroll
      for (int r = 0; r < kRows; ++r) to[r] = value_of_row(r) * a.scale;
    }
  };
  const int32_t* const targets = a.targets + part.targets;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
    for (int i = 0; i < kOfPiece; ++i) {
      const int number = static_cast<int>((first_piece / 16) ^ piece) * kOfPiece + i;
      store(targets[number], [&](int r) { return sums[r][piece * kOfPiece + i]; });
    }
  if constexpr (kMargins) store(targets[kSums], [&](int r) { return margins[r]; });
}

}  // namespace skshap
