#include "dependence/dependence.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "rows/coded_tiles.h"
#include "rows/tiles.h"

namespace skshap {
namespace {

// In trees with at most this many inner nodes, all nodes are decided for a block of rows at once. In larger
// trees, rows are divided at the nodes that they reach.
constexpr size_t kDecidedAtOnce = 512;

// The most leaves of a chunk of trees, unless the chunk has one tree only.
constexpr size_t kChunkLeaves = 1 << 13;

// The bytes of the sums of the rows of a tile. A tile of one block may have more.
constexpr size_t kSumBytes = 1 << 19;

// Call work(row) for each row of a block's word.
template <class Work>
void for_rows(uint64_t word, const Work& work) {
  for (; word; word &= word - 1) work(__builtin_ctzll(word));
}

// Takes the rows of tiles to the leaves of trees.
class TileReach {
 public:
  explicit TileReach(const DependentTrees& trees) : trees_(trees) {
    const Most most(trees);
    words_.resize(kFirstWord + 2 * most.decided);
    reach_.resize(most.decided + 1);
    leaf_rows_.resize(most.decided_leaves);
    lists_.resize(most.divided + 1);
  }

  // Return the bytes that are allocated for tiles of n_rows rows.
  static size_t bytes(const DependentTrees& trees, size_t n_rows) {
    const Most most(trees);
    return 8 * (3 * most.decided + most.decided_leaves) + sizeof(Lists) * most.divided +
           sizeof(uint16_t) * n_rows * (most.divided ? kUsualHeight : 0);
  }

  // Call either on_words or on_list. on_words(first row, words) is called for each block, with a word for
  // each leaf of the tree. on_list(number of the leaf in the tree, rows of the tile, number of rows) is
  // called for each leaf.
  template <class OnWords, class OnList>
  void operator()(const DependentTree& tree, const CodedTile& tile, const OnWords& on_words,
                  const OnList& on_list) {
    if (tree.n_inner <= kDecidedAtOnce)
      for (int block = 0; block < tile.n_blocks(); ++block) {
        decide(tree, tile, block);
        on_words(block * kBlockRows, leaf_rows_.data());
      }
    else if (trees_.coded.wide_codes)
      divide<uint32_t>(tree, tile, on_list);
    else
      divide<uint16_t>(tree, tile, on_list);
  }

 private:
  static constexpr size_t kUsualHeight = 64;

  struct Most {
    size_t decided = 0, decided_leaves = 0, divided = 0;
    explicit Most(const DependentTrees& trees) {
      for (const DependentTree& tree : trees.trees) {
        if (tree.n_inner > kDecidedAtOnce) {
          divided = std::max(divided, tree.n_inner);
          continue;
        }
        decided = std::max(decided, tree.n_inner);
        decided_leaves = std::max(decided_leaves, tree.n_leaves);
      }
    }
  };

  // The rows that go left and right at a node, as places in rows_.
  struct Lists {
    size_t begin, middle, end;
  };

  void decide(const DependentTree& tree, const CodedTile& tile, int block) {
    decide_block(trees_.coded, kernels(), trees_.tests.data() + tree.inner, tree.n_inner, tile.codes, block,
                 words_.data());
    reach_[0] = ~uint64_t{0} >> (kBlockRows - std::min(kBlockRows, tile.n_rows - block * kBlockRows));
    const auto rows_of = [this](uint32_t edge) {
      const uint32_t slot = edge >> 1;
      return reach_[slot] & (words_[2 * slot + 1] ^ -static_cast<uint64_t>(edge & 1));
    };
    const uint32_t* const inner = trees_.inner_edges.data() + tree.inner;
    for (size_t i = 0; i < tree.n_inner; ++i) reach_[i + 1] = rows_of(inner[i]);
    const uint32_t* const leaves = trees_.leaf_edges.data() + tree.leaf;
    for (size_t i = 0; i < tree.n_leaves; ++i) leaf_rows_[i] = rows_of(leaves[i]);
  }

  template <class Code, class OnList>
  void divide(const DependentTree& tree, const CodedTile& tile, const OnList& on_list) {
    const auto n_rows = static_cast<size_t>(tile.n_rows);
    if (rows_.size() < n_rows) rows_.resize(n_rows);
    if (right_.size() < n_rows) right_.resize(n_rows);
    std::iota(rows_.begin(), rows_.begin() + n_rows, uint16_t{0});
    lists_[0] = {0, n_rows, n_rows};
    visit_leaves(tree, 0, on_list);
    for (size_t i = 0; i < tree.n_inner;) {
      const uint32_t edge = trees_.inner_edges[tree.inner + i];
      const Lists& above = lists_[edge >> 1];
      const size_t first = edge & 1 ? above.middle : above.begin, last = edge & 1 ? above.end : above.middle;
      if (first == last) {
        i = trees_.inner_ends[tree.inner + i];
        continue;
      }
      // Lists behind the lists of the node above belong to nodes that are done.
      const size_t begin = above.end, end = begin + last - first;
      if (rows_.size() < end) rows_.resize(2 * end);
      const size_t middle =
          begin + divide_rows<Code>(trees_.tests[tree.inner + i], tile, rows_.data() + first, last - first,
                                    rows_.data() + begin);
      lists_[++i] = {begin, middle, end};
      visit_leaves(tree, i, on_list);
    }
  }

  // Write the rows that go left, then the other rows; both keep their order. Return the number of rows that
  // go left.
  template <class Code>
  size_t divide_rows(const DecideNode& test, const CodedTile& tile, const uint16_t* rows, size_t n,
                     uint16_t* to) {
    const size_t column = test.column * tile.codes.stride;
    size_t left = 0, right = 0;
    const auto put = [&](const auto& goes_left) {
      for (size_t i = 0; i < n; ++i) {
        const bool is_left = goes_left(rows[i]);
        to[left] = right_[right] = rows[i];
        left += is_left;
        right += !is_left;
      }
      std::copy_n(right_.begin(), right, to + left);
    };
    if (test.flags & kCategorical) {
      const uint32_t* const bits = trees_.coded.category_bits.data() + test.operand;
      const uint32_t* const codes = tile.categories.data() + column;
      put([=](uint16_t row) { return bits[codes[row] >> 5] >> (codes[row] & 31) & 1; });
    } else {
      const Code* const codes = numeric_codes<Code>(trees_.coded, tile) + column;
      const auto operand = static_cast<Code>(test.operand), bias = static_cast<Code>(test.bias);
      put([=](uint16_t row) { return static_cast<Code>(codes[row] + bias) <= operand; });
    }
    return left;
  }

  template <class OnList>
  void visit_leaves(const DependentTree& tree, size_t slot, const OnList& on_list) {
    const uint32_t* const begins = trees_.leaf_begins.data() + tree.leaf_begin + slot;
    const Lists& lists = lists_[slot];
    for (uint32_t leaf = begins[0]; leaf < begins[1]; ++leaf) {
      const bool right = trees_.leaf_edges[tree.leaf + leaf] & 1;
      const size_t first = right ? lists.middle : lists.begin, last = right ? lists.end : lists.middle;
      if (first < last) on_list(leaf, rows_.data() + first, last - first);
    }
  }

  const DependentTrees& trees_;
  std::vector<uint64_t> words_;  // at a node's number + 1: its alive rows, and those going left
  std::vector<uint64_t> reach_;  // by a node's number + 1
  std::vector<uint64_t> leaf_rows_;
  std::vector<Lists> lists_;  // by a node's number + 1
  std::vector<uint16_t> rows_, right_;
};

// One thread's work: it finds the weight of the rows of tiles at the leaves of a chunk of trees. A leaf adds
// up the weights of its rows in their order.
class Weigher {
 public:
  // `weights`: null if all are 1.
  Weigher(const DependentTrees& trees, const double* weights, double* weight_at)
      : trees_(trees), weights_(weights), weight_at_(weight_at), reach_(trees) {}

  bool add(size_t first_tree, size_t end, const std::vector<CodedTile>& tiles, const Stop& stop) {
    const size_t first = trees_.first_leaf(first_tree);
    counts_.assign(weights_ ? 0 : trees_.first_leaf(end) - first, 0);
    for (const CodedTile& tile : tiles)
      for (size_t t = first_tree; t < end; ++t) {
        if (stop()) return false;
        const DependentTree& tree = trees_.trees[t];
        if (weights_)
          weigh(tree, tile, weights_ + tile.first, weight_at_ + tree.leaf);
        else
          count(tree, tile, counts_.data() + (tree.leaf - first));
      }
    for (size_t i = 0; i < counts_.size(); ++i) weight_at_[first + i] += static_cast<double>(counts_[i]);
    return true;
  }

 private:
  void weigh(const DependentTree& tree, const CodedTile& tile, const double* weights, double* weight_at) {
    reach_(
        tree, tile,
        [&](int first, const uint64_t* words) {
          for (size_t leaf = 0; leaf < tree.n_leaves; ++leaf) {
            double sum = weight_at[leaf];
            for_rows(words[leaf], [&](int row) { sum += weights[first + row]; });
            weight_at[leaf] = sum;
          }
        },
        [&](uint32_t leaf, const uint16_t* rows, size_t n) {
          double sum = weight_at[leaf];
          for (size_t i = 0; i < n; ++i) sum += weights[rows[i]];
          weight_at[leaf] = sum;
        });
  }

  void count(const DependentTree& tree, const CodedTile& tile, uint64_t* counts) {
    reach_(
        tree, tile, [&](int, const uint64_t* words) { kernels().count_rows(words, tree.n_leaves, counts); },
        [&](uint32_t leaf, const uint16_t*, size_t n) { counts[leaf] += n; });
  }

  const DependentTrees& trees_;
  const double* const weights_;
  double* const weight_at_;
  TileReach reach_;
  std::vector<uint64_t> counts_;
};

// The grid of cells, with a margin at the end of each axis. Values are first stored as differences between
// neighbours, so that a leaf changes only the corners of its region.
class CellSums {
 public:
  explicit CellSums(const DependentTrees& trees) : trees_(trees) {
    for (size_t axis = 0; axis < trees.axes.size(); ++axis) shape_[axis] = trees.axes[axis].n_cells() + 1;
    for (size_t axis = 0; axis < trees.axes.size(); ++axis) n_points_ *= points(axis).size();
  }

  size_t size() const { return shape_[0] * shape_[1]; }
  size_t n_points() const { return n_points_; }

  // Add a value at the cells of the region of a leaf.
  void add(size_t leaf, double value, double* sums) const {
    const size_t n_axes = trees_.axes.size();
    if (n_axes == 0) {
      *sums += value;
      return;
    }
    const size_t* const begins = trees_.run_begins.data() + leaf * n_axes;
    for (size_t i = begins[0]; i < begins[1]; ++i) {
      const Run& run = trees_.runs[i];
      if (n_axes == 1) {
        sums[run.begin] += value;
        sums[run.end] -= value;
        continue;
      }
      for (size_t j = begins[1]; j < begins[2]; ++j) {
        const Run& second = trees_.runs[j];
        sums[run.begin * shape_[1] + second.begin] += value;
        sums[run.begin * shape_[1] + second.end] -= value;
        sums[run.end * shape_[1] + second.begin] -= value;
        sums[run.end * shape_[1] + second.end] += value;
      }
    }
  }

  // Sum the differences. Write a constant plus the value of the cell of each point.
  void write(double* sums, double constant, double* out) const {
    const size_t n_axes = trees_.axes.size(), width = shape_[1];
    if (n_axes == 0) {
      *out = constant + *sums;
      return;
    }
    for (double* row = sums; row < sums + size(); row += width) std::partial_sum(row, row + width, row);
    for (size_t i = width; i < size(); ++i) sums[i] += sums[i - width];
    for (const uint32_t cell : points(0)) {
      if (n_axes == 1)
        *out++ = constant + sums[cell];
      else
        for (const uint32_t second : points(1)) *out++ = constant + sums[cell * width + second];
    }
  }

 private:
  const std::vector<uint32_t>& points(size_t axis) const { return trees_.axes[axis].cell_of_point(); }

  const DependentTrees& trees_;
  std::array<size_t, kMostAxes> shape_{1, 1};
  size_t n_points_ = 1;
};

// Return the most rows of a tile whose outputs are computed one by one.
size_t individual_rows(const DependentTrees& trees) {
  const size_t row_bytes = CellSums(trees).size() * trees.constant.size() * sizeof(double);
  return whole_blocks(std::clamp<size_t>(kSumBytes / row_bytes, 1, coded_tile_rows(trees.coded)));
}

}  // namespace

bool add_dependent_weights(const DependentTrees& trees, const Rows& rows, const double* weights,
                           int n_threads, const Stop& interrupted, double* weight_at) {
  const auto begin = [&](size_t tree) { return trees.first_leaf(tree); };
  return work_on_trees(trees.coded, rows, trees.trees.size(), kChunkLeaves, begin, n_threads, interrupted,
                       Weigher(trees, weights, weight_at));
}

void write_average(const DependentTrees& trees, const double* weight_at, double total, double* out) {
  const CellSums cells(trees);
  const size_t width = trees.width();
  std::vector<double> sums(cells.size() * trees.constant.size());
  for (const DependentTree& tree : trees.trees)
    for (size_t leaf = tree.leaf; leaf < tree.leaf + tree.n_leaves; ++leaf)
      for (size_t i = 0; i < width; ++i)
        cells.add(leaf, weight_at[leaf] / total * trees.leaf_values[leaf * width + i],
                  sums.data() + (std::max(tree.output, 0) + i) * cells.size());
  for (size_t o = 0; o < trees.constant.size(); ++o)
    cells.write(sums.data() + o * cells.size(), trees.constant[o], out + o * cells.n_points());
}

bool write_individual(const DependentTrees& trees, const Rows& rows, int n_threads, const Stop& interrupted,
                      double* out) {
  const CellSums cells(trees);
  const size_t width = trees.width(), row_size = cells.size() * trees.constant.size();
  const TileSize size{static_cast<int64_t>(individual_rows(trees)), 1};
  const std::vector<int64_t> bounds = size.bounds(rows.n_rows, n_threads);
  return work_off(static_cast<int64_t>(bounds.size()) - 1, n_threads, interrupted, [&] {
    CodedTile coded;
    coded.codes.allocate(trees.coded, size.most());
    return [&, tile = std::move(coded), reach = TileReach(trees),
            sums = std::vector<double>(row_size * size.most())](int64_t i, const Stop& stop) mutable {
      tile.first = bounds[i];
      tile.n_rows = static_cast<int>(bounds[i + 1] - bounds[i]);
      tile.code(trees.coded, rows);
      std::fill(sums.begin(), sums.end(), 0.0);
      for (const DependentTree& tree : trees.trees) {
        if (stop()) return false;
        const auto add = [&](size_t leaf, int row) {
          for (size_t v = 0; v < width; ++v)
            cells.add(tree.leaf + leaf, trees.leaf_values[(tree.leaf + leaf) * width + v],
                      sums.data() + row * row_size + (std::max(tree.output, 0) + v) * cells.size());
        };
        reach(
            tree, tile,
            [&](int first, const uint64_t* words) {
              for (size_t leaf = 0; leaf < tree.n_leaves; ++leaf)
                for_rows(words[leaf], [&](int row) { add(leaf, first + row); });
            },
            [&](uint32_t leaf, const uint16_t* listed, size_t n) {
              for (size_t j = 0; j < n; ++j) add(leaf, listed[j]);
            });
      }
      for (int row = 0; row < tile.n_rows; ++row)
        for (size_t o = 0; o < trees.constant.size(); ++o)
          cells.write(sums.data() + row * row_size + o * cells.size(), trees.constant[o],
                      out + (o * rows.n_rows + tile.first + row) * cells.n_points());
      return true;
    };
  });
}

size_t scratch_bytes(const DependentTrees& trees) {
  const size_t n_rows = individual_rows(trees);
  const size_t row_bytes = CellSums(trees).size() * trees.constant.size() * sizeof(double);
  return TileReach::bytes(trees, n_rows) + n_rows * (row_bytes + coded_row_bytes(trees.coded));
}

}  // namespace skshap
