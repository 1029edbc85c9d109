#include "cells/units.h"

#include <algorithm>
#include <functional>

#include "base/threads.h"
#include "plan/copied_nodes.h"
#include "plan/tree_paths.h"

namespace skshap {
namespace {

// The most leaves of a unit. Larger units have more cells, and smaller units are more lookups for each row.
constexpr uint32_t kUnitLeaves = 14;
// The most trees of a unit, whose values are added up in single precision. More trees have several units of
// the same cells.
constexpr uint32_t kUnitTrees = 64;
constexpr int32_t kEndOfCodes = 1 << 16;
constexpr uint16_t kMissing = 0xffff;
constexpr uint32_t kMostKeyValues = 1 << 16;

int32_t rank_of(const DecideNode& test) { return static_cast<int32_t>(test.operand - test.bias); }

}  // namespace

UnitWriter::UnitWriter(const Plan& plan, CellProgram& cells, std::vector<uint32_t>& category_bits)
    : plan_(plan),
      cells_(cells),
      category_bits_(category_bits),
      feature_of_column_(column_features(plan)),
      overlay_(plan),
      tests_(plan.columns.size()),
      is_used_(plan.features.size(), false) {
  for (const Chunk& chunk : plan.chunks)
    units_.width = std::max(units_.width, static_cast<int32_t>(n_used_outputs(plan, chunk)));
}

void UnitWriter::write(int32_t output, const std::vector<size_t>& trees) {
  value_width_ = output < 0 ? static_cast<size_t>(plan_.n_outputs) : 1;
  overlay_.lay(trees);
  cut();
  find_parents();
  for (size_t node = 0; node < is_root_.size(); ++node)
    if (is_root_[node]) write_unit(output, static_cast<int32_t>(node));
}

// Choose the roots of units, from the leaves up.
void UnitWriter::cut() {
  const std::vector<Overlay::Node>& nodes = overlay_.nodes();
  is_root_.assign(nodes.size(), false);
  n_leaves_.assign(nodes.size(), 0);
  for (size_t i = nodes.size(); i-- > 0;) {
    n_leaves_[i] += nodes[i].n_sides_with_leaves;
    while (n_leaves_[i] > kUnitLeaves) cut_off(largest_child(i));
    if (nodes[i].parent < 0)
      is_root_[i] = true;
    else
      n_leaves_[nodes[i].parent] += n_leaves_[i];
  }
}

void UnitWriter::cut_off(size_t node) {
  is_root_[node] = true;
  n_leaves_[overlay_.nodes()[node].parent] -= n_leaves_[node];
}

// Return the child that has the most leaves among those that are not cut off.
size_t UnitWriter::largest_child(size_t node) const {
  const std::vector<Overlay::Node>& nodes = overlay_.nodes();
  const size_t end = static_cast<size_t>(nodes[node].end);
  size_t largest = 0;
  uint32_t most = 0;
  for (size_t child = node + 1; child < end; child = static_cast<size_t>(nodes[child].end)) {
    if (is_root_[child] || n_leaves_[child] <= most) continue;
    largest = child;
    most = n_leaves_[child];
  }
  return largest;
}

// Find the parents of the nodes of each tree, and which of them begin units.
void UnitWriter::find_parents() {
  first_node_.clear();
  parent_.clear();
  for (const size_t tree : overlay_.trees()) {
    const TreeProgram& program = plan_.trees[tree];
    const int32_t* const children = plan_.children.data() + program.children;
    const size_t first = parent_.size();
    first_node_.push_back(first);
    parent_.resize(first + program.n_inner, -1);
    for (size_t i = 0; i < 2 * program.n_inner; ++i)
      if (static_cast<size_t>(children[i]) < program.n_inner)
        parent_[first + static_cast<size_t>(children[i])] = static_cast<int32_t>(i / 2);
  }
  begins_unit_.assign(parent_.size(), false);
  for (size_t i = 0; i < is_root_.size(); ++i) {
    if (!is_root_[i]) continue;
    const Overlay::Node& node = overlay_.nodes()[i];
    for (size_t m = node.members; m < node.members_end; ++m) {
      const Overlay::Member& member = overlay_.members()[m];
      begins_unit_[first_node_[member.tree] + static_cast<size_t>(member.node)] = true;
    }
  }
}

void UnitWriter::write_unit(int32_t output, int32_t root) {
  const Overlay::Node& node = overlay_.nodes()[root];
  const std::vector<Overlay::Member>& members = overlay_.members();
  begin_tree(members[node.members].tree);
  add_conditions(members[node.members].node);
  collect(root);
  CellUnit unit{};
  unit.keys = static_cast<uint32_t>(cells_.keys.size());
  unit.columns = static_cast<uint32_t>(cells_.columns.size());
  unit.steps = static_cast<uint32_t>(cells_.steps.size());
  begin_key();
  for (const uint32_t column : used_) {
    tests_[column].number = static_cast<uint32_t>(cells_.columns.size()) - unit.columns;
    if (plan_.columns[column].categorical)
      add_categorical_digit(column);
    else
      add_numeric_digit(column);
  }
  unit.n_keys = static_cast<uint16_t>(cells_.keys.size() - unit.keys);
  unit.n_columns = static_cast<uint16_t>(used_.size());
  unit.trees = static_cast<uint32_t>(cells_.unit_trees.size());
  for (size_t i = node.members; i < node.members_end; ++i) {
    check_interrupt();
    begin_tree(members[i].tree);
    find_zero_fractions(members[i].node);
    write_tree(output, members[i].node, unit.trees);
  }
  const uint32_t end = static_cast<uint32_t>(cells_.unit_trees.size());
  for (; unit.trees < end; unit.trees = unit.trees_end) {
    unit.trees_end = std::min(unit.trees + kUnitTrees, end);
    cells_.units.push_back(unit);
    add_features();
  }
  for (const uint32_t column : used_) tests_[column] = ColumnTests();
  used_.clear();
}

void UnitWriter::begin_tree(uint32_t tree) {
  const TreeProgram& program = plan_.trees[overlay_.trees()[tree]];
  first_ = first_node_[tree];
  n_inner_ = static_cast<int32_t>(program.n_inner);
  children_ = plan_.children.data() + program.children;
  nodes_ = plan_.decide.data() + program.decide;
  shares_ = plan_.shares.data() + program.decide;
  values_ = plan_.leaf_values.data() + program.leaves;
}

// --- The tests of a unit ---

UnitWriter::ColumnTests& UnitWriter::tests_of(const DecideNode& test) {
  ColumnTests& tests = tests_[test.column];
  if (tests.above.empty() && tests.inside.empty()) used_.push_back(test.column);
  return tests;
}

// Call take(node, right) for the nodes above a node, from the lowest one on; `right` tells on which side of
// them the node is.
template <class Take>
void UnitWriter::each_above(int32_t node, const Take& take) const {
  for (int32_t above; (above = parent_[first_ + static_cast<size_t>(node)]) >= 0; node = above)
    take(above, children_[2 * above + 1] == node);
}

// Add the tests of the nodes above a node.
void UnitWriter::add_conditions(int32_t node) {
  each_above(node, [&](int32_t above, bool right) {
    const DecideNode& test = nodes_[above];
    ColumnTests& tests = tests_of(test);
    const bool beyond = right != static_cast<bool>(test.flags & kFlip);
    tests.above.push_back({&test, beyond});
    if (test.flags & kCategorical) return;
    if (beyond)
      tests.low = std::max(tests.low, rank_of(test));
    else
      tests.high = std::min(tests.high, rank_of(test));
  });
}

void UnitWriter::find_zero_fractions(int32_t node) {
  for (const uint32_t column : used_) tests_[column].zero_fraction = 1;
  each_above(node, [&](int32_t above, bool right) {
    tests_[nodes_[above].column].zero_fraction *= right ? 1 - shares_[above] : shares_[above];
  });
}

// Collect the tests of a unit. Those of other units are passed over.
void UnitWriter::collect(int32_t root) {
  const std::vector<Overlay::Node>& nodes = overlay_.nodes();
  const int32_t end = nodes[root].end;
  for (int32_t node = root; node < end;) {
    const DecideNode& test = overlay_.test(overlay_.members()[nodes[node].members]);
    ColumnTests& tests = tests_of(test);
    tests.inside.push_back(&test);
    const int32_t rank = rank_of(test);
    if (!(test.flags & kCategorical) && rank > tests.low && rank < tests.high) {
      const auto place = std::lower_bound(tests.divisors.begin(), tests.divisors.end(), rank);
      if (place == tests.divisors.end() || *place != rank) tests.divisors.insert(place, rank);
    }
    ++node;
    while (node < end && is_root_[node]) node = nodes[node].end;
  }
}

// --- Digits ---

void UnitWriter::begin_key() {
  cells_.keys.push_back({.n_columns = 0, .first = 0});
  n_key_values_ = 1;
}

// Begin a digit. Return the number by which its classes are apart in the key.
uint32_t UnitWriter::begin_digit(uint32_t n_classes) {
  if (n_key_values_ * uint64_t{n_classes} > kMostKeyValues) begin_key();
  const uint32_t stride = n_key_values_;
  n_key_values_ *= n_classes;
  return stride;
}

void UnitWriter::add_column(uint32_t column, size_t first_step) {
  ++cells_.keys.back().n_columns;
  cells_.columns.push_back(
      {static_cast<uint16_t>(column), static_cast<uint16_t>(cells_.steps.size() - first_step)});
}

// Without tests above, the intervals of codes are the classes 0, 1, ... With them, the class 0 is for codes
// that fail these tests. If missing values go other ways than the codes of each interval, they are a class of
// their own.
void UnitWriter::add_numeric_digit(uint32_t column) {
  ColumnTests& tests = tests_[column];
  const bool has_outside = !tests.above.empty(), reachable = tests.low < tests.high;
  const uint32_t first = has_outside;
  uint32_t n_classes = first + (reachable ? static_cast<uint32_t>(tests.divisors.size()) + 1 : 0);
  uint32_t missing = 0;
  bool is_own = false;
  if (is_missing_inside(tests)) {
    const int32_t interval = reachable ? interval_of_missing(tests) : -1;
    is_own = interval < 0;
    missing = is_own ? n_classes++ : first + static_cast<uint32_t>(interval);
  }
  const uint32_t stride = begin_digit(n_classes);
  add_numeric_steps(column, stride, missing);
  if (!has_outside) return;
  const CellBox box = CellBox::between(tests.low, tests.high, is_missing_inside(tests));
  tests.box = {tests.number, box.operand(), 0, box.kind, 0};
}

void UnitWriter::add_numeric_steps(uint32_t column, uint32_t stride, uint32_t missing) {
  const ColumnTests& tests = tests_[column];
  const size_t first_step = cells_.steps.size();
  uint32_t last = 0;  // class
  const auto step = [&](int32_t operand, uint32_t to) {
    if (to != last)
      cells_.steps.push_back({static_cast<uint16_t>(operand), static_cast<uint16_t>((to - last) * stride)});
    last = to;
  };
  const uint32_t inside = !tests.above.empty();
  if (tests.low < tests.high) {
    if (tests.low >= 0) {
      step(tests.low, inside);
    } else {
      cells_.keys.back().first = static_cast<uint16_t>(cells_.keys.back().first + inside * stride);
      last = inside;
    }
    for (const int32_t divisor : tests.divisors) step(divisor, last + 1);
    if (tests.high < kEndOfCodes) step(tests.high, 0);
  }
  step(kMissing - 1, missing);
  add_column(column, first_step);
}

bool UnitWriter::is_missing_inside(const ColumnTests& tests) {
  return std::all_of(tests.above.begin(), tests.above.end(), [](const Condition& condition) {
    return static_cast<bool>(condition.test->bias) != condition.beyond;
  });
}

// Return the number of the interval whose codes go the same ways as missing values, or -1.
int32_t UnitWriter::interval_of_missing(const ColumnTests& tests) const {
  for (size_t i = 0; i <= tests.divisors.size(); ++i) {
    const int32_t after = i ? tests.divisors[i - 1] : tests.low;
    const auto is_same = [&](const DecideNode* test) {
      return (after < rank_of(*test)) == static_cast<bool>(test->bias);
    };
    if (std::all_of(tests.inside.begin(), tests.inside.end(), is_same)) return static_cast<int32_t>(i);
  }
  return -1;
}

// The categories that pass the same tests inside are a class. Each of these tests has a column of its own.
void UnitWriter::add_categorical_digit(uint32_t column) {
  ColumnTests& tests = tests_[column];
  const uint32_t n_codes = static_cast<uint32_t>(plan_.columns[column].categories.size()) + 2;
  const auto passes = [&](const DecideNode& test, uint32_t code) {
    return (plan_.category_bits[test.operand + code / 32] >> code % 32 & 1) != 0;
  };
  const bool has_outside = !tests.above.empty();
  uint32_t n_classes = has_outside;
  classes_.assign(n_codes, 0);
  std::vector<uint32_t> example;  // by class inside: a code
  for (uint32_t code = 0; code < n_codes; ++code) {
    if (std::any_of(tests.above.begin(), tests.above.end(), [&](const Condition& condition) {
          return passes(*condition.test, code) == condition.beyond;
        }))
      continue;
    const auto is_same = [&](uint32_t other) {
      return std::all_of(tests.inside.begin(), tests.inside.end(),
                         [&](const DecideNode* test) { return passes(*test, code) == passes(*test, other); });
    };
    const auto same = std::find_if(example.begin(), example.end(), is_same);
    classes_[code] = has_outside + static_cast<uint32_t>(same - example.begin());
    if (same != example.end()) continue;
    example.push_back(code);
    ++n_classes;
  }
  const uint32_t stride = begin_digit(std::max(n_classes, 1u));
  const size_t first_step = cells_.steps.size();
  for (uint32_t code = 0; code < n_codes; ++code)
    cells_.steps.push_back({0, static_cast<uint16_t>(classes_[code] * stride)});
  add_column(column, first_step);
  if (has_outside) add_category_box(tests);
}

// The categories that satisfy all tests above are in a class other than 0.
void UnitWriter::add_category_box(ColumnTests& tests) {
  tests.box = {tests.number, static_cast<uint32_t>(category_bits_.size()), 0, 0, kCategorical};
  category_bits_.resize(category_bits_.size() + (classes_.size() + 31) / 32);
  for (size_t code = 0; code < classes_.size(); ++code)
    category_bits_[tests.box.operand + code / 32] |= static_cast<uint32_t>(classes_[code] != 0) << code % 32;
}

// --- The trees of a unit ---

// Write the part of a tree in the unit, unless it has no leaf of the tree. `first` is the number of the
// unit's first tree.
void UnitWriter::write_tree(int32_t output, int32_t root, size_t first) {
  const int64_t offset = units_.tree_offsets.back();
  int64_t above = -1;
  double cover = 1;
  uint16_t n_above = 0;
  for (const uint32_t column : used_) {
    const ColumnTests& tests = tests_[column];
    if (tests.above.empty()) continue;
    const int32_t number = units_.add_node(cover);
    if (above >= 0) units_.left[above] = number;
    above = offset + number;
    units_.test[above] = tests.box;
    units_.player[above] = feature_of_column_[column];
    units_.right[above] = units_.add_node(1 - tests.zero_fraction);
    cover = tests.zero_fraction;
    ++n_above;
  }
  has_leaf_ = false;
  const int32_t number = copy(root, cover);
  if (above >= 0) units_.left[above] = number;
  if (!has_leaf_ || add_to_like_tree(first)) return units_.drop_nodes();
  units_.end_tree(output);
  UnitTree tree{};
  tree.n_above = n_above;
  cells_.unit_trees.push_back(tree);
}

// Copy the nodes of the unit. Return the number of the copy of its root.
int32_t UnitWriter::copy(int32_t root, double cover) {
  const auto add = [&](int64_t from, double share) {
    units_.add_node(share);
    if (from < n_inner_) return from == root || !begins_unit_[first_ + static_cast<size_t>(from)];
    std::copy_n(values_ + static_cast<size_t>(from - n_inner_) * value_width_, value_width_,
                units_.value.end() - units_.width);
    has_leaf_ = true;
    return false;
  };
  return copy_nodes(units_, root, cover, add, [&](int64_t from, int64_t place) {
    const DecideNode& test = nodes_[from];
    units_.test[place] = {.column = tests_[test.column].number,
                          .operand = test.operand,
                          .previous = 0,
                          .bias = test.bias,
                          .flags = static_cast<uint8_t>(test.flags & (kFlip | kCategorical))};
    units_.player[place] = feature_of_column_[test.column];
    return CopiedChildren{children_[2 * from], children_[2 * from + 1], shares_[from], 1 - shares_[from]};
  });
}

// If an earlier tree of the unit differs from the last one in its leaf values only, add these values to it.
bool UnitWriter::add_to_like_tree(size_t first) {
  const size_t last = static_cast<size_t>(units_.tree_offsets.back()), n_nodes = units_.left.size() - last;
  const auto is_alike = [&](size_t tree) {
    const auto are_same = [&](const auto& list, const auto& same) {
      const auto begin = list.begin() + static_cast<std::ptrdiff_t>(last);
      return std::equal(begin, list.end(), list.begin() + static_cast<std::ptrdiff_t>(tree), same);
    };
    return are_same(units_.cover, std::equal_to<>()) && are_same(units_.left, std::equal_to<>()) &&
           are_same(units_.test, [](const DecideNode& a, const DecideNode& b) {
             return a.column == b.column && a.operand == b.operand && a.bias == b.bias && a.flags == b.flags;
           });
  };
  for (size_t tree = first; tree < units_.tree_output.size(); ++tree) {
    const size_t begin = static_cast<size_t>(units_.tree_offsets[tree]);
    if (static_cast<size_t>(units_.tree_offsets[tree + 1]) - begin != n_nodes || !is_alike(begin)) continue;
    for (size_t i = 0, width = units_.width; i < n_nodes * width; ++i)
      units_.value[begin * width + i] += units_.value[last * width + i];
    return true;
  }
  return false;
}

void UnitWriter::add_features() {
  first_feature_.push_back(features_.size());
  for (const uint32_t column : used_) {
    const int32_t feature = feature_of_column_[column];
    if (is_used_[feature]) continue;
    is_used_[feature] = true;
    features_.push_back(feature);
  }
  for (size_t i = first_feature_.back(); i < features_.size(); ++i) is_used_[features_[i]] = false;
}

}  // namespace skshap
