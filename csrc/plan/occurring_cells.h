// Cells that occur, for calls of many rows: written by cells/builder.cpp, read by cells/runner.cpp.
//
// Trees are cut into units of a few leaves. The values that a row gets from a unit depend on the intervals of
// the unit's thresholds in which the codes of the row are and, for each feature tested above the unit, on
// whether the row satisfies the tests above. A combination of these is a cell. Tables of all cells would be
// too large, but few cells occur: the rows of a tile are sorted into cells, each cell is walked once, and the
// rows look up the values of their cells. Each unit is a tree of its own, which tests the digits of a cell
// instead of codes. See docs/mathematics.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/index_steps.h"

namespace skshap {

struct Plan;

// The class of a row's code in a column. The digits of a row are its cell.
struct CellDigit {
  uint32_t n_classes;
  uint32_t key;                   // in OccurringCells::keys
  uint32_t columns, columns_end;  // in OccurringCells::unit_columns
};

// A column that the tree of a unit tests. Its code is the class itself, or the code of the class in
// OccurringCells::class_codes.
struct UnitColumn {
  uint32_t codes;
  bool is_class;
};

// Digits in mixed radix, the first digit lowest. A key is a sum of steps, as the index of a table by
// intervals is. Cells of many digits have several keys of at most 2^16 values.
struct CellKey {
  uint32_t columns, n_columns;  // in OccurringCells::columns
  uint16_t first;               // the key before all steps
  uint32_t n_values;
};

struct CellUnit {
  uint32_t tree, chunk;         // in the plan of the units' trees
  uint32_t digits, digits_end;  // in OccurringCells::digits, in the order of the columns of the tree
  uint32_t keys, n_keys;        // in OccurringCells::keys
};

// Consecutive units with the same output, which add to the same sums.
struct CellPart {
  int32_t output;  // -1: each leaf holds all outputs
  size_t units, units_end;
  size_t features, features_end;  // in OccurringCells::features
  size_t row_size;                // the number of sums of a row, padded
};

struct OccurringCells {
  std::shared_ptr<const Plan> trees;  // of the units
  std::vector<CellPart> parts;
  std::vector<CellUnit> units;
  std::vector<CellKey> keys;
  std::vector<IndexColumn> columns;
  std::vector<IndexStep> steps;
  std::vector<CellDigit> digits;
  std::vector<UnitColumn> unit_columns;
  std::vector<uint16_t> class_codes;
  std::vector<int32_t> features;  // positions in Plan::features
  size_t n_trees = 0;

  bool any() const { return !parts.empty(); }
  size_t bytes() const;
};

}  // namespace skshap
