// The cost of tables that are not laid out yet, and checks of whether all trees can have tables.
#pragma once

#include "plan/plan.h"
#include "tables/tree_groups.h"

namespace skshap {

// Return the bytes of all tables that the limits allow.
size_t tables_bytes(const Plan& plan, const TableLimits& limits);
// Return an upper bound of the number of distinct patterns of n_background rows: on a path of n_features
// features, or at all leaves of a plan that have no table within the limits.
size_t most_patterns(uint32_t n_features, size_t n_background);
size_t most_patterns(const Plan& plan, const TableLimits& limits, size_t n_background);
// Bytes of a pattern and its weight.
constexpr size_t kPatternBytes = 16;
// Return the largest number of features on a path.
uint32_t longest_path(const Plan& plan);

// Throw std::invalid_argument if a path has too many features for patterns.
void require_short_path(uint32_t n_features);
// Throw TableMemoryError if the tables that all trees must have need more bytes than is allowed.
void require_room(size_t needed, size_t table_bytes);

}  // namespace skshap
