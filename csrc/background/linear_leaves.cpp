// Ensemble with linear leaves + background rows -> LinearPlan.
#include "background/linear_leaves.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "base/threads.h"
#include "plan/tree_paths.h"

namespace skshap {
namespace {

// A sum of products that keeps the rounding errors of its operations (Ogita, Rump & Oishi, 2005). An offset
// needs this, because its terms cancel.
class ExactSum {
 public:
  explicit ExactSum(double first) : sum_(first) {}
  void add(double a, double b) {
    const double product = a * b, sum = sum_ + product, part = sum - sum_;
    error_ += std::fma(a, b, -product) + ((sum_ - (sum - part)) + (product - part));
    sum_ = sum;
  }
  double value() const { return std::isfinite(error_) ? sum_ + error_ : sum_; }

 private:
  double sum_, error_ = 0;
};

class LinearCompiler {
 public:
  LinearCompiler(const EnsembleView& ensemble, const LinearLeavesView& linear, LinearPlan& out,
                 int64_t n_threads)
      : e_(ensemble),
        linear_(linear),
        out_(out),
        coded_(ensemble, n_threads),
        path_(coded_.trees().n_players) {}

  // Code the columns of the tests and of the linear terms.
  void add_columns(const Rows& rows, const double* weights) {
    Plan& plan = out_.plan;
    std::vector<int32_t> inputs, term_inputs;
    if (linear_.offsets)
      term_inputs.assign(linear_.feature, linear_.feature + linear_.offsets[e_.tree_offsets[e_.n_trees]]);
    sort_unique(term_inputs);
    static_cast<CodedColumns&>(plan) = coded_.columns;
    for (const Column& column : plan.columns) inputs.push_back(column.input);
    for (const int32_t input : term_inputs) plan.features.push_back(player_of(input));
    sort_unique(plan.features);
    inputs.insert(inputs.end(), term_inputs.begin(), term_inputs.end());
    sort_unique(inputs);
    plan.n_used_inputs = static_cast<int32_t>(inputs.size());
    for (Column& column : plan.columns) column.packed = packed_in(inputs, column.input);
    for (const int32_t input : term_inputs)
      out_.model.columns.push_back({input, packed_in(inputs, input), 0.0, 0.0});
    read_background(rows, weights);
  }

  void add_tree(int32_t number) {
    root_ = e_.tree_offsets[number];
    out_.trees.push_back({out_.plan.decide.size(), 0, out_.model.leaves.size(), 0});
    edges_.clear();
    for (int64_t node = root_;;) {
      if (!e_.is_leaf(node)) {
        add_node(node);
        node = root_ + e_.left[node];
        continue;
      }
      add_leaf(node);
      while (!edges_.empty() && edges_.back().right) {
        edges_.pop_back();
        path_.leave();
      }
      if (edges_.empty()) break;
      NumberedEdge& edge = edges_.back();
      edge.right = true;
      path_.take(bit_of(edge.number, true), kAnyShare);
      node = root_ + e_.right[edge.node];
    }
    out_.most_inner = std::max(out_.most_inner, out_.trees.back().n_inner);
  }

 private:
  static constexpr double kAnyShare = 0.5;  // covers do not matter
  struct NumberedEdge {
    int64_t node;
    int32_t number;  // of the node
    bool right;
  };

  int32_t player_of(int32_t input) const { return e_.player ? e_.player[input] : input; }
  static int32_t packed_in(const std::vector<int32_t>& inputs, int32_t input) {
    return static_cast<int32_t>(position(inputs, input));
  }

  // Read the values of the background data twice: first without subtracting means, then with the means
  // subtracted.
  void read_background(const Rows& rows, const double* weights) {
    const size_t n = static_cast<size_t>(rows.n_rows);
    LinearBackground& background = out_.background;
    background.codes = code_all_rows(out_.plan, rows);
    background.weights.assign(weights, weights + n);
    background.values.allocate(out_.model, n);
    background.values.read(out_.model, out_.plan.x_float32, rows, 0, n);
    for (uint32_t c = 0; c < out_.model.columns.size(); ++c) {
      double total = 0, sum = 0;
      const double* const values = background.values.column(c);
      for (size_t row = 0; row < n; ++row)
        if (!(background.values.missing(c, row / kBlockRows) >> row % kBlockRows & 1)) {
          total += weights[row];
          sum += weights[row] * values[row];
        }
      if (total > 0 && std::isfinite(sum / total)) out_.model.columns[c].mean = sum / total;
    }
    background.values.read(out_.model, out_.plan.x_float32, rows, 0, n);
  }

  void add_node(int64_t node) {
    LinearTree& tree = out_.trees.back();
    const int32_t number = static_cast<int32_t>(tree.n_inner++);
    const int32_t feature = coded_.trees().player[node];
    DecideNode test = coded_.trees().test[node];
    if (const PathStep* previous = path_.find(feature)) {
      test.previous = previous->bit >> 1;
      if (previous->bit & 1) test.flags |= kPreviousRight;
    }
    out_.plan.decide.push_back(test);
    path_.enter(feature);
    path_.take(bit_of(number, false), kAnyShare);
    edges_.push_back({node, number, false});
  }

  void add_leaf(int64_t node) {
    LinearModel& model = out_.model;
    LinearLeaf leaf{.first_feature = model.features.size(),
                    .first_term = model.terms.size(),
                    .n_path = static_cast<uint32_t>(path_.steps().size()),
                    .constant = e_.value[node],
                    .otherwise = e_.value[node]};
    for (const PathStep& step : path_.steps())
      model.features.push_back({place_of(coded_.columns.features[step.feature]), step.bit});
    if (linear_.offsets && linear_.offsets[node] < linear_.offsets[node + 1]) {
      ExactSum constant(linear_.intercept[node]);
      for (int64_t i = linear_.offsets[node]; i < linear_.offsets[node + 1]; ++i)
        add_term(leaf, linear_.feature[i], linear_.coefficient[i], constant);
      leaf.constant = constant.value();
    }
    const size_t n_features = model.features.size() - leaf.first_feature;
    if (std::max(n_features, model.terms.size() - leaf.first_term) > kMaxPathFeatures)
      throw std::invalid_argument(
          "a path, with the terms of its linear leaf, has " + std::to_string(n_features) +
          " different features; background data allow for at most " + std::to_string(kMaxPathFeatures));
    leaf.n_features = static_cast<uint32_t>(n_features);
    leaf.n_terms = static_cast<uint32_t>(model.terms.size() - leaf.first_term);
    model.leaves.push_back(leaf);
    ++out_.trees.back().n_leaves;
  }

  void add_term(const LinearLeaf& leaf, int32_t input, double coefficient, ExactSum& constant) {
    LinearModel& model = out_.model;
    const auto is_before = [](const LinearColumn& column, int32_t x) { return column.input < x; };
    const auto column = std::lower_bound(model.columns.begin(), model.columns.end(), input, is_before);
    constant.add(coefficient, column->mean);
    const auto number = static_cast<uint32_t>(column - model.columns.begin());
    for (size_t i = leaf.first_term; i < model.terms.size(); ++i)
      if (model.terms[i].column == number) {
        model.terms[i].coefficient += coefficient;
        return;
      }
    const uint32_t feature = place_of(player_of(input));
    size_t i = leaf.first_feature;
    while (i < model.features.size() && model.features[i].feature != feature) ++i;
    if (i == model.features.size()) model.features.push_back({feature, 0});
    model.terms.push_back({number, static_cast<uint32_t>(i - leaf.first_feature), coefficient});
  }

  uint32_t place_of(int32_t player) const { return position(out_.plan.features, player); }

  const EnsembleView& e_;
  const LinearLeavesView& linear_;
  LinearPlan& out_;
  const CodedEnsemble coded_;
  TreePath path_;
  std::vector<NumberedEdge> edges_;
  int64_t root_ = 0;
};

// Return the mean of a tree over the background data.
double mean_of(const LinearModel& model, const LinearTree& tree, const PatternSums& sums) {
  double mean = 0;
  for (size_t i = 0; i < tree.n_leaves; ++i) {
    const LinearLeaf& leaf = model.leaves[tree.first_leaf + i];
    const double* pattern_sums = sums.sums.data() + sums.sums_begin[i];
    for (size_t p = sums.begin[i]; p < sums.begin[i + 1]; ++p, pattern_sums += 1 + leaf.n_terms) {
      if (sums.patterns[p].fits != leaf.all()) continue;
      if (sums.patterns[p].present != leaf.all()) {
        mean += pattern_sums[0] * leaf.otherwise;
        continue;
      }
      mean += pattern_sums[0] * leaf.constant;
      for (uint32_t j = 0; j < leaf.n_terms; ++j)
        mean += model.terms[leaf.first_term + j].coefficient * pattern_sums[1 + j];
    }
  }
  return mean;
}

// Sum up the background data at the leaves of all trees, and keep as many sums as fit into sum_bytes.
// Subtract the expected value of each tree from its leaves. Return the expected values.
std::vector<double> sum_up_background(LinearPlan& out, size_t sum_bytes, int64_t n_threads) {
  std::vector<double> means(out.trees.size());
  out.sums.resize(out.trees.size());
  std::atomic<size_t> kept{0}, most{0};
  share_items(static_cast<int64_t>(out.trees.size()), n_threads, [&] {
    return [&, summer = PatternSummer(out)](int64_t i) mutable {
      const LinearTree& tree = out.trees[i];
      const PatternSums& sums = summer.sum_up(i);
      means[i] = mean_of(out.model, tree, sums);
      for (size_t leaf = tree.first_leaf; leaf < tree.first_leaf + tree.n_leaves; ++leaf) {
        out.model.leaves[leaf].constant -= means[i];
        out.model.leaves[leaf].otherwise -= means[i];
      }
      const size_t bytes = sums.bytes();
      for (size_t seen = most; seen < bytes && !most.compare_exchange_weak(seen, bytes);) continue;
      if ((kept += bytes) <= sum_bytes)
        out.sums[i] = sums;
      else
        kept -= bytes;
    };
  });
  out.summing_bytes = 2 * most + PatternSummer::bytes(out.background.weights.size(), out.most_inner);
  return means;
}

// Fill reach, column_reach and the plan's leaf_magnitude.
void find_reach(LinearPlan& out) {
  const size_t n_columns = out.model.columns.size(), n_outputs = out.plan.n_outputs;
  out.reach.assign(n_outputs, 0.0);
  out.column_reach.assign(n_outputs * n_columns, 0.0);
  std::vector<double> tree_largest(n_columns, 0.0);
  std::vector<uint32_t> columns;
  for (size_t o = 0; o < n_outputs; ++o)
    for (size_t i = out.first_tree[o]; i < out.first_tree[o + 1]; ++i) {
      const LinearTree& tree = out.trees[i];
      double largest = 0;
      columns.clear();
      for (size_t n = tree.first_leaf; n < tree.first_leaf + tree.n_leaves; ++n) {
        const LinearLeaf& leaf = out.model.leaves[n];
        largest = std::max({largest, std::fabs(leaf.constant), std::fabs(leaf.otherwise)});
        for (uint32_t j = 0; j < leaf.n_terms; ++j) {
          const LinearTerm& term = out.model.terms[leaf.first_term + j];
          double& largest = tree_largest[term.column];
          if (largest == 0) columns.push_back(term.column);
          largest = std::max(largest, std::fabs(term.coefficient));
        }
      }
      out.reach[o] += largest;
      for (const uint32_t column : columns) {
        out.column_reach[o * n_columns + column] += tree_largest[column];
        tree_largest[column] = 0;
      }
    }
  out.plan.leaf_magnitude = out.reach;
  for (uint32_t c = 0; c < n_columns; ++c) {
    const double* const values = out.background.values.column(c);
    double largest = 0;
    for (size_t row = 0; row < out.background.weights.size(); ++row)
      largest = std::max(largest, std::fabs(values[row]));
    out.model.columns[c].largest = largest;
    for (size_t o = 0; o < n_outputs; ++o)
      out.plan.leaf_magnitude[o] += out.column_reach[o * n_columns + c] * largest;
  }
}

}  // namespace

size_t LinearPlan::sum_bytes() const {
  size_t total = 0;
  for (const PatternSums& tree_sums : sums) total += tree_sums.bytes();
  return total;
}

size_t LinearPlan::bytes() const {
  return plan.bytes() + sizeof(LinearColumn) * model.columns.size() +
         sizeof(LinearLeaf) * model.leaves.size() + sizeof(LinearFeature) * model.features.size() +
         sizeof(LinearTerm) * model.terms.size() + sizeof(LinearTree) * trees.size() +
         8 * (reach.size() + column_reach.size()) + background.bytes() + sum_bytes();
}

LinearPlan make_linear_plan(const EnsembleView& e, const LinearLeavesView& leaves, Precision precision,
                            Index index, const Rows& rows, const double* weights, size_t sum_bytes,
                            int64_t n_threads) {
  LinearPlan out{};
  Plan& plan = out.plan;
  plan.n_outputs = e.n_outputs;
  plan.precision = precision;
  plan.order = 1;
  plan.index = index;
  LinearCompiler compiler(e, leaves, out, n_threads);
  compiler.add_columns(rows, weights);
  std::vector<int32_t> order(e.n_trees);
  std::iota(order.begin(), order.end(), 0);
  const auto output_of = [&](int32_t tree) { return std::max(e.tree_output[tree], 0); };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return output_of(a) < output_of(b); });
  for (const int32_t tree : order) {
    while (out.first_tree.size() <= static_cast<size_t>(output_of(tree)))
      out.first_tree.push_back(out.trees.size());
    compiler.add_tree(tree);
  }
  out.first_tree.resize(plan.n_outputs + 1, out.trees.size());
  plan.n_leaves = static_cast<int64_t>(out.model.leaves.size());
  const std::vector<double> means = sum_up_background(out, sum_bytes, n_threads);
  plan.constant.assign(e.intercept, e.intercept + e.n_outputs);
  for (size_t i = 0; i < order.size(); ++i) plan.constant[output_of(order[i])] += means[i];
  plan.base_value = plan.constant;
  find_reach(out);
  return out;
}

}  // namespace skshap
