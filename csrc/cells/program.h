// Cells that occur: written by cells/builder.cpp and cells/units.cpp, read by cells/runner.cpp.
//
// Trees are cut into units of a few leaves. The values that a row gets from a unit depend on the intervals of
// the unit's thresholds in which the codes of the row are and, for each feature tested above the unit, on
// whether the row satisfies the tests above. A combination of these is a cell. Tables of all cells would be
// too large, but few cells occur: the rows of a tile are sorted into cells, each cell is walked once, and the
// rows look up the values of their cells. The part of a tree in a unit is a tree of its own. Trees that have
// the same tests share units, whose cells are walked through each of these parts. See docs/mathematics.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cells/margins.h"
#include "plan/cell_tests.h"
#include "plan/plan.h"

namespace skshap {

// A column of a unit. Its steps follow the steps of the columns before; see plan/index_steps.h.
struct CellColumn {
  uint16_t column;  // in Plan::columns
  uint16_t n_steps;
};

// The digits of a row, in mixed radix, the first digit lowest. A digit is the class of the row's code in a
// column, and the digits are the row's cell. A key is a sum of steps, as the index of a table by intervals
// is. Cells of many digits have several keys of at most 2^16 values.
struct CellKey {
  uint16_t n_columns;  // following the columns of the keys before
  uint16_t first;      // the key before all steps
};

// The constants of a node of a unit's chain, on the way down and again on the way up.
constexpr size_t kChainConstants = 3;

struct CellUnit {
  uint32_t keys, columns, steps;  // positions in CellProgram
  uint32_t trees, trees_end;      // in CellProgram::unit_trees
  uint16_t n_keys, n_columns;
};

// The part of a tree in a unit, as a tree of its own.
struct UnitTree {
  uint32_t tests, leaf_values, ops, constants;  // positions in CellProgram
  uint32_t chunk;                               // in the plan of these trees
  // The first n_chain nodes of the tree, which are tested above the unit, are walked by themselves (see
  // cells/chains.h). Their constants for going up are from `chain` on, the last node first.
  uint32_t chain;
  uint16_t n_tests;
  uint16_t n_above;  // the first tests, which are boxes unless they are categorical
  uint16_t n_chain;
};

// Units with the same output, which follow each other and add to the same sums.
struct CellPart {
  int32_t output;  // -1: each leaf holds all outputs
  size_t units, units_end;
  size_t features, features_end;  // in CellProgram::features
  size_t row_size;                // the number of sums of a row, padded
};

struct CellProgram {
  // The plan of the trees of units. It has chunks and the programs of walks only.
  Plan trees;
  std::vector<CellPart> parts;
  std::vector<CellUnit> units;
  std::vector<UnitTree> unit_trees;  // by unit, in the order in which the units were cut
  std::vector<CellKey> keys;
  std::vector<CellColumn> columns;
  std::vector<IndexStep> steps;
  std::vector<CellTest> tests;  // by tree and inner node
  std::vector<uint8_t> flags;   // of the tests
  MarginTrees margin_trees;     // if there are any, cells have no margins
  // By tree: the value of the leaf of rows that fail a test above, then the other leaves; [leaf][output].
  std::vector<double> leaf_values;
  std::vector<int32_t> features;  // positions in Plan::features

  size_t bytes() const;
};

}  // namespace skshap
