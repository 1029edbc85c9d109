// The work around the walk on the device: X -> codes, margins, and the sums over chunks.
#pragma once

#include "cuda/program/program.h"
#include "plan/gpu_limits.h"

namespace skshap {

struct CudaCodeColumn {
  int32_t input;    // column of X
  uint32_t n;       // thresholds, or listed categories
  uint32_t origin;  // as in CudaColumn
  uint8_t categorical, zero_missing;
  int64_t values;  // where they begin, among the values of all columns of the kind
};

// Rules that say which numbers of X are rejected, and the memory in which a rejected number is recorded.
struct CudaCheck {
  bool allow_nan;
  double limit;                // numbers of this magnitude or more are rejected; NaN: no limit
  double missing;              // taken for NaN
  unsigned long long* first;   // the smallest row * n_inputs + column that is rejected
  volatile int* any_rejected;  // on the host: set if a number is rejected

  __device__ void look_at(double x, int64_t position) const {
    const bool refused = isnan(x) || x == missing ? !allow_nan : fabs(x) >= limit;
    if (!refused) return;
    atomicMin(first, static_cast<unsigned long long>(position));
    *any_rejected = 1;
  }
};

struct CudaCodeArgs {
  const void* X;
  bool x_single;                              // element type of X
  int64_t n_rows, row_stride, column_stride;  // strides in bytes
  const CudaCodeColumn* columns;
  int32_t n_columns;
  bool strict;
  double missing;          // a number that means missing, or NaN
  const void* thresholds;  // in the precision in which the model reads X
  const int32_t* categories;
  int16_t* codes;     // [tile][column][row of the tile]
  int32_t* counters;  // of the kernels that follow: set to 0 here
  int32_t n_counters;
  bool checks;  // whether numbers are checked, which needs all columns of X coded
  int32_t n_inputs;
  CudaCheck check;
};

// Return a value's full rank, or the position of its category. It is the code that a CodeTile has for the
// value.
template <class Read>
__device__ uint32_t full_code(const CudaCodeArgs& a, const CudaCodeColumn& column, Read x) {
  const bool missing = isnan(x) || x == static_cast<Read>(a.missing) ||
                       (column.zero_missing && fabs(static_cast<double>(x)) <= kZeroMagnitude);
  if (missing) return column.categorical ? column.n + 1 : kMissingCode;
  uint32_t low = 0, high = column.n;
  if (!column.categorical) {
    const Read* thresholds = static_cast<const Read*>(a.thresholds) + column.values;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      const bool passed = a.strict ? thresholds[middle] <= x : thresholds[middle] < x;
      if (passed)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
  return category_code(a.categories + column.values, column.n, x);
}

// Code rows. Read is the precision of the model's comparisons.
template <class Read, int kTile>
__global__ void __launch_bounds__(256) code_rows(CudaCodeArgs a) {
  if (blockIdx.x == 0 && blockIdx.y == 0)
    for (int i = static_cast<int>(threadIdx.x); i < a.n_counters; i += static_cast<int>(blockDim.x))
      a.counters[i] = 0;
  const int in_tile = threadIdx.x % kTile;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kTile + in_tile;
  const int64_t read = row < a.n_rows ? row : a.n_rows - 1;  // rows past the end repeat the last one
  const char* x_row = static_cast<const char*>(a.X) + read * a.row_stride;
  int16_t* out = a.codes + static_cast<int64_t>(blockIdx.x) * a.n_columns * kTile + in_tile;
  const int first = blockIdx.y * (blockDim.x / kTile) + threadIdx.x / kTile;
  const int step = gridDim.y * (blockDim.x / kTile);
  for (int c = first; c < a.n_columns; c += step) {
    const CudaCodeColumn column = a.columns[c];
    const char* p = x_row + column.input * a.column_stride;
    const Read x = a.x_single ? static_cast<Read>(*reinterpret_cast<const float*>(p))
                              : static_cast<Read>(*reinterpret_cast<const double*>(p));
    if (a.checks)
      a.check.look_at(a.x_single ? *reinterpret_cast<const float*>(p) : *reinterpret_cast<const double*>(p),
                      read * a.n_inputs + column.input);
    const uint32_t full = full_code(a, column, x);
    int32_t code;
    if (column.categorical) {  // if there are many categories, the high halves have a column of their own
      code = static_cast<int32_t>(column.origin ? full >> 16 : full);
    } else if (full == kMissingCode) {
      code = -1;
    } else {
      const int64_t rank = static_cast<int64_t>(full) - column.origin;
      code = rank < 0 ? 0 : rank > kCudaRanks ? static_cast<int32_t>(kCudaRanks) : static_cast<int32_t>(rank);
    }
    out[static_cast<int64_t>(c) * kTile] = static_cast<int16_t>(code);
  }
}

// Return whether a row with these codes goes left at a node. The columns of the codes are `stride` apart.
__device__ __forceinline__ bool goes_left(const int16_t* codes, int stride, uint32_t column_flags,
                                          uint32_t operand, const uint32_t* category_bits) {
  const int16_t* p = codes + static_cast<int64_t>(column_flags >> kNodeColumnShift) * stride;
  const uint32_t code = static_cast<uint32_t>(static_cast<int32_t>(*p));
  bool left;
  if (column_flags & kNodeCategorical) {
    uint32_t c = code & 0xffff;
    if (column_flags & kNodeWide) c |= static_cast<uint32_t>(static_cast<uint16_t>(p[stride])) << 16;
    left = category_bits[operand + (c >> 5)] >> (c & 31) & 1;
  } else {
    left = code + (column_flags & kNodeBias) <= operand;
  }
  return left != static_cast<bool>(column_flags & kNodeFlip);
}

// The trees whose margins one thread adds up for a row.
struct CudaMarginGroup {
  int32_t tree_begin, tree_end;
  int32_t first_sum;  // among the sums of a row
  int32_t width;      // values of a leaf
  bool merged;
};

struct CudaMarginArgs {
  const CudaMarginGroup* groups;
  const int64_t* tree_nodes;
  const CudaNode* nodes;
  const double* leaf_values;
  const uint32_t* category_bits;
  const int16_t* codes;
  int32_t n_columns, n_sums;
  double* sums;  // [tile][sum][row of the tile]
};

__device__ __forceinline__ uint4 margin_node(const CudaMarginArgs& a, int64_t node) {
  return __ldg(reinterpret_cast<const uint4*>(a.nodes + node));
}
__device__ __forceinline__ int32_t child_of(const CudaMarginArgs& a, const int16_t* codes, int stride,
                                            uint4 n) {
  return static_cast<int32_t>(goes_left(codes, stride, n.x, n.y, a.category_bits) ? n.z : n.w);
}

// Add up the values of the leaves that a row reaches in a merged tree.
inline __device__ __noinline__ double merged_margin(const CudaMarginArgs& a, const int16_t* codes, int stride,
                                                    int64_t root) {
  int32_t others[kMostGpuLevels + 1];  // nodes in the places of the path that are still to be visited
  int n_others = 0;
  double sum = 0;
  for (int64_t node = root;;) {
    if (node >= 0) {
      const uint4 n = margin_node(a, node);
      if (n.x == kJoinedNodes) {
        others[n_others++] = static_cast<int32_t>(n.w);
        node = static_cast<int32_t>(n.z);
      } else {
        node = child_of(a, codes, stride, n);
      }
      continue;
    }
    sum += a.leaf_values[~node];
    if (!n_others) return sum;
    node = others[--n_others];
  }
}

template <int kTile>
__global__ void __launch_bounds__(kTile) add_margins(CudaMarginArgs a) {
  const CudaMarginGroup group = a.groups[blockIdx.y];
  const int64_t tile = blockIdx.x;
  const int16_t* codes = a.codes + tile * a.n_columns * kTile + threadIdx.x;
  double* sums = a.sums + (tile * a.n_sums + group.first_sum) * kTile + threadIdx.x;
  for (int o = 0; o < group.width; ++o) sums[o * kTile] = 0;
  double sum = 0;
  for (int32_t tree = group.tree_begin; tree < group.tree_end; ++tree) {
    int64_t node = a.tree_nodes[tree];
    if (group.merged) {
      sum += merged_margin(a, codes, kTile, node);
      continue;
    }
    while (node >= 0) node = child_of(a, codes, kTile, margin_node(a, node));
    const double* values = a.leaf_values + ~node * group.width;
    if (group.width == 1)
      sum += *values;
    else
      for (int o = 0; o < group.width; ++o) sums[o * kTile] += values[o];
  }
  if (group.width == 1) *sums = sum;
}

struct CudaSumArgs {
  // The first part of each sum in `parts`: for each output and place (used features, then interactions), then
  // for the margin of each output. `parts` lists slots of all chunks, and sums of margins.
  const int64_t* part_offsets;
  const int32_t* parts;
  const double* part_weights;  // of parts of features; null: each part counts once
  const int32_t* features;     // used features: columns of `values`; null if it has a column per place
  // The places of features and triples. For the other places, the walk computes twice the value.
  int32_t n_undoubled;
  int32_t n_places, n_outputs, n_features;
  uint32_t n_slots;
  int32_t n_sums;
  double scale;
  const double* constant;  // per output
  const void* partial;
  const double* margin_sums;
  int64_t n_rows;
  void* values;    // [row][output][feature, or place]
  double* margin;  // [row][output], or null
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

template <int kTile>
__global__ void __launch_bounds__(256) finish_margins(CudaSumArgs a) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.n_rows * a.n_outputs) return;
  const int64_t row = i / a.n_outputs, output = i % a.n_outputs;
  const int64_t* offsets = a.part_offsets + static_cast<int64_t>(a.n_outputs) * a.n_places;
  const double* sums = a.margin_sums + row / kTile * a.n_sums * kTile + row % kTile;
  double margin = a.constant[output];
  for (int64_t p = offsets[output]; p < offsets[output + 1]; ++p)
    margin += sums[static_cast<int64_t>(a.parts[p]) * kTile];
  a.margin[i] = margin;
}

// Another feature that is on a path with the current feature.
struct CudaPartner {
  int32_t feature, place;  // column of X; place of the pair in the sums
};

struct CudaMatrixArgs {
  const double* sums;  // [row][output][place]
  const int64_t* partner_offsets;
  const CudaPartner* partners;  // by used feature, ascending
  const int32_t* features;
  int32_t n_used, n_places, n_features;
  int64_t n;                       // rows x outputs
  bool subtract;                   // main effects on the diagonal, otherwise the numbers of `values`
  void *values, *matrices, *sets;  // matrices, sets (pairs or triples): or null
  // For add_matrices: the place of each matrix element in the sums of a row, or -1 if the element is zero.
  const int32_t* place_of;
};

// Write the values, and the matrices by rows. A warp takes a row, an output and a used feature. The main
// effect is the SHAP value minus all interactions of the feature.
template <class Out>
__global__ void __launch_bounds__(256) write_matrices(CudaMatrixArgs a) {
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int64_t n_warps = static_cast<int64_t>(gridDim.x) * blockDim.x / 32;
  const int lane = threadIdx.x % 32;
  for (int64_t i = warp; i < a.n * a.n_used; i += n_warps) {
    const int64_t matrix = i / a.n_used;
    const int32_t used = static_cast<int32_t>(i % a.n_used), feature = a.features[used];
    const double* sums = a.sums + matrix * a.n_places;
    if (lane == 0)
      static_cast<Out*>(a.values)[matrix * a.n_features + feature] = static_cast<Out>(sums[used]);
    if (!a.matrices) continue;
    Out* out = static_cast<Out*>(a.matrices) + (matrix * a.n_features + feature) * a.n_features;
    double interactions = 0;
    for (int64_t p = a.partner_offsets[used] + lane; p < a.partner_offsets[used + 1]; p += 32) {
      const CudaPartner partner = a.partners[p];
      const double x = sums[partner.place];
      out[partner.feature] = static_cast<Out>(x);
      interactions += x;
    }
    for (int offset = 16; offset; offset /= 2) interactions += __shfl_down_sync(~0u, interactions, offset);
    if (lane == 0) out[feature] = static_cast<Out>(a.subtract ? sums[used] - interactions : sums[used]);
  }
}

// The rows of a block of add_matrices, which does the work of add_chunks and write_matrices at once. It is
// used if the sums of a few rows fit into shared memory. A block takes kMatrixRows rows of a tile, and an
// output.
constexpr int kMatrixRows = 32;

// Return the shared memory of a block. It has places, then main effects, both for all rows and padded against
// bank conflicts.
constexpr size_t matrix_bytes(size_t n_places, size_t n_used) {
  return sizeof(double) * (n_places + n_used) * (kMatrixRows + 1);
}

template <class T, class Out, int kTile>
__global__ void __launch_bounds__(256) add_matrices(CudaSumArgs a, CudaMatrixArgs m) {
  extern __shared__ double matrix_shared[];
  constexpr int kStride = kMatrixRows + 1, kParts = kTile / kMatrixRows;
  const int64_t tile = blockIdx.x / kParts;
  const int part = blockIdx.x % kParts, output = blockIdx.y;
  const T* partial = static_cast<const T*>(a.partial) + tile * a.n_slots * kTile + part * kMatrixRows;
  for (int i = threadIdx.x; i < a.n_places * kMatrixRows; i += blockDim.x) {
    const int place = i / kMatrixRows, row = i % kMatrixRows;
    const int64_t column = static_cast<int64_t>(output) * a.n_places + place;
    double sum = 0;
    for (int64_t p = a.part_offsets[column]; p < a.part_offsets[column + 1]; ++p)
      sum += static_cast<double>(partial[static_cast<int64_t>(a.parts[p]) * kTile + row]);
    matrix_shared[place * kStride + row] = sum * (place < a.n_undoubled ? a.scale : a.scale / 2);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < a.n_undoubled * kMatrixRows; i += blockDim.x) {
    const int used = i / kMatrixRows, row = i % kMatrixRows;
    double main = matrix_shared[used * kStride + row];
    if (m.subtract)
      for (int64_t p = m.partner_offsets[used]; p < m.partner_offsets[used + 1]; ++p)
        main -= matrix_shared[m.partners[p].place * kStride + row];
    matrix_shared[(a.n_places + used) * kStride + row] = main;
  }
  __syncthreads();
  const int64_t first = tile * kTile + part * kMatrixRows, n_remaining = a.n_rows - first;
  const int n_rows = n_remaining < kMatrixRows ? static_cast<int>(n_remaining) : kMatrixRows;
  const int n_features = a.n_features, size = n_features * n_features;
  for (int row = threadIdx.x / 32; row < n_rows; row += blockDim.x / 32) {
    const int64_t matrix = (first + row) * a.n_outputs + output;
    Out* values = static_cast<Out*>(m.values) + matrix * n_features;
    for (int f = threadIdx.x % 32; f < n_features; f += 32) {
      const int place = m.place_of[f * (n_features + 1)];
      values[f] = place < 0 ? Out(0) : static_cast<Out>(matrix_shared[(place - a.n_places) * kStride + row]);
    }
    Out* out = static_cast<Out*>(m.matrices) + matrix * size;
    for (int i = threadIdx.x % 32; i < size; i += 32) {
      const int place = m.place_of[i];
      out[i] = place < 0 ? Out(0) : static_cast<Out>(matrix_shared[place * kStride + row]);
    }
  }
}

template <class Out>
__global__ void __launch_bounds__(256) write_sets(CudaMatrixArgs a) {
  const int64_t n_sets = a.n_places - a.n_used, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < a.n * n_sets; i += step)
    static_cast<Out*>(a.sets)[i] = static_cast<Out>(a.sums[i / n_sets * a.n_places + a.n_used + i % n_sets]);
}

struct CudaGapArgs {
  const void* values;
  const double* margin;
  const double* base;  // per output
  int64_t n_rows;
  int32_t n_outputs, n_features;
  unsigned long long* gap;  // per output: bits of the largest gap; NaN is larger than any number
};

// Find the largest gap of each output. A warp takes a row and an output.
template <class Out>
__global__ void __launch_bounds__(256) find_gaps(CudaGapArgs a) {
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int64_t n_warps = static_cast<int64_t>(gridDim.x) * blockDim.x / 32;
  const int lane = threadIdx.x % 32;
  for (int64_t i = warp; i < a.n_rows * a.n_outputs; i += n_warps) {
    const Out* values = static_cast<const Out*>(a.values) + i * a.n_features;
    double sum = 0;
    for (int64_t f = lane; f < a.n_features; f += 32) sum += values[f];
    for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
    if (lane) continue;
    const int32_t output = static_cast<int32_t>(i % a.n_outputs);
    const double gap = fabs(sum + a.base[output] - a.margin[i]);
    const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(gap));
    if (bits > *reinterpret_cast<volatile unsigned long long*>(a.gap + output))
      atomicMax(a.gap + output, bits);
  }
}

}  // namespace skshap
