#include "tables/fast_v2.h"

#include <algorithm>
#include <atomic>

#include "base/threads.h"
#include "plan/quadrature.h"
#include "plan/tree_paths.h"
#include "simd/kernels.h"
#include "tables/group_words.h"
#include "tables/stored_tables.h"
#include "tables/table_builder.h"

namespace skshap {
namespace {

// require_short_paths rejects paths that are too long for a table here.
static_assert(kMaxLeafBits == kMaxTableBits);

// The least zero fraction: smaller ones are replaced by this one. A feature's zero fraction is taken out of a
// number by a ratio, which then stays finite, and the product keeps its digits. A leaf that the replacement
// changes contributes at most this fraction of its value.
template <class T>
constexpr double kLeastFraction = sizeof(T) == 4 ? 0x1p-64 : 0x1p-512;

// The leaves of a plan, one after another, with the features of their paths.
class FastV2Layout {
 public:
  explicit FastV2Layout(Plan& plan)
      : plan_(plan),
        out_(plan.tables),
        least_fraction_(plan.precision == Precision::kSingle ? kLeastFraction<float>
                                                             : kLeastFraction<double>),
        walk_(plan),
        slot_of_(plan.features.size()) {
    int height = 0;
    size_t n_leaves = 0;
    for (const Chunk& chunk : plan.chunks) height = std::max(height, chunk.height);
    for (const TreeProgram& tree : plan.trees) n_leaves += tree.n_inner + 1;
    out_.leaf_tables.resize(n_leaves);
    // Reserve memory for the largest possible number: pages that are never written take no memory.
    out_.leaf_features.resize(n_leaves * std::min<size_t>(height, kMaxLeafBits));
    for (uint32_t n = 0; n <= kMaxLeafBits; ++n) size_[n] = padded_row(size_t{1} << n, element_bytes(plan));
  }

  void run() {
    LeafTable* leaves = out_.leaf_tables.data();
    for (const Chunk& chunk : plan_.chunks) {
      for (size_t slot = 0; slot < chunk.slots.size(); ++slot)
        slot_of_[chunk.slots[slot]] = static_cast<uint32_t>(slot);
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
        add_tree(plan_.trees[i], leaves);
        leaves += plan_.trees[i].n_inner + 1;
      }
    }
    require_positions(n_features_);
    out_.leaf_features.resize(n_features_);
  }

 private:
  void add_tree(const TreeProgram& tree, LeafTable* leaves) {
    walk_.run<LeafOrder::kByNumber>(
        tree, [](const PathNode&) {}, [&](int32_t leaf) { add_leaf(leaves[leaf]); });
  }

  void add_leaf(LeafTable& leaf) {
    const std::vector<PathStep>& path = walk_.steps();
    if (path.size() > kMaxLeafBits) require_short_paths(plan_);
    const uint32_t n = static_cast<uint32_t>(path.size());
    leaf = {static_cast<uint32_t>(n_features_), n, out_.n_elements};
    LeafFeature* to = out_.leaf_features.data() + n_features_;
    const uint32_t* const slots = slot_of_.data();
    const double least = least_fraction_;
    for (const PathStep& step : path) *to++ = {step.bit, slots[step.feature], std::max(step.share, least)};
    n_features_ += n;
    out_.n_elements += size_[n];
  }

  Plan& plan_;
  Tables& out_;
  const double least_fraction_;
  PathWalk walk_;
  size_t n_features_ = 0;
  size_t size_[kMaxLeafBits + 1];  // by number of features: the number of elements of a table
  std::vector<uint32_t> slot_of_;  // by feature
};

template <class T>
void fill_tables(Plan& plan, int64_t n_threads) {
  const std::vector<LeafTable>& leaves = plan.tables.leaf_tables;
  uint32_t longest = 1;
  for (const LeafTable& leaf : leaves) longest = std::max(longest, leaf.n_features);
  int n_nodes[kMaxLeafBits + 1] = {};
  std::vector<T> t[kMaxLeafBits + 1], weights[kMaxLeafBits + 1];
  for (uint32_t n = 1; n <= longest; ++n) {
    std::vector<double> nodes, node_weights;
    n_nodes[n] = quadrature_nodes(plan.index, static_cast<int>(n));
    quadrature(plan.index, n_nodes[n], nodes, node_weights);
    for (int k = 0; k < n_nodes[n]; ++k) {
      t[n].push_back(static_cast<T>(nodes[k]));
      weights[n].push_back(static_cast<T>(node_weights[k] / (1 - nodes[k])));
    }
  }
  constexpr size_t kPart = 256;
  share_items(static_cast<int64_t>((leaves.size() + kPart - 1) / kPart), n_threads, [&] {
    return [&, scratch = std::vector<T>(t[longest].size() << longest)](int64_t part) mutable {
      const size_t i = static_cast<size_t>(part) * kPart;
      kernels().of<T>().fill_leaves({.leaves = leaves.data() + i,
                                     .n_leaves = std::min(kPart, leaves.size() - i),
                                     .features = plan.tables.leaf_features.data(),
                                     .n_nodes = n_nodes,
                                     .t = t,
                                     .weights = weights,
                                     .scratch = scratch.data(),
                                     .tables = stored_tables<T>(plan.tables).own().data()});
    };
  });
}

}  // namespace

Plan make_fast_v2_plan(const EnsembleView& ensemble, Precision precision, Index index, size_t table_bytes,
                       int64_t n_threads, const StoredTables* stored) {
  Plan plan = make_plan(ensemble, precision, 1, index, false, n_threads);
  const TableClock clock;
  plan.method = Method::kFastV2;
  FastV2Layout(plan).run();
  for (TreeProgram& tree : plan.trees) tree.walked = false;
  const size_t needed = plan.tables.n_elements * element_bytes(plan);
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
    : plan_(plan), kernels_(kernels), values_(most_values(plan)) {
  phi_.resize(tile * row_elements(plan));
}

template <class T>
bool FastV2<T>::run(const CodeTile& codes, int n_rows, uint64_t* words, TileSums& sums, TileSums* margin,
                    Margins& margins, const std::function<bool()>& stop) {
  codes_ = &codes;
  n_rows_ = n_rows;
  const LeafTable* leaves = plan_.tables.leaf_tables.data();
  for (const Chunk& chunk : plan_.chunks) {
    const size_t n_blocks = block_count(n_rows);
    std::fill_n(phi_.data(), n_blocks * n_used_outputs(plan_, chunk) * chunk.slots.size() * kBlockRows, T(0));
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      add_tree(chunk, plan_.trees[i], leaves, words, margin, margins);
      leaves += plan_.trees[i].n_inner + 1;
    }
    add_sums(chunk, sums);
    if (stop()) return false;
  }
  return true;
}

template <class T>
void FastV2<T>::add_tree(const Chunk& chunk, const TreeProgram& tree, const LeafTable* leaves,
                         uint64_t* words, TileSums* margin, Margins& margins) {
  const size_t n_outputs = n_used_outputs(plan_, chunk), output_stride = chunk.slots.size() * kBlockRows;
  const double* const values = plan_.leaf_values.data() + tree.leaves;
  for (size_t i = 0; i < (tree.n_inner + 1) * n_outputs; ++i)
    values_[i] = static_cast<T>(values[i] / plan_.leaf_scale);
  for (int block = 0; block * kBlockRows < n_rows_; ++block) {
    decide_block(plan_, kernels_, plan_.decide.data() + tree.decide, tree.n_inner, *codes_, block, words);
    const int n_block_rows = std::min(kBlockRows, n_rows_ - block * kBlockRows);
    if (margin)
      margins.add(tree, n_outputs, words, n_block_rows,
                  margin->at(std::max(chunk.output, 0)) + block * kBlockRows, margin->stride());
    const Tables& tables = plan_.tables;
    kernels_.of<T>().add_leaves({.words = words,
                                 .n_rows = n_block_rows,
                                 .leaves = leaves,
                                 .n_leaves = tree.n_inner + 1,
                                 .features = tables.leaf_features.data(),
                                 .tables = stored_tables<T>(tables).data(),
                                 .values = values_.data(),
                                 .n_outputs = n_outputs,
                                 .phi = phi_.data() + block * n_outputs * output_stride,
                                 .output_stride = output_stride});
  }
}

template <class T>
void FastV2<T>::add_sums(const Chunk& chunk, TileSums& sums) const {
  const size_t n_outputs = n_used_outputs(plan_, chunk), first_output = std::max(chunk.output, 0);
  const T* from = phi_.data();
  for (int block = 0; block * kBlockRows < n_rows_; ++block)
    for (size_t o = 0; o < n_outputs; ++o)
      for (const int32_t feature : chunk.slots) {
        double* const to = sums.at(first_output + o, feature) + block * kBlockRows;
        for (int row = 0; row < kBlockRows; ++row) to[row] += plan_.leaf_scale * from[row];
        from += kBlockRows;
      }
}

template class FastV2<float>;
template class FastV2<double>;

}  // namespace skshap
