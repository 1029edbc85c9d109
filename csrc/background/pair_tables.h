// Tables of Banzhaf values, or of interactions of pairs, against background data: for GPUs, which have no
// time to make them for a tile of rows, as background_pairs.h does.
//
// They have all indices of small groups of leaves, so that those of a typical model stay in a GPU's cache. An
// entry has the numbers of group_targets.h. Leaves on paths that are too long for tables have the patterns of
// the background data. See docs/mathematics.md.
#pragma once

#include <optional>

#include "background/background_pairs.h"

namespace skshap {

// The cost of the tables of a model: how many there are, how many numbers a row adds up, how often, at most,
// it is compared with a pattern, and the bytes of the tables.
struct PairTableCosts {
  size_t n_lookups = 0, n_numbers = 0, n_tests = 0, bytes = 0;
};

// Return the costs, or nothing if tables and patterns need more than table_bytes, or the model has too many
// pairs.
std::optional<PairTableCosts> pair_table_costs(const BackgroundPairsPlan& plan, size_t table_bytes);

// Return a plan of whose leaves as many have tables as fit, with the patterns of all others, into
// table_bytes. Throw TableMemoryError if even the patterns alone need more bytes, and std::invalid_argument
// if there are too many pairs.
Plan make_pair_tables(const BackgroundPairsPlan& plan, size_t table_bytes, int64_t n_threads);

}  // namespace skshap
