#include "background/rescaled_tables.h"

#include <stdexcept>

#include "tables/table_costs.h"

namespace skshap {
namespace {

// Return the bytes of the tables of each term, of all outputs.
size_t bytes_for_term(const std::vector<SeparableSlope>& slopes, size_t table_bytes) {
  size_t n_terms = 0;
  for (const SeparableSlope& slope : slopes) n_terms += slope.n_terms;
  return table_bytes / n_terms;
}

bool fits(const Plan& plan, size_t bytes) {
  return longest_path(plan) <= kLeafBits && tables_bytes(plan, {kLeafBits}) <= bytes;
}

}  // namespace

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

bool has_rescaled_tables(const RescaledPlan& rescaled, size_t table_bytes) {
  if (longest_path(rescaled.plan) > kLeafBits) return false;
  try {
    return fits(rescaled.plan, bytes_for_term(separate_slopes(rescaled), table_bytes));
  } catch (const std::invalid_argument&) {
    return false;
  }
}

RescaledTables make_rescaled_tables(const RescaledPlan& rescaled, const EnsembleView& ensemble,
                                    const Rows& rows, size_t table_bytes, int64_t n_threads) {
  const size_t n = rescaled.weights.size();
  if (static_cast<size_t>(rows.n_rows) != n || ensemble.n_outputs != rescaled.plan.n_outputs)
    throw std::invalid_argument("the background rows are not those of the plan");
  if (!is_for_gpus(rescaled.link))
    throw std::invalid_argument("values of this link are computed on the CPU only");
  RescaledTables out{{}, rescaled.link, rescaled.scale, separate_slopes(rescaled), {}, {}};
  const size_t bytes = bytes_for_term(out.slopes, table_bytes);
  if (!fits(rescaled.plan, bytes))
    throw std::invalid_argument("paths that are too long for tables are explained on the CPU only");
  std::vector<double> weights(n);
  for (SeparableSlope& slope : out.slopes) {
    out.floats.emplace_back();
    out.doubles.emplace_back();
    for (size_t k = 0; k < slope.n_terms; ++k) {
      for (size_t b = 0; b < n; ++b) weights[b] = rescaled.weights[b] * slope.of_background[k * n + b];
      Plan term =
          make_background_plan(ensemble, rescaled.plan.precision, rows, weights.data(), bytes, n_threads);
      out.floats.back().push_back(std::move(term.tables.floats));
      out.doubles.back().push_back(std::move(term.tables.doubles));
      out.plan = std::move(term);
    }
    slope.of_background.clear();
  }
  return out;
}

}  // namespace skshap
