// Integration over the participation t, and the factors of features at t.
//
// A feature with zero fraction z has the factor z (1 - t) + t where the row satisfies all splits on it, else
// z (1 - t).
#pragma once

#include <vector>

#include "base/types.h"

namespace skshap {

// Return how many quadrature nodes integrate a tree exactly whose paths have at most n_features different
// features.
int quadrature_nodes(Index index, int n_features);

// Compute n_nodes nodes and their weights. The integrand of Banzhaf values is taken at 1/2 alone: every node
// lies there.
void quadrature(Index index, int n_nodes, std::vector<double>& t, std::vector<double>& weights);

// Return the weight of the mixed derivative by two features at t.
inline double pair_weight(Index index, double t) { return index == Index::kTaylor ? 2 * (1 - t) : 1; }

// Return lambda of walk_kernel-inl.h, with the weight of a pair: the logarithmic derivative of a feature's
// factor for rows that satisfy its splits so far, and for all others, where it does not depend on z.
inline double alive_lambda(Index index, double z, double t) {
  return pair_weight(index, t) * (1 - z) / (z * (1 - t) + t);
}
inline double dead_lambda(Index index, double t) { return -pair_weight(index, t) / (1 - t); }

// Return G of walk_kernel-inl.h for a split on a feature that is repeated on its path, whose zero fraction
// above is z.
inline double repeated_gain(double z, double t) {
  const double a = z * (1 - t) + t;
  return z / (a * a);
}

}  // namespace skshap
