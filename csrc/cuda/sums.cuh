// The sums over all chunks.
#pragma once

#include <cstdint>

namespace skshap {

struct CudaSumArgs {
  // The first part of each sum in `parts`: for each output and place (used features, then interactions).
  // `parts` lists slots of all chunks.
  const int64_t* part_offsets;
  const int32_t* parts;
  const double* part_weights;  // of parts of features; null: each part counts once
  const int32_t* features;     // used features: columns of `values`; null if it has a column per place
  // The places of features and triples. For the other places, the walk computes twice the value.
  int32_t n_undoubled;
  int32_t n_places, n_outputs, n_features;
  uint32_t n_slots;
  double scale;
  const void* partial;
  int64_t n_rows;
  void* values;  // [row][output][feature, or place]
};

// Return a part of the sum of a row. The sums of the row begin at `partial`.
template <class T, int kTile>
__device__ double weighted_part(const CudaSumArgs& a, const T* partial, int64_t part) {
  const double sum = static_cast<double>(partial[static_cast<int64_t>(a.parts[part]) * kTile]);
  return a.part_weights ? a.part_weights[part] * sum : sum;
}

// Add up the chunks, in their order, and transpose the result to rows. A block takes the rows of a tile, and
// 32 columns of the result.
template <class T, class Out, int kTile>
__global__ void __launch_bounds__(256) add_chunks(CudaSumArgs a) {
  __shared__ Out transposed[32][kTile + 1];
  const int64_t tile = blockIdx.x, first_row = tile * kTile;
  const int64_t width = static_cast<int64_t>(a.n_outputs) * a.n_places;
  const T* partial = static_cast<const T*>(a.partial) + tile * a.n_slots * kTile;
  for (int64_t first = static_cast<int64_t>(blockIdx.y) * 32; first < width; first += 32 * gridDim.y) {
    for (int i = threadIdx.x; i < 32 * kTile; i += blockDim.x) {
      const int64_t column = first + i / kTile;
      if (column >= width) break;
      double sum = 0;
      for (int64_t p = a.part_offsets[column]; p < a.part_offsets[column + 1]; ++p)
        sum += weighted_part<T, kTile>(a, partial + i % kTile, p);
      const bool half = column % a.n_places >= a.n_undoubled;
      transposed[i / kTile][i % kTile] = static_cast<Out>(sum * (half ? a.scale / 2 : a.scale));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * kTile; i += blockDim.x) {
      const int64_t row = first_row + i / 32, column = first + i % 32;
      if (row >= a.n_rows || column >= width) continue;
      const int64_t to = a.features ? row * a.n_outputs * a.n_features + column / a.n_places * a.n_features +
                                          a.features[column % a.n_places]
                                    : row * width + column;
      static_cast<Out*>(a.values)[to] = transposed[i % 32][i / 32];
    }
    __syncthreads();
  }
}

// Do the work of add_chunks for few rows. A warp takes a column of the result in one row, and each of its
// lanes takes some of the parts.
template <class T, class Out, int kTile>
__global__ void __launch_bounds__(256) add_chunks_of_few_rows(CudaSumArgs a) {
  const int64_t width = static_cast<int64_t>(a.n_outputs) * a.n_places, n = a.n_rows * width;
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (i >= n) return;
  const int64_t row = i / width, column = i % width, output = column / a.n_places;
  const T* partial = static_cast<const T*>(a.partial) + row / kTile * a.n_slots * kTile + row % kTile;
  double sum = 0;
  for (int64_t p = a.part_offsets[column] + threadIdx.x % 32; p < a.part_offsets[column + 1]; p += 32)
    sum += weighted_part<T, kTile>(a, partial, p);
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0)
    static_cast<Out*>(
        a.values)[(row * a.n_outputs + output) * a.n_features + a.features[column % a.n_places]] =
        static_cast<Out>(sum * a.scale);
}

}  // namespace skshap
