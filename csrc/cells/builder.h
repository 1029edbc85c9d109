// Cuts the trees of a plan into units whose cells are walked.
#pragma once

#include "plan/plan.h"

namespace skshap {

// Return whether a plan can explain rows by cells that occur. It can for path-dependent SHAP values or
// Banzhaf values if all trees are walked, codes have 16 bits, and no column has too many categories.
bool can_have_cells(const Plan& plan);

// About the fractions that remain because some trees are alike, by a sample of the trees: of the units, which
// trees with the same tests share; and of the leaves that are walked, as trees that have the same covers,
// too, are walked as one.
struct UnitFractions {
  double units, walked;
};

UnitFractions unit_fractions(const Plan& plan);

// Compile a plan of the same values that explains rows by cells that occur.
Plan make_cell_plan(const Plan& plan, int64_t n_threads);

}  // namespace skshap
