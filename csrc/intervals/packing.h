// Packs units into tables. Units that distinguish the same codes share a table, and other units share a table
// as long as it stays small.
#pragma once

#include <vector>

#include "intervals/units.h"

namespace skshap {

// The most features of a model on the CPU. Models with more features would need many windows. In
// measurements, laying out their tables took longer than the tables saved, except in calls of as many rows as
// are worthwhile on a GPU, where a model may have kMostGpuFeatures.
constexpr size_t kMostFeatures = 32;

// Positions in Plan::features, as bits.
using FeatureSet = uint64_t;

size_t size(FeatureSet features);

// Units that share a table.
struct PackedTable {
  std::vector<size_t> units;  // in Units::units
  std::vector<Digit> digits;  // ascending by column
  FeatureSet features;
  int32_t output;  // of its trees, or -1 if each leaf holds all outputs
  uint32_t n_entries;
  uint64_t thresholds;  // a bit for each, by its hash
};

// Pack units into tables. A table has at most most_entries entries. It has at most most_features features
// unless it has only one unit.
std::vector<PackedTable> pack_units(const Plan& plan, Units& units, uint32_t most_entries,
                                    size_t most_features);

// Tables that add to the same sums.
struct PackedWindow {
  std::vector<size_t> tables;  // in the list of tables
  FeatureSet features;
  int32_t output;
};

// Divide tables into windows. A window has at most most_features features, unless one table has more.
std::vector<PackedWindow> group_tables(const std::vector<PackedTable>& tables, size_t most_features);

}  // namespace skshap
