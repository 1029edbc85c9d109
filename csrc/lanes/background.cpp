// Leaves in lanes for values against a few background rows.
//
// For one background row, the game of a tree is that of path-dependent values if the cover of each node goes
// to the child that the background row takes: then the zero fraction of a feature is 1 if the background row
// satisfies the feature, and else 0. For several background rows, each has its copy of the trees, whose
// leaves are multiplied by the weight of the row.
#include <algorithm>

#include "lanes/builder.h"
#include "rows/coded_tiles.h"

namespace skshap {
namespace {

class BackgroundTrees {
 public:
  BackgroundTrees(const CodedEnsemble& coded, const Rows& rows)
      : from_(coded.trees()), columns_(coded.columns) {
    tile_.first = 0;
    tile_.n_rows = static_cast<int>(rows.n_rows);
    tile_.codes.allocate(columns_, kBlockRows);
    tile_.code(columns_, rows);
    out_.width = from_.value_width;
    out_.reserve(static_cast<size_t>(rows.n_rows * from_.n_nodes()));
  }

  // Add the trees of a background row.
  void add(int row, double weight) {
    for (int32_t tree = 0; tree < from_.n_trees; ++tree) {
      check_interrupt();
      const int64_t root = from_.tree_offsets[tree];
      const size_t first = out_.cover.size();
      for (int64_t node = root; node < from_.tree_offsets[tree + 1]; ++node) add_node(node, weight);
      out_.cover[first] = 1;
      for (int64_t node = root; node < from_.tree_offsets[tree + 1]; ++node)
        if (!from_.is_leaf(node))
          out_.cover[first +
                     static_cast<size_t>(goes_right(node, row) ? from_.right[node] : from_.left[node])] = 1;
      out_.end_tree(from_.tree_output[tree]);
    }
  }

  CodedTrees trees() const { return out_.trees(from_); }

 private:
  // Copy a node, with a cover of 0.
  void add_node(int64_t node, double weight) {
    out_.add_node(0);
    out_.left.back() = from_.left[node];
    out_.right.back() = from_.right[node];
    out_.player.back() = from_.player[node];
    out_.test.back() = from_.test[node];
    const double* const value = from_.value + node * out_.width;
    std::transform(value, value + out_.width, out_.value.end() - out_.width,
                   [weight](double x) { return weight * x; });
  }

  bool goes_right(int64_t node, int row) const {
    const DecideNode& test = from_.test[node];
    const size_t at = test.column * tile_.codes.stride + static_cast<size_t>(row);
    if (test.flags & kCategorical) {
      const uint32_t code = tile_.categories[at];
      return ~columns_.category_bits[test.operand + code / 32] >> (code % 32) & 1;
    }
    const auto passes = [&](auto code) {
      return static_cast<decltype(code)>(code + test.bias) > test.operand;
    };
    return columns_.wide_codes ? passes(tile_.codes.wide[at]) : passes(tile_.codes.narrow[at]);
  }

  const CodedTrees& from_;
  const CodedColumns& columns_;
  CodedTile tile_;
  CodedTreeArrays out_;
};

}  // namespace

Plan make_background_lane_plan(const EnsembleView& ensemble, Precision precision, const Rows& rows,
                               const double* weights, Index index, size_t most_bytes, int64_t n_threads) {
  Plan like{};
  like.precision = precision;
  like.index = index;
  const CodedEnsemble coded(ensemble, n_threads);
  static_cast<CodedColumns&>(like) = coded.columns;
  BackgroundTrees trees(coded, rows);
  for (int row = 0; row < static_cast<int>(rows.n_rows); ++row)
    if (weights[row] != 0) trees.add(row, weights[row]);
  const Plan plan = make_plan(trees.trees(), like, n_threads, false);
  return can_have_lanes(plan) ? make_lane_plan(plan, most_bytes) : Plan{};
}

}  // namespace skshap
