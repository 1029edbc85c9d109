// Rows and results in host memory, copied to and from page-locked memory.
#pragma once

#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "plan/plan.h"

namespace skshap {

// Copy between host arrays with several threads. The pages of a new result are allocated when they are first
// written; a single thread would need longer for this than the GPU for computing the result.
inline void copy(char* to, const char* from, size_t size) {
  constexpr size_t kPart = size_t{16} << 20, kMaxThreads = 16;
  const size_t n =
      std::min({size / kPart + 1, kMaxThreads, std::max<size_t>(std::thread::hardware_concurrency(), 1)});
  const size_t part = (size + n - 1) / n;
  std::vector<std::thread> threads;
  threads.reserve(n);
  size_t begin = 0;
  try {
    for (; n > 1 && begin + part < size; begin += part)
      threads.emplace_back([=] { std::memcpy(to + begin, from + begin, part); });
  } catch (const std::system_error&) {
    // The system has no more threads: this one copies the rest.
  }
  std::memcpy(to + begin, from + begin, size - begin);
  for (std::thread& thread : threads) thread.join();
}

// Copy n rows, from `first` on: column by column if they are stored so, otherwise row by row. Return their
// layout in the copy.
inline Rows gather(const Rows& rows, int32_t n_inputs, int64_t first, int64_t n, char* out) {
  const char* from = static_cast<const char*>(rows.data) + first * rows.row_stride;
  const int64_t item = rows.is_float32 ? 4 : 8, row = item * n_inputs;
  if (rows.row_stride == item && rows.column_stride != item) {
    for (int32_t f = 0; f < n_inputs; ++f)
      std::memcpy(out + f * n * item, from + f * rows.column_stride, n * item);
    return {nullptr, rows.is_float32, n, item, n * item};
  }
  if (rows.column_stride == item && rows.row_stride == row) {
    copy(out, from, n * row);
  } else if (rows.column_stride == item) {
    for (int64_t i = 0; i < n; ++i) std::memcpy(out + i * row, from + i * rows.row_stride, row);
  } else {
    for (int64_t i = 0; i < n; ++i)
      for (int32_t f = 0; f < n_inputs; ++f)
        std::memcpy(out + i * row + f * item, from + i * rows.row_stride + f * rows.column_stride, item);
  }
  return {nullptr, rows.is_float32, n, row, item};
}

}  // namespace skshap
