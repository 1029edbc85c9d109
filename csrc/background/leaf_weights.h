// The weight of data at the leaves of trees. Covers are counted from these weights.
#pragma once

#include "base/threads.h"
#include "plan/coded_trees.h"

namespace skshap {

// Add the weight of each row to weight_at[node] of the leaf that the row reaches in each tree. The result
// does not depend on the number of threads. Return whether all rows were done.
bool add_leaf_weights(const CodedEnsemble& coded, const Rows& rows, const double* weights, int n_threads,
                      const Stop& interrupted, double* weight_at);

}  // namespace skshap
