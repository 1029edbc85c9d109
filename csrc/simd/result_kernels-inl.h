// Kernels for results: they write rows from columns of sums.
//
// simd/kernels-inl.h includes this file and says why everything has internal linkage.
#pragma once

#include <algorithm>

#include "simd/kernels.h"
#include "simd/transpose-inl.h"

namespace skshap {
namespace {

// Writes squares of n rows and n columns.
template <class Out, size_t n>
class RowWriter {
 public:
  explicit RowWriter(const WriteRowsArgs<Out>& args) : args_(args) {}

  // A cache line holds 8 sums of a column, which are the rows that are written together.
  void write() {
    for (size_t first = 0; first < args_.n_rows; first += kLine) {
      std::fill_n(totals_, kLine / n, Sums{});
      args_.n_columns < n ? write_few_columns(first) : write_columns(first);
      if (!args_.totals) continue;
      const size_t n_rows = std::min(kLine, args_.n_rows - first);
      for (size_t row = 0; row < n_rows; ++row) args_.totals[first + row] += totals_[row / n][row % n];
    }
  }

 private:
  static constexpr size_t kLine = 8;
  using Sums = typename RowPart<double, n>::Type;
  using Values = typename RowPart<Out, n>::Type;
  using Stored = typename RowPart<Out, n>::Unaligned;

  void write_columns(size_t first) {
    size_t column = 0;
    for (; column + n <= args_.n_columns; column += n) write_squares<false>(first, column);
    // The last square repeats columns of the previous square.
    const size_t last = args_.n_columns - n;
    if (column < args_.n_columns) write_squares<true>(first, last, column - last);
  }

  // Write n columns. The first n_written of them were written, and added to the totals, before.
  template <bool kSomeWritten>
  void write_squares(size_t first, size_t column, size_t n_written = 0) {
    const size_t end = std::min(first + kLine, args_.n_rows);
    for (size_t part = 0, row = first; row < end; ++part, row += n) {
      Values square[n];
      for (size_t i = 0; i < n; ++i) {
        const double* const sums = args_.columns[column + i] + row;
        square[i] = __builtin_convertvector(*reinterpret_cast<const Sums*>(sums), Values);
        if (!kSomeWritten || i >= n_written) totals_[part] += __builtin_convertvector(square[i], Sums);
      }
      transpose<1, n>(square);
      Out* to = args_.rows + row * args_.row_size + column;
      if (end - row >= n)
        store<n>(square, n, to);
      else
        store<0>(square, end - row, to);
    }
  }

  // Store the rows of a square: kRows rows, or n_rows if kRows is 0.
  template <size_t kRows>
  void store(const Values* square, size_t n_rows, Out* to) const {
    for (size_t i = 0; i < (kRows ? kRows : n_rows); ++i, to += args_.row_size)
      *reinterpret_cast<Stored*>(to) = square[i];
  }

  void write_few_columns(size_t first) {
    const size_t n_rows = std::min(kLine, args_.n_rows - first);
    for (size_t row = 0; row < n_rows; ++row)
      for (size_t column = 0; column < args_.n_columns; ++column) {
        const Out value = static_cast<Out>(args_.columns[column][first + row]);
        args_.rows[(first + row) * args_.row_size + column] = value;
        totals_[row / n][row % n] += value;
      }
  }

  const WriteRowsArgs<Out>& args_;
  Sums totals_[kLine / n];
};

template <class S>
void write_rows(const WriteRowsArgs<typename S::T>& args) {
  using Out = typename S::T;
  RowWriter<Out, std::min<size_t>(S::kWidth, 32 / sizeof(Out))>(args).write();
}

}  // namespace
}  // namespace skshap
