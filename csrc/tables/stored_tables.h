// The contents of a plan's tables without their layout: what a file stores, so that the tables of the same
// ensemble need not be filled again. The layout is recomputed from the ensemble and the other things that
// determine it.
#pragma once

#include "plan/plan.h"

namespace skshap {

struct StoredTables {
  uint64_t layout = 0;  // layout_digest() of the plan that the tables were filled for
  size_t level_limit = 0;
  uint32_t leaf_bits = 0;
  Contents<float> floats;  // only those of the plan's precision are there
  Contents<double> doubles;
  // Against background data only. counts: the number of patterns of each leaf without a table.
  Contents<uint64_t> patterns, counts;
  Contents<double> weights, base_value;
};

// Return a digest that differs between plans whose tables have different places or indices.
uint64_t layout_digest(const Plan& plan);

// Return the number of patterns of each leaf without a table.
std::vector<uint64_t> pattern_counts(const Plan& plan);

// Put stored contents into a plan whose tables are laid out. Throw std::invalid_argument unless they were
// stored for a plan with this layout and have the right sizes: their numbers may be anything, but nothing
// else is read.
void take_tables(Plan& plan, const StoredTables& stored);

}  // namespace skshap
