// Rows and results in host memory, which are copied to and from page-locked memory.
#pragma once

#include "plan/plan.h"

namespace skshap {

// Copy between host arrays with several threads. The pages of a new result are allocated when they are first
// written. A single thread would need longer for this than the GPU needs to compute the result.
void copy(char* to, const char* from, size_t size);

// Copy n rows, beginning with row `first`: column by column if they are stored by column, otherwise row by
// row. Return the layout of the rows in the copy.
Rows gather(const Rows& rows, int32_t n_inputs, int64_t first, int64_t n, char* out);

}  // namespace skshap
