#include "rows/column_magnitudes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/threads.h"

namespace skshap {
namespace {

// The bytes of a part that a thread takes. The work on a part takes longer than waking the thread, and a part
// stays in a cache.
constexpr int64_t kPartBytes = int64_t{1} << 18;

}  // namespace

template <class T>
void scale_and_sum(T* numbers, int64_t n_rows, int64_t n_columns, double factor, int n_threads,
                   double* sums) {
  std::fill_n(sums, n_columns, 0.0);
  if (!n_rows || !n_columns) return;
  const int64_t at_once = std::max<int64_t>(kPartBytes / (n_columns * int64_t{sizeof(T)}), 1),
                n_parts = (n_rows + at_once - 1) / at_once;
  std::vector<double> parts(static_cast<size_t>(n_parts * n_columns), 0.0);
  const T by = static_cast<T>(factor);
  share_items(n_parts, memory_threads(n_threads), [&] {
    return [&](int64_t part) {
      double* const out = parts.data() + part * n_columns;
      for (int64_t row = part * at_once; row < std::min(n_rows, (part + 1) * at_once); ++row) {
        T* const x = numbers + row * n_columns;
        for (int64_t i = 0; i < n_columns; ++i) {
          x[i] *= by;
          out[i] += std::fabs(static_cast<double>(x[i]));
        }
      }
    };
  });
  for (int64_t part = 0; part < n_parts; ++part)
    for (int64_t i = 0; i < n_columns; ++i) sums[i] += parts[static_cast<size_t>(part * n_columns + i)];
}

template void scale_and_sum(float*, int64_t, int64_t, double, int, double*);
template void scale_and_sum(double*, int64_t, int64_t, double, int, double*);

}  // namespace skshap
