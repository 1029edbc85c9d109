// Plan -> tables of path-dependent values, for trees that use the same split throughout each level. The walk
// itself fills the tables: it runs on a row for each index.
#include "base/aligned.h"
#include "base/threads.h"
#include "rows/tiles.h"
#include "rows/value_walk.h"
#include "tables/group_words.h"
#include "tables/stored_tables.h"
#include "tables/table_builder.h"

namespace skshap {
namespace {

// The most levels of a tree that has a single table.
constexpr size_t kMaxLevels = 10;
// The maximum number of indices per leaf of such a table. With more indices per leaf, the table of a lopsided
// tree would be mostly waste.
constexpr size_t kMaxIndicesPerLeaf = 2;

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

// Return the first node of each level, or nothing if a level has nodes with different splits.
std::vector<int32_t> levels_of(const Plan& plan, const TreeProgram& tree) {
  const size_t n_levels = static_cast<size_t>(tree.height);
  if (n_levels > kMaxLevels || size_t{1} << n_levels > kMaxIndicesPerLeaf * (tree.n_inner + 1)) return {};
  const DecideNode* const decide = plan.decide.data() + tree.decide;
  const std::vector<size_t> level = node_levels(plan, tree);
  std::vector<int32_t> first(n_levels, -1);
  for (int32_t node = 0; node < static_cast<int32_t>(tree.n_inner); ++node) {
    int32_t& first_node = first[level[node]];
    if (first_node < 0) first_node = node;
    if (!same_split(plan, decide[first_node], decide[node])) return {};
  }
  return first;
}

// Return as many such trees as the memory allows.
std::vector<LevelTree> find_level_trees(const Plan& plan, size_t table_bytes) {
  std::vector<LevelTree> level_trees;
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    const size_t n_outputs = n_used_outputs(plan, plan.chunks[c]);
    for (size_t i = plan.chunks[c].tree_begin; i < plan.chunks[c].tree_end; ++i) {
      std::vector<int32_t> nodes = levels_of(plan, plan.trees[i]);
      const size_t n = nodes.size(), needed = n_outputs * (n * element_bytes(plan) + sizeof(double)) << n;
      if (nodes.empty() || needed > table_bytes) continue;
      table_bytes -= needed;
      level_trees.push_back({c, i, std::move(nodes)});
    }
  }
  return level_trees;
}

// One thread's work: it fills the tables of such trees.
template <class T>
class LevelWriter {
 public:
  explicit LevelWriter(Plan& plan) : plan_(plan), slot_(plan.features.size()) {}

  void write_tree(const TableTree& tree) {
    const TableBatch& batch = plan_.tables.batches[tree.batch];
    const Chunk& chunk = plan_.chunks[batch.chunk];
    const Lookup& lookup = plan_.tables.lookups[tree.lookups];
    const size_t width = n_used_outputs(plan_, chunk), n_slots = chunk.slots.size();
    grow(phi_, width * n_slots * kBlockRows);
    grow(stack_, walk_stack(plan_, chunk));
    for (size_t slot = 0; slot < n_slots; ++slot) slot_[chunk.slots[slot]] = slot;
    from_.clear();
    for (uint32_t i = 0; i < lookup.n_targets; ++i) {
      const uint32_t place = plan_.tables.places[batch.places + plan_.tables.targets[lookup.targets + i]];
      const size_t output = place / plan_.features.size() - std::max(chunk.output, 0);
      from_.push_back((output * n_slots + slot_[place % plan_.features.size()]) * kBlockRows);
    }
    level_ = node_levels(plan_, plan_.trees[tree.tree]);
    const size_t size = size_t{1} << lookup.n_bits;
    T* out = numbers_of<T>(plan_.tables).own().data() + lookup.table;
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
    walk_values(plan_, chunk, tree, words_.data(), static_cast<int>(n_rows), phi_.data(), stack_.data());
  }

  Plan& plan_;
  Aligned<T> phi_, stack_;
  std::vector<size_t> slot_, level_, from_;
  std::vector<uint64_t> words_;
};

void write_tables(Plan& plan, int64_t n_threads) {
  in_precision(plan.precision, [&](auto number) {
    share_items(static_cast<int64_t>(plan.tables.trees.size()), n_threads, [&] {
      return [&plan, levels = LevelWriter<decltype(number)>(plan)](int64_t i) mutable {
        levels.write_tree(plan.tables.trees[i]);
      };
    });
  });
}

}  // namespace

Plan make_level_plan(const EnsembleView& ensemble, Precision precision, Index index, size_t table_bytes,
                     int64_t n_threads, const StoredTables* stored) {
  Plan plan = make_plan(ensemble, precision, 1, index, true, n_threads);
  const TableClock clock;
  plan.tables.level_limit = stored ? stored->level_limit : table_bytes;
  const std::vector<LevelTree> levels = find_level_trees(plan, plan.tables.level_limit);
  if (levels.empty() && !stored) return plan;
  lay_out_level_tables(plan, levels);
  if (stored) {
    take_tables(plan, *stored);
  } else {
    allocate_tables(plan);
    write_tables(plan, n_threads);
  }
  drop_walks(plan);
  clock.stop(plan);
  return plan;
}

}  // namespace skshap
