#include "background/rescaled_tables.h"

#include <stdexcept>

#include "tables/table_costs.h"

namespace skshap {
namespace {

// Return the costs for limits at which leaves with paths of as many features as possible have tables.
RescaledTableCosts fitting_costs(const RescaledPlan& rescaled, const std::vector<SeparableSlope>& slopes,
                                 size_t table_bytes) {
  const Plan& plan = rescaled.plan;
  size_t n_terms = 0;
  for (const SeparableSlope& slope : slopes) n_terms += slope.n_terms;
  const size_t pattern_bytes = sizeof(uint64_t) + n_terms * element_bytes(plan);
  for (TableLimits limits{kLeafBits};; --limits.leaf_bits) {
    const size_t term_bytes = tables_bytes(plan, limits),
                 n_patterns = most_patterns(plan, limits, rescaled.weights.size()),
                 bytes = term_bytes * n_terms + pattern_bytes * n_patterns;
    if (bytes <= table_bytes || !limits.leaf_bits) return {term_bytes, n_patterns, bytes};
  }
}

// Separate the slopes of all outputs into sums of products.
std::vector<SeparableSlope> separate_slopes(const RescaledPlan& rescaled) {
  const Plan& plan = rescaled.plan;
  const size_t n = rescaled.weights.size();
  std::vector<SeparableSlope> slopes;
  for (int32_t o = 0; o < plan.n_outputs; ++o)
    slopes.push_back(separate_slope(rescaled.link, rescaled.scale, rescaled.margins.data() + o * n, n,
                                    plan.constant[o] - plan.leaf_magnitude[o],
                                    plan.constant[o] + plan.leaf_magnitude[o], plan.precision));
  return slopes;
}

}  // namespace

std::optional<RescaledTableCosts> rescaled_table_costs(const RescaledPlan& rescaled, size_t table_bytes) {
  try {
    const RescaledTableCosts costs = fitting_costs(rescaled, separate_slopes(rescaled), table_bytes);
    return costs.bytes <= table_bytes ? std::optional(costs) : std::nullopt;
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

RescaledTables make_rescaled_tables(const RescaledPlan& rescaled, const EnsembleView& ensemble,
                                    const Rows& rows, size_t table_bytes, int64_t n_threads) {
  const size_t n = rescaled.weights.size();
  if (static_cast<size_t>(rows.n_rows) != n || ensemble.n_outputs != rescaled.plan.n_outputs)
    throw std::invalid_argument("the background rows are not those of the plan");
  if (!is_for_gpus(rescaled.link))
    throw std::invalid_argument("values of this link are computed on the CPU only");
  RescaledTables out{};
  out.link = rescaled.link;
  out.scale = rescaled.scale;
  out.slopes = separate_slopes(rescaled);
  const RescaledTableCosts costs = fitting_costs(rescaled, out.slopes, table_bytes);
  require_room(costs.bytes, table_bytes);
  std::vector<double> weights(n);
  for (SeparableSlope& slope : out.slopes) {
    out.floats.emplace_back();
    out.doubles.emplace_back();
    out.weights.emplace_back();
    for (size_t k = 0; k < slope.n_terms; ++k) {
      for (size_t b = 0; b < n; ++b) weights[b] = rescaled.weights[b] * slope.background_factors[k * n + b];
      Plan term = make_background_plan(ensemble, rescaled.plan.precision, rows, weights.data(),
                                       Index::kShapley, costs.term_bytes, n_threads);
      out.floats.back().push_back(std::move(term.tables.floats));
      out.doubles.back().push_back(std::move(term.tables.doubles));
      out.weights.back().push_back(std::move(term.tables.weights));
      out.plan = std::move(term);
    }
    slope.background_factors.clear();
  }
  return out;
}

}  // namespace skshap
