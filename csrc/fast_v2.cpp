#include "fast_v2.h"

#include <algorithm>
#include <atomic>

#include "group_words.h"
#include "quadrature.h"
#include "stored_tables.h"
#include "table_builder.h"
#include "table_kernels.h"
#include "threads.h"

namespace skshap {
namespace {

// Zero fractions are not smaller: the ratio of a feature, which takes its zero fraction out of a number,
// stays finite, and what it multiplies keeps its digits. A leaf that it changes is worth no more than that.
template <class T>
constexpr double kLeastFraction = sizeof(T) == 4 ? 0x1p-64 : 0x1p-512;

// Lists the leaves with the features of their paths.
class Layout {
 public:
  explicit Layout(Plan& plan)
      : plan_(plan),
        out_(plan.tables),
        least_fraction_(plan.precision == Precision::kSingle ? kLeastFraction<float>
                                                             : kLeastFraction<double>),
        slot_of_(plan.columns.size()) {
    int height = 0;
    size_t n_leaves = 0, most_inner = 0;
    for (const Chunk& chunk : plan.chunks) height = std::max(height, chunk.height);
    for (const TreeProgram& tree : plan.trees) {
      n_leaves += tree.n_inner + 1;
      most_inner = std::max(most_inner, tree.n_inner);
    }
    paths_.resize(height);
    nodes_.resize(most_inner);
    out_.leaf_tables.resize(n_leaves);
    // As many as there may be; memory that is not written to is none.
    out_.leaf_features.resize(n_leaves * std::min<size_t>(height, kMaxLeafBits));
  }

  void run() {
    const size_t element = plan_.precision == Precision::kSingle ? 4 : 8;
    for (uint32_t n = 0; n <= kMaxLeafBits; ++n) size_[n] = padded_row(size_t{1} << n, element);
    LeafTable* leaves = out_.leaf_tables.data();
    std::vector<uint32_t> slot_of_feature(plan_.features.size());
    for (const Chunk& chunk : plan_.chunks) {
      for (size_t slot = 0; slot < chunk.slots.size(); ++slot)
        slot_of_feature[chunk.slots[slot]] = static_cast<uint32_t>(slot);
      for (size_t column = 0; column < slot_of_.size(); ++column) {
        const auto& features = plan_.features;
        const auto found = std::lower_bound(features.begin(), features.end(), plan_.columns[column].feature);
        slot_of_[column] = slot_of_feature[found - features.begin()];
      }
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
        add_tree(plan_.trees[i], leaves);
        leaves += plan_.trees[i].n_inner + 1;
      }
    }
    if (longest_ > kMaxLeafBits) require_short_paths(plan_);
    out_.leaf_features.resize(n_features_);
  }

 private:
  struct Path {
    uint32_t n;
    LeafFeature features[kMaxLeafBits];
  };
  struct Node {
    const Path* above;
    LeafFeature split;  // that leads to it
    uint32_t level;
  };

  // Nodes come in preorder, so that the path to a node's parent still stands on the level above.
  void add_tree(const TreeProgram& tree, LeafTable* leaves) {
    const int32_t n_inner = static_cast<int32_t>(tree.n_inner);
    const int32_t* children = plan_.children.data() + tree.children;
    const DecideNode* const decide = plan_.decide.data() + tree.decide;
    const double* const shares = plan_.shares.data() + tree.decide;
    for (int32_t i = 0; i < n_inner; ++i, children += 2) {
      const uint32_t level = i ? nodes_[i].level : 0, slot = slot_of_[decide[i].column];
      const LeafFeature left{bit_of(i, false), slot, shares[i]}, right{bit_of(i, true), slot, 1 - shares[i]};
      const Path* path = &root_;
      if (i) {
        Path& to = paths_[level];
        to.n = extend(*nodes_[i].above, nodes_[i].split, to.features);
        path = &to;
      }
      add_child(*path, left, level, children[0], n_inner, leaves);
      add_child(*path, right, level, children[1], n_inner, leaves);
    }
  }

  void add_child(const Path& path, const LeafFeature& split, uint32_t level, int32_t child, int32_t n_inner,
                 LeafTable* leaves) {
    if (child < n_inner)
      nodes_[child] = {&path, split, level + 1};
    else
      add_leaf(path, split, leaves[child - n_inner]);
  }

  // Writes the path that a split continues; returns its features.
  uint32_t extend(const Path& above, const LeafFeature& split, LeafFeature* to) {
    uint32_t at = above.n;
    for (uint32_t i = 0; i < above.n; ++i) {
      to[i] = above.features[i];
      if (to[i].slot == split.slot) at = i;
    }
    const bool is_new = at == above.n;
    if (is_new && at == kMaxLeafBits) {
      longest_ = at + 1;
      return at;
    }
    const double z = is_new ? split.zero_fraction : split.zero_fraction * above.features[at].zero_fraction;
    to[at] = {split.bit, split.slot, std::max(z, least_fraction_)};
    return above.n + is_new;
  }

  void add_leaf(const Path& path, const LeafFeature& split, LeafTable& leaf) {
    const uint32_t n = extend(path, split, out_.leaf_features.data() + n_features_);
    leaf = {static_cast<uint32_t>(n_features_), n, out_.n_elements};
    n_features_ += n;
    out_.n_elements += size_[n];
  }

  Plan& plan_;
  Tables& out_;
  const double least_fraction_;
  const Path root_{};
  size_t n_features_ = 0;
  uint32_t longest_ = 0;
  size_t size_[kMaxLeafBits + 1];  // of a table
  std::vector<uint32_t> slot_of_;  // of a column
  std::vector<Path> paths_;        // by level
  std::vector<Node> nodes_;
};

template <class T>
void fill_tables(Plan& plan, int64_t n_threads) {
  const std::vector<LeafTable>& leaves = plan.tables.leaf_tables;
  uint32_t longest = 1;
  for (const LeafTable& leaf : leaves) longest = std::max(longest, leaf.n_features);
  int n_nodes[kMaxLeafBits + 1] = {};
  std::vector<T> t[kMaxLeafBits + 1], weights[kMaxLeafBits + 1];
  for (uint32_t n = 1; n <= longest; ++n) {
    std::vector<double> at, of;
    n_nodes[n] = quadrature_nodes(plan.index, static_cast<int>(n));
    quadrature(plan.index, n_nodes[n], at, of);
    for (int k = 0; k < n_nodes[n]; ++k) {
      t[n].push_back(static_cast<T>(at[k]));
      weights[n].push_back(static_cast<T>(of[k] / (1 - at[k])));
    }
  }
  constexpr size_t kPart = 256;
  std::atomic<size_t> next{0};
  run_threads(std::min<int64_t>(n_threads, static_cast<int64_t>(leaves.size() / kPart + 1)), [&](bool) {
    std::vector<T> scratch(t[longest].size() << longest);
    for (size_t i; (i = next.fetch_add(kPart)) < leaves.size();)
      fill_leaves(FillLeavesArgs<T>{leaves.data() + i, std::min(kPart, leaves.size() - i),
                                    plan.tables.leaf_features.data(), n_nodes, t, weights, scratch.data(),
                                    stored_tables<T>(plan.tables).own().data()});
  });
}

}  // namespace

Plan make_fast_v2_plan(const EnsembleView& ensemble, Precision precision, Index index, size_t table_bytes,
                       int64_t n_threads, const StoredTables* stored) {
  Plan plan = make_plan(ensemble, precision, 1, index, false);
  const TableClock clock;
  plan.method = Method::kFastV2;
  Layout(plan).run();
  for (TreeProgram& tree : plan.trees) tree.by_tables = true;
  const size_t needed = plan.tables.n_elements * (precision == Precision::kSingle ? 4 : 8);
  if (stored) {
    take_tables(plan, *stored);
  } else {
    require_room(needed, table_bytes);
    allocate_tables(plan);
    if (precision == Precision::kSingle)
      fill_tables<float>(plan, n_threads);
    else
      fill_tables<double>(plan, n_threads);
  }
  clock.stop(plan);
  return plan;
}

// --- Rows ---

namespace {

size_t row_elements(const Plan& plan) {
  size_t most = 0;
  for (const Chunk& chunk : plan.chunks)
    most = std::max(most, n_used_outputs(plan, chunk) * chunk.slots.size());
  return most;
}

size_t most_values(const Plan& plan) {
  size_t most = 0;
  for (const Chunk& chunk : plan.chunks)
    most = std::max(most, (chunk.max_inner + 1) * n_used_outputs(plan, chunk));
  return most;
}

}  // namespace

template <class T>
size_t FastV2<T>::row_bytes(const Plan& plan) {
  return row_elements(plan) * sizeof(T);
}

template <class T>
size_t FastV2<T>::bytes(const Plan& plan) {
  return most_values(plan) * sizeof(T);
}

template <class T>
FastV2<T>::FastV2(const Plan& plan, const Kernels& kernels, size_t tile)
    : plan_(plan), kernels_(kernels), tile_(tile), values_(most_values(plan)) {
  phi_.resize(tile * row_elements(plan));
}

template <class T>
bool FastV2<T>::run(const CodeTile& codes, int n_rows, uint64_t* words, double* sums, double* margin,
                    Margins& margins, const std::function<bool()>& stop) {
  codes_ = &codes;
  n_rows_ = n_rows;
  const LeafTable* leaves = plan_.tables.leaf_tables.data();
  for (const Chunk& chunk : plan_.chunks) {
    const size_t n_blocks = (n_rows + kBlockRows - 1) / kBlockRows;
    std::fill_n(phi_.data(), n_blocks * n_used_outputs(plan_, chunk) * chunk.slots.size() * kBlockRows, T(0));
    double* const of_chunk = margin ? margin + std::max(chunk.output, 0) * tile_ : nullptr;
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      add_tree(chunk, plan_.trees[i], leaves, words, of_chunk, margins);
      leaves += plan_.trees[i].n_inner + 1;
    }
    add_sums(chunk, sums);
    if (stop()) return false;
  }
  return true;
}

template <class T>
void FastV2<T>::add_tree(const Chunk& chunk, const TreeProgram& tree, const LeafTable* leaves,
                         uint64_t* words, double* margin, Margins& margins) {
  const size_t n_outputs = n_used_outputs(plan_, chunk), output_stride = chunk.slots.size() * kBlockRows;
  const double* const values = plan_.leaf_values.data() + tree.leaves;
  for (size_t i = 0; i < (tree.n_inner + 1) * n_outputs; ++i)
    values_[i] = static_cast<T>(values[i] / plan_.leaf_scale);
  for (int block = 0; block * kBlockRows < n_rows_; ++block) {
    decide_block(plan_, kernels_, plan_.decide.data() + tree.decide, tree.n_inner, *codes_, block, words);
    if (margin) margins.add(tree, n_outputs, words, margin + block * kBlockRows, tile_);
    const Tables& tables = plan_.tables;
    add_leaves(AddLeavesArgs<T>{words, std::min(kBlockRows, n_rows_ - block * kBlockRows), leaves,
                                tree.n_inner + 1, tables.leaf_features.data(),
                                stored_tables<T>(tables).data(), values_.data(), n_outputs,
                                phi_.data() + block * n_outputs * output_stride, output_stride});
  }
}

template <class T>
void FastV2<T>::add_sums(const Chunk& chunk, double* sums) const {
  const size_t n_outputs = n_used_outputs(plan_, chunk), first_output = std::max(chunk.output, 0);
  const T* from = phi_.data();
  for (int block = 0; block * kBlockRows < n_rows_; ++block)
    for (size_t o = 0; o < n_outputs; ++o)
      for (const int32_t feature : chunk.slots) {
        double* const to =
            sums + ((first_output + o) * plan_.features.size() + feature) * tile_ + block * kBlockRows;
        for (int row = 0; row < kBlockRows; ++row) to[row] += plan_.leaf_scale * from[row];
        from += kBlockRows;
      }
}

template class FastV2<float>;
template class FastV2<double>;

}  // namespace skshap
