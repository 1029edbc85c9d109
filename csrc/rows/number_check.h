// The check that a model accepts all numbers of X.
#pragma once

#include "base/types.h"

namespace skshap {

// Return whether the magnitudes of all numbers are below a limit. NaN counts as below the limit if allow_nan
// is true. The check takes about as long as reading the numbers once. With n_threads = 0, there are as many
// threads as make the check faster.
bool all_below(const Rows& rows, int32_t n_columns, double limit, bool allow_nan, int n_threads);

}  // namespace skshap
