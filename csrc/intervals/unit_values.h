// Computes the numbers in the entries of a unit. They come from a walk of the unit as a tree of its own
// (walked_units.cpp) or, against background data, from the tables of its leaves (background_units.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "intervals/layout.h"
#include "rows/coding.h"

namespace skshap {

// The numbers of an entry: [output][feature of the window], padded with zeros to row_size.
struct EntryNumbers {
  size_t row_size, n_features, n_outputs;
  size_t first_output;            // of the window
  std::vector<int32_t> position;  // by position in Plan::features: position in the window, or -1
};

// One thread's work.
template <class T>
class UnitValues {
 public:
  virtual ~UnitValues() = default;

  // Write sums[entry][row_size] and margins[entry][n_outputs] of the unit with this number. The codes are the
  // codes of rows that stand for the entries; their last block is filled up.
  virtual void write(size_t unit, const CodeTile& codes, const EntryNumbers& numbers, T* sums,
                     double* margins) = 0;
};

}  // namespace skshap
