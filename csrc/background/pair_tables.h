// Tables of interactions of pairs against background data. They are for GPUs, which cannot make tables for a
// tile of rows in time, as background_pairs.h does.
//
// The tables have all indices of small groups of leaves, so that the tables of a typical model stay in a
// GPU's cache. An entry has the numbers of group_targets.h. Leaves on paths that are too long for tables have
// the patterns of the background data. See docs/mathematics.md.
#pragma once

#include <optional>

#include "background/background_pairs.h"

namespace skshap {

// The cost of the tables of a model: the number of tables, the number of numbers that a row adds up, the most
// comparisons of a row with a pattern, and the bytes of the tables.
struct PairTableCosts {
  size_t n_lookups = 0, n_numbers = 0, n_tests = 0, bytes = 0;
};

// Return the costs, or nothing if tables and patterns need more than table_bytes or if the model has too many
// pairs.
std::optional<PairTableCosts> pair_table_costs(const BackgroundPairsPlan& plan, size_t table_bytes);

// Return a plan with tables for as many leaves, and the patterns of all other leaves, as fit into
// table_bytes. Throw TableMemoryError if the patterns alone need more bytes, and std::invalid_argument if
// there are too many pairs.
Plan make_pair_tables(const BackgroundPairsPlan& plan, size_t table_bytes, int64_t n_threads);

}  // namespace skshap
