// The index of a row in a table by intervals; see plan/interval_tables.h.
#pragma once

#include <cstdint>

namespace skshap {

// A step adds `number` to the index of each row whose code is beyond `operand`, modulo 2^16.
struct IndexStep {
  uint16_t operand, number;
};

// The part of an index that a column determines: its steps in IntervalTables::steps. A categorical column has
// one step for each code, in the order of the codes, and one for missing values. These steps have no operand.
struct IndexColumn {
  uint32_t column;  // in Plan::columns
  uint32_t steps, n_steps;
  bool categorical;
};

}  // namespace skshap
