// Trees in which each unit is a tree of its own.
#pragma once

#include <vector>

#include "intervals/layout.h"

namespace skshap {

// The trees without tables come first, then the units of a layout. In the tree of a unit, the leaves of other
// units are cut off: each subtree beside the path to the unit's leaves is a leaf of value 0. As values are
// linear in the leaf values, the values of a tree are the sums of the values of its units. Merged trees are
// also divided, so that the decisions of each part fit a cache.
class UnitTrees {
 public:
  UnitTrees(const Plan& plan, const IntervalLayout& layout);

  // Return the trees. Trees without tables, and parts of merged trees, come first.
  CodedTrees trees() const;

 private:
  void reserve(const IntervalLayout& layout);
  void begin_tree(size_t tree);
  // Add merged trees in parts of at most `most` leaves.
  void add_merged(const MergedTrees& merged, size_t most);
  void add_part(const MergedTrees& merged, size_t leaves, size_t leaves_end);
  void add_unit(const Unit& unit);
  int32_t copy(int32_t node, double cover);
  void set_test(int32_t number, int32_t node);
  void set_test(int32_t number, const DecideNode& test, int32_t feature);

  const Plan& plan_;
  const std::vector<int32_t> feature_of_column_;  // positions in Plan::features
  int32_t n_walked_ = 0;
  // The tree whose nodes are copied.
  int32_t n_inner_ = 0;
  const int32_t* children_ = nullptr;
  const DecideNode* nodes_ = nullptr;
  const double *shares_ = nullptr, *values_ = nullptr;
  CodedTreeArrays units_;
};

}  // namespace skshap
