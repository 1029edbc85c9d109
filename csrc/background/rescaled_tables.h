// Rescaled values by tables: with the slope as a sum of products (separable_slope.h), the values of x are
//     sum over terms k of alpha_k(x) phi_k(x),
// where phi_k are the SHAP values of the margin against background rows with the weights w_b beta_k(b). They
// have tables like any values against background data. This replaces a pass over all background rows for each
// x by as many lookups as there are terms, mostly about 10.
#pragma once

#include <vector>

#include "background/rescaled.h"
#include "background/separable_slope.h"

namespace skshap {

struct RescaledTables {
  Plan plan;  // the layout of the tables, which is that of each term
  Link link;
  double scale;
  std::vector<SeparableSlope> slopes;  // by output, without of_background
  // [output][term]: the contents of the tables; only those of the plan's precision are there.
  std::vector<std::vector<Contents<float>>> floats;
  std::vector<std::vector<Contents<double>>> doubles;
};

// Separate the slopes of all outputs. Throw std::invalid_argument if the margins are spread too widely.
std::vector<SeparableSlope> separate_slopes(const RescaledPlan& plan);

// Return whether all leaves have tables if those of all terms may take table_bytes.
bool has_rescaled_tables(const RescaledPlan& plan, size_t table_bytes);

// Fill the tables of all terms, in at most table_bytes; `ensemble` and `rows` are those of the plan. Throw
// std::invalid_argument if some leaves have none.
RescaledTables make_rescaled_tables(const RescaledPlan& plan, const EnsembleView& ensemble, const Rows& rows,
                                    size_t table_bytes, int64_t n_threads);

}  // namespace skshap
