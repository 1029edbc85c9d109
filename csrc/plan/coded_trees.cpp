#include "plan/coded_trees.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <unordered_map>

#include "base/threads.h"

namespace skshap {
namespace {

// Nodes for which another thread is worth waking, and nodes that a thread codes at a time.
constexpr int64_t kNodesPerThread = 1 << 13, kCodedNodes = 1 << 12;

// X may have this many more columns than the trees have nodes before a list with an element for each column
// would outgrow the trees.
constexpr int64_t kFewInputs = 1 << 16;

// Round a threshold to float32 on the side of the comparison: x is float32, so the decisions stay the same.
float as_float(double threshold, bool strict) {
  const float rounded = static_cast<float>(threshold);
  constexpr float inf = std::numeric_limits<float>::infinity();
  if (strict) return rounded < threshold ? std::nextafter(rounded, inf) : rounded;
  return rounded > threshold ? std::nextafter(rounded, -inf) : rounded;
}

// The numbers of the coded columns, by column of X.
class ColumnNumbers {
 public:
  explicit ColumnNumbers(int64_t n_listed) : listed_(2 * n_listed, -1) {}

  int32_t& of(int32_t input, bool categorical) {
    const size_t key = 2 * static_cast<size_t>(input) + categorical;
    return key < listed_.size() ? listed_[key] : others_.try_emplace(key, -1).first->second;
  }

 private:
  std::vector<int32_t> listed_;
  std::unordered_map<size_t, int32_t> others_;
};

// Write bits for the codes that go left: the codes of the listed categories, of any other category, and of
// missing values.
void write_categories(const EnsembleView& e, const Column& column, int64_t node, uint32_t* bits) {
  const int32_t set = e.category_set[node];
  const bool listed_left = e.category_listed_left[set];
  std::fill_n(bits, column.category_words(), listed_left ? 0u : ~0u);
  const auto assign = [bits](size_t code, bool left) {
    const uint32_t bit = 1u << (code & 31);
    bits[code >> 5] = left ? bits[code >> 5] | bit : bits[code >> 5] & ~bit;
  };
  for (int64_t i = e.category_offsets[set]; i < e.category_offsets[set + 1]; ++i)
    assign(position(column.categories, e.category_values[i]), listed_left);
  assign(column.categories.size() + 1, e.missing_left[node]);
}

}  // namespace

int64_t compiling_threads(int64_t n_nodes, int64_t n_threads) {
  return std::clamp<int64_t>(n_nodes / kNodesPerThread, 1, n_threads);
}

bool is_same_test(const CodedColumns& columns, const DecideNode& a, const DecideNode& b) {
  if (a.column != b.column || (a.flags ^ b.flags) & kCategorical || a.bias != b.bias) return false;
  if (!(a.flags & kCategorical)) return a.operand == b.operand;
  const auto bits = columns.category_bits.begin();
  return std::equal(bits + a.operand, bits + a.operand + columns.columns[a.column].category_words(),
                    bits + b.operand);
}

void CodedTreeArrays::reserve(size_t n_nodes) {
  for (auto* list : {&left, &right, &player}) list->reserve(n_nodes);
  test.reserve(n_nodes);
  cover.reserve(n_nodes);
  value.reserve(n_nodes * width);
}

int32_t CodedTreeArrays::add_node(double node_cover) {
  left.push_back(-1);
  right.push_back(-1);
  player.push_back(0);
  test.push_back({});
  cover.push_back(node_cover);
  for (int32_t o = 0; o < width; ++o) value.push_back(0);
  return static_cast<int32_t>(static_cast<int64_t>(left.size()) - tree_offsets.back() - 1);
}

void CodedTreeArrays::end_tree(int32_t output) {
  tree_offsets.push_back(static_cast<int64_t>(left.size()));
  tree_output.push_back(output);
}

void CodedTreeArrays::drop_nodes() {
  const size_t n_nodes = static_cast<size_t>(tree_offsets.back());
  for (auto* list : {&left, &right, &player}) list->resize(n_nodes);
  test.resize(n_nodes);
  cover.resize(n_nodes);
  value.resize(n_nodes * width);
}

CodedTrees CodedTreeArrays::trees(CodedTrees like) const {
  like.n_trees = static_cast<int32_t>(tree_output.size());
  like.value_width = width;
  like.tree_offsets = tree_offsets.data();
  like.tree_output = tree_output.data();
  like.left = left.data();
  like.right = right.data();
  like.player = player.data();
  like.next = next.empty() ? nullptr : next.data();
  like.test = test.data();
  like.cover = cover.data();
  like.value = value.data();
  return like;
}

CodedEnsemble::CodedEnsemble(const EnsembleView& e, int64_t n_threads) {
  columns.n_features = e.n_players;
  columns.n_inputs = e.n_features;
  columns.x_float32 = e.x_float32;
  columns.strict = e.strict;
  const int64_t n_nodes = e.n_nodes();
  test_.resize(n_nodes);
  player_.resize(n_nodes);
  add_columns(e);
  const int64_t n_coding = compiling_threads(n_nodes, n_threads);
  sort_columns(n_coding);
  number_inputs_and_features();
  place_categories(e);
  share_items((n_nodes + kCodedNodes - 1) / kCodedNodes, n_coding, [&] {
    return [&](int64_t part) {
      for (int64_t node = part * kCodedNodes; node < std::min((part + 1) * kCodedNodes, n_nodes); ++node)
        if (!e.is_leaf(node)) code(e, node);
    };
  });
  static_cast<TreeArrays&>(trees_) = e;
  trees_.n_features = trees_.n_players = static_cast<int32_t>(columns.features.size());
  trees_.player = player_.data();
  trees_.test = test_.data();
}

// Add the columns that the trees test, in the order in which the nodes test them. Each test gets its column.
void CodedEnsemble::add_columns(const EnsembleView& e) {
  const auto n_nodes = static_cast<int64_t>(test_.size());
  ColumnNumbers numbers(std::min<int64_t>(e.n_features, n_nodes + kFewInputs));
  size_t n_listed = 0;
  for (int64_t node = 0; node < n_nodes; ++node) {
    if (node % kCodedNodes == 0) check_interrupt();
    if (e.is_leaf(node)) continue;
    const int32_t x = e.feature[node];
    const bool categorical = e.is_categorical(node);
    int32_t& number = numbers.of(x, categorical);
    if (number < 0) {
      number = static_cast<int32_t>(columns.columns.size());
      columns.columns.push_back({.feature = e.player ? e.player[x] : x,
                                 .input = x,
                                 .packed = 0,
                                 .categorical = categorical,
                                 .zero_missing = e.zero_missing && e.zero_missing[x],
                                 .thresholds_float = {},
                                 .thresholds_double = {},
                                 .categories = {}});
    }
    test_[node].column = static_cast<uint32_t>(number);
    Column& column = columns.columns[number];
    if (categorical) {
      const int32_t set = e.category_set[node];
      column.categories.insert(column.categories.end(), e.category_values + e.category_offsets[set],
                               e.category_values + e.category_offsets[set + 1]);
      // A thousand nodes may list the same thousand categories, so the list is compacted when it grows much
      // larger than its final size.
      if (column.categories.size() > 2 * n_listed + 4096) {
        sort_unique(column.categories);
        n_listed = column.categories.size();
      }
    } else if (e.x_float32) {
      column.thresholds_float.push_back(as_float(e.threshold[node], e.strict));
    } else {
      column.thresholds_double.push_back(e.threshold[node]);
    }
  }
}

void CodedEnsemble::sort_columns(int64_t n_threads) {
  share_items(static_cast<int64_t>(columns.columns.size()), n_threads, [&] {
    return [&](int64_t i) {
      Column& column = columns.columns[i];
      sort_unique(column.thresholds_float);
      sort_unique(column.thresholds_double);
      sort_unique(column.categories);
    };
  });
  size_t most = 0;
  for (const Column& column : columns.columns)
    most = std::max({most, column.thresholds_float.size(), column.thresholds_double.size()});
  // The largest code means missing, and the sum of a rank and its bias must not wrap.
  columns.wide_codes = most > 0xfffe;
}

void CodedEnsemble::number_inputs_and_features() {
  std::vector<int32_t> inputs;
  for (const Column& column : columns.columns) {
    inputs.push_back(column.input);
    columns.features.push_back(column.feature);
  }
  sort_unique(inputs);
  sort_unique(columns.features);
  columns.n_used_inputs = static_cast<int32_t>(inputs.size());
  for (Column& column : columns.columns) column.packed = static_cast<int32_t>(position(inputs, column.input));
  feature_of_column_ = column_features(columns);
}

// Give each categorical test a place among the bits.
void CodedEnsemble::place_categories(const EnsembleView& e) {
  if (!e.category_set) return;
  size_t n_words = 0;
  for (size_t node = 0; node < test_.size(); ++node) {
    if (e.is_leaf(static_cast<int64_t>(node)) || !e.is_categorical(static_cast<int64_t>(node))) continue;
    if (n_words > std::numeric_limits<uint32_t>::max()) throw std::invalid_argument("too many categories");
    test_[node].operand = static_cast<uint32_t>(n_words);
    n_words += columns.columns[test_[node].column].category_words();
  }
  columns.category_bits.resize(n_words);
}

void CodedEnsemble::code(const EnsembleView& e, int64_t node) {
  DecideNode& test = test_[node];
  const Column& column = columns.columns[test.column];
  player_[node] = feature_of_column_[test.column];
  if (column.categorical) {
    test.flags = kCategorical;
    return write_categories(e, column, node, columns.category_bits.data() + test.operand);
  }
  test.bias = e.missing_left[node];
  test.operand =
      test.bias + (e.x_float32 ? position(column.thresholds_float, as_float(e.threshold[node], e.strict))
                               : position(column.thresholds_double, e.threshold[node]));
}

}  // namespace skshap
