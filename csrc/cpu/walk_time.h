// The time of the walk alone, for benchmarks/walk.py.
#pragma once

#include "plan/plan.h"

namespace skshap {

struct WalkTime {
  double decide = 0, walk = 0;  // CPU seconds
};

constexpr int64_t kMaxTimedRows = 1024;  // explained together by a thread, unless rows have many columns

// Take rows through the trees of a plan of order 1 as one tile. Return how long deciding takes, and how long
// walking takes. Trees with tables are left out.
WalkTime time_walk(const Plan& plan, const Rows& rows);

}  // namespace skshap
