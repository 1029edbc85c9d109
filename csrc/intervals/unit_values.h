// Computes the numbers in the entries of a unit. They come from a walk of the unit as a tree of its own
// (walked_units.cpp) or, against background data, from the tables of its leaves (background_units.cpp).
#pragma once

#include <algorithm>
#include <vector>

#include "base/aligned.h"
#include "intervals/layout.h"
#include "rows/coding.h"

namespace skshap {

// The numbers of an entry: [output][feature of the window], padded with zeros to the row size of the window.
struct EntryNumbers {
  const TableWindow* window;
  size_t n_features;
  std::vector<int32_t> position;  // by position in Plan::features: position in the window, or -1
};

// One thread's work.
template <class T>
class UnitValues {
 public:
  virtual ~UnitValues() = default;

  // Write sums[entry][row_size] and margins[entry][n_outputs] of a unit, which has this number. The codes are
  // the codes of rows that stand for the entries; their last block is filled up.
  virtual void write(size_t number, const Unit& unit, const CodeTile& codes, const EntryNumbers& numbers,
                     T* sums, double* margins) = 0;

 protected:
  // Write margins[row][output] for some rows of a block. add(margin) adds to margin[output][64], all zeros.
  template <class Add>
  void write_margins(size_t n_rows, size_t n_outputs, double* margins, const Add& add) {
    grow(margin_, n_outputs * kBlockRows);
    std::fill_n(margin_.data(), n_outputs * kBlockRows, 0.0);
    add(margin_.data());
    for (size_t o = 0; o < n_outputs; ++o)
      for (size_t row = 0; row < n_rows; ++row)
        margins[row * n_outputs + o] = margin_.data()[o * kBlockRows + row];
  }

 private:
  Aligned<double> margin_;
};

}  // namespace skshap
