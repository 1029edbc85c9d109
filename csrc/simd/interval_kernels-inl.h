// Kernels for tables by intervals: the indices of rows, and what the rows look up.
//
// Included by simd/kernels-inl.h: internal linkage, for the reason given there.
#pragma once

#include "simd/kernels.h"

namespace skshap {
namespace {

void entry_index(const EntryIndexArgs& args) {
  for (size_t block = 0; block < args.n_blocks; ++block) {
    BlockIndex index;
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

// Part of a row: a vector, or half of one.
template <class T, size_t kSize>
struct RowPart {
  typedef T Type __attribute__((vector_size(kSize * sizeof(T)), may_alias));
};

// A row size of 0 means any, in steps of 16.
template <class S, size_t kRowSize>
void add_rows(const EntryArgs<typename S::T>& args) {
  constexpr size_t kWidth = S::kWidth, kPart = kRowSize && kRowSize < kWidth ? kRowSize : kWidth;
  using Part = typename RowPart<typename S::T, kPart>::Type;
  const size_t n_parts = (kRowSize ? kRowSize : args.row_size) / kPart;
  const Part* const table = reinterpret_cast<const Part*>(args.table);
  Part* to = reinterpret_cast<Part*>(args.sums);
  for (const uint16_t *index = args.index, *end = index + args.n_rows; index != end; ++index) {
    const Part* const from = table + *index * n_parts;
    for (size_t i = 0; i < n_parts; ++i, ++to) *to += from[i];
  }
}

template <class S>
void add_entries_of(const EntryArgs<typename S::T>& args) {
  if (args.row_size == 8)
    add_rows<S, 8>(args);
  else if (args.row_size == 16)
    add_rows<S, 16>(args);
  else
    add_rows<S, 0>(args);
}

template <class S>
void add_margins(const MarginArgs& args) {
  const uint16_t* const index = args.index;
  for (size_t o = 0; o < args.n_outputs; ++o) {
    const double* const table = args.table + o;
    double* const margin = args.margin + o * args.stride;
    size_t row = 0;
    if constexpr (S::kGathers)
      for (; args.n_outputs == 1 && row + S::kWidth <= args.n_rows; row += S::kWidth) {
        const typename S::V more = S::take(table, S::index_from(index + row));
        S::store(margin + row, S::add(S::load(margin + row), more));
      }
    for (; row < args.n_rows; ++row) margin[row] += table[index[row] * args.n_outputs];
  }
}

}  // namespace
}  // namespace skshap
