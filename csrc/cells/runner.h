// Explains rows by the cells that occur.
#pragma once

#include "base/threads.h"
#include "plan/plan.h"

namespace skshap {

// Explain rows by the cells of a plan; see explain(). Threads share the units. The values of a row depend
// neither on the other rows nor on the number of threads.
bool explain_by_cells(const Plan& plan, const Rows& rows, const Result& result, int64_t n_threads,
                      const Stop& interrupted);

// Return the bytes that explain_by_cells() allocates at most for each thread.
size_t cell_scratch_bytes(const Plan& plan);

}  // namespace skshap
