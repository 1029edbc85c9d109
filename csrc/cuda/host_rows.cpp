#include "cuda/host_rows.h"

#include <algorithm>
#include <cstring>

#include "base/threads.h"
#include "cuda/program/tuning.h"

namespace skshap {
namespace {

// Call copy_part(begin, end) for parts of n items. `bytes` is the size of an item.
template <class CopyPart>
void in_parts(int64_t n, int64_t item_bytes, const CopyPart& copy_part) {
  const int64_t part = std::max<int64_t>(kCopiedBytes / std::max<int64_t>(item_bytes, 1), 1),
                n_parts = (n + part - 1) / part;
  if (n_parts <= 1) {
    copy_part(0, n);
    return;
  }
  share_items(n_parts, memory_threads(),
              [&] { return [&](int64_t i) { copy_part(i * part, std::min(n, (i + 1) * part)); }; });
}

// Copy rows whose columns are not adjacent. T is a type of the same size as the numbers of X.
template <class T>
void copy_strided(const char* from, const Rows& rows, int32_t n_inputs, int64_t begin, int64_t end, T* to) {
  for (int64_t i = begin; i < end; ++i)
    for (int32_t f = 0; f < n_inputs; ++f)
      std::memcpy(to + i * n_inputs + f, from + i * rows.row_stride + f * rows.column_stride, sizeof(T));
}

}  // namespace

void copy(char* to, const char* from, size_t size) {
  in_parts(static_cast<int64_t>(size), 1, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

Rows gather(const Rows& rows, int32_t n_inputs, int64_t first, int64_t n, char* out) {
  const char* const from = static_cast<const char*>(rows.data) + first * rows.row_stride;
  const int64_t item = rows.is_float32 ? 4 : 8, row = item * n_inputs;
  if (rows.row_stride == item && rows.column_stride != item) {
    in_parts(n_inputs, n * item, [&](int64_t begin, int64_t end) {
      for (int64_t f = begin; f < end; ++f)
        std::memcpy(out + f * n * item, from + f * rows.column_stride, static_cast<size_t>(n * item));
    });
    return {.data = nullptr,
            .is_float32 = rows.is_float32,
            .n_rows = n,
            .row_stride = item,
            .column_stride = n * item};
  }
  if (rows.column_stride == item && rows.row_stride == row) {
    copy(out, from, static_cast<size_t>(n * row));
  } else {
    in_parts(n, row, [&](int64_t begin, int64_t end) {
      if (rows.column_stride == item)
        for (int64_t i = begin; i < end; ++i)
          std::memcpy(out + i * row, from + i * rows.row_stride, static_cast<size_t>(row));
      else if (item == 4)
        copy_strided(from, rows, n_inputs, begin, end, reinterpret_cast<float*>(out));
      else
        copy_strided(from, rows, n_inputs, begin, end, reinterpret_cast<double*>(out));
    });
  }
  return {
      .data = nullptr, .is_float32 = rows.is_float32, .n_rows = n, .row_stride = row, .column_stride = item};
}

}  // namespace skshap
