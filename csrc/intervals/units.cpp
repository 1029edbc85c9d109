#include "intervals/units.h"

#include <algorithm>
#include <cmath>

#include "base/threads.h"
#include "plan/coded_trees.h"
#include "tables/tree_groups.h"

namespace skshap {
namespace {

// The limit of categories. In every block of rows, a table's index takes a step for each code of a
// categorical column.
constexpr size_t kMostCategories = 256;
// The number of units of a tree that are found before the tree may be given up because the units have too few
// leaves.
constexpr double kSpareUnits = 8;
// Tables would not pay for deeper trees.
constexpr size_t kMostLevels = 64;
// The most entries of a unit that consists of the leaves of one background table, because such a unit cannot
// be divided.
constexpr uint32_t kMostOfOneTable = 2048;

// A test of a column on the path above a node. `beyond` says whether the path needs codes beyond the
// threshold of the test or, with categories, codes that do not pass the test.
struct Condition {
  const DecideNode* test;
  bool beyond;
};

int32_t rank_of(const DecideNode& test) { return static_cast<int32_t>(test.operand - test.bias); }

// Codes beyond `low`, up to `high`.
struct CodeRange {
  int32_t low = -1, high = 1 << 16;

  bool contains(int32_t after) const { return after >= low && after < high; }
  bool divided_by(int32_t rank) const { return rank > low && rank < high; }
  bool bounded() const { return low >= 0 || high < 1 << 16; }
};

// The tests of a column on a path and in the subtree below it.
struct ColumnTests {
  std::vector<Condition> above;
  std::vector<const DecideNode*> below;
  CodeRange range;                // of the codes that satisfy the path
  std::vector<int32_t> divisors;  // ranks that divide the range, ascending
};

class Finder {
 public:
  Finder(const Plan& plan, uint32_t most_entries, double least_leaves, const std::vector<bool>& chosen)
      : plan_(plan),
        most_entries_(most_entries),
        least_leaves_(least_leaves),
        chosen_(chosen),
        groups_(plan),
        tests_(plan.columns.size()) {}

  Units find() {
    out_.first_of_tree.push_back(0);
    for (size_t tree = 0; tree < plan_.trees.size(); ++tree) {
      const size_t n_digits = out_.digits.size();
      if ((!chosen_.empty() && !chosen_[tree]) || !divide_tree(tree)) {
        out_.units.resize(out_.first_of_tree.back());
        out_.digits.resize(n_digits);
      }
      out_.first_of_tree.push_back(out_.units.size());
    }
    return std::move(out_);
  }

 private:
  bool divide_tree(size_t tree) {
    check_interrupt();
    tree_ = tree;
    const TreeProgram& program = plan_.trees[tree];
    n_inner_ = static_cast<int32_t>(program.n_inner);
    nodes_ = plan_.decide.data() + program.decide;
    children_ = plan_.children.data() + program.children;
    for (int32_t node = 0; node < n_inner_; ++node) {
      const Column& column = plan_.columns[nodes_[node].column];
      if (column.categorical && column.categories.size() > kMostCategories) return false;
    }
    n_leaves_ = 0;
    if (plan_.tables.against_background && !find_groups()) return false;
    return divide(0, -1) && has_enough_leaves(0);
  }

  // Find the leaves that share background tables. Return whether all leaves have background tables.
  bool find_groups() {
    const TableTree& tables = table_tree_of(plan_, tree_);
    if (tables.leaves != tables.leaves_end) return false;
    groups_.find(chunk_of(plan_, tree_), plan_.trees[tree_], {plan_.tables.leaf_bits});
    is_group_.assign(2 * static_cast<size_t>(n_inner_) + 1, false);
    for (const TreeGroups::Group& group : groups_.groups) is_group_[group.first_node] = true;
    next_group_ = 0;
    return true;
  }

  bool is_group(int32_t node) const { return plan_.tables.against_background && is_group_[node]; }

  // Assign the last unit its background tables. Units and tables are found in the same order.
  void take_groups() {
    if (!plan_.tables.against_background) return;
    Unit& unit = out_.units.back();
    unit.lookups = table_tree_of(plan_, tree_).lookups + next_group_;
    for (size_t n = 0; n < n_below_ + size_t{1}; ++next_group_)
      n += groups_.groups[next_group_].leaves_end - groups_.groups[next_group_].leaves;
    unit.lookups_end = table_tree_of(plan_, tree_).lookups + next_group_;
  }

  // Return whether the units so far, except for `spare` units, have least_leaves leaves on average. Deep
  // trees are given up before all their units are found.
  bool has_enough_leaves(double spare) const {
    const size_t n_units = out_.units.size() - out_.first_of_tree.back();
    return (static_cast<double>(n_units) - spare) * least_leaves_ <= static_cast<double>(n_leaves_);
  }

  bool is_leaf(int32_t node) const { return node >= n_inner_; }
  int32_t child(int32_t node, bool right) const { return children_[2 * node + right]; }

  // Divide the leaves below a node into units. Return whether tables can explain all of these leaves.
  bool divide(int32_t node, int32_t parent) {
    if (take(node, parent)) {
      take_groups();
      n_leaves_ += n_below_ + 1;
      return has_enough_leaves(kSpareUnits);
    }
    if (is_leaf(node) || is_group(node) || level_ == kMostLevels) return false;
    const DecideNode& test = nodes_[node];
    std::vector<Condition>& above = tests_[test.column].above;
    bool all = true;
    const bool is_new = above.empty();
    ++level_;
    if (is_new) path_.push_back(test.column);
    for (const bool right : {false, true}) {
      above.push_back({&test, right != static_cast<bool>(test.flags & kFlip)});
      all = all && divide(child(node, right), node);
      above.pop_back();
    }
    if (is_new) path_.pop_back();
    --level_;
    return all;
  }

  // Make a unit of the leaves below a node, unless its table would be too large.
  bool take(int32_t node, int32_t parent) {
    const uint32_t most_entries = is_group(node) ? std::max(most_entries_, kMostOfOneTable) : most_entries_;
    used_ = path_;
    for (const uint32_t c : used_) tests_[c].range = range_of(tests_[c].above);
    const size_t first = out_.digits.size();
    uint64_t n_entries = collect(node, most_entries) ? 1 : UINT64_MAX;
    for (size_t i = 0; i < used_.size() && n_entries <= most_entries; ++i) {
      const uint32_t c = used_[i];
      out_.digits.push_back(plan_.columns[c].categorical ? categorical_digit(c) : numeric_digit(c));
      n_entries *= out_.digits.back().n_classes;
    }
    for (const uint32_t c : used_) {
      tests_[c].below.clear();
      tests_[c].divisors.clear();
      tests_[c].range = {};
    }
    if (n_entries > most_entries) {
      out_.digits.resize(first);
      return false;
    }
    out_.units.push_back({.tree = tree_,
                          .node = node,
                          .parent = parent,
                          .n_nodes = static_cast<uint32_t>(level_) + n_below_,
                          .digits = first,
                          .n_digits = out_.digits.size() - first,
                          .n_entries = static_cast<uint32_t>(n_entries),
                          .thresholds = thresholds_of(first)});
    return true;
  }

  // Return the bits of the thresholds of the digits, beginning with digit number `first`.
  uint64_t thresholds_of(size_t first) const {
    uint64_t bits = 0;
    const auto add = [&](uint32_t column, uint32_t operand) {
      bits |= uint64_t{1} << ((column * 0x9e3779b1u + operand * 0x85ebca6bu) >> 26);
    };
    for (size_t i = first; i < out_.digits.size(); ++i) {
      const Digit& digit = out_.digits[i];
      if (digit.categorical) add(digit.column, 0);
      for (uint32_t j = 1; !digit.categorical && j < digit.n_intervals; ++j)
        add(digit.column, out_.numbers.operands(digit)[j - 1]);
    }
    return bits;
  }

  CodeRange range_of(const std::vector<Condition>& above) const {
    CodeRange range;
    for (const Condition& condition : above) {
      if (condition.test->flags & kCategorical) continue;
      const int32_t rank = rank_of(*condition.test);
      if (condition.beyond)
        range.low = std::max(range.low, rank);
      else
        range.high = std::min(range.high, rank);
    }
    return range;
  }

  // Add a rank if it divides the range of its column's codes and is new. Return whether it was added.
  static bool add_divisor(ColumnTests& tests, int32_t rank) {
    if (!tests.range.divided_by(rank)) return false;
    const auto place = std::lower_bound(tests.divisors.begin(), tests.divisors.end(), rank);
    if (place != tests.divisors.end() && *place == rank) return false;
    tests.divisors.insert(place, rank);
    return true;
  }

  // Collect the tests below a node, and sort the columns of these tests and of the path. As soon as the tests
  // need too many entries, even without entries for missing values, stop and return false.
  bool collect(int32_t node, double most_entries) {
    n_below_ = 0;
    double n_entries = std::ldexp(1.0, static_cast<int>(used_.size()));
    stack_.assign(1, node);
    while (!stack_.empty()) {
      const int32_t at = stack_.back();
      stack_.pop_back();
      if (is_leaf(at)) continue;
      const DecideNode& test = nodes_[at];
      ++n_below_;
      ColumnTests& tests = tests_[test.column];
      if (tests.above.empty() && tests.below.empty()) used_.push_back(test.column);
      tests.below.push_back(&test);
      if (test.flags & kCategorical) {
        if (tests.above.empty() && tests.below.size() == 1) n_entries *= 2;
      } else if (add_divisor(tests, rank_of(test))) {
        const double n_before = static_cast<double>(tests.divisors.size() + tests.range.bounded());
        n_entries *= (n_before + 1) / n_before;
      }
      if (n_entries > most_entries) return false;
      stack_.push_back(child(at, false));
      stack_.push_back(child(at, true));
    }
    std::sort(used_.begin(), used_.end());
    return true;
  }

  // The class of all codes that fail the conditions of the path is kOutside. The numbers of other classes
  // follow it.
  static constexpr uint32_t kOutside = 0;

  Digit numeric_digit(uint32_t c) {
    const ColumnTests& tests = tests_[c];
    operands_.clear();
    classes_.clear();
    // Add the interval of codes that are beyond `after` but not beyond the next operand.
    const auto add_interval = [&](int32_t after) {
      classes_.push_back(tests.range.contains(after) ? static_cast<uint32_t>(classes_.size()) + 1 : kOutside);
    };
    const auto add_operand = [&](int32_t rank) {
      operands_.push_back(static_cast<uint16_t>(rank));
      add_interval(rank);
    };
    add_interval(-1);
    const bool reachable = tests.range.low < tests.range.high;
    if (reachable && tests.range.low >= 0) add_operand(tests.range.low);
    for (const int32_t rank : tests.divisors) add_operand(rank);
    if (reachable && tests.range.high < 1 << 16) add_operand(tests.range.high);
    const bool missing_inside =
        std::all_of(tests.above.begin(), tests.above.end(),
                    [](const Condition& condition) { return condition.test->bias != condition.beyond; });
    return out_.numbers.add(c, false, operands_, classes_,
                            missing_inside ? class_of_missing(tests) : kOutside);
  }

  // Return the class of the interval whose codes go the same way as missing values, or a new class.
  uint32_t class_of_missing(const ColumnTests& tests) const {
    for (size_t i = 0; i < classes_.size(); ++i) {
      const int32_t after = i ? operands_[i - 1] : -1;
      const auto same = [&](const DecideNode* test) { return (after >= rank_of(*test)) == !test->bias; };
      if (classes_[i] != kOutside && std::all_of(tests.below.begin(), tests.below.end(), same))
        return classes_[i];
    }
    return static_cast<uint32_t>(classes_.size()) + 1;
  }

  Digit categorical_digit(uint32_t c) {
    const ColumnTests& tests = tests_[c];
    const size_t n_codes = plan_.columns[c].categories.size() + 2;
    const auto passes = [&](const DecideNode* test, size_t code) {
      return (plan_.category_bits[test->operand + code / 32] >> code % 32 & 1) != 0;
    };
    classes_.assign(n_codes, 1);
    for (size_t code = 0; code < n_codes; ++code)
      for (const Condition& condition : tests.above)
        if (passes(condition.test, code) == condition.beyond) classes_[code] = kOutside;
    uint32_t n_classes = 2;
    for (const DecideNode* test : tests.below) {
      // Split each class by this test. The codes that pass keep the number of their class.
      std::vector<uint32_t> other(n_classes, kOutside);
      for (size_t code = 0; code < n_codes; ++code) {
        uint32_t& code_class = classes_[code];
        if (code_class == kOutside || passes(test, code)) continue;
        if (other[code_class] == kOutside) other[code_class] = n_classes++;
        code_class = other[code_class];
      }
    }
    const uint32_t missing = classes_.back();
    classes_.pop_back();
    return out_.numbers.add(c, true, {}, classes_, missing);
  }

  const Plan& plan_;
  const uint32_t most_entries_;
  const double least_leaves_;
  const std::vector<bool>& chosen_;
  Units out_;
  size_t tree_ = 0;
  int32_t n_inner_ = 0;
  const DecideNode* nodes_ = nullptr;
  const int32_t* children_ = nullptr;
  size_t n_leaves_ = 0;  // of the units of the tree
  uint32_t n_below_ = 0;
  TreeGroups groups_;           // of the tree, with background data
  std::vector<bool> is_group_;  // by node
  size_t next_group_ = 0;
  std::vector<ColumnTests> tests_;
  // The columns of the path, and the columns of the unit. Each column is listed once.
  std::vector<uint32_t> path_, used_;
  size_t level_ = 0;
  std::vector<int32_t> stack_;
  std::vector<uint16_t> operands_;
  std::vector<uint32_t> classes_;
};

}  // namespace

Units find_units(const Plan& plan, uint32_t most_entries, double least_leaves,
                 const std::vector<bool>& chosen) {
  return Finder(plan, most_entries, least_leaves, chosen).find();
}

const TableTree& table_tree_of(const Plan& plan, size_t tree) {
  return *std::lower_bound(plan.tables.trees.begin(), plan.tables.trees.end(), tree,
                           [](const TableTree& tables, size_t i) { return tables.tree < i; });
}

}  // namespace skshap
