// explain(): takes the rows of a tile through the trees of a plan.
#include <algorithm>

#include "base/aligned.h"
#include "cpu/tree_algorithm.h"
#include "plan/plan.h"
#include "rows/coding.h"
#include "rows/margin.h"
#include "rows/results.h"
#include "rows/tiles.h"
#include "tables/fast_v2.h"
#include "tables/lookup.h"

namespace skshap {
namespace {

// Bytes for the codes and sums of a tile, per thread. Larger tiles stream a large model less often. Each
// table is read once for a whole tile, so with tables larger tiles pay off, but the sums, to which each tree
// adds, must stay in the L2 cache.
constexpr size_t kTileBytes = 4 << 20, kTableTileBytes = 1 << 20;
constexpr int64_t kMaxTileRows = 1024, kMaxTableTileRows = 4096;

// Return how many sums each row and output has.
size_t n_sums(const Plan& plan) { return plan.features.size() + plan.pairs.size() + plan.triples.size(); }

size_t fast_v2_row_bytes(const Plan& plan) {
  if (plan.method != Method::kFastV2) return 0;
  return plan.precision == Precision::kSingle ? FastV2<float>::row_bytes(plan)
                                              : FastV2<double>::row_bytes(plan);
}

// Return the bytes that a thread allocates for a tree algorithm or tables/fast_v2.h, whatever the rows are.
template <class T>
size_t method_bytes(const Plan& plan) {
  if (plan.tree_algorithm) return plan.tree_algorithm->of<T>().bytes(plan);
  return plan.method == Method::kFastV2 ? FastV2<T>::bytes(plan) : 0;
}

// Choose a tile size that fits the memory and is small enough that every thread gets some tiles.
TileSize tile_size(const Plan& plan, int64_t n_threads) {
  const size_t row_bytes = plan.columns.size() * (plan.wide_codes ? 4 : 2) +
                           sizeof(double) * n_sums(plan) * plan.n_outputs + table_row_bytes(plan) +
                           fast_v2_row_bytes(plan) + 1;
  const bool tables = plan.tables.any();
  const int64_t by_memory = static_cast<int64_t>((tables ? kTableTileBytes : kTileBytes) / row_bytes);
  const int64_t n_blocks = std::min(by_memory, tables ? kMaxTableTileRows : kMaxTileRows) / kBlockRows;
  return {std::max<int64_t>(1, n_blocks) * kBlockRows, n_threads > 1 ? 4 : 1};
}

bool has_walks(const Plan& plan, const Chunk& chunk) {
  return std::any_of(plan.trees.begin() + chunk.tree_begin, plan.trees.begin() + chunk.tree_end,
                     [](const TreeProgram& tree) { return tree.walked; });
}

struct StackSizes {
  size_t phi = 0, pair_phi = 0, triple_phi = 0, stack = 0;
};

StackSizes stack_sizes(const Plan& plan) {
  StackSizes sizes;
  for (const Chunk& chunk : plan.chunks) {
    if (!has_walks(plan, chunk)) continue;
    const size_t outputs = n_used_outputs(plan, chunk);
    sizes.phi = std::max(sizes.phi, outputs * chunk.slots.size() * kBlockRows);
    sizes.pair_phi = std::max(sizes.pair_phi, outputs * chunk.pairs.size() * kBlockRows);
    sizes.triple_phi = std::max(sizes.triple_phi, outputs * chunk.triples.size() * kBlockRows);
    sizes.stack = std::max(sizes.stack, walk_stack(plan, chunk));
  }
  return sizes;
}

// One thread's work on a plan: it takes tiles of rows through all trees and writes the results.
template <class T>
class Worker {
 public:
  Worker(const Plan& plan, const Kernels& kernels, const Result& result, int tile_rows)
      : plan_(plan),
        kernels_(kernels),
        result_(result),
        margins_(plan, kernels),
        tables_(plan, kernels, tile_rows) {
    const StackSizes sizes = stack_sizes(plan);
    phi_.resize(sizes.phi);
    pair_phi_.resize(sizes.pair_phi);
    triple_phi_.resize(sizes.triple_phi);
    stack_.resize(sizes.stack);
    words_.resize(kFirstWord + 2 * (2 * most_inner_nodes(plan) + 1));
    std::fill_n(words_.data(), words_.size(), uint64_t{0});  // the words of leaves are read, too
    sums_.resize(plan.n_outputs, plan.features.size(), tile_rows);
    pair_sums_.resize(plan.n_outputs, plan.pairs.size(), tile_rows);
    triple_sums_.resize(plan.n_outputs, plan.triples.size(), tile_rows);
    main_.resize(plan.features.size());
    if (plan.method == Method::kFastV2) fast_v2_ = std::make_unique<FastV2<T>>(plan, kernels, tile_rows);
    if (plan.tree_algorithm) tree_worker_ = plan.tree_algorithm->of<T>().make(plan);
  }

  bool run(Tile& tile, const Stop& stop) {
    sums_.clear();
    pair_sums_.clear();
    triple_sums_.clear();
    TileSums* const margin = result_.needs_margins() ? &tile.margin : nullptr;
    if (!tables_.run(tile.codes, tile.n_rows, sums_, margin, margins_, stop)) return false;
    if (fast_v2_ && !fast_v2_->run(tile.codes, tile.n_rows, words_.data(), sums_, margin, margins_, stop))
      return false;
    for (const Chunk& chunk : plan_.chunks) {
      if (!has_walks(plan_, chunk)) continue;
      for (int block = 0; block < tile.n_blocks(); ++block) run_chunk(chunk, block, tile, margin);
      if (stop()) return false;
    }
    if (result_.is_float32)
      write<float>(tile);
    else
      write<double>(tile);
    return true;
  }

 private:
  void run_chunk(const Chunk& chunk, int block, const Tile& tile, const TileSums* margin) {
    const int n_rows = tile.block_rows(block);
    const T* nodes = constants<T>(plan_).data() + chunk.quadrature;
    const size_t n_slots = chunk.slots.size(), n_outputs = n_used_outputs(plan_, chunk);
    const size_t n_pairs = chunk.pairs.size(), n_triples = chunk.triples.size();
    std::fill_n(phi_.data(), n_outputs * n_slots * kBlockRows, T(0));
    std::fill_n(pair_phi_.data(), n_outputs * n_pairs * kBlockRows, T(0));
    std::fill_n(triple_phi_.data(), n_outputs * n_triples * kBlockRows, T(0));
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      const TreeProgram& tree = plan_.trees[i];
      if (!tree.walked) continue;
      decide_block(plan_, kernels_, plan_.decide.data() + tree.decide, tree.n_inner, tile.codes, block,
                   words_.data());
      if (margin)
        margins_.add(tree, n_outputs, words_.data(), n_rows,
                     margin->at(std::max(chunk.output, 0)) + block * kBlockRows, margin->stride());
      if (tree_worker_) {
        tree_worker_->add_tree(chunk, tree, words_.data(), n_rows, phi_.data());
        continue;
      }
      const WalkArgs<T> walk{plan_.ops.data() + tree.ops,
                             constants<T>(plan_).data() + tree.constants,
                             words_.data(),
                             nodes,
                             nodes + chunk.n_nodes,
                             chunk.n_nodes,
                             static_cast<int>(n_outputs),
                             chunk.height,
                             n_rows,
                             phi_.data(),
                             n_slots * kBlockRows,
                             stack_.data(),
                             nodes + 2 * chunk.n_nodes,
                             pair_phi_.data(),
                             n_pairs * kBlockRows,
                             triple_phi_.data(),
                             n_triples * kBlockRows};
      run_walk(kernels_, plan_.order, chunk.output < 0, walk);
    }
    add_sums(chunk, block, chunk.slots, plan_.leaf_scale, phi_, sums_);
    // The walk finds twice the interaction of a pair.
    add_sums(chunk, block, chunk.pairs, plan_.leaf_scale / 2, pair_phi_, pair_sums_);
    add_sums(chunk, block, chunk.triples, plan_.leaf_scale, triple_phi_, triple_sums_);
  }

  // Add the sums of a chunk to those of the tile; places[slot] is the place of a slot's sum there.
  void add_sums(const Chunk& chunk, int block, const std::vector<int32_t>& places, double scale,
                const Aligned<T>& phi, const TileSums& sums) const {
    const size_t n_outputs = n_used_outputs(plan_, chunk), first_output = std::max(chunk.output, 0);
    const T* from = phi.data();
    for (size_t o = 0; o < n_outputs; ++o)
      for (const int32_t place : places) {
        add_scaled(scale, from, sums.at(first_output + o, place) + block * kBlockRows);
        from += kBlockRows;
      }
  }

  void add_scaled(double scale, const float* from, double* to) const {
    kernels_.add_scaled_float(scale, from, to);
  }
  void add_scaled(double scale, const double* from, double* to) const {
    kernels_.add_scaled_double(scale, from, to);
  }

  template <class Out>
  void write(const Tile& tile) {
    const size_t n_outputs = plan_.n_outputs, n_features = plan_.n_features;
    write_values(plan_, sums_, tile.n_rows, result_.zeroed,
                 static_cast<Out*>(result_.values) + tile.first_row * n_outputs * n_features);
    Out *const pairs = static_cast<Out*>(result_.pairs), *const triples = static_cast<Out*>(result_.triples),
               *const matrices = static_cast<Out*>(result_.matrices);
    if (!pairs && !triples && !matrices) return;
    for (int row = 0; row < tile.n_rows; ++row)
      for (int32_t o = 0; o < plan_.n_outputs; ++o) {
        const size_t index = (tile.first_row + row) * n_outputs + o;
        if (pairs) write_places(pair_sums_, o, row, pairs + index * plan_.pairs.size());
        if (triples) write_places(triple_sums_, o, row, triples + index * plan_.triples.size());
        if (matrices)
          write_matrix(plan_, sums_.at(o) + row, pair_sums_.at(o) + row, sums_.stride(), main_.data(),
                       matrices + index * n_features * n_features);
      }
  }

  const Plan& plan_;
  const Kernels& kernels_;
  const Result& result_;
  Aligned<T> phi_, pair_phi_, triple_phi_, stack_;
  Aligned<uint64_t> words_;
  TileSums sums_, pair_sums_, triple_sums_;
  Margins margins_;
  TableRunner<T> tables_;
  std::vector<double> main_;  // main effects of one row
  std::unique_ptr<TreeWorker<T>> tree_worker_;
  std::unique_ptr<FastV2<T>> fast_v2_;
};

}  // namespace

bool explain(const Plan& plan, const Rows& rows, const Result& result, int n_threads,
             const std::function<bool()>& interrupted) {
  return in_precision(plan.precision, [&](auto number) {
    return explain_tiles(
        plan, rows, result, tile_size(plan, n_threads), n_threads, interrupted,
        [&](int tile_rows) { return Worker<decltype(number)>(plan, kernels(), result, tile_rows); });
  });
}

size_t scratch_bytes(const Plan& plan) {
  const size_t element = plan.precision == Precision::kSingle ? 4 : 8;
  const StackSizes sizes = stack_sizes(plan);
  const size_t tile = tile_size(plan, 1).most();
  const size_t method = element == 4 ? method_bytes<float>(plan) : method_bytes<double>(plan);
  return method + element * (sizes.phi + sizes.pair_phi + sizes.triple_phi + sizes.stack) +
         8 * (6 * most_inner_nodes(plan) + 5) +
         tile * (plan.columns.size() * (plan.wide_codes ? 4 : 2) + 8 * plan.n_outputs * (n_sums(plan) + 1) +
                 table_row_bytes(plan) + fast_v2_row_bytes(plan)) +
         tile / kBlockRows * plan.columns.size() * sizeof(CategoryRows);
}

}  // namespace skshap
