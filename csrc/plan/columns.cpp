#include "plan/columns.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "base/threads.h"
#include "plan/tree_shapes.h"

namespace skshap {
namespace {

// Round a threshold to float32 on the side of the comparison: x is float32, so the decisions stay the same.
float as_float(double threshold, bool strict) {
  const float rounded = static_cast<float>(threshold);
  constexpr float inf = std::numeric_limits<float>::infinity();
  if (strict) return rounded < threshold ? std::nextafter(rounded, inf) : rounded;
  return rounded > threshold ? std::nextafter(rounded, -inf) : rounded;
}

}  // namespace

ColumnCoder::ColumnCoder(const EnsembleView& ensemble, Plan& plan, int64_t n_threads)
    : e_(ensemble), plan_(plan), numeric_(e_.n_features, -1), categorical_(e_.n_features, -1) {
  const int64_t n_nodes = e_.tree_offsets[e_.n_trees];
  for (int64_t node = 0; node < n_nodes; ++node)
    if (!e_.is_leaf(node)) add_test(node);
  plan_.n_used_inputs = 0;
  for (int32_t x = 0; x < e_.n_features; ++x) {
    for (const int32_t index : {numeric_[x], categorical_[x]})
      if (index >= 0) plan_.columns[index].packed = plan_.n_used_inputs;
    plan_.n_used_inputs += numeric_[x] >= 0 || categorical_[x] >= 0;
  }
  std::atomic<size_t> next{0};
  run_threads(compiling_threads(e_, n_threads), [&](bool) {
    for (size_t i; (i = next++) < plan_.columns.size();) {
      Column& column = plan_.columns[i];
      sort_unique(column.thresholds_float);
      sort_unique(column.thresholds_double);
      sort_unique(column.categories);
    }
  });
  size_t most = 0;
  for (const Column& column : plan_.columns)
    most = std::max({most, column.thresholds_float.size(), column.thresholds_double.size()});
  // The largest code means missing, and the sum of a rank and its bias must not wrap.
  plan_.wide_codes = most > 0xfffe;
  sort_unique(plan_.features);
}

ColumnCoder::ColumnCoder(const EnsembleView& ensemble, Plan& plan, const CodedTests& coded)
    : e_(ensemble), plan_(plan), tests_(coded.tests) {
  const Plan& from = coded.plan;
  plan.n_features = from.n_features;
  plan.n_inputs = from.n_inputs;
  plan.n_used_inputs = from.n_used_inputs;
  plan.wide_codes = from.wide_codes;
  plan.columns = from.columns;
  plan.features.resize(from.features.size());
  std::iota(plan.features.begin(), plan.features.end(), 0);
  plan.category_bits = from.category_bits;
}

void ColumnCoder::add_test(int64_t node) {
  const int32_t x = e_.feature[node];
  int32_t& index = e_.is_categorical(node) ? categorical_[x] : numeric_[x];
  if (index < 0) {
    index = static_cast<int32_t>(plan_.columns.size());
    plan_.columns.push_back({e_.player_of(node),
                             x,
                             0,
                             e_.is_categorical(node),
                             e_.zero_missing && e_.zero_missing[x],
                             {},
                             {},
                             {}});
    plan_.features.push_back(e_.player_of(node));
  }
  Column& column = plan_.columns[index];
  if (column.categorical) {
    const int32_t set = e_.category_set[node];
    column.categories.insert(column.categories.end(), e_.category_values + e_.category_offsets[set],
                             e_.category_values + e_.category_offsets[set + 1]);
    // A thousand nodes may list the same thousand categories, so the list is compacted when it grows much
    // larger than its final size.
    if (column.categories.size() > 2 * n_listed_ + 4096) {
      sort_unique(column.categories);
      n_listed_ = column.categories.size();
    }
  } else if (e_.x_float32) {
    column.thresholds_float.push_back(as_float(e_.threshold[node], e_.strict));
  } else {
    column.thresholds_double.push_back(e_.threshold[node]);
  }
}

DecideNode ColumnCoder::code(int64_t node, std::vector<uint32_t>& category_bits) const {
  if (tests_) return tests_[node];
  const int32_t x = e_.feature[node];
  const bool missing_left = e_.missing_left[node];
  DecideNode d{0, 0, 0, 0, 0};
  if (e_.is_categorical(node)) {
    d.column = static_cast<uint32_t>(categorical_[x]);
    d.operand = write_categories(plan_.columns[d.column], e_.category_set[node], missing_left, category_bits);
    d.flags |= kCategorical;
    return d;
  }
  d.column = static_cast<uint32_t>(numeric_[x]);
  const Column& column = plan_.columns[d.column];
  d.bias = missing_left;
  d.operand =
      d.bias + (e_.x_float32 ? position(column.thresholds_float, as_float(e_.threshold[node], e_.strict))
                             : position(column.thresholds_double, e_.threshold[node]));
  return d;
}

// Write bits for the codes that go left: the codes of the listed categories, of any other category, and of
// missing values.
uint32_t ColumnCoder::write_categories(const Column& column, int32_t set, bool missing_left,
                                       std::vector<uint32_t>& category_bits) const {
  const size_t n_codes = column.categories.size() + 2, first = category_bits.size();
  if (first > std::numeric_limits<uint32_t>::max()) throw std::invalid_argument("too many categories");
  const bool listed_left = e_.category_listed_left[set];
  category_bits.resize(first + (n_codes + 31) / 32, listed_left ? 0u : ~0u);
  uint32_t* bits = category_bits.data() + first;
  const auto assign = [bits](size_t code, bool left) {
    const uint32_t bit = 1u << (code & 31);
    bits[code >> 5] = left ? bits[code >> 5] | bit : bits[code >> 5] & ~bit;
  };
  for (int64_t i = e_.category_offsets[set]; i < e_.category_offsets[set + 1]; ++i)
    assign(position(column.categories, e_.category_values[i]), listed_left);
  assign(n_codes - 1, missing_left);
  return static_cast<uint32_t>(first);
}

UsedFeatures::UsedFeatures(const EnsembleView& ensemble)
    : view_(ensemble), number_(ensemble.feature, ensemble.feature + ensemble.tree_offsets[ensemble.n_trees]) {
  for (size_t node = 0; node < number_.size(); ++node)
    if (ensemble.left[node] >= 0) used_.push_back(number_[node]);
  sort_unique(used_);
  for (size_t node = 0; node < number_.size(); ++node)
    number_[node] = ensemble.left[node] < 0 ? 0 : static_cast<int32_t>(position(used_, number_[node]));
  if (ensemble.zero_missing)
    for (const int32_t f : used_) zero_missing_.push_back(ensemble.zero_missing[f]);
  for (const int32_t f : used_) players_.push_back(ensemble.player ? ensemble.player[f] : f);
  sort_unique(players_);
  for (const int32_t f : used_)
    player_.push_back(static_cast<int32_t>(position(players_, ensemble.player ? ensemble.player[f] : f)));
  view_.n_features = static_cast<int32_t>(used_.size());
  view_.n_players = static_cast<int32_t>(players_.size());
  view_.player = player_.data();
  view_.feature = number_.data();
  view_.zero_missing = ensemble.zero_missing ? zero_missing_.data() : nullptr;
}

}  // namespace skshap
