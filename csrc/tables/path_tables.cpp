// Plan -> tables of path-dependent values, for groups of leaves and for trees that use the same split
// throughout each level.
//
// In path-dependent values, unknown features are independent, and a feature of a path is satisfied with
// probability z, its zero fraction. Fast TreeSHAP v2 (tables/fast_v2.h) computes a row's values from the
// numbers of several leaves; here the sums are stored, ready for the features of a group of leaves. The
// tables of trees that use the same split throughout each level are filled by the walk itself, run on a row
// for each index.
#include <atomic>
#include <stdexcept>

#include "base/aligned.h"
#include "base/threads.h"
#include "plan/quadrature.h"
#include "simd/kernels.h"
#include "tables/group_words.h"
#include "tables/stored_tables.h"
#include "tables/table_builder.h"

namespace skshap {
namespace {

// The most levels of a tree that has a single table.
constexpr size_t kMaxLevels = 10;
// The maximum number of indices of such a table per leaf: tables of lopsided trees would be mostly waste.
constexpr size_t kMaxIndicesPerLeaf = 2;

// --- Trees that use the same split throughout each level ---

bool same_categories(const Plan& plan, const DecideNode& a, const DecideNode& b) {
  const uint32_t* const bits = plan.category_bits.data();
  const size_t n_codes = plan.columns[a.column].categories.size() + 2;
  for (size_t code = 0; code < n_codes; ++code)
    if ((bits[a.operand + code / 32] ^ bits[b.operand + code / 32]) >> code % 32 & 1) return false;
  return true;
}

bool same_split(const Plan& plan, const DecideNode& a, const DecideNode& b) {
  if (a.column != b.column || a.bias != b.bias) return false;
  return plan.columns[a.column].categorical ? same_categories(plan, a, b) : a.operand == b.operand;
}

// Return how many nodes are above each inner node.
std::vector<size_t> node_levels(const Plan& plan, const TreeProgram& tree) {
  const int32_t* const children = plan.children.data() + tree.children;
  std::vector<size_t> level(tree.n_inner, 0);
  for (size_t node = 0; node < tree.n_inner; ++node)  // preorder: parents come before their children
    for (const int32_t child : {children[2 * node], children[2 * node + 1]})
      if (static_cast<size_t>(child) < tree.n_inner) level[child] = level[node] + 1;
  return level;
}

// Return the first node of each level, or nothing if another node of a level has another split.
std::vector<int32_t> levels_of(const Plan& plan, const TreeProgram& tree) {
  const size_t n_levels = static_cast<size_t>(tree.height);
  if (n_levels > kMaxLevels || size_t{1} << n_levels > kMaxIndicesPerLeaf * (tree.n_inner + 1)) return {};
  const DecideNode* const decide = plan.decide.data() + tree.decide;
  const std::vector<size_t> level = node_levels(plan, tree);
  std::vector<int32_t> first(n_levels, -1);
  for (int32_t node = 0; node < static_cast<int32_t>(tree.n_inner); ++node) {
    int32_t& of_level = first[level[node]];
    if (of_level < 0) of_level = node;
    if (!same_split(plan, decide[of_level], decide[node])) return {};
  }
  return first;
}

size_t level_bytes(const Plan& plan, const Chunk& chunk, size_t n_levels) {
  return n_used_outputs(plan, chunk) * (n_levels * element_bytes(plan) + sizeof(double)) << n_levels;
}

// Take as many such trees as memory allows; subtract their bytes from table_bytes.
std::vector<LevelTree> take_level_trees(Plan& plan, size_t& table_bytes) {
  std::vector<LevelTree> found;
  for (const Chunk& chunk : plan.chunks)
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      std::vector<int32_t> nodes = levels_of(plan, plan.trees[i]);
      const size_t needed = level_bytes(plan, chunk, nodes.size());
      if (nodes.empty() || needed > table_bytes) continue;
      table_bytes -= needed;
      plan.trees[i].walked = false;
      found.push_back({i, std::move(nodes)});
    }
  return found;
}

// One thread's work: fills the tables of such trees.
template <class T>
class LevelWriter {
 public:
  explicit LevelWriter(Plan& plan) : plan_(plan) {
    size_t phi = 0, stack = 0;
    for (const Chunk& chunk : plan.chunks) {
      phi = std::max(phi, n_used_outputs(plan, chunk) * chunk.slots.size() * kBlockRows);
      stack = std::max(stack, walk_stack(plan, chunk));
    }
    phi_.resize(phi);
    stack_.resize(stack);
    slot_.resize(plan.features.size());
  }

  void write_tree(const TableTree& tree) {
    const TableBatch& batch = plan_.tables.batches[tree.batch];
    const Chunk& chunk = plan_.chunks[batch.chunk];
    const Lookup& lookup = plan_.tables.lookups[tree.lookups];
    const size_t width = n_used_outputs(plan_, chunk), n_slots = chunk.slots.size();
    for (size_t slot = 0; slot < n_slots; ++slot) slot_[chunk.slots[slot]] = slot;
    from_.clear();
    for (uint32_t i = 0; i < lookup.n_targets; ++i) {
      const uint32_t place = plan_.tables.places[batch.places + plan_.tables.targets[lookup.targets + i]];
      const size_t output = place / plan_.features.size() - std::max(chunk.output, 0);
      from_.push_back((output * n_slots + slot_[place % plan_.features.size()]) * kBlockRows);
    }
    level_ = node_levels(plan_, plan_.trees[tree.tree]);
    const size_t size = size_t{1} << lookup.n_bits;
    T* out = stored_tables<T>(plan_.tables).own().data() + lookup.table;
    for (size_t first = 0; first < size; first += kBlockRows) {
      const size_t n_rows = std::min<size_t>(kBlockRows, size - first);
      walk(chunk, plan_.trees[tree.tree], first / kBlockRows, n_rows, width);
      for (size_t row = 0; row < n_rows; ++row)
        for (const size_t from : from_) *out++ = phi_.data()[from + row];
    }
  }

 private:
  void walk(const Chunk& chunk, const TreeProgram& tree, size_t block, size_t n_rows, size_t n_outputs) {
    words_.assign(kFirstWord + 2 * tree.n_inner, ~uint64_t{0});
    for (size_t i = 0; i < tree.n_inner; ++i) {
      const DecideNode& node = plan_.decide[tree.decide + i];
      const uint64_t left = index_bit(level_[i], block) ^ (node.flags & kFlip ? ~uint64_t{0} : 0);
      uint64_t* const word = words_.data() + kFirstWord + 2 * i;
      word[0] = bit_rows(words_.data(), node.previous << 1 | static_cast<bool>(node.flags & kPreviousRight));
      word[1] = left & word[0];
    }
    std::fill_n(phi_.data(), n_outputs * chunk.slots.size() * kBlockRows, T(0));
    const T* const nodes = constants<T>(plan_).data() + chunk.quadrature;
    run_walk(kernels(), plan_.order, chunk.output < 0,
             WalkArgs<T>{plan_.ops.data() + tree.ops, constants<T>(plan_).data() + tree.constants,
                         words_.data(), nodes, nodes + chunk.n_nodes, chunk.n_nodes,
                         static_cast<int>(n_outputs), chunk.height, static_cast<int>(n_rows), phi_.data(),
                         chunk.slots.size() * kBlockRows, stack_.data(), nullptr, nullptr, 0, nullptr, 0});
  }

  Plan& plan_;
  Aligned<T> phi_, stack_;
  std::vector<size_t> slot_, level_, from_;
  std::vector<uint64_t> words_;
};

// --- Other trees ---
//
// With a_jk = z_j (1 - t_k) + o_j t_k, the factor of feature j at quadrature node k, a leaf contributes to
// feature f the sum over k of w_k v (o_f - z_f) times the a_jk of the path's other features. Features of a
// group's index that occur only on the path to the group contribute the same factors to all of its leaves.
// With their bits as x and the other bits as y,
//     table[x, y][f] = sum_k low_k[x][f] high_k[y][f].
// Nothing is divided, so a zero fraction of 0 is no special case.

static_assert(kMaxTableBits <= 2 * kMaxFixedNodes);

// Compute the rows of a table for one y.
template <class T, int K>
void combine(const T* __restrict low, size_t n_x, const T* __restrict high, size_t n_targets,
             T* __restrict out) {
  const size_t size = n_x * n_targets;
  for (size_t x = 0; x < n_x; ++x, low += n_targets, out += n_targets)
    for (size_t target = 0; target < n_targets; ++target) {
      T sum = 0;
      for (int k = 0; k < K; ++k) sum += low[k * size + target] * high[k * n_targets + target];
      out[target] = sum;
    }
}

// One thread's work: fills the tables of such trees.
template <class T>
class GroupWriter {
 public:
  GroupWriter(Plan& plan, const TableLimits& limits)
      : plan_(plan), limits_(limits), groups_(plan), words_(plan), slot_(plan.features.size()) {
    for (int k = 1; k <= kMaxFixedNodes; ++k) quadrature(plan.index, k, t_[k], weights_[k]);
  }

  void write_tree(const TableTree& table_tree) {
    const TableBatch& batch = plan_.tables.batches[table_tree.batch];
    const Chunk& chunk = plan_.chunks[batch.chunk];
    tree_ = &plan_.trees[table_tree.tree];
    width_ = n_used_outputs(plan_, chunk);
    groups_.find(chunk, *tree_, limits_);
    for (size_t i = 0; i < groups_.groups.size(); ++i) {
      const TreeGroups::Group& group = groups_.groups[i];
      const Lookup& to = plan_.tables.lookups[table_tree.lookups + i];
      for (uint32_t slot = 0; slot * width_ < to.n_targets; ++slot) {
        const uint32_t target = plan_.tables.targets[to.targets + slot * width_];
        slot_[plan_.tables.places[batch.places + target] % plan_.features.size()] = slot;
      }
      uint32_t longest = 0;
      for (size_t leaf = group.leaves; leaf < group.leaves_end; ++leaf)
        longest = std::max(longest, groups_.leaves[leaf].n_features);
      if (longest) write_group(quadrature_nodes(plan_.index, static_cast<int>(longest)), group, to);
    }
  }

 private:
  void write_group(int n_nodes, const TreeGroups::Group& group, const Lookup& to) {
    switch (n_nodes) {
      case 1: return write_group<1>(group, to);
      case 2: return write_group<2>(group, to);
      case 3: return write_group<3>(group, to);
      case 4: return write_group<4>(group, to);
      case 5: return write_group<5>(group, to);
      case 6: return write_group<6>(group, to);
      case 7: return write_group<7>(group, to);
      default: return write_group<8>(group, to);
    }
  }

  template <int K>
  void write_group(const TreeGroups::Group& group, const Lookup& to) {
    make_low(K, group, to.n_targets);
    make_high<K>(group, to.n_targets / width_);
    const size_t n_targets = to.n_targets, n_x = size_t{1} << group.n_settled;
    const size_t n_y = size_t{1} << (group.n_bits() - group.n_settled);
    from_.resize(n_targets);
    for (size_t target = 0; target < n_targets; ++target)
      from_[target] = (target % width_ * n_y * n_rows_ + row_of_[target / width_]) * K;
    factors_.resize(K * n_targets);
    const double* high = high_.data();
    T* out = stored_tables<T>(plan_.tables).own().data() + to.table;
    for (size_t y = 0; y < n_y; ++y, high += n_rows_ * K, out += n_x * n_targets) {
      for (size_t target = 0; target < n_targets; ++target)
        for (int k = 0; k < K; ++k)
          factors_[k * n_targets + target] = static_cast<T>(high[from_[target] + k]);
      combine<T, K>(low_.data(), n_x, factors_.data(), n_targets, out);
    }
  }

  // Fill low_[k][x][target].
  void make_low(int n_nodes, const TreeGroups::Group& group, size_t n_targets) {
    const size_t size = n_targets << group.n_settled;
    low_.resize(n_nodes * size);
    on_.resize(n_targets);
    off_.resize(n_targets);
    for (int k = 0; k < n_nodes; ++k) {
      const double t = t_[n_nodes][k];
      T* const low = low_.data() + k * size;
      std::fill_n(low, n_targets, static_cast<T>(weights_[n_nodes][k]));
      for (uint32_t i = 0; i < group.n_settled; ++i) {
        const PathStep& step = groups_.steps[group.above + i];
        const double z = step.share;
        std::fill_n(on_.data(), n_targets, static_cast<T>(z * (1 - t) + t));
        std::fill_n(off_.data(), n_targets, static_cast<T>(z * (1 - t)));
        std::fill_n(on_.data() + slot_[step.feature] * width_, width_, static_cast<T>(1 - z));
        std::fill_n(off_.data() + slot_[step.feature] * width_, width_, static_cast<T>(-z));
        multiply(low, n_targets, i, on_.data(), off_.data());
      }
    }
  }

  // Fill high_[output][y][row][k]; the first row is for features that only the path to the group has.
  template <int K>
  void make_high(const TreeGroups::Group& group, size_t n_slots) {
    row_of_.assign(n_slots, 1);
    for (uint32_t i = 0; i < group.n_settled; ++i) row_of_[slot_[groups_.steps[group.above + i].feature]] = 0;
    n_rows_ = 1;
    for (size_t& row : row_of_)
      if (row) row = n_rows_++;
    const size_t n_y = size_t{1} << (group.n_bits() - group.n_settled);
    high_.assign(width_ * n_y * n_rows_ * K, 0.0);
    words_.make(*tree_, groups_, group, group.n_settled);
    for (size_t i = group.leaves; i < group.leaves_end; ++i) {
      const TreeGroups::Leaf& leaf = groups_.leaves[i];
      const size_t n_leaf_rows = make_leaf<K>(leaf);
      const double* const values = plan_.leaf_values.data() + tree_->leaves + leaf.value;
      for (size_t output = 0; output < width_; ++output) {
        const double value = values[output] / plan_.leaf_scale;
        for (size_t y = 0; y < n_y; ++y) {
          const double* __restrict from = leaf_.data() + index_.data()[y] * n_leaf_rows * K;
          double* __restrict const to = high_.data() + (output * n_y + y) * n_rows_ * K;
          for (const size_t row : leaf_rows_) {
            for (int k = 0; k < K; ++k) to[row * K + k] += value * from[k];
            from += K;
          }
        }
      }
    }
  }

  // Fill leaf_ like high_, for one leaf of value 1: [pattern of its features that are among y][row][k].
  // Return the number of its rows.
  template <int K>
  size_t make_leaf(const TreeGroups::Leaf& leaf) {
    leaf_rows_.assign(1, 0);
    bits_.clear();
    shares_.clear();
    for (uint32_t i = 0; i < leaf.n_features; ++i) {
      const PathStep& step = groups_.steps[leaf.path + i];
      const size_t row = row_of_[slot_[step.feature]];
      if (!row) continue;
      leaf_rows_.push_back(row);
      bits_.push_back(words_.local(step.bit));
      shares_.push_back(step.share);
    }
    words_.index(bits_, index_);
    const size_t n_rows = leaf_rows_.size();
    leaf_.resize(n_rows * K << bits_.size());
    std::fill_n(leaf_.data(), n_rows * K, 1.0);
    leaf_on_.resize(n_rows * K);
    leaf_off_.resize(n_rows * K);
    for (size_t i = 0; i < bits_.size(); ++i) {
      const double z = shares_[i];
      for (size_t r = 0; r < n_rows; ++r)
        for (int k = 0; k < K; ++k) {
          const double t = t_[K][k];
          leaf_on_[r * K + k] = r == i + 1 ? 1 - z : z * (1 - t) + t;
          leaf_off_[r * K + k] = r == i + 1 ? -z : z * (1 - t);
        }
      multiply(leaf_.data(), n_rows * K, i, leaf_on_.data(), leaf_off_.data());
    }
    return n_rows;
  }

  // Double the rows by a further bit of their number: those with it are multiplied by `on`, the others by
  // `off`.
  template <class X>
  static void multiply(X* rows, size_t row_size, size_t bit, const X* on, const X* off) {
    const size_t size = row_size << bit;
    for (size_t first = 0; first < size; first += row_size)
      for (size_t i = 0; i < row_size; ++i) {
        const X value = rows[first + i];
        rows[size + first + i] = value * on[i];
        rows[first + i] = value * off[i];
      }
  }

  Plan& plan_;
  const TableLimits limits_;
  TreeGroups groups_;
  GroupWords words_;
  const TreeProgram* tree_ = nullptr;
  size_t width_ = 1, n_rows_ = 1;
  std::vector<uint32_t> slot_;     // by feature: its slot in the group
  std::vector<size_t> row_of_;     // by slot: its row in high_
  std::vector<size_t> from_;       // by target: where its numbers begin in high_
  std::vector<size_t> leaf_rows_;  // the rows in high_ that a leaf adds to
  std::vector<uint32_t> bits_;
  std::vector<double> shares_, high_, leaf_, leaf_on_, leaf_off_;
  std::vector<T> low_, on_, off_, factors_;
  std::vector<double> t_[kMaxFixedNodes + 1], weights_[kMaxFixedNodes + 1];
  Aligned<uint16_t> index_;
};

template <class T>
void write_tables(Plan& plan, const TableLimits& limits, int64_t n_threads) {
  const size_t n_trees = plan.tables.trees.size();
  std::atomic<size_t> next{0};
  run_threads(std::min<int64_t>(n_threads, static_cast<int64_t>(n_trees)), [&](bool) {
    LevelWriter<T> levels(plan);
    GroupWriter<T> groups(plan, limits);
    for (size_t i; (i = next++) < n_trees;) {
      const TableTree& tree = plan.tables.trees[i];
      if (tree.n_levels)
        levels.write_tree(tree);
      else
        groups.write_tree(tree);
    }
  });
}

// Return the number of quadrature nodes, at most max_nodes, up to which the tables of all trees fit the
// memory.
int affordable_nodes(const Plan& plan, int max_nodes, size_t table_bytes) {
  int affordable = 0;
  for (const TableCost& cost : table_costs(plan, kMaxTableBits)) {
    if (cost.n_nodes > max_nodes || cost.longest_path > kMaxTableBits || cost.bytes > table_bytes) break;
    table_bytes -= cost.bytes;
    affordable = cost.n_nodes;
  }
  return affordable;
}

}  // namespace

Plan make_table_plan(const EnsembleView& ensemble, Precision precision, Index index, int max_nodes,
                     size_t table_bytes, int64_t n_threads, const StoredTables* stored) {
  Plan plan = make_plan(ensemble, precision, 1, index);
  const TableClock clock;
  plan.tables.level_limit = stored ? stored->level_limit : table_bytes;
  size_t left = plan.tables.level_limit;
  const std::vector<LevelTree> levels = take_level_trees(plan, left);
  if (max_nodes) max_nodes = affordable_nodes(plan, max_nodes, left);
  const TableLimits limits{kMaxTableBits, max_nodes};
  if (levels.empty() && !limits.max_nodes && !stored) return plan;
  lay_out_tables(plan, levels, limits);
  if (stored) {
    take_tables(plan, *stored);
  } else {
    allocate_tables(plan);
    if (precision == Precision::kSingle)
      write_tables<float>(plan, limits, n_threads);
    else
      write_tables<double>(plan, limits, n_threads);
  }
  drop_walks(plan);
  clock.stop(plan);
  return plan;
}

}  // namespace skshap
