// Sums over the rows of a large result.
#pragma once

#include <cstdint>

namespace skshap {

// Multiply the numbers of [row][column], of type float or double, by a factor, and add up the magnitudes of
// each column. The sums do not depend on the number of threads. With n_threads = 0, there are as many threads
// as make the work faster.
template <class T>
void scale_and_sum(T* numbers, int64_t n_rows, int64_t n_columns, double factor, int n_threads, double* sums);

}  // namespace skshap
