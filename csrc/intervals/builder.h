// Builds the tables of a layout.
#pragma once

#include "intervals/layout.h"

namespace skshap {

// Compile a plan with the tables of a layout of another plan. The trees without tables are walked or, for
// Owen values, `unwalked`.
Plan make_interval_plan(const Plan& plan, const IntervalLayout& layout, int64_t n_threads,
                        bool unwalked = false);

}  // namespace skshap
