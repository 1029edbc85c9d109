#include "intervals/background_units.h"

#include <algorithm>
#include <numeric>

#include "base/aligned.h"
#include "rows/margin.h"
#include "simd/kernels.h"

namespace skshap {
namespace {

constexpr int32_t kNone = -1;

// A unit as a tree of its own. It has the nodes of the path from the root, with a leaf of value 0 beside each
// of them, and the nodes below the path. Its nodes are in preorder.
class UnitTree {
 public:
  explicit UnitTree(const Plan& plan) : plan_(plan) {}

  void make(const Unit& unit, size_t n_outputs) {
    const TreeProgram& tree = plan_.trees[unit.tree];
    for (const int32_t node : nodes_) number_[node] = kNone;
    number_.resize(std::max(number_.size(), 2 * tree.n_inner + 1), kNone);
    n_tree_inner_ = static_cast<int32_t>(tree.n_inner);
    tree_children_ = plan_.children.data() + tree.children;
    find_nodes(unit);
    const int32_t n_inner = this->n_inner();
    decide_.clear();
    children_.clear();
    values_.clear();
    height_.assign(1, 0);
    height_.resize(nodes_.size(), 0);
    const double* const tree_values = plan_.leaf_values.data() + tree.leaves;
    int32_t n_leaves = 0;
    for (int32_t i = 0; i < n_inner; ++i) {
      DecideNode decision = plan_.decide[tree.decide + nodes_[i]];
      decision.previous = moved_word(decision.previous);
      decide_.push_back(decision);
      for (const bool right : {false, true}) {
        const int32_t child = tree_children_[2 * nodes_[i] + right];
        const int32_t number = child < n_tree_inner_ ? number_[child] : kNone;
        if (number != kNone) {
          children_.push_back(number);
          height_[number] = height_[i] + 1;
          continue;
        }
        const bool is_own = child >= n_tree_inner_ && (i >= n_path_ || child == unit.node);
        for (size_t o = 0; o < n_outputs; ++o)
          values_.push_back(is_own ? tree_values[(child - n_tree_inner_) * n_outputs + o] : 0.0);
        children_.push_back(n_inner + n_leaves++);
      }
    }
    for (int32_t leaf = n_inner; leaf <= 2 * n_inner; ++leaf) children_.insert(children_.end(), 2, leaf);
  }

  int32_t n_inner() const { return static_cast<int32_t>(nodes_.size()); }
  int height() const { return n_inner() ? 1 + *std::max_element(height_.begin(), height_.end()) : 0; }
  const DecideNode* decide() const { return decide_.data(); }
  const int32_t* children() const { return children_.data(); }
  const double* values() const { return values_.data(); }

  // Return the bit, among the words of this tree, that stands for a bit of the original tree; see bit_rows.
  uint32_t moved_bit(uint32_t bit) const { return moved_word(bit >> 1) << 1 | (bit & 1); }

 private:
  // List the inner nodes of the path, then the inner nodes below it.
  void find_nodes(const Unit& unit) {
    nodes_.clear();
    for (int32_t node = 0; node != unit.node;) {
      nodes_.push_back(node);
      node = tree_children_[2 * node + unit.is_right_of(node, tree_children_)];
    }
    n_path_ = static_cast<int32_t>(nodes_.size());
    // The inner nodes of a subtree are consecutive.
    nodes_.resize(unit.n_nodes);
    std::iota(nodes_.begin() + n_path_, nodes_.end(), unit.node);
    for (size_t i = 0; i < nodes_.size(); ++i) number_[nodes_[i]] = static_cast<int32_t>(i);
  }

  uint32_t moved_word(uint32_t word) const {
    if (word < kFirstWord) return word;
    return kFirstWord + 2 * static_cast<uint32_t>(number_[(word - kFirstWord) / 2]);
  }

  const Plan& plan_;
  int32_t n_tree_inner_ = 0, n_path_ = 0;
  const int32_t* tree_children_ = nullptr;
  std::vector<int32_t> nodes_;   // of the tree, by number here
  std::vector<int32_t> number_;  // by node of the tree
  std::vector<int32_t> children_, height_;
  std::vector<DecideNode> decide_;
  std::vector<double> values_;
};

template <class T>
class TableReader : public UnitValues<T> {
 public:
  explicit TableReader(const Plan& plan) : plan_(plan), tree_(plan) {}

  void write(size_t, const Unit& unit, const CodeTile& codes, const EntryNumbers& numbers, T* sums,
             double* margins) override {
    const size_t n_entries = unit.n_entries, n_blocks = block_count(n_entries);
    const size_t n_outputs = numbers.window->n_outputs;
    tree_.make(unit, n_outputs);
    const size_t n_inner = static_cast<size_t>(tree_.n_inner()), n_words = block_words(2 * n_inner + 1);
    grow(words_, n_blocks * n_words);
    grow(index_, n_blocks * kBlockRows);
    const size_t entry_size = numbers.window->row_size, row_size = padded_row(entry_size, sizeof(T));
    grow(rows_, n_blocks * kBlockRows * row_size);
    std::fill_n(rows_.data(), n_blocks * kBlockRows * row_size, T(0));
    for (size_t block = 0; block < n_blocks; ++block) {
      uint64_t* const words = words_.data() + block * n_words;
      decide_block(plan_, kernels(), tree_.decide(), n_inner, codes, static_cast<int>(block), words);
      // Leaves, whose words the kernel for margins reads.
      std::fill(words + kFirstWord + 2 * n_inner, words + kFirstWord + 2 * (2 * n_inner + 1), 0);
      const size_t first = block * kBlockRows, n_rows = std::min<size_t>(kBlockRows, n_entries - first);
      this->write_margins(n_rows, n_outputs, margins + first * n_outputs,
                          [&](double* margin) { add_margins(words, n_rows, n_outputs, margin); });
    }
    const TableTree& tables = table_tree_of(plan_, unit.tree);
    for (size_t i = unit.lookups; i < unit.lookups_end; ++i)
      add_table(plan_.tables.lookups[i], plan_.tables.batches[tables.batch], numbers, n_blocks, n_words,
                row_size);
    for (size_t entry = 0; entry < n_entries; ++entry)
      std::copy_n(rows_.data() + entry * row_size, entry_size, sums + entry * entry_size);
  }

 private:
  void add_margins(const uint64_t* words, size_t n_rows, size_t n_outputs, double* margin) {
    grow(reach_, 2 * static_cast<size_t>(tree_.n_inner()) + 1);
    int32_t reached[kBlockRows];
    add_leaf_values(kernels(),
                    {.children = tree_.children(),
                     .n_inner = tree_.n_inner(),
                     .n_leaves = tree_.n_inner() + 1,
                     .merged = false,
                     .height = tree_.height(),
                     .n_rows = static_cast<int>(n_rows),
                     .words = words,
                     .leaf_values = tree_.values(),
                     .reach = reach_.data(),
                     .margin = margin,
                     .leaves = reached},
                    n_outputs, margin, kBlockRows);
  }

  // Add a background table to the rows.
  void add_table(const Lookup& lookup, const TableBatch& batch, const EntryNumbers& numbers, size_t n_blocks,
                 size_t n_words, size_t row_size) {
    const Tables& tables = plan_.tables;
    bits_.clear();
    for (uint32_t i = 0; i < lookup.n_bits; ++i)
      bits_.push_back(tree_.moved_bit(tables.bits[lookup.bits + i]));
    kernels().index({.words = words_.data(),
                     .block_words = n_words,
                     .n_blocks = n_blocks,
                     .bits = bits_.data(),
                     .n_bits = lookup.n_bits,
                     .index = index_.data()});
    targets_.clear();
    for (uint32_t i = 0; i < lookup.n_targets; ++i) {
      const size_t place = tables.places[batch.places + tables.targets[lookup.targets + i]];
      const size_t output = place / plan_.features.size() - numbers.window->first_output;
      targets_.push_back(static_cast<uint32_t>(output * numbers.n_features +
                                               numbers.position[place % plan_.features.size()]));
    }
    kernels().of<T>().lookup({.index = index_.data(),
                              .n_rows = n_blocks * kBlockRows,
                              .table = numbers_of<T>(tables).data() + lookup.table,
                              .targets = targets_.data(),
                              .n_targets = lookup.n_targets,
                              .phi = rows_.data(),
                              .row_size = row_size});
  }

  const Plan& plan_;
  UnitTree tree_;
  std::vector<uint32_t> bits_, targets_;
  Aligned<uint64_t> words_, reach_;
  Aligned<uint16_t> index_;
  Aligned<T> rows_;
};

}  // namespace

template <class T>
std::unique_ptr<UnitValues<T>> make_background_units(const Plan& plan) {
  return std::make_unique<TableReader<T>>(plan);
}

template std::unique_ptr<UnitValues<float>> make_background_units(const Plan& plan);
template std::unique_ptr<UnitValues<double>> make_background_units(const Plan& plan);

Plan trees_without_units(const Plan& plan, const IntervalLayout& layout) {
  Plan out = plan;
  Tables& tables = out.tables;
  tables.floats = plan.tables.floats.borrowed();
  tables.doubles = plan.tables.doubles.borrowed();
  tables.patterns = plan.tables.patterns.borrowed();
  tables.weights = plan.tables.weights.borrowed();
  out.trees.clear();
  out.chunks.clear();
  tables.trees.clear();
  tables.batches.clear();
  tables.lookups.clear();
  tables.leaves.clear();
  size_t chunk_end = 0, batch = 0;  // of the last ones that were kept
  for (const TableTree& from : plan.tables.trees) {
    if (layout.units.has(from.tree)) continue;
    if (from.tree >= chunk_end) {
      out.chunks.push_back(chunk_of(plan, from.tree));
      chunk_end = out.chunks.back().tree_end;
      out.chunks.back().tree_begin = out.trees.size();
    }
    if (tables.batches.empty() || from.batch != batch) {
      tables.batches.push_back(plan.tables.batches[from.batch]);
      batch = from.batch;
      tables.batches.back().chunk = out.chunks.size() - 1;
      tables.batches.back().trees = tables.trees.size();
    }
    TableTree tree = from;
    tree.tree = out.trees.size();
    tree.batch = tables.batches.size() - 1;
    const auto keep = [](auto& to, const auto& stream, size_t& first, size_t& end) {
      to.insert(to.end(), stream.begin() + first, stream.begin() + end);
      first = to.size() - (end - first);
      end = to.size();
    };
    keep(tables.lookups, plan.tables.lookups, tree.lookups, tree.lookups_end);
    keep(tables.leaves, plan.tables.leaves, tree.leaves, tree.leaves_end);
    tables.trees.push_back(tree);
    tables.batches.back().trees_end = tables.trees.size();
    out.trees.push_back(plan.trees[from.tree]);
    out.chunks.back().tree_end = out.trees.size();
  }
  if (!tables.trees.empty()) return out;
  tables = Tables{};
  tables.against_background = true;
  out.decide.clear();
  out.shares.clear();
  out.children.clear();
  out.leaf_values.clear();
  return out;
}

}  // namespace skshap
