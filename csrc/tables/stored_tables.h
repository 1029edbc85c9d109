// The contents of a plan's tables without their layout. A file stores the contents, so that the tables of the
// same ensemble need not be filled again. The layout is computed again from the ensemble and the other
// numbers that determine it.
#pragma once

#include "plan/plan.h"

namespace skshap {

struct StoredTables {
  uint64_t layout = 0;  // layout_digest() of the plan for which the tables were filled
  size_t level_limit = 0;
  uint32_t leaf_bits = 0;
  Contents<float> floats;  // only the array of the plan's precision is filled
  Contents<double> doubles;
  // Against background data only. `counts` has the number of patterns of each leaf without a table.
  Contents<uint64_t> patterns, counts;
  Contents<double> weights, base_value;
};

// Return a digest that differs between plans whose tables have different places or indices.
uint64_t layout_digest(const Plan& plan);

// Return the number of patterns of each leaf without a table.
std::vector<uint64_t> pattern_counts(const Plan& plan);

// Put stored contents into a plan whose tables are laid out. Throw std::invalid_argument unless the contents
// were stored for a plan with this layout and have the right sizes. The numbers in the tables may have any
// value. Nothing else is read.
void take_tables(Plan& plan, const StoredTables& stored);

}  // namespace skshap
