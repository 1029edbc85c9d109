// What is in the tables of a plan, apart from their layout: what a file keeps, so that the tables of the same
// ensemble need not be filled again. The layout is made anew, from the ensemble and from what it depends on
// beside it.
#pragma once

#include "plan/plan.h"

namespace skshap {

struct StoredTables {
  uint64_t layout = 0;  // layout_digest() of the plan that they were filled for
  size_t level_limit = 0;
  uint32_t leaf_bits = 0;
  Contents<float> floats;  // those of the plan's precision are there
  Contents<double> doubles;
  // Against background data only. counts: patterns of each leaf without a table.
  Contents<uint64_t> patterns, counts;
  Contents<double> weights, base_value;
};

// Differs between plans whose tables lie in other places, or have other indices.
uint64_t layout_digest(const Plan& plan);

// Patterns of each leaf without a table.
std::vector<uint64_t> pattern_counts(const Plan& plan);

// Gives a plan whose tables are laid out what is in them. Throws std::invalid_argument unless it was stored
// of a plan with this layout, and as much of it as there must be: its numbers may be any, but nothing else is
// read.
void take_tables(Plan& plan, const StoredTables& stored);

}  // namespace skshap
