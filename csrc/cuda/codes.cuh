// The codes of rows on the device, and the tests of nodes on them.
#pragma once

#include "cuda/program/columns.h"

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

  void read(const Rows& rows) {
    X = rows.data;
    x_single = rows.is_float32;
    n_rows = rows.n_rows;
    row_stride = rows.row_stride;
    column_stride = rows.column_stride;
  }
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

}  // namespace skshap
