#include "background/separable_slope.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "plan/coded_trees.h"

namespace skshap {
namespace {

constexpr double kPi = 3.14159265358979323846;
// The largest error of interpolation, and the largest part of s(x, b) that the terms leave out, both relative
// to the largest slope. They are smaller than the rounding errors of the numbers computed with them.
constexpr double kSingleError = 0x1p-30, kDoubleError = 0x1p-45;
// The margins x at which the space of all functions s(x, .) is sampled. There are kSamples for each unit of
// the scaled margin, up to a distance of kCurved from the background margins. Farther away, links are
// straight lines, and the distances of the samples grow by kRatio.
constexpr double kSamples = 4, kCurved = 40, kRatio = 1.15;
constexpr size_t kMostSamples = 4096, kMostTerms = 128;

[[noreturn]] void throw_spread(size_t n, const char* what) {
  throw std::invalid_argument("the margins of the background rows are spread too widely: the slope takes " +
                              std::to_string(n) + " " + what);
}

double error_of(Precision precision) { return precision == Precision::kSingle ? kSingleError : kDoubleError; }

// Return how many Chebyshev nodes interpolate the slope in an interval of this half-width (scaled). The error
// falls like rho^-n. Of the ellipses with foci at the ends of the interval, take the one that reaches the
// nearest singularity: its semi-axes add up to rho times the half-width.
size_t n_chebyshev(Link link, double half_width, Precision precision) {
  if (link == Link::kSquaredError) return 2;  // it is a straight line
  const double ratio = kPi / half_width, rho = ratio + std::sqrt(1 + ratio * ratio);
  const double n = std::ceil(std::log(16 / error_of(precision)) / std::log(rho)) + 4;
  return n < 1e9 ? static_cast<size_t>(n) : size_t{1} << 30;
}

// Return the values of s(x, .) at the nodes, for samples of x and of the label.
std::vector<double> sample(Link link, double scale, const std::vector<double>& nodes, double low,
                           double high) {
  const auto [first, last] = std::minmax_element(nodes.begin(), nodes.end());
  low = std::min(low, *first), high = std::max(high, *last);
  const double begin = std::max(low, *first - kCurved / scale), end = std::min(high, *last + kCurved / scale);
  const size_t n = std::min(kMostSamples, static_cast<size_t>((end - begin) * scale * kSamples) + 16);
  std::vector<double> margins;
  for (size_t i = 0; i <= n; ++i) margins.push_back(begin + (end - begin) * (static_cast<double>(i) / n));
  for (double d = kCurved / scale; begin - d > low; d *= kRatio) margins.push_back(begin - d);
  for (double d = kCurved / scale; end + d < high; d *= kRatio) margins.push_back(end + d);
  margins.push_back(low);
  margins.push_back(high);
  std::vector<double> out;
  for (const double label : {0.0, 1.0}) {
    if (label > 0 && link != Link::kLogLoss) break;
    for (const double x : margins)
      for (const double node : nodes) out.push_back(secant_slope(link, scale, x, node, label));
  }
  return out;
}

double dot(const double* a, const double* b, size_t n) { return std::inner_product(a, a + n, b, 0.0); }

void subtract(double factor, const double* from, size_t n, double* to) {
  for (size_t i = 0; i < n; ++i) to[i] -= factor * from[i];
}

// Return an orthonormal basis of the samples, [term][node]. It consists of orthogonalized samples: each is
// the sample farthest from the space of the samples before it, until all samples are nearer than `error`
// times the largest number. If the rounding error of the scalar products is larger than `error`, it takes the
// place of `error`. The basis has at least one term.
std::vector<double> basis_of(std::vector<double> samples, size_t n_nodes, double error) {
  const size_t n = samples.size() / n_nodes;
  double largest = 0;
  error = std::max(error, 0x1p-53 * static_cast<double>(n_nodes));
  for (const double x : samples) largest = std::max(largest, std::fabs(x));
  // The squares of the samples of a saturated link would underflow. Multiplying by a power of two changes no
  // other bits.
  if (largest > 0) {
    const int exponent = std::ilogb(largest);
    for (double& x : samples) x = std::ldexp(x, -exponent);
    largest = std::ldexp(largest, -exponent);
  }
  std::vector<double> basis;
  while (basis.size() < n_nodes * n_nodes) {
    size_t best = 0;
    double norm = 0, remainder = 0;
    for (size_t i = 0; i < n; ++i) {
      const double* const row = samples.data() + i * n_nodes;
      const double square = dot(row, row, n_nodes);
      if (square > norm) best = i, norm = square;
      for (size_t j = 0; j < n_nodes; ++j) remainder = std::max(remainder, std::fabs(row[j]));
    }
    if (!(remainder > error * largest)) break;
    if (basis.size() == kMostTerms * n_nodes) throw_spread(kMostTerms, "terms or more");
    std::vector<double> next(samples.begin() + best * n_nodes, samples.begin() + (best + 1) * n_nodes);
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t k = 0; k < basis.size(); k += n_nodes)
        subtract(dot(next.data(), basis.data() + k, n_nodes), basis.data() + k, n_nodes, next.data());
      const double length = std::sqrt(dot(next.data(), next.data(), n_nodes));
      for (double& x : next) x /= length;
    }
    for (size_t i = 0; i < n; ++i) {
      double* const row = samples.data() + i * n_nodes;
      subtract(dot(row, next.data(), n_nodes), next.data(), n_nodes, row);
    }
    basis.insert(basis.end(), next.begin(), next.end());
  }
  // A saturated link has only samples of 0. One term remains.
  if (basis.empty()) basis.assign(n_nodes, 1 / std::sqrt(static_cast<double>(n_nodes)));
  return basis;
}

std::vector<double> chebyshev_nodes(double low, double high, size_t n) {
  std::vector<double> nodes;
  for (size_t j = 0; j < n; ++j)
    nodes.push_back((low + high) / 2 + (high - low) / 2 * std::cos(kPi * (2.0 * j + 1) / (2.0 * n)));
  return nodes;
}

// Write the Lagrange polynomials of Chebyshev nodes at x, by the barycentric formula.
void lagrange(const std::vector<double>& nodes, double x, std::vector<double>& out) {
  const size_t n = nodes.size();
  double sum = 0;
  for (size_t j = 0; j < n; ++j) {
    if (x == nodes[j]) {
      out.assign(n, 0.0);
      out[j] = 1;
      return;
    }
    out[j] = (j & 1 ? -1 : 1) * std::sin(kPi * (2.0 * j + 1) / (2.0 * n)) / (x - nodes[j]);
    sum += out[j];
  }
  for (double& y : out) y /= sum;
}

}  // namespace

SeparableSlope separate_slope(Link link, double scale, const double* margins, size_t n, double low,
                              double high, Precision precision) {
  std::vector<double> distinct(margins, margins + n);
  sort_unique(distinct);
  const double half_width = scale * (distinct.back() - distinct.front()) / 2;
  const size_t n_interpolated = half_width > 0 ? n_chebyshev(link, half_width, precision) : 1;
  const bool interpolates = n_interpolated < distinct.size();
  SeparableSlope out;
  out.nodes = interpolates ? chebyshev_nodes(distinct.front(), distinct.back(), n_interpolated) : distinct;
  const size_t n_nodes = out.nodes.size();
  if (n_nodes > kMostSlopeNodes) throw_spread(n_nodes, "nodes");
  std::vector<double> basis;
  if (n_nodes <= 4) {
    basis.assign(n_nodes * n_nodes, 0.0);
    for (size_t j = 0; j < n_nodes; ++j) basis[j * (n_nodes + 1)] = 1;
  } else {
    basis = basis_of(sample(link, scale, out.nodes, low, high), n_nodes, error_of(precision));
  }
  out.n_terms = basis.size() / n_nodes;
  out.factors.resize(basis.size());
  for (size_t k = 0; k < out.n_terms; ++k)
    for (size_t j = 0; j < n_nodes; ++j) out.factors[j * out.n_terms + k] = basis[k * n_nodes + j];
  out.background_factors.resize(out.n_terms * n);
  std::vector<double> at(n_nodes);
  for (size_t b = 0; b < n; ++b) {
    if (interpolates) {
      lagrange(out.nodes, margins[b], at);
      for (size_t k = 0; k < out.n_terms; ++k)
        out.background_factors[k * n + b] = dot(at.data(), basis.data() + k * n_nodes, n_nodes);
    } else {
      const size_t j = std::lower_bound(distinct.begin(), distinct.end(), margins[b]) - distinct.begin();
      for (size_t k = 0; k < out.n_terms; ++k) out.background_factors[k * n + b] = basis[k * n_nodes + j];
    }
  }
  return out;
}

}  // namespace skshap
