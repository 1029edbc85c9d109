// Partial dependence on the features of a grid, and individual conditional expectations (ICE).
#pragma once

#include "base/threads.h"
#include "dependence/dependent_trees.h"

namespace skshap {

// Add the weight of each row, or 1 if `weights` is null, to weight_at[leaf] of the leaves that the row
// reaches at any cell. The result depends neither on the number of threads nor on how rows are divided among
// calls. Return whether all rows were done.
bool add_dependent_weights(const DependentTrees& trees, const Rows& rows, const double* weights,
                           int n_threads, const Stop& interrupted, double* weight_at);

// Write the mean output at each point of the grid: [output][point of each axis]. `weight_at` is the result of
// add_dependent_weights for rows with this total weight.
void write_average(const DependentTrees& trees, const double* weight_at, double total, double* out);

// Write the output at each point of the grid, for each row: [output][row][point of each axis]. Return whether
// all rows were done.
bool write_individual(const DependentTrees& trees, const Rows& rows, int n_threads, const Stop& interrupted,
                      double* out);

// Return the bytes that each thread of write_individual allocates.
size_t scratch_bytes(const DependentTrees& trees);

}  // namespace skshap
