#include "dependence/dependence.h"

#include <algorithm>
#include <array>

#include "rows/coded_tiles.h"

namespace skshap {
namespace {

// Up to this many inner nodes, all nodes of a tree are decided for a block; of larger trees, only those that
// rows of the block reach.
constexpr size_t kDecidedAtOnce = 512;

// A chunk of trees has at most as many leaves, unless it has one tree only.
constexpr size_t kChunkLeaves = 1 << 13;

// The leaves of a tree that rows of a block reach: all leaves, or only those listed.
struct ReachedLeaves {
  const uint32_t* listed;  // or null
  const uint64_t* rows;
  size_t n;
};

// Take the rows of a block through a tree.
class BlockReach {
 public:
  explicit BlockReach(const DependentTrees& trees) : trees_(trees) {
    size_t n_inner = 0, n_leaves = 0;
    for (const DependentTree& tree : trees.trees) {
      n_inner = std::max(n_inner, tree.n_inner);
      n_leaves = std::max(n_leaves, tree.n_leaves);
    }
    words_.resize(kFirstWord + 2 * n_inner);
    reach_.resize(n_inner + 1);
    listed_.resize(n_leaves);
    rows_.resize(n_leaves);
  }

  static size_t bytes(const DependentTrees& trees) {
    size_t bytes = 0;
    for (const DependentTree& tree : trees.trees)
      bytes = std::max(bytes, tree.n_inner * 3 * sizeof(uint64_t) + tree.n_leaves * 12);
    return bytes;
  }

  ReachedLeaves operator()(const DependentTree& tree, const CodedTile& tile, int block) {
    const int n_rows = std::min(kBlockRows, tile.n_rows - block * kBlockRows);
    reach_[0] = ~uint64_t{0} >> (kBlockRows - n_rows);
    return tree.n_inner <= kDecidedAtOnce ? all(tree, tile, block) : reached(tree, tile, block);
  }

 private:
  uint64_t rows_of(uint32_t edge) const {
    const uint32_t slot = edge >> 1;
    return reach_[slot] & (words_[2 * slot + 1] ^ -static_cast<uint64_t>(edge & 1));
  }

  ReachedLeaves all(const DependentTree& tree, const CodedTile& tile, int block) {
    decide_block(trees_.plan, kernels(), trees_.tests.data() + tree.inner, tree.n_inner, tile.codes, block,
                 words_.data());
    const uint32_t* const inner = trees_.inner_edges.data() + tree.inner;
    for (size_t i = 0; i < tree.n_inner; ++i) reach_[i + 1] = rows_of(inner[i]);
    const uint32_t* const leaves = trees_.leaf_edges.data() + tree.leaf;
    for (size_t i = 0; i < tree.n_leaves; ++i) rows_[i] = rows_of(leaves[i]);
    return {nullptr, rows_.data(), tree.n_leaves};
  }

  ReachedLeaves reached(const DependentTree& tree, const CodedTile& tile, int block) {
    const DecideNode* const tests = trees_.tests.data() + tree.inner;
    const uint32_t* const inner = trees_.inner_edges.data() + tree.inner;
    const uint32_t* const ends = trees_.inner_ends.data() + tree.inner;
    words_[1] = ~uint64_t{0};
    size_t n = list_leaves(tree, 0, 0);
    for (size_t i = 0; i < tree.n_inner;) {
      reach_[i + 1] = rows_of(inner[i]);
      if (!reach_[i + 1]) {
        i = ends[i];
        continue;
      }
      uint64_t words[kFirstWord + 2];
      decide_block(trees_.plan, kernels(), tests + i, 1, tile.codes, block, words);
      words_[2 * (i + 1) + 1] = words[kFirstWord + 1];
      n = list_leaves(tree, ++i, n);
    }
    return {listed_.data(), rows_.data(), n};
  }

  // List the leaves below a slot that rows reach, after n others.
  size_t list_leaves(const DependentTree& tree, size_t slot, size_t n) {
    const uint32_t* const begins = trees_.leaf_begins.data() + tree.leaf_begin + slot;
    for (uint32_t leaf = begins[0]; leaf < begins[1]; ++leaf) {
      listed_[n] = leaf;
      rows_[n] = rows_of(trees_.leaf_edges[tree.leaf + leaf]);
      n += rows_[n] != 0;
    }
    return n;
  }

  const DependentTrees& trees_;
  std::vector<uint64_t> words_;  // of a node's number + 1: its alive rows, and those that go left
  std::vector<uint64_t> reach_;  // by slot: a node's number + 1
  std::vector<uint32_t> listed_;
  std::vector<uint64_t> rows_;
};

// Call work(row) for each row of a block's word.
template <class Work>
void for_rows(uint64_t word, const Work& work) {
  for (; word; word &= word - 1) work(__builtin_ctzll(word));
}

// One thread's work: the weight of the rows of tiles at the leaves of a chunk of trees.
class Weigher {
 public:
  explicit Weigher(const DependentTrees& trees) : trees_(trees), reach_(trees) {}

  // Return false if `stop` returned true.
  bool add(size_t first_tree, size_t last_tree, const std::vector<CodedTile>& tiles, const double* weights,
           const Stop& stop, double* weight_at) {
    const size_t first = trees_.trees[first_tree].leaf;
    const DependentTree& last = trees_.trees[last_tree - 1];
    counts_.assign(weights ? 0 : last.leaf + last.n_leaves - first, 0);
    for (const CodedTile& tile : tiles)
      for (size_t t = first_tree; t < last_tree; ++t) {
        if (stop()) return false;
        const DependentTree& tree = trees_.trees[t];
        for (int block = 0; block < tile.n_blocks(); ++block) {
          const ReachedLeaves leaves = reach_(tree, tile, block);
          if (weights)
            weigh(leaves, weights + tile.first + block * kBlockRows, weight_at + tree.leaf);
          else
            count(leaves, counts_.data() + (tree.leaf - first));
        }
      }
    for (size_t i = 0; i < counts_.size(); ++i) weight_at[first + i] += static_cast<double>(counts_[i]);
    return true;
  }

 private:
  static void weigh(const ReachedLeaves& leaves, const double* weights, double* weight_at) {
    for (size_t i = 0; i < leaves.n; ++i) {
      double sum = 0;
      for_rows(leaves.rows[i], [&](int row) { sum += weights[row]; });
      weight_at[leaves.listed ? leaves.listed[i] : i] += sum;
    }
  }

  static void count(const ReachedLeaves& leaves, uint64_t* counts) {
    if (!leaves.listed)
      kernels().count_rows(leaves.rows, leaves.n, counts);
    else
      for (size_t i = 0; i < leaves.n; ++i)
        counts[leaves.listed[i]] += static_cast<uint64_t>(__builtin_popcountll(leaves.rows[i]));
  }

  const DependentTrees& trees_;
  BlockReach reach_;
  std::vector<uint64_t> counts_;
};

// The grid of cells, with a margin at the end of each axis: values are first stored as differences between
// neighbours, so that a leaf changes only the corners of its region.
class CellSums {
 public:
  explicit CellSums(const DependentTrees& trees) : trees_(trees) {
    for (size_t axis = 0; axis < trees.axes.size(); ++axis) sizes_[axis] = trees.axes[axis].n_cells() + 1;
    for (size_t axis = 0; axis < trees.axes.size(); ++axis) n_points_ *= points(axis).size();
  }

  size_t size() const { return sizes_[0] * sizes_[1]; }
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
        sums[run.begin * sizes_[1] + second.begin] += value;
        sums[run.begin * sizes_[1] + second.end] -= value;
        sums[run.end * sizes_[1] + second.begin] -= value;
        sums[run.end * sizes_[1] + second.end] += value;
      }
    }
  }

  // Sum the differences, and write a constant plus the value of the cell of each point.
  void write(double* sums, double constant, double* out) const {
    const size_t n_axes = trees_.axes.size(), width = sizes_[1];
    if (n_axes == 0) {
      *out = constant + *sums;
      return;
    }
    for (size_t row = 0; row < sizes_[0]; ++row) {
      double* const here = sums + row * width;
      for (size_t i = 1; i < width; ++i) here[i] += here[i - 1];
    }
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
  std::array<size_t, 2> sizes_{1, 1};
  size_t n_points_ = 1;
};

// Return the output that a value of a leaf is for.
size_t output_of(const DependentTree& tree, size_t value) {
  return tree.output < 0 ? value : static_cast<size_t>(tree.output);
}

// Return the first tree of each chunk and, at the end, the number of trees.
std::vector<size_t> chunks_of(const DependentTrees& trees, int n_threads) {
  const size_t most = std::min(kChunkLeaves, trees.n_leaves() / static_cast<size_t>(n_threads) + 1);
  std::vector<size_t> chunks{0};
  for (size_t t = 1; t < trees.trees.size(); ++t) {
    const DependentTree& tree = trees.trees[t];
    if (tree.leaf + tree.n_leaves - trees.trees[chunks.back()].leaf > most) chunks.push_back(t);
  }
  if (!trees.trees.empty()) chunks.push_back(trees.trees.size());
  return chunks;
}

}  // namespace

bool add_dependent_weights(const DependentTrees& trees, const Rows& rows, const double* weights,
                           int n_threads, const Stop& interrupted, double* weight_at) {
  const std::vector<size_t> chunks = chunks_of(trees, n_threads);
  return work_on_tiles<CodedTile>(
      trees.plan, rows, n_threads, interrupted, [&](const std::vector<CodedTile>& tiles) {
        return work_off(static_cast<int64_t>(chunks.size()) - 1, n_threads, interrupted, [&] {
          return [&, weigher = Weigher(trees)](int64_t i, const Stop& stop) mutable {
            return weigher.add(chunks[i], chunks[i + 1], tiles, weights, stop, weight_at);
          };
        });
      });
}

void write_average(const DependentTrees& trees, const double* weight_at, double total, double* out) {
  const CellSums cells(trees);
  const size_t width = trees.width();
  std::vector<double> sums(cells.size() * trees.constant.size());
  for (const DependentTree& tree : trees.trees)
    for (size_t leaf = tree.leaf; leaf < tree.leaf + tree.n_leaves; ++leaf)
      for (size_t i = 0; i < width; ++i)
        cells.add(leaf, weight_at[leaf] / total * trees.leaf_values[leaf * width + i],
                  sums.data() + output_of(tree, i) * cells.size());
  for (size_t o = 0; o < trees.constant.size(); ++o)
    cells.write(sums.data() + o * cells.size(), trees.constant[o], out + o * cells.n_points());
}

bool write_individual(const DependentTrees& trees, const Rows& rows, int n_threads, const Stop& interrupted,
                      double* out) {
  const CellSums cells(trees);
  const size_t width = trees.width(), row_size = cells.size() * trees.constant.size();
  const int64_t n_blocks = (rows.n_rows + kBlockRows - 1) / kBlockRows;
  return work_off(n_blocks, n_threads, interrupted, [&] {
    CodedTile coded;
    coded.codes.allocate(trees.plan, kBlockRows);
    return [&, tile = std::move(coded), reach = BlockReach(trees),
            sums = std::vector<double>(row_size * kBlockRows)](int64_t i, const Stop& stop) mutable {
      tile.first = i * kBlockRows;
      tile.n_rows = static_cast<int>(std::min<int64_t>(kBlockRows, rows.n_rows - tile.first));
      tile.code(trees.plan, rows);
      std::fill(sums.begin(), sums.end(), 0.0);
      for (const DependentTree& tree : trees.trees) {
        if (stop()) return false;
        const ReachedLeaves leaves = reach(tree, tile, 0);
        for (size_t j = 0; j < leaves.n; ++j) {
          const size_t leaf = tree.leaf + (leaves.listed ? leaves.listed[j] : j);
          for (size_t v = 0; v < width; ++v) {
            double* const of_output = sums.data() + output_of(tree, v) * cells.size();
            const double value = trees.leaf_values[leaf * width + v];
            for_rows(leaves.rows[j], [&](int row) { cells.add(leaf, value, of_output + row * row_size); });
          }
        }
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
  return BlockReach::bytes(trees) + CellSums(trees).size() * trees.constant.size() * kBlockRows * sizeof(double) +
         code_bytes(trees.plan);
}

}  // namespace skshap
