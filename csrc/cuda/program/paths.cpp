// Plan -> PathSet: adds the tests of rows to the merged paths. This code runs on the host only.
#include "cuda/program/paths.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "plan/tree_paths.h"

namespace skshap {
namespace {

class Extractor {
 public:
  explicit Extractor(const Plan& plan) : plan_(plan), walk_(plan) {}

  PathSet extract() {
    for (const Chunk& chunk : plan_.chunks)
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) extract_tree(chunk, plan_.trees[i]);
    return std::move(out_);
  }

 private:
  void extract_tree(const Chunk& chunk, const TreeProgram& tree) {
    const size_t width = n_used_outputs(plan_, chunk);
    tests_.resize(2 * tree.height);
    level_.resize(tree.n_inner);
    walk_.run<LeafOrder::kDepthFirst>(
        tree,
        [&](const PathNode& at) {
          const DecideNode& d = plan_.decide[tree.decide + at.node];
          level_[at.node] = at.level;
          const PathElement above = at.previous ? test(at.previous->bit) : always(at.feature, d.column);
          for (const bool right : {true, false}) test(bit_of(at.node, right)) = narrow(above, d, right);
        },
        [&](int32_t leaf) { add_path(tree.leaves + leaf * width, chunk.output); });
  }

  // Return an element that every row passes.
  static PathElement always(int32_t feature, uint32_t column) {
    return {.zero_fraction = 1,
            .feature = feature,
            .path = 0,
            .column = column,
            .lower = 0,
            .upper = kMissingCode,
            .set_column = column,
            .set = kNoSet,
            .missing = 1,
            .place = 0};
  }

  // Return the test of an edge. A row passes the test if it takes the edge, and every edge above it on the
  // same feature.
  PathElement& test(uint32_t bit) { return tests_[2 * level_[bit_node(bit)] + (bit & 1)]; }

  // Add the test of a node's edge to the tests above it on the same feature.
  PathElement narrow(PathElement e, const DecideNode& d, bool right) {
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
    e.missing &= holds == static_cast<bool>(d.bias);
    return e;
  }

  // Reject tests of several columns: an element has one numeric and one categorical test.
  static void require_same(bool is_first, uint32_t tested, uint32_t column) {
    if (is_first || tested == column) return;
    throw std::invalid_argument(
        "algorithm='gputreeshap' cannot explain this model: a path of one of its trees tests several columns "
        "that are one player, as target statistics of the same categorical columns are; use "
        "algorithm='quadrature'");
  }

  uint32_t intersect(uint32_t set, const DecideNode& d, bool holds) {
    std::vector<uint32_t>& bits = out_.category_bits;
    const size_t first = bits.size(), n_words = (plan_.columns[d.column].categories.size() + 2 + 31) / 32;
    if (first + n_words > kNoSet)
      throw std::invalid_argument("too many categories for algorithm='gputreeshap'");
    for (size_t w = 0; w < n_words; ++w) {
      const uint32_t tested = plan_.category_bits[d.operand + w], own = holds ? tested : ~tested;
      bits.push_back(set == kNoSet ? own : own & bits[set + w]);
    }
    return static_cast<uint32_t>(first);
  }

  // Add the path to the leaf that the walk has reached.
  void add_path(size_t values, int32_t output) {
    const std::vector<PathStep>& steps = walk_.steps();
    if (steps.size() >= kPathLanes)
      throw std::invalid_argument(
          "algorithm='gputreeshap' cannot explain this model: a path of one of its trees "
          "tests more than " +
          std::to_string(kPathLanes - 1) + " distinct features; use algorithm='quadrature'");
    const size_t n = steps.size() + 1;
    path_[0] = always(-1, 0);
    for (size_t i = 1; i < n; ++i) {
      path_[i] = test(steps[i - 1].bit);
      path_[i].zero_fraction = steps[i - 1].share;
      path_[i].place = static_cast<uint8_t>(i);
    }
    for (size_t i = 0; i < n; ++i) path_[i].path = static_cast<uint32_t>(out_.paths.size());
    out_.begins.push_back(static_cast<int64_t>(out_.elements.size()));
    out_.elements.insert(out_.elements.end(), path_, path_ + n);
    out_.paths.push_back({static_cast<int64_t>(values), output, static_cast<uint32_t>(n)});
  }

  const Plan& plan_;
  PathWalk walk_;
  std::vector<PathElement> tests_;  // of both edges of each node of the path, by level
  std::vector<uint32_t> level_;     // by node
  PathElement path_[kPathLanes];    // the path being added
  PathSet out_;
};

}  // namespace

PathSet make_paths(const Plan& plan) { return Extractor(plan).extract(); }

}  // namespace skshap
