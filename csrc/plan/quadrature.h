// Integration over the participation t, and the factors of features at t.
//
// A feature with zero fraction z has the factor z (1 - t) + t where the row satisfies all splits on it,
// otherwise z (1 - t).
#pragma once

#include <vector>

#include "base/types.h"

namespace skshap {

// Return how many nodes of quadrature() exactly integrate a tree whose paths have at most n_features
// different features.
int quadrature_nodes(Index index, int n_features);

// Compute n_nodes nodes and their weights. The integrand of Banzhaf values is evaluated at 1/2 alone: all
// their nodes are 1/2.
void quadrature(Index index, int n_nodes, std::vector<double>& t, std::vector<double>& weights);

// Gauss-Radau quadrature has a node at t = 0 as well, where the factor of a feature is z for every row. So a
// tree's node contributes a constant at t = 0. For an odd number of features, Gauss-Radau quadrature needs
// one other node less than Gauss-Legendre quadrature. Banzhaf values keep their single node, and t = 0 has no
// weight.

// Return how many nodes of radau_quadrature() exactly integrate the values of a tree, besides t = 0.
int radau_nodes(Index index, int n_features);

// Compute n_nodes nodes other than t = 0, and their weights. Return the weight of t = 0.
double radau_quadrature(Index index, int n_nodes, std::vector<double>& t, std::vector<double>& weights);

// Compute the nodes and weights of a double integral of Shapley values: n_outer times n_inner nodes of
// Gauss-Legendre quadrature, with the outer variable in t and the inner one in s.
void product_quadrature(int n_outer, int n_inner, std::vector<double>& t, std::vector<double>& s,
                        std::vector<double>& weights);

// Return the weight at t of the mixed derivative by two features.
inline double pair_weight(Index index, double t) { return index == Index::kTaylor ? 2 * (1 - t) : 1; }

// Return lambda of simd/walk_kernel-inl.h, times the weight of a pair: the logarithmic derivative of a
// feature's factor. alive_lambda is for rows that satisfy the feature's splits so far. dead_lambda is for all
// other rows, where the derivative does not depend on z.
inline double alive_lambda(Index index, double z, double t) {
  return pair_weight(index, t) * (1 - z) / (z * (1 - t) + t);
}
inline double dead_lambda(Index index, double t) { return -pair_weight(index, t) / (1 - t); }

// Return u of simd/scalar_walk_kernel-inl.h for a split on a feature that is repeated on its path, with zero
// fraction z above.
inline double repeated_share(double z, double t) {
  const double off = z * (1 - t);
  return off / (off + t);
}

// Return G of simd/walk_kernel-inl.h for a split on a feature that is repeated on its path, with zero
// fraction z above.
inline double repeated_gain(double z, double t) {
  const double a = z * (1 - t) + t;
  return z / (a * a);
}

}  // namespace skshap
