#include "background/leaf_weights.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "plan/coded_trees.h"
#include "rows/coded_tiles.h"
#include "simd/kernels.h"

namespace skshap {
namespace {

// The number of rows that descend together, so that their loads from memory overlap.
constexpr int kTogether = 8;

// The most nodes of a chunk of trees, unless it has one tree only. This many nodes stay in the cache.
constexpr size_t kChunkNodes = 1 << 14;

// The most levels of a tree in which rows need not descend, because all nodes of a level have the same split.
constexpr int kMostLevels = 16;

// The sums of trees with at most this many leaves are split into parts. Consecutive rows often reach the same
// leaf, and an addition would have to wait for the previous one. If all weights are 1, rows are counted in
// integers, which is faster.
constexpr size_t kFewLeaves = 64, kParts = 8;

// A node of a tree that is stored breadth first. A row goes right if its code plus the bias exceeds the
// operand, or by the bits at the operand. The child of a leaf is the leaf itself.
struct DescentNode {
  uint32_t operand;
  uint32_t first;  // the left child; the right child follows it
  uint32_t place;  // of the column in a tile
  uint32_t bias;   // kByCategory: categorical
};
constexpr uint32_t kByCategory = 2;

// One thread's work: it takes the rows of tiles through the trees of a chunk. Code is the type of the codes.
template <class Code>
class Descent {
 public:
  // `ones`: all weights are 1.
  Descent(const CodedEnsemble& coded, const double* weights, bool ones, double* weight_at)
      : forest_(coded.trees()),
        coded_(coded.columns),
        stride_(coded_tile_rows(coded.columns)),
        weights_(weights),
        ones_(ones),
        weight_at_(weight_at) {}

  bool add(size_t first_tree, size_t end, const std::vector<CodedTile>& tiles, const Stop& stop) {
    nodes_.clear();
    sources_.clear();
    trees_.clear();
    for (size_t tree = first_tree; tree < end; ++tree) read(forest_.tree_offsets[tree]);
    sums_.assign(nodes_.size(), 0.0);
    for (const CodedTile& tile : tiles) {
      if (stop()) return false;
      for (const Tree& tree : trees_)
        tree.n_levels ? add_by_level(tree, tile, weights_ + tile.first)
                      : add_by_node(tree, tile, weights_ + tile.first);
    }
    for (size_t i = 0; i < sums_.size(); ++i) weight_at_[sources_[i]] += sums_[i];
    return true;
  }

 private:
  struct Tree {
    size_t nodes, n_nodes;
    int n_levels;  // of a tree with the same split in all nodes of a level, else 0
    bool any_category;
  };

  void read(int64_t root) {
    const size_t begin = nodes_.size();
    Tree tree{begin, 0, 0, false};
    sources_.push_back(root);
    for (size_t i = begin; i < sources_.size(); ++i) {
      const int64_t source = sources_[i];
      const auto number = static_cast<uint32_t>(i - begin);
      if (forest_.is_leaf(source)) {
        nodes_.push_back({static_cast<Code>(-1), number, 0, 0});
        continue;
      }
      const DecideNode& node = forest_.test[source];
      const bool categorical = node.flags & kCategorical;
      tree.any_category |= categorical;
      nodes_.push_back({node.operand, static_cast<uint32_t>(sources_.size() - begin),
                        static_cast<uint32_t>(node.column * stride_), categorical ? kByCategory : node.bias});
      sources_.push_back(root + forest_.left[source]);
      sources_.push_back(root + forest_.right[source]);
    }
    tree.n_nodes = nodes_.size() - begin;
    tree.n_levels = count_levels(tree);
    trees_.push_back(tree);
  }

  int count_levels(const Tree& tree) const {
    size_t first = 0;
    for (int level = 0; level <= kMostLevels; ++level) {
      const size_t n = size_t{1} << level;
      if (first + n > tree.n_nodes) return 0;
      const int64_t* const sources = sources_.data() + tree.nodes + first;
      const bool same =
          std::all_of(sources, sources + n, [&](int64_t source) { return same_split(source, sources[0]); });
      if (!same) return 0;
      first += n;
      if (forest_.is_leaf(sources[0])) return level;
    }
    return 0;
  }

  bool same_split(int64_t a, int64_t b) const {
    if (forest_.is_leaf(a) || forest_.is_leaf(b)) return forest_.is_leaf(a) && forest_.is_leaf(b);
    return is_same_test(coded_, forest_.test[a], forest_.test[b]);
  }

  void add_by_node(const Tree& tree, const CodedTile& tile, const double* weights) {
    double* const sums = sums_.data() + tree.nodes;
    for (int first = 0; first < tile.n_rows; first += kTogether) {
      uint32_t at[kTogether] = {};
      if (tree.any_category)
        descend<true>(tree, tile, first, at);
      else
        descend<false>(tree, tile, first, at);
      const int n = std::min(kTogether, tile.n_rows - first);
      for (int i = 0; i < n; ++i) sums[at[i]] += weights[first + i];
    }
  }

  template <bool kCategories>
  void descend(const Tree& tree, const CodedTile& tile, int first, uint32_t* at) const {
    const DescentNode* const nodes = nodes_.data() + tree.nodes;
    const Code* const codes = codes_of(tile) + first;
    const uint32_t* const categories = tile.categories.data() + first;
    for (bool moved = tree.n_nodes > 1; moved;) {
      uint32_t change = 0;
      for (int i = 0; i < kTogether; ++i) {
        const DescentNode& node = nodes[at[i]];
        uint32_t next = node.first;
        if (kCategories && node.bias == kByCategory)
          next += goes_right(node, categories[node.place + i]);
        else
          next += static_cast<Code>(codes[node.place + i] + node.bias) > node.operand;
        change |= next ^ at[i];
        at[i] = next;
      }
      moved = change != 0;
    }
  }

  bool goes_right(const DescentNode& node, uint32_t category) const {
    return ~coded_.category_bits[node.operand + (category >> 5)] >> (category & 31) & 1;
  }

  void add_by_level(const Tree& tree, const CodedTile& tile, const double* weights) {
    ways_.assign(tile.n_rows, 0);
    for (int level = 0; level < tree.n_levels; ++level) {
      const DescentNode& node = nodes_[tree.nodes + (size_t{1} << level) - 1];
      if (node.bias == kByCategory) {
        append(tile.categories.data() + node.place, [&](uint32_t code) { return goes_right(node, code); });
      } else {
        append(node, codes_of(tile) + node.place);
      }
    }
    const size_t n_leaves = size_t{1} << tree.n_levels;
    double* const leaves = sums_.data() + tree.nodes + n_leaves - 1;
    if (n_leaves > kFewLeaves) {
      for (int i = 0; i < tile.n_rows; ++i) leaves[ways_[i]] += weights[i];
      return;
    }
    if (ones_)
      add_to_leaves<uint32_t>(n_leaves, [](size_t) { return 1; }, leaves);
    else
      add_to_leaves<double>(n_leaves, [=](size_t row) { return weights[row]; }, leaves);
  }

  // Add the weight of each row of a tile to the leaf at which the row's way ends.
  template <class Sum, class Weight>
  void add_to_leaves(size_t n_leaves, const Weight& weight, double* leaves) const {
    Sum parts[kFewLeaves][kParts] = {};
    const uint16_t* const ways = ways_.data();
    const size_t n_rows = ways_.size(), n_even = n_rows / kParts * kParts;
    for (size_t first = 0; first < n_even; first += kParts)
      for (size_t part = 0; part < kParts; ++part) parts[ways[first + part]][part] += weight(first + part);
    for (size_t row = n_even; row < n_rows; ++row) parts[ways[row]][0] += weight(row);
    for (size_t leaf = 0; leaf < n_leaves; ++leaf)
      leaves[leaf] += std::accumulate(parts[leaf], parts[leaf] + kParts, Sum{0});
  }

  // Append a bit to the way of each row: it tells whether the row goes right by its code in a numeric column.
  void append(const DescentNode& node, const Code* codes) {
    const auto operand = static_cast<Code>(node.operand), bias = static_cast<Code>(node.bias);
    if constexpr (sizeof(Code) == sizeof(uint16_t))
      kernels().append_bit({codes, bias, operand, ways_.size(), ways_.data()});
    else
      append(codes, [=](Code code) { return static_cast<Code>(code + bias) > operand; });
  }

  // Append a bit to the way of each row: the result of goes_right for the row's code.
  template <class C, class GoesRight>
  void append(const C* codes, const GoesRight& goes_right) {
    uint16_t* const ways = ways_.data();
    const size_t n_rows = ways_.size();
    for (size_t i = 0; i < n_rows; ++i) ways[i] = static_cast<uint16_t>(2 * ways[i] + goes_right(codes[i]));
  }

  const Code* codes_of(const CodedTile& tile) const { return numeric_codes<Code>(coded_, tile); }

  const CodedTrees& forest_;
  const CodedColumns& coded_;
  const size_t stride_;
  const double* const weights_;
  const bool ones_;
  double* const weight_at_;
  std::vector<DescentNode> nodes_;
  std::vector<int64_t> sources_;  // the nodes of the ensemble
  std::vector<double> sums_;
  std::vector<Tree> trees_;
  std::vector<uint16_t> ways_;
};

}  // namespace

bool add_leaf_weights(const CodedEnsemble& coded, const Rows& rows, const double* weights, int n_threads,
                      const Stop& interrupted, double* weight_at) {
  const bool ones = std::all_of(weights, weights + rows.n_rows, [](double weight) { return weight == 1; });
  const auto begin = [&](size_t tree) { return static_cast<size_t>(coded.trees().tree_offsets[tree]); };
  const auto descend = [&](const auto& descent) {
    return work_on_trees(coded.columns, rows, coded.trees().n_trees, kChunkNodes, begin, n_threads,
                         interrupted, descent);
  };
  return coded.columns.wide_codes ? descend(Descent<uint32_t>(coded, weights, ones, weight_at))
                                  : descend(Descent<uint16_t>(coded, weights, ones, weight_at));
}

}  // namespace skshap
