// Slopes of the secants of links, computed without the cancellation in their definition. The functions are
// for the CPU and for GPUs.
#pragma once

#include <cmath>

#include "base/any_device.h"

namespace skshap {

// Functions of the margin m, two of which also depend on a label y. In this order, they are 1 / (1 +
// exp(-m)), log(1 + exp(m)) - y m with y of 0 or 1, (m - y)^2, exp(m), and the distribution functions
// exp(-exp(-m)) and of a standard normal variable. In all functions except (m - y)^2, m is `scale` times the
// margin. GPUs compute the first three only: code for the others would take registers from them.
enum class Link { kLogistic, kLogLoss, kSquaredError, kExp, kGumbel, kNormal };

inline bool is_for_gpus(Link link) { return link <= Link::kSquaredError; }
inline bool has_labels(Link link) { return link == Link::kLogLoss || link == Link::kSquaredError; }

SKSHAP_ANY_DEVICE inline double expit(double m) { return m < 0 ? exp(m) / (1 + exp(m)) : 1 / (1 + exp(-m)); }

// Return the slope of expit, by expit(high) - expit(low) = expit(high) expit(-low) (1 - exp(low - high)).
SKSHAP_ANY_DEVICE inline double logistic_slope(double a, double b) {
  const double low = fmin(a, b), high = fmax(a, b), d = high - low;
  const double product = expit(high) * expit(-low);
  return d > 0 ? product * (-expm1(-d) / d) : product;
}

// Return the slope of log(1 + exp(m)). The difference of its values is log(1 + expit(low) (exp(high - low) -
// 1)).
SKSHAP_ANY_DEVICE inline double softplus_slope(double a, double b) {
  const double low = fmin(a, b), high = fmax(a, b), d = high - low;
  if (d == 0) return expit(low);
  if (d < 1) return log1p(expit(low) * expm1(d)) / d;
  // log(1 + exp(m)) is max(m, 0) plus this bend.
  const double bends = log1p(exp(-fabs(high))) - log1p(exp(-fabs(low)));
  return (fmax(high, 0.0) - fmax(low, 0.0) + bends) / d;
}

// Return the slope of exp, which is exp(high) (1 - exp(low - high)) / (high - low).
inline double exp_slope(double a, double b) {
  const double high = fmax(a, b), d = high - fmin(a, b);
  return exp(high) * (d > 0 ? -expm1(-d) / d : 1);
}

// Return the slope of g(m) = exp(-exp(-m)), by g(high) - g(low) = g(high) (1 - exp(exp(-high) - exp(-low))).
inline double gumbel_slope(double a, double b) {
  const double low = fmin(a, b), high = fmax(a, b), d = high - low;
  if (d == 0) return exp(-low - exp(-low));
  return exp(-exp(-high)) * -expm1(exp(-low) * expm1(-d)) / d;
}

// Return the slope of the distribution function of a standard normal variable. Between close numbers, the
// slope is the mean of the density, by Gauss-Legendre quadrature with 7 nodes.
inline double normal_slope(double a, double b) {
  constexpr double kNodes[4] = {0, 0.4058451513773972, 0.7415311855993945, 0.9491079123427585};
  constexpr double kWeights[4] = {0.4179591836734694, 0.3818300505051189, 0.2797053914892766,
                                  0.1294849661688697};
  constexpr double kRootHalf = 0.7071067811865476, kDensity = 0.3989422804014327;
  const double low = fmin(a, b), high = fmax(a, b), d = high - low, middle = (low + high) / 2;
  if (d * (1 + fabs(middle)) < 1) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) {
      const double left = middle - kNodes[i] * d / 2, right = middle + kNodes[i] * d / 2;
      sum += kWeights[i] * (exp(-left * left / 2) + (i ? exp(-right * right / 2) : 0));
    }
    return kDensity * sum / 2;
  }
  // Differences of the smaller tails keep their digits.
  const double sign = middle > 0 ? 1 : -1;
  return fabs(erfc(sign * low * kRootHalf) - erfc(sign * high * kRootHalf)) / 2 / d;
}

// Return the slope of a link between the margins x and b, or the derivative of the link if x and b are equal.
SKSHAP_ANY_DEVICE inline double secant_slope(Link link, double scale, double x, double b, double label) {
  switch (link) {
    case Link::kLogistic: return scale * logistic_slope(scale * x, scale * b);
    case Link::kLogLoss:
      return label > 0 ? -scale * softplus_slope(-scale * x, -scale * b)
                       : scale * softplus_slope(scale * x, scale * b);
#ifndef __CUDA_ARCH__
    case Link::kExp: return scale * exp_slope(scale * x, scale * b);
    case Link::kGumbel: return scale * gumbel_slope(scale * x, scale * b);
    case Link::kNormal: return scale * normal_slope(scale * x, scale * b);
#endif
    default: return (x - label) + (b - label);
  }
}

}  // namespace skshap
