// The boundary of the core: ensembles that keep the rules of Ensemble.validate (ensemble.py), and no others,
// through every plan, with sanitizers. Bytes are choices, so each input is such an ensemble.
//
// The results of a plan are compared: margins with a plain evaluation of the trees, base value plus values
// with the margin, and the values of each method with those of the walk in double precision.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include "background/background_pairs.h"
#include "background/pair_tables.h"
#include "background/rescaled.h"
#include "cpu/tree_algorithm.h"
#include "intervals/builder.h"
#include "tables/stored_tables.h"
#include "tables/table_builder.h"

using namespace skshap;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Limits of a plan's tables and of a thread's stack: small, so that running out of them is tested, too.
constexpr size_t kTableBytes = 1 << 20;
constexpr size_t kMaxScratch = size_t{1} << 28;

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  uint8_t byte() { return at_ < end_ ? *at_++ : 0; }
  bool flag() { return byte() & 1; }
  // Draws a number from 0 to n - 1.
  int number(int n) { return n > 256 ? (byte() << 8 | byte()) % n : byte() % n; }

  uint64_t word() {
    uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits = bits << 8 | byte();
    return bits;
  }

  // Draws any number except NaN.
  double any() {
    const uint64_t bits = word();
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return std::isnan(x) ? 0.0 : x;
  }

  double special() {
    constexpr double kNumbers[] = {0.0,    -0.0,   0.5,     1.0,    -1.0,      1e-35,     -1e-35,   1e-45,
                                   5e-324, 1e-310, 3.4e38,  3.5e38, -3.5e38,   1e300,     16777217, 1e308,
                                   -1e308, 0.1f,   1.0 / 3, 2.0,    kInfinity, -kInfinity};
    return kNumbers[number(sizeof kNumbers / sizeof *kNumbers)];
  }

  double threshold() {
    const int kind = number(4);
    return kind == 0 ? any() : kind == 1 ? special() : number(16) - 8;
  }

  double finite() {
    const double x = number(8) ? (number(256) - 128) / 16.0 : any();
    return std::isfinite(x) ? x : 1.0;
  }

  // Draws a number that is not negative.
  double cover() {
    const int kind = number(8);
    const double x = kind == 0 ? any() : kind == 1 ? special() : number(64);
    return std::isfinite(x) ? std::fabs(x) : 1.0;
  }

 private:
  const uint8_t *at_, *end_;
};

struct Ensemble {
  EnsembleView view{};
  std::vector<int64_t> tree_offsets{0};
  std::vector<int32_t> tree_output, left, right, feature;
  std::vector<double> threshold, cover, value, intercept;
  std::vector<uint8_t> missing_left, zero_missing;
  std::vector<int32_t> player, category_set, category_values;
  std::vector<int64_t> category_offsets{0};
  std::vector<uint8_t> category_listed_left;

  explicit Ensemble(Bytes& bytes) {
    const uint8_t options = bytes.byte();
    const bool vector = options & 1;
    view.x_float32 = options & 2;
    view.strict = options & 4;
    const bool categories = options & 8;
    view.n_features = (options & 16) ? 1 + bytes.number(200) : 1 + bytes.number(6);
    if (bytes.number(64) == 63) view.n_features = std::numeric_limits<int32_t>::max();
    view.n_outputs = 1 + bytes.number(3);
    view.value_width = vector ? view.n_outputs : 1;
    for (int o = 0; o < view.n_outputs; ++o) intercept.push_back(bytes.finite());
    if ((options & 32) && view.n_features < 1000)
      for (int f = 0; f < view.n_features; ++f) zero_missing.push_back(bytes.flag());
    view.n_players = view.n_features;
    if ((options & 64) && view.n_features < 1000) make_players(bytes);
    if (categories) make_sets(bytes);
    view.n_trees = bytes.number((options & 128) ? 40 : 4);
    for (int tree = 0; tree < view.n_trees; ++tree) {
      grow(bytes);
      tree_offsets.push_back(static_cast<int64_t>(left.size()));
      tree_output.push_back(vector ? -1 : bytes.number(view.n_outputs));
    }
    point();
  }

 private:
  // Each feature belongs to an existing player or to the next one.
  void make_players(Bytes& bytes) {
    view.n_players = 0;
    for (int f = 0; f < view.n_features; ++f) {
      player.push_back(bytes.number(view.n_players + 1));
      view.n_players = std::max(view.n_players, player.back() + 1);
    }
  }

  void make_sets(Bytes& bytes) {
    constexpr int32_t kCodes[] = {0,
                                  1,
                                  2,
                                  7,
                                  30,
                                  31,
                                  32,
                                  33,
                                  63,
                                  64,
                                  65,
                                  100,
                                  255,
                                  256,
                                  1000,
                                  65535,
                                  1 << 16,
                                  1 << 20,
                                  1 << 24,
                                  (1 << 24) + 1,
                                  std::numeric_limits<int32_t>::max()};
    const int n_sets = 1 + bytes.number(4);
    for (int set = 0; set < n_sets; ++set) {
      for (const int32_t code : kCodes)
        if (bytes.number(4) == 0) category_values.push_back(code);
      category_offsets.push_back(static_cast<int64_t>(category_values.size()));
      category_listed_left.push_back(bytes.flag());
    }
  }

  int32_t add(Bytes& bytes) {
    left.push_back(-1);
    right.push_back(-1);
    feature.push_back(0);
    threshold.push_back(0);
    missing_left.push_back(0);
    cover.push_back(bytes.cover());
    for (int o = 0; o < view.value_width; ++o) value.push_back(bytes.finite());
    category_set.push_back(-1);
    return static_cast<int32_t>(left.size() - 1 - tree_offsets.back());
  }

  void grow(Bytes& bytes) {
    const int64_t root = tree_offsets.back();
    std::vector<int32_t> leaves{add(bytes)};
    const bool chain = bytes.flag();
    int n_splits = bytes.number(24);
    if (chain && bytes.number(8) == 7) n_splits *= 8;
    for (int split = 0; split < n_splits; ++split) {
      const size_t which = chain ? leaves.size() - 1 : static_cast<size_t>(bytes.byte()) % leaves.size();
      const int64_t node = root + leaves[which];
      leaves.erase(leaves.begin() + static_cast<std::ptrdiff_t>(which));
      const int32_t a = add(bytes), b = add(bytes);
      left[node] = a;
      right[node] = b;
      feature[node] =
          view.n_features > 1000 ? view.n_features - 1 - bytes.number(4) : bytes.number(view.n_features);
      threshold[node] = bytes.threshold();
      missing_left[node] = bytes.flag();
      std::fill_n(value.begin() + node * view.value_width, view.value_width, 0.0);
      const size_t n_sets = category_listed_left.size();
      if (n_sets && bytes.flag()) category_set[node] = static_cast<int32_t>(bytes.byte() % n_sets);
      leaves.push_back(a);
      leaves.push_back(b);
      if (chain && bytes.flag()) std::swap(leaves[leaves.size() - 1], leaves[leaves.size() - 2]);
    }
  }

  void point() {
    view.tree_offsets = tree_offsets.data();
    view.tree_output = tree_output.data();
    view.left = left.data();
    view.right = right.data();
    view.feature = feature.data();
    view.threshold = threshold.data();
    view.missing_left = missing_left.data();
    view.cover = cover.data();
    view.value = value.data();
    view.intercept = intercept.data();
    view.player = player.empty() ? nullptr : player.data();
    view.zero_missing = zero_missing.empty() ? nullptr : zero_missing.data();
    view.category_set = category_listed_left.empty() ? nullptr : category_set.data();
    view.category_offsets = category_offsets.data();
    view.category_values = category_values.data();
    view.category_listed_left = category_listed_left.data();
  }
};

// Rows with any strides, in either precision.
struct Input {
  std::vector<double> numbers;  // [row][feature], as the trees compare them
  std::vector<char> memory;
  Rows rows{};

  Input(Bytes& bytes, const EnsembleView& view, int n_rows) {
    const int64_t n = view.n_features;
    rows.is_float32 = bytes.flag();
    rows.n_rows = n_rows;
    const int64_t size = rows.is_float32 ? 4 : 8;
    const int layout = bytes.number(4);
    rows.column_stride = layout == 0 ? size : layout == 1 ? size * n_rows : layout == 2 ? 2 * size : -size;
    rows.row_stride = layout == 1 ? size : layout == 2 ? 2 * size * n : size * n;
    if (bytes.number(16) == 15) rows.row_stride = 0;
    memory.resize(static_cast<size_t>(2 * size * n * std::max(n_rows, 1)));
    char* const first = memory.data() + (layout == 3 ? size * (n - 1) : 0);
    rows.data = first;
    for (int row = 0; row < n_rows; ++row)
      for (int64_t f = 0; f < n; ++f) {
        const int kind = bytes.number(8);
        double x = kind == 0   ? std::nan("")
                   : kind == 1 ? bytes.special()
                   : kind == 2 ? bytes.any()
                               : bytes.number(16) - 8;
        char* const place = first + row * rows.row_stride + f * rows.column_stride;
        if (rows.is_float32) {
          const float y = static_cast<float>(x);
          std::memcpy(place, &y, sizeof y);
        } else {
          std::memcpy(place, &x, sizeof x);
        }
      }
    for (int row = 0; row < n_rows; ++row)
      for (int64_t f = 0; f < n; ++f) {
        const char* const place = first + row * rows.row_stride + f * rows.column_stride;
        double x;
        float y;
        if (rows.is_float32) {
          std::memcpy(&y, place, sizeof y);
          x = y;
        } else {
          std::memcpy(&x, place, sizeof x);
        }
        numbers.push_back(view.x_float32 ? static_cast<double>(static_cast<float>(x)) : x);
      }
  }
};

[[noreturn]] void fail(const char* what, double found, double expected) {
  std::fprintf(stderr, "%s: %.17g instead of %.17g\n", what, found, expected);
  std::abort();
}

bool goes_left(const EnsembleView& e, int64_t node, double x) {
  const bool zero =
      e.zero_missing && e.zero_missing[e.feature[node]] && std::fabs(x) <= static_cast<double>(1e-35f);
  if (std::isnan(x) || zero) return e.missing_left[node];
  if (e.category_set && e.category_set[node] >= 0) {
    const int32_t set = e.category_set[node];
    const double code = std::trunc(x);
    bool listed = false;
    for (int64_t i = e.category_offsets[set]; i < e.category_offsets[set + 1]; ++i)
      listed |= code == e.category_values[i];
    return listed == static_cast<bool>(e.category_listed_left[set]);
  }
  return e.strict ? x < e.threshold[node] : x <= e.threshold[node];
}

std::vector<double> margins(const EnsembleView& e, const Input& input) {
  std::vector<double> out;
  for (int64_t row = 0; row < input.rows.n_rows; ++row) {
    std::vector<double> sum(e.intercept, e.intercept + e.n_outputs);
    for (int32_t tree = 0; tree < e.n_trees; ++tree) {
      const int64_t root = e.tree_offsets[tree];
      int64_t node = root;
      while (e.left[node] >= 0)
        node =
            root + (goes_left(e, node, input.numbers[row * e.n_features + e.feature[node]]) ? e.left[node]
                                                                                            : e.right[node]);
      for (int32_t o = 0; o < e.value_width; ++o)
        sum[std::max(e.tree_output[tree], 0) + o] += e.value[node * e.value_width + o];
    }
    out.insert(out.end(), sum.begin(), sum.end());
  }
  return out;
}

// Sum of the largest magnitude of each tree: rounding errors are relative to it. Infinite where sums may
// overflow.
double scale_of(const EnsembleView& e) {
  double sum = 0;
  for (int32_t o = 0; o < e.n_outputs; ++o) sum += std::fabs(e.intercept[o]);
  for (int64_t i = 0; i < e.tree_offsets[e.n_trees] * e.value_width; ++i) sum += std::fabs(e.value[i]);
  return sum < 1e300 ? sum : kInfinity;
}

template <class X>
struct Results {
  std::vector<X> values, pairs, triples, matrices;
  std::vector<double> margin;
  Result result{};

  Results(const Plan& plan, int64_t n_rows, bool with_matrices) {
    const size_t n = static_cast<size_t>(n_rows * plan.n_outputs), f = plan.n_features;
    values.resize(n * f);
    margin.resize(n);
    result = {values.data(), sizeof(X) == 4, margin.data()};
    if (!plan.interactions()) return;
    pairs.resize(n * plan.pairs.size());
    result.pairs = pairs.data();
    if (with_matrices) {
      matrices.resize(n * f * f);
      result.matrices = matrices.data();
    }
    if (plan.order < 3) return;
    triples.resize(n * plan.triples.size());
    result.triples = triples.data();
  }
};

class Checks {
 public:
  Checks(const EnsembleView& view, const Input& input)
      : e_(view), input_(input), margins_(margins(view, input)), scale_(scale_of(view)) {}

  template <class X>
  void margin(const Results<X>& found) const {
    if (!std::isfinite(scale_)) return;
    for (size_t i = 0; i < margins_.size(); ++i)
      if (!(std::fabs(found.margin[i] - margins_[i]) <= 1e-9 * scale_))
        fail("margin", found.margin[i], margins_[i]);
  }

  template <class X>
  void sums(const Results<X>& found, const std::vector<double>& base, double tolerance) const {
    if (!std::isfinite(scale_)) return;
    const size_t n = e_.n_players;
    if (sizeof(X) == 4) tolerance = std::max(tolerance, 1e-5);
    if (sizeof(X) == 4 && scale_ > 1e37) return;
    for (size_t i = 0; i < margins_.size(); ++i) {
      double sum = base[i % e_.n_outputs];
      for (size_t f = 0; f < n; ++f) sum += found.values[i * n + f];
      if (!(std::fabs(sum - margins_[i]) <= tolerance * scale_)) fail("sum of values", sum, margins_[i]);
    }
  }

  template <class X, class Y>
  void same(const Results<X>& found, const std::vector<Y>& expected, double tolerance) const {
    if (!std::isfinite(scale_) || (sizeof(Y) == 4 && scale_ > 1e37)) return;
    for (size_t i = 0; i < expected.size(); ++i)
      if (!(std::fabs(found.values[i] - expected[i]) <= tolerance * scale_))
        fail("value", found.values[i], expected[i]);
  }

 private:
  const EnsembleView& e_;
  const Input& input_;
  const std::vector<double> margins_;
  const double scale_;
};

const auto kNever = [] { return false; };

bool is_small(size_t scratch) { return scratch < kMaxScratch; }

// Possible contents of a file for a plan's tables: any numbers, and occasionally too few.
template <class Make>
void stored(Bytes& bytes, const Plan& plan, const Input& input, const Make& make) {
  if (!plan.tables.any()) return;
  StoredTables contents;
  contents.layout = layout_digest(plan);
  contents.level_limit = plan.tables.level_limit;
  contents.leaf_bits = plan.tables.leaf_bits;
  std::vector<float> floats(plan.tables.floats.size());
  std::vector<double> doubles(plan.tables.doubles.size());
  for (float& x : floats) x = static_cast<float>(bytes.any());
  for (double& x : doubles) x = bytes.any();
  std::vector<uint64_t> counts = pattern_counts(plan);
  std::vector<uint64_t> patterns(plan.tables.patterns.data(),
                                 plan.tables.patterns.data() + plan.tables.patterns.size());
  std::vector<double> weights(plan.tables.weights.data(),
                              plan.tables.weights.data() + plan.tables.weights.size());
  std::vector<double> base = plan.base_value;
  switch (bytes.number(8)) {
    case 0: contents.layout ^= bytes.byte(); break;
    case 1: contents.level_limit = bytes.number(1000); break;
    case 2: contents.leaf_bits = bytes.byte(); break;
    case 3: floats.resize(bytes.number(300)), doubles.resize(bytes.number(300)); break;
    case 4:
      if (!counts.empty()) counts[bytes.byte() % counts.size()] = bytes.word();
      break;
    case 5:
      if (!patterns.empty()) patterns[bytes.byte() % patterns.size()] = ~uint64_t{0} >> bytes.number(64);
      break;
    case 6: weights.resize(bytes.number(300)), base.resize(bytes.number(5)); break;
    default: break;
  }
  const auto lend = [](auto& to, const auto& from) { to.borrow(from.data(), from.size(), nullptr); };
  lend(contents.floats, floats);
  lend(contents.doubles, doubles);
  if (plan.tables.against_background) {
    lend(contents.counts, counts);
    lend(contents.patterns, patterns);
    lend(contents.weights, weights);
    lend(contents.base_value, base);
  }
  try {
    const Plan again = make(&contents);
    Results<double> found(again, input.rows.n_rows, false);
    explain(again, input.rows, found.result, 1, kNever);
  } catch (const std::invalid_argument&) {  // not the contents of this plan
  }
}

// Tables by intervals for all trees of a plan that can have them, whose values are known. The number of
// threads changes no bit.
void by_intervals(Bytes& bytes, const Plan& plan, const Input& input, const Checks& checks,
                  const std::vector<double>& expected) {
  constexpr uint32_t kLimits[] = {0, 1, 2, 3, 4, 6, 8, 12, 32, 100, 200, 512, 4096, 16384, ~0u};
  const uint32_t most_entries = kLimits[bytes.number(sizeof kLimits / sizeof *kLimits)];
  IntervalPrices prices{};
  prices.leaf = prices.leaf_node = prices.table = prices.small_bytes = prices.built_table = 1;
  prices.line_bytes = 64;
  prices.built_leaf = 5;
  const IntervalLimits limits{most_entries, 1, 1e9};
  const IntervalLayout layout = lay_out_intervals(plan, prices, limits);
  if (layout.costs.tables.bytes > kTableBytes) return;
  const int n_threads = 1 + bytes.number(3);
  const Plan tables = make_interval_plan(plan, layout, n_threads);
  if (tables.intervals.table_bytes() != layout.costs.tables.bytes)
    fail("bytes of tables", static_cast<double>(tables.intervals.table_bytes()),
         static_cast<double>(layout.costs.tables.bytes));
  if (!is_small(scratch_bytes(tables))) return;
  Results<double> found(tables, input.rows.n_rows, false), again(tables, input.rows.n_rows, false);
  explain(tables, input.rows, found.result, n_threads, kNever);
  checks.margin(found);
  checks.same(found, expected, plan.precision == Precision::kSingle ? 1e-4 : 1e-9);
  explain(make_interval_plan(plan, layout, 1), input.rows, again.result, 1, kNever);
  for (size_t i = 0; i < found.values.size(); ++i)
    if (std::memcmp(&found.values[i], &again.values[i], sizeof(double)) != 0)
      fail("value of other threads", found.values[i], again.values[i]);
}

void path_dependent(Bytes& bytes, const Ensemble& ensemble, const Input& input, const Checks& checks) {
  const int n_threads = 1 + bytes.number(2);
  const Plan reference = make_plan(ensemble.view, Precision::kDouble);
  if (!is_small(scratch_bytes(reference))) return;
  Results<double> expected(reference, input.rows.n_rows, false);
  explain(reference, input.rows, expected.result, n_threads, kNever);
  checks.margin(expected);
  checks.sums(expected, reference.base_value, 1e-9);

  const Precision precision = bytes.flag() ? Precision::kSingle : Precision::kDouble;
  const double tolerance = precision == Precision::kSingle ? 1e-4 : 1e-9;
  const Index index = static_cast<Index>(bytes.number(3));
  const int order = index == Index::kTaylor ? 2 : 1 + bytes.number(3);
  const Plan plan = make_plan(ensemble.view, precision, order, index);
  if (is_small(scratch_bytes(plan))) {
    Results<float> found(plan, input.rows.n_rows, bytes.flag() && plan.n_features < 100);
    explain(plan, input.rows, found.result, n_threads, kNever);
    checks.margin(found);
    if (index != Index::kBanzhaf) checks.sums(found, plan.base_value, tolerance);
  }

  int longest = 0;
  for (const Chunk& chunk : reference.chunks) longest = std::max(longest, 2 * chunk.n_nodes);
  for (const TreeAlgorithm* algorithm : tree_algorithms()) {
    const bool has_tables = algorithm->add_tables;
    Plan by_tree = make_plan(ensemble.view, Precision::kDouble, 1, Index::kShapley, !has_tables, n_threads);
    try {
      set_algorithm(by_tree, *algorithm, {kTableBytes, n_threads, nullptr});
    } catch (const std::invalid_argument&) {  // a path is too long
      continue;
    } catch (const TableMemoryError&) {
      continue;
    }
    if (!is_small(scratch_bytes(by_tree))) continue;
    Results<double> found(by_tree, input.rows.n_rows, false);
    explain(by_tree, input.rows, found.result, n_threads, kNever);
    checks.margin(found);
    // Recursions lose digits on long paths.
    if (has_tables || longest <= 16) checks.same(found, expected.values, has_tables ? tolerance : 1e-6);
  }

  const auto with_tables = [&](const StoredTables* contents) {
    return make_level_plan(ensemble.view, precision, Index::kShapley, kTableBytes, n_threads, contents);
  };
  const Plan tables = with_tables(nullptr);
  Results<double> found(tables, input.rows.n_rows, false);
  explain(tables, input.rows, found.result, n_threads, kNever);
  checks.margin(found);
  checks.same(found, expected.values, tolerance);
  stored(bytes, tables, input, with_tables);

  by_intervals(bytes, tables, input, checks, expected.values);
  const Plan banzhaf = make_plan(ensemble.view, Precision::kDouble, 1, Index::kBanzhaf);
  Results<double> walked(banzhaf, input.rows.n_rows, false);
  explain(banzhaf, input.rows, walked.result, n_threads, kNever);
  by_intervals(bytes, make_plan(ensemble.view, precision, 1, Index::kBanzhaf), input, checks, walked.values);
}

// The tables that GPUs get, looked up on the CPU, whose own tables gave the expected values.
void by_pair_tables(const BackgroundPairsPlan& pairs, const Input& input, const Checks& checks,
                    const std::vector<float>& expected, size_t table_bytes, int n_threads) {
  if (!pair_table_costs(pairs, table_bytes)) return;
  const Plan tables = make_pair_tables(pairs, table_bytes, n_threads);
  if (!is_small(scratch_bytes(tables))) return;
  Results<double> found(tables, input.rows.n_rows, false);
  explain(tables, input.rows, found.result, n_threads, kNever);
  checks.margin(found);
  checks.same(found, expected, 1e-4);
  if (tables.index != Index::kBanzhaf) checks.sums(found, tables.base_value, 1e-4);
}

void against_background(Bytes& bytes, const Ensemble& ensemble, const Input& input, const Checks& checks) {
  const Input background(bytes, ensemble.view, 1 + bytes.number(70));
  std::vector<double> weights(static_cast<size_t>(background.rows.n_rows));
  double sum = 0;
  for (double& weight : weights) sum += weight = 1 + bytes.number(16);
  for (double& weight : weights) weight /= sum;
  const Precision precision = bytes.flag() ? Precision::kSingle : Precision::kDouble;
  const Index index = static_cast<Index>(bytes.number(3));
  const double tolerance = precision == Precision::kSingle ? 1e-4 : 1e-9;
  const size_t table_bytes = size_t{1} << bytes.number(21);
  const int n_threads = 1 + bytes.number(2);
  try {
    const auto make = [&](const StoredTables* contents) {
      return make_background_plan(ensemble.view, precision, background.rows, weights.data(), index,
                                  table_bytes, n_threads, contents);
    };
    const Plan plan = make(nullptr);
    Results<double> found(plan, input.rows.n_rows, false);
    explain(plan, input.rows, found.result, n_threads, kNever);
    checks.margin(found);
    if (index != Index::kBanzhaf) checks.sums(found, plan.base_value, tolerance);
    stored(bytes, plan, input, make);
    by_intervals(bytes, plan, input, checks, found.values);

    const BackgroundPairsPlan pairs = make_background_pairs_plan(
        ensemble.view, precision, background.rows, weights.data(), index, table_bytes, n_threads);
    Results<float> with_pairs(pairs.plan, input.rows.n_rows, bytes.flag() && ensemble.view.n_features < 100);
    explain_background_pairs(pairs, input.rows, with_pairs.result, n_threads, kNever);
    checks.margin(with_pairs);
    by_pair_tables(pairs, input, checks, with_pairs.values, table_bytes, n_threads);

    const Link link = static_cast<Link>(bytes.number(3));
    const RescaledPlan rescaled = make_rescaled_plan(ensemble.view, precision, background.rows,
                                                     weights.data(), link, 1.0 + bytes.number(2));
    std::vector<double> labels(static_cast<size_t>(input.rows.n_rows),
                               link == Link::kSquaredError ? bytes.finite() : 1.0);
    Results<double> of_link(rescaled.plan, input.rows.n_rows, false);
    explain_rescaled(rescaled, input.rows, link == Link::kLogistic ? nullptr : labels.data(), nullptr,
                     of_link.result, n_threads, kNever);
    checks.margin(of_link);
  } catch (const std::invalid_argument&) {  // a path has more than 64 features
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  const uint8_t kind = bytes.byte();
  const Ensemble ensemble(bytes);
  if (ensemble.view.n_features > 1000) {  // rows of so many would be the size of memory
    make_plan(ensemble.view, kind & 2 ? Precision::kSingle : Precision::kDouble);
    return 0;
  }
  const Input input(bytes, ensemble.view, kind & 4 ? bytes.number(130) : bytes.number(4));
  const Checks checks(ensemble.view, input);
  if (kind & 1)
    against_background(bytes, ensemble, input, checks);
  else
    path_dependent(bytes, ensemble, input, checks);
  return 0;
}
