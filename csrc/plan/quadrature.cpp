#include "plan/quadrature.h"

#include <algorithm>
#include <cmath>

namespace skshap {
namespace {

constexpr long double kPi = 3.14159265358979323846264338327950288L;

// The values of the Legendre polynomials P_(n-1) and P_n at a point.
struct Legendre {
  long double before, last;
};

Legendre legendre(int n, long double x) {
  Legendre p{1, x};
  for (int j = 2; j <= n; ++j) p = {p.last, ((2 * j - 1) * x * p.last - (j - 1) * p.before) / j};
  return p;
}

// Compute nodes and weights on [0, 1] that are exact for polynomials of degree 2 n - 1.
void gauss_legendre(int n, std::vector<double>& nodes, std::vector<double>& weights) {
  nodes.assign(n, 0.0);
  weights.assign(n, 0.0);
  for (int i = 0; i < n; ++i) {
    // Newton's method on the Legendre polynomial, started at Tricomi's approximation of its root.
    long double x = std::cos(kPi * (i + 0.75L) / (n + 0.5L)), derivative = 0;
    for (int step = 0; step < 100; ++step) {
      const Legendre p = legendre(n, x);
      derivative = n * (x * p.last - p.before) / (x * x - 1);
      const long double change = p.last / derivative;
      x -= change;
      if (std::fabs(change) < 1e-18L) break;
    }
    nodes[n - 1 - i] = static_cast<double>((1 + x) / 2);
    weights[n - 1 - i] = static_cast<double>(1 / ((1 - x * x) * derivative * derivative));
  }
}

// Compute nodes and weights on [0, 1]. Together with the end point 0, they are exact for polynomials of
// degree 2 n. Return the weight of the end point. The nodes are the roots of P_n + P_(n+1) other than -1,
// moved to [0, 1].
double gauss_radau(int n, std::vector<double>& nodes, std::vector<double>& weights) {
  nodes.assign(n, 0.0);
  weights.assign(n, 0.0);
  for (int i = 0; i < n; ++i) {
    long double x = -std::cos(2 * kPi * (i + 1) / (2 * n + 1));
    Legendre p{};
    for (int step = 0; step < 100; ++step) {
      p = legendre(n + 1, x);
      // (1 - x) (P_n + P_(n+1))' = (n + 1) (P_n - P_(n+1)).
      const long double change = (1 - x) / (n + 1) * (p.before + p.last) / (p.before - p.last);
      x -= change;
      if (std::fabs(change) < 1e-18L) break;
    }
    nodes[i] = static_cast<double>((1 + x) / 2);
    weights[i] = static_cast<double>((1 - x) / (2 * (n + 1) * (n + 1) * p.before * p.before));
  }
  return 1.0 / ((n + 1) * (n + 1));
}

}  // namespace

// The derivative by one feature has degree n_features - 1 in t. The derivative by a pair has one degree less,
// but the weight of a Shapley-Taylor pair adds one.
int quadrature_nodes(Index index, int n_features) {
  return index == Index::kBanzhaf ? 1 : (n_features + 1) / 2;
}

void quadrature(Index index, int n_nodes, std::vector<double>& t, std::vector<double>& weights) {
  if (index != Index::kBanzhaf) return gauss_legendre(n_nodes, t, weights);
  t.assign(n_nodes, 0.5);
  weights.assign(n_nodes, 1.0 / n_nodes);
}

void product_quadrature(int n_outer, int n_inner, std::vector<double>& t, std::vector<double>& s,
                        std::vector<double>& weights) {
  std::vector<double> outer, inner, outer_weights, inner_weights;
  gauss_legendre(n_outer, outer, outer_weights);
  gauss_legendre(n_inner, inner, inner_weights);
  t.clear();
  s.clear();
  weights.clear();
  for (int i = 0; i < n_outer; ++i)
    for (int j = 0; j < n_inner; ++j) {
      t.push_back(outer[i]);
      s.push_back(inner[j]);
      weights.push_back(outer_weights[i] * inner_weights[j]);
    }
}

int radau_nodes(Index index, int n_features) {
  return index == Index::kBanzhaf ? 1 : std::max(1, n_features / 2);
}

double radau_quadrature(Index index, int n_nodes, std::vector<double>& t, std::vector<double>& weights) {
  if (index != Index::kBanzhaf) return gauss_radau(n_nodes, t, weights);
  quadrature(index, n_nodes, t, weights);
  return 0;
}

}  // namespace skshap
