// The slope of a link's secant as a short sum of products of a function of x and one of b.
//
// For a row with margin x and a background row with margin b, s(x, b) is an analytic function of b with
// singularities at a distance of at least pi (divided by the scale) from the real axis. It is therefore
// determined, up to rounding, by its values at some nodes: the distinct margins of the background rows, if
// there are few, or otherwise Chebyshev nodes of their range, whose number is chosen so that interpolation is
// more accurate than the numbers that are computed. As a function of x, the vector of values at the nodes
// stays, up to rounding, in a space of few dimensions: with an orthonormal basis of it,
//     s(x, b) = sum over terms k of alpha_k(x) beta_k(b),
//     alpha_k(x) = sum over nodes j of s(x, node_j) factors[j][k].
// All pairs of a row and a background row are then summed by so many sums over the background rows.
#pragma once

#include <cstddef>
#include <vector>

#include "background/secants.h"
#include "base/types.h"

namespace skshap {

// The most nodes; with margins that are spread so widely that more are necessary, it is better to go through
// all pairs.
constexpr size_t kMostSlopeNodes = 4096;

struct SeparableSlope {
  size_t n_terms;
  std::vector<double> nodes;          // margins
  std::vector<double> factors;        // [node][term]
  std::vector<double> of_background;  // [term][background row]: beta
};

// Separate the slope of a link for n background margins and for margins x between `low` and `high`, to the
// accuracy of a precision. Throw std::invalid_argument if that takes too many nodes.
SeparableSlope separate_slope(Link link, double scale, const double* margins, size_t n, double low,
                              double high, Precision precision);

}  // namespace skshap
