// Fills tables whose weights are known: for each leaf, how much of what stands for unknown features satisfies
// which features of the path.
//
// With the features of a leaf's path as bits, x the set of those that the row satisfies and b the same of
// what stands for unknown features, leaf value v, and p features that only x satisfies and q that only b
// does, all others being satisfied by both, a feature gets
//     v (p - 1)! q! / (p + q)! if only x satisfies it, -v p! (q - 1)! / (p + q)! if only b does
// (Lundberg et al., 2020). p depends on b only and q on x only, so that quadrature in t separates them:
// (p - 1)! q! / (p + q)! is the integral of t^(p - 1) (1 - t)^q. See docs/how_it_works.md.
#pragma once

#include <chrono>
#include <functional>

#include "plan/plan.h"
#include "tables/table_costs.h"
#include "tables/table_layout.h"

namespace skshap {

// A leaf of a group, as its table is computed.
struct TableLeaf {
  size_t tree;     // among Tables::trees
  size_t look_up;  // among Tables::look_ups
  uint32_t n_features;
  const uint16_t* pattern;  // by index
  size_t size;              // of the table
  const double* values;     // of the plan
  size_t n_outputs;
};

// Add to weights[pattern], zeros before.
using WeighPatterns = std::function<void(const TableLeaf& leaf, double* weights)>;

// A clock that notes in the plan how long its tables took to make.
class TableClock {
 public:
  void stop(Plan& plan) const {
    plan.tables.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Fill the tables of all trees except those with a level table.
void write_tables(Plan& plan, const TableLimits& limits, int64_t n_threads, const WeighPatterns& weigh);

}  // namespace skshap
