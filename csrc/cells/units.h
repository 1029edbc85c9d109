// Cuts trees into units, and makes the part of a tree in a unit a tree of its own.
#pragma once

#include <utility>
#include <vector>

#include "cells/overlay.h"
#include "cells/program.h"

namespace skshap {

// The limit of categories of a column. In every block of rows, a key takes a step for each code of a
// categorical column.
constexpr size_t kMostCellCategories = 256;

// Writes the units of trees that are laid over each other. A unit is connected: it has a root, and the nodes
// below it down to leaves and to the roots of other units. For each tree that has the root, the unit has a
// tree of its own, with leaves of value 0 in the places of other units. Above the root, this tree has a node
// for each column that is tested there, with a leaf of value 0 for rows that fail the tests of the column. As
// values are linear in the leaf values, the values of a tree are the sums of the values in its units.
class UnitWriter {
 public:
  // The tests of the units' trees are among `category_bits`, to which tests above units are appended.
  UnitWriter(const Plan& plan, CellProgram& cells, std::vector<uint32_t>& category_bits);

  // Cut trees with the same output into units, and append them to the cells. The numbers of their trees are
  // those of trees().
  void write(int32_t output, const std::vector<size_t>& trees);

  // Return the trees of the units.
  const CodedTreeArrays& trees() const { return units_; }

  // Call take(feature) for each feature of a unit, a position in Plan::features.
  template <class Take>
  void each_feature(size_t unit, const Take& take) const {
    const size_t end = unit + 1 < first_feature_.size() ? first_feature_[unit + 1] : features_.size();
    for (size_t i = first_feature_[unit]; i < end; ++i) take(features_[i]);
  }

 private:
  // A test of a column on the path above a unit. `beyond` says whether the path needs codes beyond the
  // threshold of the test or, with categories, codes that do not pass the test.
  struct Condition {
    const DecideNode* test;
    bool beyond;
  };
  // The tests of a column above a unit and inside it.
  struct ColumnTests {
    std::vector<Condition> above;
    double zero_fraction = 1;  // of the tests above, in the tree that is written
    std::vector<const DecideNode*> inside;
    // If the column is numeric, codes beyond `low`, up to `high`, satisfy the tests above. The divisors are
    // the ranks of the tests inside that divide these codes, ascending.
    int32_t low = -1, high = 1 << 16;
    std::vector<int32_t> divisors;
    uint32_t number = 0;  // among the columns of the unit
    DecideNode box;       // the test that a row satisfies all tests above
  };

  void cut();
  void cut_off(size_t node);
  size_t largest_child(size_t node) const;
  void find_parents();
  void write_unit(int32_t output, int32_t root);
  void begin_tree(uint32_t tree);
  ColumnTests& tests_of(const DecideNode& test);
  template <class Take>
  void each_above(int32_t node, const Take& take) const;
  void add_conditions(int32_t node);
  void find_zero_fractions(int32_t node);
  void collect(int32_t root);

  void begin_key();
  uint32_t begin_digit(uint32_t n_classes);
  void add_column(uint32_t column, size_t first_step);
  void add_category_box(ColumnTests& tests);
  void add_numeric_digit(uint32_t column);
  void add_numeric_steps(uint32_t column, uint32_t stride, uint32_t missing);
  static bool is_missing_inside(const ColumnTests& tests);
  int32_t interval_of_missing(const ColumnTests& tests) const;
  void add_categorical_digit(uint32_t column);

  void write_tree(int32_t output, int32_t root, size_t first);
  int32_t copy(int32_t root, double cover);
  bool add_to_like_tree(size_t first);
  void add_features();

  const Plan& plan_;
  CellProgram& cells_;
  std::vector<uint32_t>& category_bits_;
  const std::vector<int32_t> feature_of_column_;  // positions in Plan::features
  CodedTreeArrays units_;
  std::vector<size_t> first_feature_;  // by unit, in features_
  std::vector<int32_t> features_;
  // The trees that are cut. By inner node of a tree: the parent, or -1, and whether a unit begins there.
  Overlay overlay_;
  std::vector<size_t> first_node_;  // by tree
  std::vector<int32_t> parent_;
  std::vector<bool> begins_unit_;
  // By node of the overlay: whether a unit begins there, and the leaves below that are in no other unit.
  std::vector<bool> is_root_;
  std::vector<uint32_t> n_leaves_;
  // The tree that is written.
  int32_t n_inner_ = 0;
  size_t first_ = 0;  // its first node in parent_ and begins_unit_
  size_t value_width_ = 1;
  const int32_t* children_ = nullptr;
  const DecideNode* nodes_ = nullptr;
  const double *shares_ = nullptr, *values_ = nullptr;
  bool has_leaf_ = false;  // of its own in the unit
  // The unit that is written.
  std::vector<ColumnTests> tests_;  // by column
  std::vector<uint32_t> used_;      // columns
  uint32_t n_key_values_ = 1;       // of the last key
  std::vector<bool> is_used_;       // by feature
  std::vector<uint32_t> classes_;
};

}  // namespace skshap
