#include "cells/units.h"

#include <algorithm>

#include "plan/copied_nodes.h"
#include "plan/tree_paths.h"

namespace skshap {
namespace {

// The most leaves of a unit. Larger units have more cells, and smaller units are more lookups for each row.
constexpr uint32_t kUnitLeaves = 14;
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
      tests_(plan.columns.size()),
      is_used_(plan.features.size(), false) {
  for (const Chunk& chunk : plan.chunks)
    units_.width = std::max(units_.width, static_cast<int32_t>(n_used_outputs(plan, chunk)));
}

void UnitWriter::write(const Chunk& chunk, const TreeProgram& tree) {
  n_inner_ = static_cast<int32_t>(tree.n_inner);
  children_ = plan_.children.data() + tree.children;
  nodes_ = plan_.decide.data() + tree.decide;
  shares_ = plan_.shares.data() + tree.decide;
  values_ = plan_.leaf_values.data() + tree.leaves;
  value_width_ = n_used_outputs(plan_, chunk);
  cut();
  for (int32_t node = 0; node < n_inner_; ++node)
    if (is_root_[node]) write_unit(chunk.output, node);
}

// Choose the roots of units, from the leaves up. Children follow their parents.
void UnitWriter::cut() {
  const size_t n_nodes = 2 * static_cast<size_t>(n_inner_) + 1;
  parent_.assign(n_nodes, -1);
  is_root_.assign(n_nodes, false);
  n_leaves_.assign(n_nodes, 1);
  end_.assign(n_nodes, 0);
  for (int32_t node = n_inner_; node-- > 0;) {
    const int32_t left = children_[2 * node], right = children_[2 * node + 1];
    parent_[left] = parent_[right] = node;
    n_leaves_[node] = n_leaves_[left] + n_leaves_[right];
    end_[node] = std::max({node + 1, end_[left], end_[right]});
    if (n_leaves_[node] <= kUnitLeaves) continue;
    const int32_t larger = n_leaves_[left] < n_leaves_[right] ? right : left;
    is_root_[larger] = true;
    n_leaves_[node] -= n_leaves_[larger];
  }
  is_root_[0] = true;
}

void UnitWriter::write_unit(int32_t output, int32_t root) {
  for (int32_t node = root; node != 0; node = parent_[node]) add_condition(parent_[node], node);
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
  write_tree(output, root);
  unit.n_above = static_cast<uint16_t>(n_above_);
  cells_.units.push_back(unit);
  add_features();
  for (const uint32_t column : used_) tests_[column] = ColumnTests();
  used_.clear();
}

// --- The tests of a unit ---

UnitWriter::ColumnTests& UnitWriter::tests_of(int32_t node) {
  ColumnTests& tests = tests_[nodes_[node].column];
  if (tests.above.empty() && tests.inside.empty()) used_.push_back(nodes_[node].column);
  return tests;
}

// Add the test of a node on the path to its child.
void UnitWriter::add_condition(int32_t node, int32_t child) {
  const DecideNode& test = nodes_[node];
  ColumnTests& tests = tests_of(node);
  const bool right = children_[2 * node + 1] == child;
  const bool beyond = right != static_cast<bool>(test.flags & kFlip);
  tests.above.push_back({&test, beyond});
  tests.zero_fraction *= right ? 1 - shares_[node] : shares_[node];
  if (test.flags & kCategorical) return;
  if (beyond)
    tests.low = std::max(tests.low, rank_of(test));
  else
    tests.high = std::min(tests.high, rank_of(test));
}

// Collect the tests of a unit. Inner nodes are in preorder; those of other units are passed over.
void UnitWriter::collect(int32_t root) {
  for (int32_t node = root; node < end_[root];) {
    ColumnTests& tests = tests_of(node);
    tests.inside.push_back(node);
    const int32_t rank = rank_of(nodes_[node]);
    if (!(nodes_[node].flags & kCategorical) && rank > tests.low && rank < tests.high) {
      const auto place = std::lower_bound(tests.divisors.begin(), tests.divisors.end(), rank);
      if (place == tests.divisors.end() || *place != rank) tests.divisors.insert(place, rank);
    }
    ++node;
    while (node < end_[root] && is_root_[node]) node = end_[node];
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
    const auto is_same = [&](int32_t node) {
      return (after < rank_of(nodes_[node])) == static_cast<bool>(nodes_[node].bias);
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
      return std::all_of(tests.inside.begin(), tests.inside.end(), [&](int32_t node) {
        return passes(nodes_[node], code) == passes(nodes_[node], other);
      });
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

// --- The tree of a unit ---

void UnitWriter::write_tree(int32_t output, int32_t root) {
  const int64_t first = units_.tree_offsets.back();
  int64_t above = -1;
  double cover = 1;
  n_above_ = 0;
  for (const uint32_t column : used_) {
    const ColumnTests& tests = tests_[column];
    if (tests.above.empty()) continue;
    const int32_t number = units_.add_node(cover);
    if (above >= 0) units_.left[above] = number;
    above = first + number;
    units_.test[above] = tests.box;
    units_.player[above] = feature_of_column_[column];
    units_.right[above] = units_.add_node(1 - tests.zero_fraction);
    cover = tests.zero_fraction;
    ++n_above_;
  }
  const int32_t number = copy(root, cover);
  if (above >= 0) units_.left[above] = number;
  units_.end_tree(output);
}

// Copy the nodes of the unit. Return the number of the copy of its root.
int32_t UnitWriter::copy(int32_t root, double cover) {
  const auto add = [&](int64_t from, double share) {
    units_.add_node(share);
    if (from < n_inner_) return from == root || !is_root_[from];
    std::copy_n(values_ + static_cast<size_t>(from - n_inner_) * value_width_, value_width_,
                units_.value.end() - units_.width);
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
