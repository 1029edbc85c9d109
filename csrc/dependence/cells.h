// Cells of a grid: groups of points that no split can tell apart.
//
// An axis of a grid is a feature, or several columns of X that change together. The cells of an axis are the
// different codes of its points, in ascending order. A split on a numeric column divides the cells into two
// intervals, apart from missing values, so sets of cells are stored as runs.
#pragma once

#include <vector>

#include "plan/coded_trees.h"

namespace skshap {

// Cells from `begin` to `end` - 1.
struct Run {
  uint32_t begin, end;
};
using Runs = std::vector<Run>;

class Cells {
 public:
  // Code the points of an axis. The points are rows of which only the given columns of X matter.
  Cells(const CodedColumns& coded, const std::vector<int32_t>& inputs, const Rows& points);

  size_t n_cells() const { return n_cells_; }
  const std::vector<uint32_t>& cell_of_point() const { return cell_of_point_; }

  // Return whether a column of the plan belongs to the axis.
  bool has(uint32_t column) const { return place_[column] >= 0; }

  // Divide cells by a test of a column of the axis.
  void split(const DecideNode& test, const std::vector<uint32_t>& category_bits, const Runs& runs, Runs& left,
             Runs& right) const;

 private:
  std::vector<int32_t> place_;                // by column of the plan: place in the axis, or -1
  std::vector<std::vector<uint32_t>> codes_;  // [place][cell]
  std::vector<uint32_t> cell_of_point_;
  size_t n_cells_;
};

}  // namespace skshap
