// The index of a row in a table by intervals; see plan/interval_tables.h.
#pragma once

#include <cstdint>

namespace skshap {

// Rows whose code is beyond `operand` add `number` to their index, modulo 2^16.
struct IndexStep {
  uint16_t operand, number;
};

// The part of an index that a column determines: its steps in IntervalTables::steps. A categorical column has
// one for each code, in their order, and one for missing values, all without an operand.
struct IndexColumn {
  uint32_t column;  // in Plan::columns
  uint32_t steps, n_steps;
  bool categorical;
};

}  // namespace skshap
