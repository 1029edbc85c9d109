// Plan + background rows -> tables, and the leaves that have none.
#include "background.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "coding.h"

namespace skshap {
namespace {

// Bits of an index: tables of a group of leaves stay in the L1 cache. A leaf alone may have more.
constexpr uint32_t kGroupBits = 9, kLeafBits = 12;
constexpr uint32_t kPatternBits = 64;
// Background rows that are coded at once.
constexpr int kTileRows = 1024;

// (p - 1)! q! / (p + q)!
double pattern_weight(int p, int q) {
  double weight = 1.0 / p;
  for (int i = 1; i <= q; ++i) weight *= static_cast<double>(i) / (p + i);
  return weight;
}

template <class T>
std::vector<T>& tables_of(BackgroundTables& b) {
  if constexpr (sizeof(T) == 4)
    return b.tables_float;
  else
    return b.tables_double;
}

template <class T>
class Builder {
 public:
  Builder(Plan& plan, const Rows& rows, const double* weights, size_t table_bytes)
      : plan_(plan), out_(plan.background), rows_(rows), weights_(weights), table_bytes_(table_bytes) {}

  void build() {
    plan_.base_value = plan_.constant;
    code_background();
    leaf_bits_ = affordable_bits();
    slot_.assign(plan_.features.size(), 0);
    out_.tree_look_ups = out_.tree_leaves = {0};
    for (const Chunk& chunk : plan_.chunks) {
      for (size_t slot = 0; slot < chunk.slots.size(); ++slot)
        slot_[chunk.slots[slot]] = static_cast<uint32_t>(slot);
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) build_tree(chunk, plan_.trees[i]);
    }
    plan_.interventional = true;
  }

 private:
  // The latest node on a feature of the path: a bit as in BackgroundTables.
  struct Step {
    int32_t feature;  // position in Plan::features
    uint32_t bit;
  };
  struct Leaf {
    size_t value;                                       // its first one, among those of the tree
    std::vector<Step> path;                             // features, each once
    std::vector<double> counts;                         // weight of the background by pattern
    std::vector<std::pair<uint64_t, double>> patterns;  // the same of long paths
    size_t n_merged = 0;
  };
  // Leaves below a node that share a table.
  struct Group {
    std::vector<Step> above;
    std::vector<int32_t> nodes;  // inner ones, parents first
    std::vector<size_t> leaves;
  };

  // --- The background's codes, once ---

  void code_background() {
    for (int64_t first = 0; first < rows_.n_rows; first += kTileRows) {
      tiles_.emplace_back();
      tiles_.back().allocate(plan_, kTileRows);
      code_tile(plan_, kernels(), rows_, first,
                static_cast<int>(std::min<int64_t>(kTileRows, rows_.n_rows - first)), tiles_.back());
    }
  }

  // The longest path whose leaf has a table, so that the tables of all that short fit their memory.
  uint32_t affordable_bits() {
    std::vector<double> bytes(kLeafBits + 1, 0.0);  // by the features of the path
    std::vector<int> depth(plan_.features.size(), 0);
    uint32_t distinct = 0;
    for (const Chunk& chunk : plan_.chunks)
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
        open_tree(chunk, plan_.trees[i]);
        std::vector<std::pair<int32_t, bool>> stack{{0, false}};
        while (!stack.empty()) {
          const auto [node, leave] = stack.back();
          stack.pop_back();
          if (node >= n_inner_) {
            if (distinct <= kLeafBits)
              bytes[distinct] += static_cast<double>(sizeof(T) * width_ * distinct) * (1 << distinct);
            continue;
          }
          int& times = depth[feature_of(node)];
          if (leave) {
            distinct -= --times == 0;
            continue;
          }
          distinct += times++ == 0;
          stack.push_back({node, true});
          stack.push_back({children_[2 * node], false});
          stack.push_back({children_[2 * node + 1], false});
        }
      }
    double total = 0;
    for (uint32_t bits = 0; bits <= kLeafBits; ++bits)
      if ((total += bytes[bits]) > static_cast<double>(table_bytes_)) return bits ? bits - 1 : 0;
    return kLeafBits;
  }

  // --- One tree ---

  void open_tree(const Chunk& chunk, const TreeProgram& tree) {
    n_inner_ = static_cast<int32_t>(tree.n_inner);
    children_ = plan_.children.data() + tree.children;
    decide_ = plan_.decide.data() + tree.decide;
    values_ = plan_.leaf_values.data() + tree.leaves;
    width_ = chunk.output < 0 ? static_cast<size_t>(plan_.n_outputs) : 1;
  }

  void build_tree(const Chunk& chunk, const TreeProgram& tree) {
    open_tree(chunk, tree);
    n_slots_ = static_cast<uint32_t>(chunk.slots.size());
    leaves_.clear();
    groups_.clear();
    inner_below_.assign(n_inner_, 1);
    for (int32_t i = n_inner_ - 1; i >= 0; --i)  // preorder: children come after their parent
      for (const int32_t child : {children_[2 * i], children_[2 * i + 1]})
        if (child < n_inner_) inner_below_[i] += inner_below_[child];
    find_groups();
    count_background(tree);
    for (const Leaf& leaf : leaves_) add_base(leaf, std::max(chunk.output, 0));
    for (const Group& group : groups_) write_group(group);
    for (const Leaf& leaf : leaves_)
      if (leaf.path.size() > leaf_bits_) write_patterns(leaf, tree);
    out_.tree_look_ups.push_back(out_.look_ups.size());
    out_.tree_leaves.push_back(out_.leaves.size());
  }

  int32_t feature_of(int32_t node) const {
    const int32_t feature = plan_.columns[decide_[node].column].feature;
    return static_cast<int32_t>(std::lower_bound(plan_.features.begin(), plan_.features.end(), feature) -
                                plan_.features.begin());
  }
  static uint32_t bit_of(int32_t node, bool right) {
    return static_cast<uint32_t>(kFirstWord + 2 * node) << 1 | right;
  }

  std::vector<Step> beyond(const std::vector<Step>& path, int32_t node, bool right) const {
    std::vector<Step> longer = path;
    const int32_t feature = feature_of(node);
    const auto same = [&](const Step& step) { return step.feature == feature; };
    const auto found = std::find_if(longer.begin(), longer.end(), same);
    if (found == longer.end())
      longer.push_back({feature, bit_of(node, right)});
    else
      found->bit = bit_of(node, right);
    return longer;
  }

  void find_groups() {
    struct Item {
      int32_t node;
      std::vector<Step> path;
      bool grouped;
    };
    std::vector<Item> stack{{0, {}, false}};
    while (!stack.empty()) {
      Item item = std::move(stack.back());
      stack.pop_back();
      const bool is_leaf = item.node >= n_inner_;
      if (is_leaf && item.path.size() > kPatternBits)
        throw std::invalid_argument("a path has " + std::to_string(item.path.size()) +
                                    " different features; background data allow for at most 64");
      if (!item.grouped) {
        const size_t bits = item.path.size() + (is_leaf ? 0 : inner_below_[item.node]);
        if (bits <= (is_leaf ? leaf_bits_ : std::min(leaf_bits_, kGroupBits))) {
          groups_.push_back({item.path, {}, {}});
          item.grouped = true;
        }
      }
      if (is_leaf) {
        if (item.grouped) groups_.back().leaves.push_back(leaves_.size());
        leaves_.push_back(
            {static_cast<size_t>(item.node - n_inner_) * width_, std::move(item.path), {}, {}, 0});
        continue;
      }
      if (item.grouped) groups_.back().nodes.push_back(item.node);
      for (const bool right : {true, false})
        stack.push_back(
            {children_[2 * item.node + right], beyond(item.path, item.node, right), item.grouped});
    }
  }

  // --- What the background does ---

  void count_background(const TreeProgram& tree) {
    for (Leaf& leaf : leaves_)
      if (leaf.path.size() <= leaf_bits_) leaf.counts.assign(size_t{1} << leaf.path.size(), 0.0);
    words_.resize(kFirstWord + 2 * tree.n_inner);
    for (int64_t first = 0; first < rows_.n_rows; first += kBlockRows) {
      const CodeTile& tile = tiles_[first / kTileRows];
      const int block = static_cast<int>(first % kTileRows / kBlockRows);
      const DecideArgs args{
          decide_,
          tree.n_inner,
          tile.codes(plan_, block),
          tile.stride,
          tile.category_rows.empty() ? nullptr : tile.category_rows.data() + block * plan_.columns.size(),
          plan_.category_bits.data(),
          words_.data()};
      (plan_.wide_codes ? kernels().decide32 : kernels().decide16)(args);
      const int n = static_cast<int>(std::min<int64_t>(kBlockRows, rows_.n_rows - first));
      for (Leaf& leaf : leaves_) count_block(leaf, weights_ + first, n);
    }
    for (Leaf& leaf : leaves_) merge(leaf.patterns);
  }

  void count_block(Leaf& leaf, const double* weights, int n) const {
    uint64_t pattern[kBlockRows] = {};
    for (size_t i = 0; i < leaf.path.size(); ++i) {
      const uint64_t rows = bit_rows(words_.data(), leaf.path[i].bit);
      for (int row = 0; row < kBlockRows; ++row) pattern[row] |= (rows >> row & 1) << i;
    }
    if (leaf.path.size() <= leaf_bits_) {
      for (int row = 0; row < n; ++row) leaf.counts[pattern[row]] += weights[row];
      return;
    }
    for (int row = 0; row < n; ++row) leaf.patterns.emplace_back(pattern[row], weights[row]);
    if (leaf.patterns.size() > 2 * leaf.n_merged + 4096) {
      merge(leaf.patterns);
      leaf.n_merged = leaf.patterns.size();
    }
  }

  static void merge(std::vector<std::pair<uint64_t, double>>& patterns) {
    std::sort(patterns.begin(), patterns.end());
    size_t n = 0;
    for (const auto& pattern : patterns) {
      if (n && patterns[n - 1].first == pattern.first)
        patterns[n - 1].second += pattern.second;
      else
        patterns[n++] = pattern;
    }
    patterns.resize(n);
  }

  void add_base(const Leaf& leaf, int32_t first_output) {
    double reached = 0;
    if (leaf.path.size() <= leaf_bits_)
      reached = leaf.counts.back();
    else if (!leaf.patterns.empty() && leaf.patterns.back().first == ~uint64_t{0} >> (64 - leaf.path.size()))
      reached = leaf.patterns.back().second;
    for (size_t o = 0; o < width_; ++o)
      plan_.base_value[first_output + o] += reached * values_[leaf.value + o];
  }

  // --- Tables ---

  // What a leaf of value 1 gives, by the pattern of x: to a feature that x satisfies `on` less `less` of the
  // pattern without it, to one that it does not -`off`.
  struct Sums {
    std::vector<double> on, less, off;
  };

  Sums sums_of(const Leaf& leaf) const {
    const size_t d = leaf.path.size(), size = size_t{1} << d, all = size - 1;
    Sums sums{std::vector<double>(size), std::vector<double>(size), std::vector<double>(size)};
    std::vector<double> t, weights, z(size), powers(d + 1), others(d + 1);
    quadrature(Index::kShapley, static_cast<int>(d + 1) / 2, t, weights);
    for (size_t k = 0; k < t.size(); ++k) {
      powers[0] = others[0] = 1;
      for (size_t i = 1; i <= d; ++i) {
        powers[i] = powers[i - 1] * t[k];
        others[i] = others[i - 1] * (1 - t[k]);
      }
      // z[x]: background rows that satisfy all that x does not, each by t to the number of what only x does.
      for (size_t only_x = 0; only_x < size; ++only_x)
        z[only_x] = leaf.counts[all ^ only_x] * powers[__builtin_popcountll(only_x)];
      for (size_t i = 0; i < d; ++i) {
        const size_t bit = size_t{1} << i;
        for (size_t high = 0; high < size; high += 2 * bit)
          for (size_t x = high; x < high + bit; ++x) z[x + bit] += z[x];
      }
      for (size_t x = 0; x < size; ++x) {
        const size_t q = d - __builtin_popcountll(x);
        sums.on[x] += weights[k] / t[k] * others[q] * z[x];
        if (!q) continue;
        sums.less[x] += weights[k] / t[k] * others[q - 1] * z[x];
        sums.off[x] += weights[k] * others[q - 1] * z[x];
      }
    }
    return sums;
  }

  void write_group(const Group& group) {
    std::vector<int32_t> features;
    for (const size_t l : group.leaves)
      for (const Step& step : leaves_[l].path) features.push_back(step.feature);
    std::sort(features.begin(), features.end());
    features.erase(std::unique(features.begin(), features.end()), features.end());
    if (features.empty()) return;
    const uint32_t n_bits = static_cast<uint32_t>(group.above.size() + group.nodes.size());
    const size_t size = size_t{1} << n_bits, n_features = features.size();
    std::vector<T>& tables = tables_of<T>(out_);
    out_.look_ups.push_back({static_cast<uint32_t>(out_.bits.size()), n_bits,
                             static_cast<uint32_t>(out_.targets.size()),
                             static_cast<uint32_t>(n_features * width_), tables.size()});
    for (const Step& step : group.above) out_.bits.push_back(step.bit);
    for (const int32_t node : group.nodes) out_.bits.push_back(bit_of(node, false));
    for (size_t o = 0; o < width_; ++o)
      for (const int32_t feature : features)
        out_.targets.push_back(slot_[feature] + static_cast<uint32_t>(o) * n_slots_);
    std::vector<double> sum(n_features * width_ * size, 0.0);
    for (const size_t l : group.leaves) add_leaf(group, leaves_[l], features, size, sum);
    for (const double x : sum) tables.push_back(static_cast<T>(x / plan_.leaf_scale));
  }

  void add_leaf(const Group& group, const Leaf& leaf, const std::vector<int32_t>& features, size_t size,
                std::vector<double>& sum) {
    const Sums sums = sums_of(leaf);
    const size_t d = leaf.path.size();
    std::vector<uint8_t> on(size);  // by index: whether x satisfies a feature
    std::vector<uint32_t> pattern(size, 0);
    for (size_t i = 0; i < d; ++i) {
      mark(group, leaf.path[i].bit, on);
      for (size_t index = 0; index < size; ++index) pattern[index] |= static_cast<uint32_t>(on[index]) << i;
    }
    for (size_t i = 0; i < d; ++i) {
      const size_t bit = size_t{1} << i;
      const size_t place =
          std::lower_bound(features.begin(), features.end(), leaf.path[i].feature) - features.begin();
      for (size_t index = 0; index < size; ++index) {
        const uint32_t x = pattern[index];
        const double share = x & bit ? sums.on[x] - sums.less[x ^ bit] : -sums.off[x];
        for (size_t o = 0; o < width_; ++o)
          sum[(o * features.size() + place) * size + index] += share * values_[leaf.value + o];
      }
    }
  }

  // By index, whether a row satisfies what a bit stands for.
  void mark(const Group& group, uint32_t bit, std::vector<uint8_t>& on) const {
    const int32_t node = static_cast<int32_t>(bit >> 1) / 2 - kFirstWord / 2;
    const auto found = std::find(group.nodes.begin(), group.nodes.end(), node);
    if (found == group.nodes.end()) {
      const auto same = [&](const Step& step) { return step.bit == bit; };
      const size_t i = std::find_if(group.above.begin(), group.above.end(), same) - group.above.begin();
      for (size_t index = 0; index < on.size(); ++index) on[index] = index >> i & 1;
      return;
    }
    const uint32_t previous = decide_[node].previous;
    if (previous < static_cast<uint32_t>(kFirstWord))
      std::fill(on.begin(), on.end(), uint8_t{1});
    else
      mark(group, previous << 1 | static_cast<bool>(decide_[node].flags & kPreviousRight), on);
    const size_t i = group.above.size() + (found - group.nodes.begin());
    for (size_t index = 0; index < on.size(); ++index) on[index] &= (index >> i & 1) ^ (bit & 1);
  }

  void write_patterns(const Leaf& leaf, const TreeProgram& tree) {
    out_.leaves.push_back({static_cast<uint32_t>(out_.bits.size()), static_cast<uint32_t>(leaf.path.size()),
                           static_cast<uint32_t>(out_.targets.size()), out_.patterns.size(),
                           leaf.patterns.size(), tree.leaves + leaf.value});
    for (const Step& step : leaf.path) {
      out_.bits.push_back(step.bit);
      out_.targets.push_back(slot_[step.feature]);
    }
    for (const auto& [pattern, weight] : leaf.patterns) {
      out_.patterns.push_back(pattern);
      out_.weights.push_back(weight);
    }
  }

  Plan& plan_;
  BackgroundTables& out_;
  const Rows& rows_;
  const double* weights_;
  const size_t table_bytes_;
  std::vector<CodeTile> tiles_;
  std::vector<uint32_t> slot_;  // of a feature in the chunk at hand
  std::vector<uint64_t> words_;
  const int32_t* children_ = nullptr;
  const DecideNode* decide_ = nullptr;
  const double* values_ = nullptr;
  int32_t n_inner_ = 0;
  uint32_t n_slots_ = 0;
  size_t width_ = 1;
  uint32_t leaf_bits_ = kLeafBits;
  std::vector<int32_t> inner_below_;  // a node's subtree, itself included
  std::vector<Leaf> leaves_;
  std::vector<Group> groups_;
};

}  // namespace

Plan make_background_plan(const EnsembleView& ensemble, Precision precision, const Rows& rows,
                          const double* weights, size_t table_bytes) {
  Plan plan = make_plan(ensemble, precision);
  if (precision == Precision::kSingle)
    Builder<float>(plan, rows, weights, table_bytes).build();
  else
    Builder<double>(plan, rows, weights, table_bytes).build();
  return plan;
}

template <class T>
void add_pattern_leaf(const Plan& plan, const PatternLeaf& leaf, const uint64_t* words, int n_rows, T* phi,
                      size_t output_stride, size_t n_outputs) {
  const BackgroundTables& b = plan.background;
  const uint64_t all = ~uint64_t{0} >> (64 - leaf.n_bits);
  const uint64_t* const patterns = b.patterns.data() + leaf.patterns;
  const double* const weights = b.weights.data() + leaf.patterns;
  double share[kPatternBits];
  for (int row = 0; row < n_rows; ++row) {
    uint64_t x = 0;
    for (uint32_t i = 0; i < leaf.n_bits; ++i) x |= (bit_rows(words, b.bits[leaf.bits + i]) >> row & 1) << i;
    const int q = __builtin_popcountll(all & ~x);
    std::fill_n(share, leaf.n_bits, 0.0);
    double off = 0;
    for (size_t i = 0; i < leaf.n_patterns; ++i) {
      const uint64_t only_x = all & ~patterns[i];
      if ((x | patterns[i]) != all) continue;
      const int p = __builtin_popcountll(only_x);
      if (q) off += weights[i] * pattern_weight(q, p);
      if (!p) continue;
      const double on = weights[i] * pattern_weight(p, q);
      for (uint64_t rest = only_x; rest; rest &= rest - 1) share[__builtin_ctzll(rest)] += on;
    }
    for (uint32_t i = 0; i < leaf.n_bits; ++i) {
      const double total = x >> i & 1 ? share[i] : -off;
      for (size_t o = 0; o < n_outputs; ++o)
        phi[o * output_stride + static_cast<size_t>(b.targets[leaf.targets + i]) * kBlockRows + row] +=
            static_cast<T>(total * plan.leaf_values[leaf.leaf + o] / plan.leaf_scale);
    }
  }
}
template void add_pattern_leaf(const Plan&, const PatternLeaf&, const uint64_t*, int, float*, size_t, size_t);
template void add_pattern_leaf(const Plan&, const PatternLeaf&, const uint64_t*, int, double*, size_t,
                               size_t);

}  // namespace skshap
