// Integration over the participation t, and the factors that are integrated.
#pragma once

#include <vector>

#include "types.h"

namespace skshap {

// How a tree with at most n_features different ones on a path is integrated over t: the number of nodes that
// is exact, and n_nodes nodes with their weights. For the Banzhaf values, whose integrand is taken at 1/2
// alone, every node lies there.
int quadrature_nodes(Index index, int n_features);
void quadrature(Index index, int n_nodes, std::vector<double>& t, std::vector<double>& weights);

// What the mixed derivative by two features is weighted with at t.
double pair_weight(Index index, double t);

}  // namespace skshap
