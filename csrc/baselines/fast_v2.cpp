// SHAP values by Fast TreeSHAP v2 (Yang, 2021, arXiv:2109.09847): each leaf has a table with one number for
// each set of its path's features that a row may satisfy.
//
// With z_i the zero fraction of feature i on the path, and S the features of the path that the row satisfies,
//     T[S] = integral over t of  prod_{i in S} (z_i (1 - t) + t)  prod_{i not in S} z_i (1 - t)  / (1 - t).
// A leaf of value v contributes -v T[S] to each feature that is not in S, and
// v (1 - z_i) / z_i T[S without i] to each feature i in S. T of the set of all features is not used. See
// docs/mathematics.md.
#include <algorithm>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/threads.h"
#include "baselines/leaf_table_kernels.h"
#include "cpu/tree_algorithm.h"
#include "plan/quadrature.h"
#include "plan/tree_paths.h"
#include "rows/tiles.h"
#include "simd/kernels.h"
#include "tables/stored_tables.h"
#include "tables/table_builder.h"

namespace skshap {
namespace {

struct NamedKernels {
  std::string_view name;
  const LeafTableKernels& kernels;
};
const NamedKernels kNamedKernels[] = {
#ifdef SKSHAP_KERNELS_AVX512
    {"avx512", leaf_tables_avx512},
#endif
#ifdef SKSHAP_KERNELS_AVX2
    {"avx2", leaf_tables_avx2},
#endif
#ifdef SKSHAP_KERNELS_NEON
    {"neon", leaf_tables_neon},
#endif
#ifdef SKSHAP_KERNELS_BASELINE
    {"baseline", leaf_tables_baseline},
#endif
};

// Return the kernels of the instruction set in use.
template <class T>
const LeafTableKernelsOf<T>& leaf_kernels() {
  const NamedKernels* set = kNamedKernels;
  while (set->name != kernels().name) ++set;
  return std::get<LeafTableKernelsOf<T>>(set->kernels);
}

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
  const auto fill = leaf_kernels<T>().fill_leaves;
  share_items(static_cast<int64_t>((leaves.size() + kPart - 1) / kPart), n_threads, [&] {
    return [&, scratch = std::vector<T>(t[longest].size() << longest)](int64_t part) mutable {
      const size_t i = static_cast<size_t>(part) * kPart;
      fill({.leaves = leaves.data() + i,
            .n_leaves = std::min(kPart, leaves.size() - i),
            .features = plan.tables.leaf_features.data(),
            .n_nodes = n_nodes,
            .t = t,
            .weights = weights,
            .scratch = scratch.data(),
            .tables = numbers_of<T>(plan.tables).own().data()});
    };
  });
}

// Add the tables of all leaves to a plan.
void add_leaf_tables(Plan& plan, const TableRequest& request) {
  const TableClock clock;
  FastV2Layout(plan).run();
  for (TreeProgram& tree : plan.trees) tree.walked = false;
  if (request.stored) {
    take_tables(plan, *request.stored);
  } else {
    require_room(plan.tables.n_elements * element_bytes(plan), request.table_bytes);
    allocate_tables(plan);
    in_precision(plan.precision,
                 [&](auto number) { fill_tables<decltype(number)>(plan, request.n_threads); });
  }
  clock.stop(plan);
}

size_t most_values(const Plan& plan) {
  size_t most = 0;
  for (const Chunk& chunk : plan.chunks)
    most = std::max(most, (chunk.max_inner + 1) * n_used_outputs(plan, chunk));
  return most;
}

template <class T>
class FastV2 final : public TreeWorker<T> {
 public:
  explicit FastV2(const Plan& plan) : plan_(plan), values_(most_values(plan)) {
    const LeafTable* leaves = plan.tables.leaf_tables.data();
    for (const TreeProgram& tree : plan.trees) {
      leaves_.push_back(leaves);
      leaves += tree.n_inner + 1;
    }
  }

  static size_t bytes(const Plan& plan) {
    return most_values(plan) * sizeof(T) + plan.trees.size() * sizeof(LeafTable*);
  }

  void add_tree(const Chunk& chunk, const TreeProgram& tree, const uint64_t* words, int n_rows,
                T* phi) override {
    const size_t n_outputs = n_used_outputs(plan_, chunk), n_leaves = tree.n_inner + 1;
    const double* const values = plan_.leaf_values.data() + tree.leaves;
    for (size_t i = 0; i < n_leaves * n_outputs; ++i)
      values_[i] = static_cast<T>(values[i] / plan_.leaf_scale);
    add_leaves_({.words = words,
                 .n_rows = n_rows,
                 .leaves = leaves_[&tree - plan_.trees.data()],
                 .n_leaves = n_leaves,
                 .features = plan_.tables.leaf_features.data(),
                 .tables = numbers_of<T>(plan_.tables).data(),
                 .values = values_.data(),
                 .n_outputs = n_outputs,
                 .phi = phi,
                 .output_stride = chunk.slots.size() * kBlockRows});
  }

 private:
  const Plan& plan_;
  std::vector<T> values_;                 // of the leaves of a tree, divided by Plan::leaf_scale
  std::vector<const LeafTable*> leaves_;  // by tree
  void (*const add_leaves_)(const AddLeavesArgs<T>&) = leaf_kernels<T>().add_leaves;
};

const RegisteredTreeAlgorithm<FastV2> fast_v2("fast_v2", kMaxLeafBits, add_leaf_tables);

}  // namespace

}  // namespace skshap
