// Rescaled values by tables. With the slope as a sum of products (separable_slope.h), the values of x are
//     sum over terms k of alpha_k(x) phi_k(x),
// where phi_k are the SHAP values of the margin against background rows with the weights w_b beta_k(b). These
// SHAP values have tables, like any values against background data. So there is no pass over all background
// rows for each x; instead, there are as many lookups as there are terms, mostly about 10. Leaves on paths
// that are too long for tables have the patterns of the background data, which have a weight for each term.
#pragma once

#include <optional>
#include <vector>

#include "background/rescaled.h"
#include "background/separable_slope.h"

namespace skshap {

struct RescaledTables {
  Plan plan;  // with the layout of the tables, which all terms share
  Link link;
  double scale;
  std::vector<SeparableSlope> slopes;  // by output, without background_factors
  // [output][term]: the contents of the tables. Only the array of the plan's precision is filled.
  std::vector<std::vector<Contents<float>>> floats;
  std::vector<std::vector<Contents<double>>> doubles;
  std::vector<std::vector<Contents<double>>> weights;  // of the patterns, as in Tables::weights
};

// The cost of the tables and patterns of all terms: the bytes of the tables of each term, the largest
// possible number of patterns at all leaves, and the bytes of all.
struct RescaledTableCosts {
  size_t term_bytes, n_patterns, bytes;
};

// Return the costs, or nothing if even the patterns alone need more than table_bytes, or if the margins are
// spread too widely.
std::optional<RescaledTableCosts> rescaled_table_costs(const RescaledPlan& plan, size_t table_bytes);

// Fill the tables of all terms, for as many leaves as fit into table_bytes together with the patterns of all
// other leaves. `ensemble` and `rows` must be the ones of which the plan was made. Throw
// std::invalid_argument if the margins are spread too widely, and TableMemoryError if nothing fits.
RescaledTables make_rescaled_tables(const RescaledPlan& plan, const EnsembleView& ensemble, const Rows& rows,
                                    size_t table_bytes, int64_t n_threads);

}  // namespace skshap
