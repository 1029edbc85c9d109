// SHAP values of a function of the margin against background data, by the rescale rule.
//
// For a row x and a background row b, the SHAP values of the margin f are multiplied by the slope of the
// secant
//     s(x, b) = (link(f(x)) - link(f(b))) / (f(x) - f(b)),
// or by the derivative of the link if both margins are equal. The products are averaged over the background
// rows. The base value is the mean of link(f(b)), and the base value plus the values of a row is link(f(x)).
// shap computes these values with model_output="probability" and "log_loss" (Lundberg et al., 2020). See
// docs/outputs.md.
#pragma once

#include <functional>
#include <vector>

#include "background/secants.h"
#include "plan/plan.h"
#include "rows/coding.h"

namespace skshap {

struct RescaledPlan {
  Plan plan;
  Link link;
  double scale;
  CodeTile background;
  std::vector<double> weights;
  std::vector<double> margins;  // [output][background row]

  size_t bytes() const { return plan.bytes() + 8 * (weights.size() + margins.size()) + background.bytes(); }
};

// Compile a plan against the background rows `rows`, whose weights add up to 1. Throw std::invalid_argument
// as make_plan does, and also if a path has more than 64 different features.
RescaledPlan make_rescaled_plan(const EnsembleView& ensemble, Precision precision, const Rows& rows,
                                const double* weights, Link link, double scale);

// Explain rows like explain() of plan/plan.h. `labels` has one label for each row; it is null for a link
// without labels. `slopes`, unless it is null, has the slopes s(x, b) instead of the link: [row][output]
// [background row]. The margins of the result are the margins of the model, before the link.
bool explain_rescaled(const RescaledPlan& plan, const Rows& rows, const double* labels, const double* slopes,
                      const Result& result, int n_threads, const std::function<bool()>& interrupted);

// Return the bytes that one thread of explain_rescaled() allocates.
size_t scratch_bytes(const RescaledPlan& plan);

}  // namespace skshap
