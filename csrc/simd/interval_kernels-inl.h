// Kernels for tables by intervals: the indices of rows, and the sums that the rows look up.
//
// simd/kernels-inl.h includes this file and says why everything has internal linkage.
#pragma once

#include <algorithm>
#include <type_traits>

#include "simd/kernels.h"
#include "simd/transpose-inl.h"

namespace skshap {
namespace {

void entry_index(const EntryIndexArgs& args) {
  for (size_t block = 0; block < args.n_blocks; ++block) {
    BlockIndex index;
    if (args.first) index.add(~uint64_t{0}, args.first);
    for (const IndexColumn *column = args.columns, *end = column + args.n_index_columns; column != end;
         ++column) {
      const IndexStep* const steps = args.steps + column->steps;
      if (column->categorical) {
        const CategoryRows& rows = args.category_rows[block * args.n_columns + column->column];
        for (uint32_t i = 0; i < rows.n; ++i) index.add(rows.rows[i], steps[rows.code[i]].number);
        continue;
      }
      const uint16_t* const codes = args.codes + column->column * args.code_stride + block * kBlockRows;
      for (const IndexStep *step = steps, *last = steps + column->n_steps; step != last; ++step)
        index.add_beyond(codes, step->operand, step->number);
    }
    index.store(args.index + block * kBlockRows);
  }
}

// A row size of 0 means any size, in steps of 16.
template <class S, size_t kRowSize, size_t kTables, bool kMargin>
void add_rows(const EntryArgs<typename S::T>& args) {
  constexpr size_t kWidth = S::kWidth, kPart = kRowSize && kRowSize < kWidth ? kRowSize : kWidth;
  using Part = typename RowPart<typename S::T, kPart>::Type;
  const size_t n_parts = (kRowSize ? kRowSize : args.row_size) / kPart;
  // These are copies, because the compiler must assume that the stores below change the numbers that `args`
  // refers to.
  const size_t n_rows = args.n_rows, stride = args.index_stride;
  const uint16_t* const indices = args.index;
  const Part* const entries = reinterpret_cast<const Part*>(args.entries);
  Part* to = reinterpret_cast<Part*>(args.sums);
  const double* const margins = args.margins;
  double* const margin = args.margin;
  for (size_t row = 0; row < n_rows; ++row, to += n_parts) {
    size_t index[kTables];
    for (size_t table = 0; table < kTables; ++table) index[table] = indices[table * stride + row];
    for (size_t i = 0; i < n_parts; ++i) {
      Part sum = to[i];
      for (size_t table = 0; table < kTables; ++table) sum += entries[index[table] * n_parts + i];
      to[i] = sum;
    }
    if (!kMargin) continue;
    double sum = margin[row];
    for (size_t table = 0; table < kTables; ++table) sum += margins[index[table]];
    margin[row] = sum;
  }
}

template <class S, size_t kTables, bool kMargin>
void add_rows_of_any_size(const EntryArgs<typename S::T>& args) {
  if (args.row_size == 8)
    add_rows<S, 8, kTables, kMargin>(args);
  else if (args.row_size == 16)
    add_rows<S, 16, kTables, kMargin>(args);
  else
    add_rows<S, 0, kTables, kMargin>(args);
}

// Call add(number of tables) with a compile-time number.
template <class Add>
void with_tables(size_t n_tables, const Add& add) {
  static_assert(kTablesAtOnce == 4);
  if (n_tables == 4)
    add(std::integral_constant<size_t, 4>());
  else if (n_tables == 3)
    add(std::integral_constant<size_t, 3>());
  else if (n_tables == 2)
    add(std::integral_constant<size_t, 2>());
  else
    add(std::integral_constant<size_t, 1>());
}

template <class S>
void add_entries(const EntryArgs<typename S::T>& args) {
  with_tables(args.n_tables, [&](auto n) {
    if (args.margins)
      add_rows_of_any_size<S, n(), true>(args);
    else
      add_rows_of_any_size<S, n(), false>(args);
  });
}

void add_margins(const MarginArgs& args) {
  with_tables(args.n_tables, [&](auto n) {
    for (size_t o = 0; o < args.n_outputs; ++o) {
      double* const margin = args.margin + o * args.stride;
      for (size_t row = 0; row < args.n_rows; ++row)
        for (size_t table = 0; table < n(); ++table)
          margin[row] += args.margins[args.index[table * args.index_stride + row] * args.n_outputs + o];
    }
  });
}

template <class S>
void interleave(const InterleaveArgs<typename S::T>& args) {
  using T = typename S::T;
  constexpr size_t n = std::min<size_t>(S::kWidth, 32 / sizeof(T));
  using V = typename RowPart<T, n>::Type;
  for (size_t i = 0; i < args.n_columns; i += n)
    for (size_t first = 0; first < args.n_rows; first += n) {
      V square[n];
      for (size_t j = 0; j < n; ++j) square[j] = *reinterpret_cast<const V*>(args.columns[i + j] + first);
      transpose<1, n>(square);
      const size_t n_rows = std::min(n, args.n_rows - first);
      for (size_t j = 0; j < n_rows; ++j)
        *reinterpret_cast<V*>(args.rows + (first + j) * args.n_columns + i) = square[j];
    }
}

}  // namespace
}  // namespace skshap
