#include "rows/number_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/threads.h"

namespace skshap {
namespace {

// The bytes of a part that a thread checks. Checking a part takes longer than waking the thread.
constexpr int64_t kPartBytes = int64_t{1} << 20;
// The count of numbers that a loop without branches checks, before the code asks whether one of them was
// beyond the limit.
constexpr int64_t kStep = 4096;

template <class X>
bool all_below(const X* x, int64_t n, X limit, bool allow_nan) {
  for (int64_t first = 0; first < n; first += kStep) {
    const int64_t end = std::min(n, first + kStep);
    int beyond = 0;
    if (allow_nan)
      for (int64_t i = first; i < end; ++i) beyond |= std::fabs(x[i]) >= limit;
    else
      for (int64_t i = first; i < end; ++i) beyond |= !(std::fabs(x[i]) < limit);
    if (beyond) return false;
  }
  return true;
}

// Numbers at distances of `stride` bytes.
template <class X>
bool all_below(const char* x, int64_t n, int64_t stride, X limit, bool allow_nan) {
  if (stride == sizeof(X)) return all_below(reinterpret_cast<const X*>(x), n, limit, allow_nan);
  for (int64_t i = 0; i < n; ++i)
    if (!all_below(reinterpret_cast<const X*>(x + i * stride), 1, limit, allow_nan)) return false;
  return true;
}

// Return the limit for numbers of a type. A limit beyond the largest number of the type becomes infinity, so
// all finite numbers are below it.
template <class X>
X limit_of(double limit) {
  if (limit > static_cast<double>(std::numeric_limits<X>::max())) return std::numeric_limits<X>::infinity();
  return static_cast<X>(limit);
}

template <class X>
bool check(const Rows& rows, int64_t n_columns, double row_limit, bool allow_nan, int64_t n_threads) {
  // Lines of numbers. A line is a row, or a column if the column's numbers are adjacent. If the lines are
  // adjacent, all numbers are one line.
  const bool by_column = rows.row_stride == sizeof(X) && rows.column_stride != sizeof(X);
  int64_t n_lines = by_column ? n_columns : rows.n_rows, length = by_column ? rows.n_rows : n_columns;
  int64_t line = by_column ? rows.column_stride : rows.row_stride,
          item = by_column ? rows.row_stride : rows.column_stride;
  if (item == sizeof(X) && line == length * item) {
    length = std::min(n_lines * length, kPartBytes / item);
    line = length * item;
    n_lines = (rows.n_rows * n_columns + length - 1) / length;
  }
  const int64_t n = rows.n_rows * n_columns,
                at_once = std::max<int64_t>(kPartBytes / (length * int64_t{sizeof(X)}), 1);
  const X limit = limit_of<X>(row_limit);
  const char* const data = static_cast<const char*>(rows.data);
  const auto check_lines = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (!all_below<X>(data + i * line, std::min(length, n - i * length), item, limit, allow_nan))
        return false;
    return true;
  };
  const int64_t n_parts = (n_lines + at_once - 1) / at_once;
  if (n_parts <= 1 || n_threads == 1) return check_lines(0, n_lines);
  // If a number beyond the limit is found in a part, the work ends as it does by an interruption.
  return work_off(
      n_parts, n_threads, [] { return false; },
      [&] {
        return [&](int64_t part, const Stop&) {
          return check_lines(part * at_once, std::min(n_lines, (part + 1) * at_once));
        };
      });
}

}  // namespace

bool all_below(const Rows& rows, int32_t n_columns, double limit, bool allow_nan, int n_threads) {
  if (!rows.n_rows || !n_columns) return true;
  return (rows.is_float32 ? check<float> : check<double>)(rows, n_columns, limit, allow_nan,
                                                          memory_threads(n_threads));
}

}  // namespace skshap
