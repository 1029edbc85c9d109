// The kernels for cells that occur, and their arguments; see cells/program.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/cell_tests.h"
#include "plan/index_steps.h"

namespace skshap {

// The number of cells of a unit that can be numbered, and the entry of a map without a cell; see
// CellNumberArgs.
constexpr uint32_t kCellNumbers = 1 << 14, kNoCell = 0xffffffff;

// The arguments for numbering the cells of rows. Rows with the same keys are in the same cell. Cells are
// numbered in the order of their first rows. The arrays by row have memory for whole blocks.
struct CellNumberArgs {
  const uint16_t* keys;
  const uint16_t* second;     // keys, or null
  size_t n_rows;              // at most kCellNumbers
  uint16_t first;             // the number of the first cell
  uint32_t* map;              // 2^16 entries without cells, before and after the call
  uint16_t* places;           // scratch, by row
  uint16_t* numbers;          // by row
  uint16_t* representatives;  // by cell: its first row; one more element is written
};

// The codes of a row in the first kMostSideBySide columns are kSideBySide codes side by side, too, so that
// few instructions copy the codes of a cell.
constexpr size_t kSideBySide = 8, kMostSideBySide = 32;

// The arguments for arranging the codes of a block side by side.
struct SideBySideArgs {
  const uint16_t* codes;  // [column][stride]; categorical columns, too
  size_t n_columns, stride;
  uint16_t* side_by_side;  // [column / kSideBySide][row of stride][column % kSideBySide]
};

// The arguments for copying the codes of cells: codes[i][cell] is the code of row rows[cell] in columns[i].
struct CellCodeArgs {
  const uint16_t* row_codes;  // [column][row_stride]
  size_t row_stride;
  const uint16_t* side_by_side;  // [column / kSideBySide][row of row_stride][column % kSideBySide]
  const IndexColumn* columns;
  size_t n_columns;
  const uint16_t* rows;  // by cell; then any rows, up to a multiple of kSideBySide
  size_t n_cells;
  uint16_t* codes;  // [column of the unit, and one more][code_stride]
  size_t code_stride;
};

// The arguments for deciding the nodes of a unit's tree for 64 cells.
struct CellDecideArgs {
  const CellTest* tests;
  const uint8_t* flags;
  size_t n_tests, n_above;  // the first n_above tests are boxes, unless they are categorical
  const uint16_t* codes;    // [column of the unit][code_stride], from the first cell
  size_t code_stride;
  const uint32_t* category_bits;
  uint64_t* words;
};

// The arguments for adding up the margins of cells.
struct CellMarginArgs {
  const uint8_t* flags;  // of the tests
  size_t n_tests, n_above;
  const uint64_t* words;      // written by decide_cells
  uint64_t* reach;            // scratch, by test
  const double* leaf_values;  // [leaf][output]; the first leaf is for cells that fail a test above
  size_t n_outputs, n_cells;
  double* margins;  // [cell][output]
};

// The arguments for adding narrow entries, of 16 numbers, to sums of 32 numbers; else like EntryArgs. An
// entry has the numbers of few features. Its last number is 0.
constexpr size_t kNarrowEntry = 16, kWideRow = 32;
// The most tables of narrow entries that are added at once: as in kTablesAtOnce, but a power of 2, because
// wide rows do not fit the cache.
constexpr size_t kMostNarrow = 8;
struct NarrowEntryArgs {
  const uint16_t* index;
  size_t n_tables, index_stride, n_rows;
  const float* entries;
  const int32_t* lanes;  // [table][sum of a row]: the number of an entry that is added to the sum
  float* sums;
  const double* margins;
  double* margin;
};

// The arguments for adding sums of rows, times `scale`, to sums by column: sums[i][row] += scale *
// rows[row][i].
template <class T>
struct CellSumArgs {
  const T* rows;            // [row][row_size]
  size_t row_size, n_rows;  // multiples of 8 and of 64
  double scale;
  double* const* sums;  // [column]: [row]
  size_t n_columns;
};

// The features tested above a unit, for up to 64 cells. In the tree of a unit, they are a chain of nodes,
// whose right children are leaves with the same value. Let E_k be the product of w_k, the factors of all
// features of the chain and B_k of the unit less this value. Then a feature with the zero fraction z gets
//   sum_k E_k (1 - z) / (z (1 - t_k) + t_k) in cells that are alive, and else -sum_k E_k / (1 - t_k).
// So a node of the quadrature takes few operations for each feature, and no frame of the walk's stack is
// written and read again. Double precision is rare: there, chains are walked as other nodes are.
struct CellChainArgs {
  size_t n_features;
  int n_nodes;            // K
  const uint64_t* words;  // [feature][2], written by decide_cells; the second has the cells that are alive
  const float *nodes, *weights;
  const float* zero_fractions;
  const float* gains;  // [feature][node]: (1 - z) / (z (1 - t) + t)
  const float* dead;   // [node]: 1 / (1 - t)
  const float* ends;   // by feature: the part of the sum at t = 0, as in simd/scalar_walk_kernel-inl.h
  float leaf;          // the value of the right children
  float* const* phi;   // by feature
  size_t n_cells;
  float* deltas;  // [feature][64], scratch
  float* c;       // [node][64]: C of the root of the unit, written by begin_chain
  float* b;       // [node][64]: B of the root, read by end_chain
};

struct CellKernels {
  // Return the number of cells.
  size_t (*number)(const CellNumberArgs&);
  void (*put_side_by_side)(const SideBySideArgs&);
  void (*copy_codes)(const CellCodeArgs&);
  void (*decide)(const CellDecideArgs&);
  void (*margins)(const CellMarginArgs&);
  // Fill arrays of `bytes` bytes with zeros. They are aligned to 64 bytes, and whole cache lines.
  void (*clear)(void* const* arrays, size_t n_arrays, size_t bytes);
  void (*add_narrow)(const NarrowEntryArgs&);  // or null, if no instruction permutes 16 numbers
  void (*add_sums_float)(const CellSumArgs<float>&);
  void (*add_sums_double)(const CellSumArgs<double>&);
  // Compute C of the root of a unit; and, after the walk of the unit, add what the features above it get.
  void (*begin_chain)(const CellChainArgs&);
  void (*end_chain)(const CellChainArgs&);

  void add_sums(const CellSumArgs<float>& args) const { add_sums_float(args); }
  void add_sums(const CellSumArgs<double>& args) const { add_sums_double(args); }
};

}  // namespace skshap
