// Tables of Banzhaf values, or of interactions of pairs, against background data: for GPUs, which have no
// time to make them for a tile of rows, as background_pairs.h does.
//
// They have all indices of small groups of leaves, so that those of a typical model stay in a GPU's cache. An
// entry has the numbers of group_targets.h. See docs/mathematics.md.
#pragma once

#include <optional>

#include "background/background_pairs.h"

namespace skshap {

// The cost of the tables of a model: how many there are, how many numbers a row adds up, and their bytes.
struct PairTableCosts {
  size_t n_lookups = 0, n_numbers = 0, bytes = 0;
};

// Return the costs, or nothing if a path has too many features for a table, or the model has too many pairs.
std::optional<PairTableCosts> pair_table_costs(const BackgroundPairsPlan& plan);

// Return a plan whose trees all have tables, of at most table_bytes. Throw std::invalid_argument if a path is
// too long for them, and TableMemoryError if they need more bytes.
Plan make_pair_tables(const BackgroundPairsPlan& plan, size_t table_bytes, int64_t n_threads);

}  // namespace skshap
