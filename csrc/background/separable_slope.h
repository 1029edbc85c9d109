// The slope of a link's secant as a short sum of products of a function of x and a function of b.
//
// For a row with margin x and a background row with margin b, s(x, b) is an analytic function of b with
// singularities at a distance of at least pi (divided by the scale) from the real axis. So, up to rounding,
// its values at some nodes determine it. If there are few distinct margins of background rows, these are the
// nodes. Otherwise, the nodes are Chebyshev nodes of the range of the margins, and their number is chosen so
// that interpolation is more accurate than the numbers that are computed. As a function of x, the vector of
// values at the nodes stays, up to rounding, in a space of few dimensions. With an orthonormal basis of this
// space,
//     s(x, b) = sum over terms k of alpha_k(x) beta_k(b),
//     alpha_k(x) = sum over nodes j of s(x, node_j) factors[j][k].
// Then the sum over all pairs of a row and a background row becomes one sum over the background rows for each
// term.
#pragma once

#include <cstddef>
#include <vector>

#include "background/secants.h"
#include "base/types.h"

namespace skshap {

// The most nodes. If margins are spread so widely that more nodes are necessary, it is faster to go through
// all pairs.
constexpr size_t kMostSlopeNodes = 4096;

struct SeparableSlope {
  size_t n_terms;
  std::vector<double> nodes;               // margins
  std::vector<double> factors;             // [node][term]
  std::vector<double> background_factors;  // [term][background row]: beta
};

// Separate the slope of a link, to the accuracy of a precision, for n background margins and for margins x
// between `low` and `high`. Throw std::invalid_argument if this takes too many nodes.
SeparableSlope separate_slope(Link link, double scale, const double* margins, size_t n, double low,
                              double high, Precision precision);

}  // namespace skshap
