#include "intervals/lookup.h"

#include <algorithm>

#include "simd/kernels.h"

namespace skshap {
namespace {

// Sums in single precision are added to those in double precision after this many tables.
constexpr size_t kMostTables = 64;

size_t longest_row(const Plan& plan) {
  size_t longest = 0;
  for (const TableWindow& window : plan.intervals.windows) longest = std::max(longest, window.row_size);
  return longest;
}

}  // namespace

size_t interval_row_bytes(const Plan& plan) {
  return plan.intervals.any() ? sizeof(uint16_t) + longest_row(plan) * element_bytes(plan) : 0;
}

template <class T>
IntervalRunner<T>::IntervalRunner(const Plan& plan, size_t tile_rows) : plan_(plan) {
  if (!plan.intervals.any()) return;
  index_.resize(tile_rows);
  sums_.resize(tile_rows * longest_row(plan));
}

template <class T>
bool IntervalRunner<T>::run(const CodeTile& codes, int n_rows, TileSums& sums, TileSums* margin,
                            const Stop& stop) {
  n_rows_ = static_cast<size_t>(n_rows);
  n_blocks_ = (n_rows_ + kBlockRows - 1) / kBlockRows;
  for (const TableWindow& window : plan_.intervals.windows)
    for (size_t first = window.tables; first < window.tables_end; first += kMostTables) {
      std::fill_n(sums_.data(), n_blocks_ * kBlockRows * window.row_size, T(0));
      const size_t end = std::min(first + kMostTables, window.tables_end);
      for (size_t i = first; i < end; ++i) look_up(window, plan_.intervals.tables[i], codes, margin);
      add_row_sums(sums_.data(), window.row_size, n_blocks_, plan_.leaf_scale,
                   plan_.intervals.places.data() + window.places, window.places_end - window.places, sums);
      if (stop()) return false;
    }
  return true;
}

template <class T>
void IntervalRunner<T>::look_up(const TableWindow& window, const IntervalTable& table, const CodeTile& codes,
                                TileSums* margin) {
  const IntervalTables& tables = plan_.intervals;
  const CategoryRows* const categories = codes.category_rows.empty() ? nullptr : codes.category_rows.data();
  kernels().entry_index({codes.narrow.data(), codes.stride, categories, plan_.columns.size(),
                         tables.columns.data() + table.columns, table.n_columns, tables.steps.data(),
                         n_blocks_, index_.data()});
  add_entries(EntryArgs<T>{index_.data(), n_rows_, interval_sums<T>(tables) + table.sums, window.row_size,
                           sums_.data()});
  if (margin)
    kernels().add_margins({index_.data(), n_rows_, tables.margins.data() + table.margins, window.n_outputs,
                           margin->at(window.first_output), margin->stride()});
}

template class IntervalRunner<float>;
template class IntervalRunner<double>;

}  // namespace skshap
