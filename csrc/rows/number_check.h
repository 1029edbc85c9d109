// The check that a model accepts all numbers of X.
#pragma once

#include "base/types.h"

namespace skshap {

// Return whether the magnitudes of all numbers are below a limit; NaN is below it if it is allowed. The time
// is that of reading the numbers once; 0 threads: as many as are of use.
bool all_below(const Rows& rows, int32_t n_columns, double limit, bool allow_nan, int n_threads);

}  // namespace skshap
