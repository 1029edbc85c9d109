#include "intervals/lookup.h"

#include <algorithm>

#include "simd/kernels.h"

namespace skshap {
namespace {

// After this many tables, the sums in single precision are added to sums in double precision.
constexpr size_t kMostTables = 64;
// The most rows whose indices stay in the cache nearest to the core until they are used.
constexpr size_t kPartRows = 64 * kBlockRows;

size_t longest_row(const Plan& plan) { return largest_of(plan.intervals.windows, &TableWindow::row_size); }

}  // namespace

size_t interval_row_bytes(const Plan& plan) {
  return plan.intervals.any() ? kTablesAtOnce * sizeof(uint16_t) + longest_row(plan) * element_bytes(plan)
                              : 0;
}

template <class T>
IntervalRunner<T>::IntervalRunner(const Plan& plan, size_t tile_rows) : plan_(plan) {
  if (!plan.intervals.any()) return;
  part_rows_ = std::min(tile_rows, kPartRows);
  index_.resize(kTablesAtOnce * part_rows_);
  sums_.resize(tile_rows * longest_row(plan));
}

template <class T>
bool IntervalRunner<T>::run(const CodeTile& codes, int n_rows, TileSums& sums, TileSums* margin,
                            const Stop& stop) {
  n_rows_ = static_cast<size_t>(n_rows);
  n_blocks_ = block_count(n_rows_);
  for (const TableWindow& window : plan_.intervals.windows)
    for (size_t first = window.tables; first < window.tables_end; first += kMostTables) {
      std::fill_n(sums_.data(), n_blocks_ * kBlockRows * window.row_size, T(0));
      const size_t end = std::min(first + kMostTables, window.tables_end);
      for (size_t i = first; i < end; i += kTablesAtOnce)
        look_up(window, i, std::min(kTablesAtOnce, end - i), codes, margin);
      add_row_sums(sums_.data(), window.row_size, n_blocks_, plan_.leaf_scale,
                   plan_.intervals.places.data() + window.places, window.places_end - window.places, sums);
      if (stop()) return false;
    }
  return true;
}

// Look up tables that follow each other: first, first + 1, ...
template <class T>
void IntervalRunner<T>::look_up(const TableWindow& window, size_t first, size_t n_tables,
                                const CodeTile& codes, TileSums* margin) {
  const IntervalTables& tables = plan_.intervals;
  const IntervalTable* const table = tables.tables.data() + first;
  const size_t n_columns = plan_.columns.size();
  const double* const margins = margin ? tables.margins.data() + table->margins : nullptr;
  for (size_t row = 0; row < n_rows_; row += part_rows_) {
    const size_t n_rows = std::min(part_rows_, n_rows_ - row);
    const CategoryRows* const categories =
        codes.category_rows.empty() ? nullptr : codes.category_rows.data() + row / kBlockRows * n_columns;
    uint32_t first_entry = 0;
    for (size_t i = 0; i < n_tables; ++i) {
      kernels().entry_index({.codes = codes.narrow.data() + row,
                             .code_stride = codes.stride,
                             .category_rows = categories,
                             .n_columns = n_columns,
                             .columns = tables.columns.data() + table[i].columns,
                             .n_index_columns = table[i].n_columns,
                             .steps = tables.steps.data(),
                             .n_blocks = block_count(n_rows),
                             .first = static_cast<uint16_t>(first_entry),
                             .index = index_.data() + i * part_rows_});
      first_entry += table[i].n_entries;
    }
    const bool one_output = margin && window.n_outputs == 1;
    kernels().of<T>().add_entries({.index = index_.data(),
                                   .n_tables = n_tables,
                                   .index_stride = part_rows_,
                                   .n_rows = n_rows,
                                   .entries = numbers_of<T>(tables).data() + table->sums,
                                   .row_size = window.row_size,
                                   .sums = sums_.data() + row * window.row_size,
                                   .margins = one_output ? margins : nullptr,
                                   .margin = one_output ? margin->at(window.first_output) + row : nullptr});
    if (margin && !one_output)
      kernels().add_margins({.index = index_.data(),
                             .n_tables = n_tables,
                             .index_stride = part_rows_,
                             .n_rows = n_rows,
                             .margins = margins,
                             .n_outputs = window.n_outputs,
                             .margin = margin->at(window.first_output) + row,
                             .stride = margin->stride()});
  }
}

template class IntervalRunner<float>;
template class IntervalRunner<double>;

}  // namespace skshap
