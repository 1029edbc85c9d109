// Fills tables from weights. For each leaf, these are the weights of the patterns of the path's features in
// the data that replace unknown features.
//
// Let the features of a leaf's path be bits, x the set of features that the row satisfies, and b the set that
// the replacing data satisfy. With leaf value v, p features that only x satisfies, q that only b satisfies,
// and all others satisfied by both, a feature gets
//     v (p - 1)! q! / (p + q)! if only x satisfies it, -v p! (q - 1)! / (p + q)! if only b does
// (Lundberg et al., 2020). p depends only on b and q only on x, so quadrature in t separates them: (p - 1)!
// q! / (p + q)! is the integral of t^(p - 1) (1 - t)^q. See docs/mathematics.md.
#pragma once

#include <chrono>
#include <functional>

#include "plan/plan.h"
#include "tables/table_costs.h"
#include "tables/table_layout.h"

namespace skshap {

// A leaf of a group while its table is computed.
struct TableLeaf {
  size_t tree;    // in Tables::trees
  size_t lookup;  // in Tables::lookups
  uint32_t n_features;
  const uint16_t* pattern;  // by index of the group
  size_t size;              // of the table
  const double* values;     // the leaf's own, as in the plan
  size_t n_outputs;
};

// A function that adds weights to weights[pattern]. The array is all zeros before the call.
using WeighPatterns = std::function<void(const TableLeaf& leaf, double* weights)>;

// A clock that records in the plan how long it took to build the plan's tables.
class TableClock {
 public:
  void stop(Plan& plan) const {
    plan.tables.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Fill the tables of all trees except for trees with a level table.
void write_tables(Plan& plan, const TableLimits& limits, int64_t n_threads, const WeighPatterns& weigh);

}  // namespace skshap
