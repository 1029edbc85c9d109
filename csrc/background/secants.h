// Slopes of the secants of links, without the cancellation of their definition; for the CPU and for GPUs.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define SKSHAP_ANY_DEVICE __host__ __device__
#else
#define SKSHAP_ANY_DEVICE
#endif

namespace skshap {

// Functions of the margin m and, for the last two, of a label y: 1 / (1 + exp(-m)), log(1 + exp(m)) - y m
// with y of 0 or 1, (m - y)^2. In the first two, m is `scale` times the margin.
enum class Link { kLogistic, kLogLoss, kSquaredError };

SKSHAP_ANY_DEVICE inline double expit(double m) { return m < 0 ? exp(m) / (1 + exp(m)) : 1 / (1 + exp(-m)); }

// Return the slope of expit: expit(high) - expit(low) = expit(high) expit(-low) (1 - exp(low - high)).
SKSHAP_ANY_DEVICE inline double logistic_slope(double a, double b) {
  const double low = fmin(a, b), high = fmax(a, b), d = high - low;
  const double product = expit(high) * expit(-low);
  return d > 0 ? product * (-expm1(-d) / d) : product;
}

// Return the slope of log(1 + exp(m)), whose difference is log(1 + expit(low) (exp(high - low) - 1)).
SKSHAP_ANY_DEVICE inline double softplus_slope(double a, double b) {
  const double low = fmin(a, b), high = fmax(a, b), d = high - low;
  if (d == 0) return expit(low);
  if (d < 1) return log1p(expit(low) * expm1(d)) / d;
  // log(1 + exp(m)) is max(m, 0) plus this bend.
  const double bends = log1p(exp(-fabs(high))) - log1p(exp(-fabs(low)));
  return (fmax(high, 0.0) - fmax(low, 0.0) + bends) / d;
}

// Return the slope of a link between the margins x and b, or its derivative if both are equal.
SKSHAP_ANY_DEVICE inline double secant_slope(Link link, double scale, double x, double b, double label) {
  switch (link) {
    case Link::kLogistic: return scale * logistic_slope(scale * x, scale * b);
    case Link::kLogLoss:
      return label > 0 ? -scale * softplus_slope(-scale * x, -scale * b)
                       : scale * softplus_slope(scale * x, scale * b);
    default: return (x - label) + (b - label);
  }
}

}  // namespace skshap
