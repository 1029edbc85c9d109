// The time of the walk alone, for benchmarks/walk.py.
#pragma once

#include "plan/plan.h"

namespace skshap {

struct WalkTime {
  double decide = 0, walk = 0;  // CPU seconds
};

constexpr int64_t kMaxTimedRows = 1024;  // which a thread explains together, unless rows have many columns

// Take rows through the trees of a plan of order 1 as one tile, and return how long deciding and walking
// take. Trees with tables are left out.
WalkTime time_walk(const Plan& plan, const Rows& rows);

}  // namespace skshap
