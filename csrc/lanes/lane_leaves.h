// Reads the leaves of trees, two siblings at a time if they can share a lane; see plan/leaf_lanes.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/leaf_tests.h"

namespace skshap {

// The leaves of a lane. If there are two, they have the same tests, except that the interval of the first one
// ends at the split where that of the second one begins.
struct LaneLeaves {
  size_t n_leaves = 0;
  size_t values[2];  // positions in Plan::leaf_values
  std::vector<LeafTest> tests;
  size_t split;     // number of the test
  LeafTest second;  // the second leaf's test at the split
};

class LaneLeavesReader {
 public:
  explicit LaneLeavesReader(const Plan& plan) : tests_(plan) {}

  // Call on_leaves(LaneLeaves) for all leaves of a tree. The order is the same each time.
  template <class OnLeaves>
  void run(const Chunk& chunk, const TreeProgram& tree, bool join_siblings, const OnLeaves& on_leaves) {
    LaneLeaves& leaves = leaves_;
    leaves.n_leaves = 0;
    tests_.category_bits.clear();
    tests_.run(chunk, tree, [&](size_t values, const std::vector<LeafTest>& tests) {
      if (join_siblings && leaves.n_leaves == 1 && join(values, tests)) return;
      if (leaves.n_leaves) on_leaves(std::as_const(leaves));
      leaves.n_leaves = 1;
      leaves.values[0] = leaves.values[1] = values;
      leaves.tests = tests;
      leaves.split = 0;
    });
    on_leaves(std::as_const(leaves));
  }

  const uint32_t* set(const LeafTest& test) const { return tests_.category_bits.data() + test.set; }

 private:
  // Add a second leaf. Return false if it cannot share the lane.
  bool join(size_t values, const std::vector<LeafTest>& tests) {
    std::vector<LeafTest>& first = leaves_.tests;
    if (tests.size() != first.size()) return false;
    size_t n_different = 0;
    for (size_t i = 0; i < tests.size(); ++i) {
      const LeafTest &a = first[i], &b = tests[i];
      if (a.feature != b.feature) return false;
      if (is_same(a, b)) continue;
      leaves_.split = i;
      ++n_different;
    }
    if (n_different != 1) return false;
    LeafTest &a = first[leaves_.split], b = tests[leaves_.split];
    const bool numeric = a.set == kNoSet && b.set == kNoSet && a.column == b.column;
    const bool is_divided = a.lower < a.upper && b.lower < b.upper && !(a.missing && b.missing);
    if (!numeric || !is_divided || (a.upper != b.lower && b.upper != a.lower)) return false;
    leaves_.values[1] = values;
    if (a.upper != b.lower) {
      std::swap(a, b);
      std::swap(leaves_.values[0], leaves_.values[1]);
    }
    leaves_.second = b;
    leaves_.n_leaves = 2;
    return true;
  }

  static bool is_same(const LeafTest& a, const LeafTest& b) {
    return a.lower == b.lower && a.upper == b.upper && a.set == b.set && a.missing == b.missing &&
           a.zero_fraction == b.zero_fraction;
  }

  LeafTests tests_;
  LaneLeaves leaves_;
};

}  // namespace skshap
