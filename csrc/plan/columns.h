// The columns of X that trees test, and the nodes' tests in terms of codes.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/plan.h"

namespace skshap {

template <class X>
void sort_unique(std::vector<X>& x) {
  std::sort(x.begin(), x.end());
  x.erase(std::unique(x.begin(), x.end()), x.end());
  x.shrink_to_fit();
}

template <class X>
uint32_t position(const std::vector<X>& sorted, X x) {
  return static_cast<uint32_t>(std::lower_bound(sorted.begin(), sorted.end(), x) - sorted.begin());
}

class ColumnCoder {
 public:
  // Fill the plan's columns and features.
  ColumnCoder(const EnsembleView& ensemble, Plan& plan, int64_t n_threads);
  // Copy the columns of another plan, and take the tests of the ensemble's nodes from `coded`. Features are
  // numbered by their position in that plan.
  ColumnCoder(const EnsembleView& ensemble, Plan& plan, const CodedTests& coded);

  // Return the test of a node without its place on a path. Add the categories of the test to category_bits,
  // which are the bits of the plan or of a part of it.
  DecideNode code(int64_t node, std::vector<uint32_t>& category_bits) const;

 private:
  void add_test(int64_t node);
  uint32_t write_categories(const Column& column, int32_t set, bool missing_left,
                            std::vector<uint32_t>& category_bits) const;

  const EnsembleView& e_;
  Plan& plan_;
  const DecideNode* tests_ = nullptr;  // by node, if they are given
  size_t n_listed_ = 0;
  std::vector<int32_t> numeric_, categorical_;  // by column of X: the column of the plan
};

// An ensemble with its features renumbered. Features on which no tree splits are left out.
class UsedFeatures {
 public:
  explicit UsedFeatures(const EnsembleView& ensemble);

  const EnsembleView& view() const { return view_; }
  int32_t feature(int32_t number) const { return used_[number]; }
  int32_t player(int32_t number) const { return players_[number]; }

 private:
  EnsembleView view_;
  std::vector<int32_t> number_;  // by node: the new number of its feature
  std::vector<int32_t> used_, players_;
  std::vector<int32_t> player_;  // by used feature: its player
  std::vector<uint8_t> zero_missing_;
};

}  // namespace skshap
