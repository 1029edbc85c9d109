// The paths to leaves as tests of codes. All splits of a path on one feature are one test, as in GPUTreeShap
// (Mitchell, Frank, Holmes, arXiv:2010.13972, section 3.1).
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "plan/plan.h"
#include "plan/tree_paths.h"

namespace skshap {

constexpr uint32_t kNoSet = 0xffffffff;

// Thrown if a feature of a path is tested in several columns, as target statistics of the same categorical
// columns are.
struct SeveralColumns : std::exception {};

// A row follows the path if lower <= its code < upper, or if it is missing and `missing` is set ...
struct LeafTest {
  double zero_fraction = 1;
  int32_t feature;  // position in Plan::features
  uint32_t column, lower = 0, upper = kMissingCode;
  // ... and, if there is a set, if the bit of its code in this column is set. A feature that is numeric in
  // some nodes and categorical in others has both tests. If there is no test of a kind, it always passes.
  uint32_t set_column, set = kNoSet;  // set: first word in LeafTests::category_bits
  bool missing = true;
};

// Return a test that every row passes.
inline LeafTest passing_test(int32_t feature, uint32_t column) {
  LeafTest test;
  test.feature = feature;
  test.column = test.set_column = column;
  return test;
}

// Reads the leaves of trees, and the tests of their paths.
class LeafTests {
 public:
  explicit LeafTests(const Plan& plan) : plan_(plan), walk_(plan) {}

  // Call on_leaf(position of its first value in Plan::leaf_values, tests) for each leaf of a tree. The tests
  // come in the order in which the path meets their features. Throw SeveralColumns if tests cannot be merged,
  // and std::invalid_argument if there are too many category bits.
  template <class OnLeaf>
  void run(const Chunk& chunk, const TreeProgram& tree, const OnLeaf& on_leaf) {
    const size_t width = n_used_outputs(plan_, chunk);
    tests_.resize(2 * static_cast<size_t>(tree.height));
    level_.resize(tree.n_inner);
    walk_.run<LeafOrder::kDepthFirst>(
        tree,
        [&](const PathNode& at) {
          const DecideNode& d = plan_.decide[tree.decide + at.node];
          level_[at.node] = at.level;
          const LeafTest above = at.previous ? test(at.previous->bit) : passing_test(at.feature, d.column);
          for (const bool right : {true, false}) test(bit_of(at.node, right)) = narrow(above, d, right);
        },
        [&](int32_t leaf) {
          path_.clear();
          for (const PathStep& step : walk_.steps()) {
            path_.push_back(test(step.bit));
            path_.back().zero_fraction = step.share;
          }
          on_leaf(tree.leaves + leaf * width, path_);
        });
  }

  std::vector<uint32_t> category_bits;  // of the sets of all trees that were read

 private:
  // Return the test of an edge. A row passes the test if it takes the edge, and every edge above it on the
  // same feature.
  LeafTest& test(uint32_t bit) { return tests_[2 * level_[bit_node(bit)] + (bit & 1)]; }

  // Add the test of a node's edge to the tests above it on the same feature.
  LeafTest narrow(LeafTest e, const DecideNode& d, bool right) {
    const bool holds = right == static_cast<bool>(d.flags & kFlip);  // whether the test holds on this edge
    if (d.flags & kCategorical) {
      require_same(e.set == kNoSet, e.set_column, d.column);
      e.set_column = d.column;
      e.set = intersect(e.set, d, holds);
      return e;
    }
    const uint32_t end = d.operand - d.bias + 1;  // ranks before this one let the test hold
    require_same(e.lower == 0 && e.upper == kMissingCode, e.column, d.column);
    e.column = d.column;
    if (holds)
      e.upper = std::min(e.upper, end);
    else
      e.lower = std::max(e.lower, end);
    e.missing = e.missing && holds == static_cast<bool>(d.bias);
    return e;
  }

  static void require_same(bool is_first, uint32_t tested, uint32_t column) {
    if (!is_first && tested != column) throw SeveralColumns();
  }

  uint32_t intersect(uint32_t set, const DecideNode& d, bool holds) {
    const size_t first = category_bits.size();
    const size_t n_words = plan_.columns[d.column].category_words();
    if (first + n_words > kNoSet) throw std::invalid_argument("too many categories");
    for (size_t w = 0; w < n_words; ++w) {
      const uint32_t tested = plan_.category_bits[d.operand + w], own = holds ? tested : ~tested;
      category_bits.push_back(set == kNoSet ? own : own & category_bits[set + w]);
    }
    return static_cast<uint32_t>(first);
  }

  const Plan& plan_;
  PathWalk walk_;
  std::vector<LeafTest> tests_;  // of both edges of each node of the path, by level
  std::vector<uint32_t> level_;  // by node
  std::vector<LeafTest> path_;
};

}  // namespace skshap
