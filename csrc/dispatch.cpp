// explain(): over which rows and trees the kernels run.
#include <algorithm>

#include "aligned.h"
#include "coding.h"
#include "fast_v2.h"
#include "look_up.h"
#include "margin.h"
#include "matrices.h"
#include "plan.h"
#include "recursive.h"
#include "threads.h"

namespace skshap {
namespace {

// Codes and sums of a tile of rows, per thread; larger tiles stream a large model less often. With tables, of
// which each is read for a whole tile at once, more rows pay, but the sums, to which each tree adds, must
// stay in the L2 cache.
constexpr size_t kTileBytes = 4 << 20, kTableTileBytes = 1 << 20;
constexpr int kMaxTileRows = 1024, kMaxTableTileRows = 4096;

// What is summed for each row and output.
size_t n_sums(const Plan& plan) { return plan.features.size() + plan.pairs.size() + plan.triples.size(); }

size_t fast_v2_row_bytes(const Plan& plan) {
  if (plan.method != Method::kFastV2) return 0;
  return plan.precision == Precision::kSingle ? FastV2<float>::row_bytes(plan)
                                              : FastV2<double>::row_bytes(plan);
}

// What a thread allocates for the methods of recursive.h and fast_v2.h, whatever the rows are.
template <class T>
size_t method_bytes(const Plan& plan) {
  if (plan.method == Method::kWalk) return 0;
  return plan.method == Method::kFastV2 ? FastV2<T>::bytes(plan) : Recursion<T>::bytes(plan);
}

// Rows of a tile: bounded by memory, and few enough that every thread gets some.
int tile_rows(const Plan& plan, int64_t n_rows, int64_t n_threads) {
  const size_t row_bytes = plan.columns.size() * (plan.wide_codes ? 4 : 2) +
                           sizeof(double) * n_sums(plan) * plan.n_outputs + table_row_bytes(plan) +
                           fast_v2_row_bytes(plan) + 1;
  const bool tables = plan.tables.any();
  const int64_t by_memory = static_cast<int64_t>((tables ? kTableTileBytes : kTileBytes) / row_bytes);
  const int64_t n_parts = n_threads > 1 ? 4 * n_threads : 1;
  const int64_t by_threads = (n_rows + n_parts - 1) / n_parts + kBlockRows - 1;  // rounded up to blocks
  const int most = tables ? kMaxTableTileRows : kMaxTileRows;
  const int64_t rows = std::min<int64_t>({most, by_memory, by_threads});
  return static_cast<int>(std::max<int64_t>(1, rows / kBlockRows)) * kBlockRows;
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

// One thread's work: tiles of rows, through all trees, into the result.
template <class T>
class Worker {
 public:
  Worker(const Plan& plan, const Kernels& kernels, const Rows& rows, const Result& result, int tile)
      : plan_(plan),
        kernels_(kernels),
        rows_(rows),
        result_(result),
        tile_(tile),
        margins_(plan, kernels),
        tables_(plan, kernels, tile) {
    const StackSizes sizes = stack_sizes(plan);
    codes_.allocate(plan, tile);
    phi_.resize(sizes.phi);
    pair_phi_.resize(sizes.pair_phi);
    triple_phi_.resize(sizes.triple_phi);
    stack_.resize(sizes.stack);
    words_.resize(kFirstWord + 2 * (2 * most_inner_nodes(plan) + 1));
    std::fill_n(words_.data(), words_.size(), uint64_t{0});  // those of leaves are read, too
    sums_.resize(plan.features.size() * plan.n_outputs * tile);
    pair_sums_.resize(plan.pairs.size() * plan.n_outputs * tile);
    triple_sums_.resize(plan.triples.size() * plan.n_outputs * tile);
    margin_.resize(static_cast<size_t>(plan.n_outputs) * tile);
    main_.resize(plan.features.size());
    if (plan.method == Method::kFastV2)
      fast_v2_ = std::make_unique<FastV2<T>>(plan, kernels, tile);
    else if (plan.method != Method::kWalk)
      recursion_ = std::make_unique<Recursion<T>>(plan);
  }

  // Returns false when `stop` asked to.
  bool run(int64_t first_row, int n_rows, const Stop& stop) {
    code_tile(plan_, kernels_, rows_, first_row, n_rows, codes_);
    std::fill_n(sums_.data(), sums_.size(), 0.0);
    std::fill_n(pair_sums_.data(), pair_sums_.size(), 0.0);
    std::fill_n(triple_sums_.data(), triple_sums_.size(), 0.0);
    for (int32_t o = 0; o < plan_.n_outputs; ++o)
      std::fill_n(margin_.data() + static_cast<size_t>(o) * tile_, tile_, plan_.constant[o]);
    double* const margin = result_.margin ? margin_.data() : nullptr;
    if (!tables_.run(codes_, n_rows, sums_.data(), margin, margins_, stop)) return false;
    if (fast_v2_ && !fast_v2_->run(codes_, n_rows, words_.data(), sums_.data(), margin, margins_, stop))
      return false;
    for (const Chunk& chunk : plan_.chunks) {
      if (!has_walks(plan_, chunk)) continue;
      for (int block = 0; block * kBlockRows < n_rows; ++block)
        run_chunk(chunk, block, std::min(kBlockRows, n_rows - block * kBlockRows));
      if (stop()) return false;
    }
    if (result_.is_float32)
      write(static_cast<float*>(result_.values), first_row, n_rows);
    else
      write(static_cast<double*>(result_.values), first_row, n_rows);
    return true;
  }

 private:
  void run_chunk(const Chunk& chunk, int block, int n_rows) {
    const T* nodes = constants<T>(plan_).data() + chunk.quadrature;
    const size_t n_slots = chunk.slots.size(), n_outputs = n_used_outputs(plan_, chunk);
    const size_t n_pairs = chunk.pairs.size(), n_triples = chunk.triples.size();
    std::fill_n(phi_.data(), n_outputs * n_slots * kBlockRows, T(0));
    std::fill_n(pair_phi_.data(), n_outputs * n_pairs * kBlockRows, T(0));
    std::fill_n(triple_phi_.data(), n_outputs * n_triples * kBlockRows, T(0));
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      const TreeProgram& tree = plan_.trees[i];
      if (!tree.walked) continue;
      decide_block(plan_, kernels_, plan_.decide.data() + tree.decide, tree.n_inner, codes_, block,
                   words_.data());
      if (result_.margin)
        margins_.add(tree, n_outputs, words_.data(),
                     margin_.data() + std::max(chunk.output, 0) * tile_ + block * kBlockRows, tile_);
      if (recursion_) {
        recursion_->add_tree(chunk, tree, words_.data(), n_rows, phi_.data());
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
    add_sums(chunk, block, chunk.slots, plan_.features.size(), plan_.leaf_scale, phi_, sums_);
    // The walk finds twice the interaction of a pair.
    add_sums(chunk, block, chunk.pairs, plan_.pairs.size(), plan_.leaf_scale / 2, pair_phi_, pair_sums_);
    add_sums(chunk, block, chunk.triples, plan_.triples.size(), plan_.leaf_scale, triple_phi_, triple_sums_);
  }

  // Adds the sums of a chunk to those of the tile; `places` tells where each of its slots is among
  // `n_places`.
  void add_sums(const Chunk& chunk, int block, const std::vector<int32_t>& places, size_t n_places,
                double scale, const Aligned<T>& phi, const Aligned<double>& sums) const {
    const size_t n_outputs = n_used_outputs(plan_, chunk), first_output = std::max(chunk.output, 0);
    const T* from = phi.data();
    for (size_t o = 0; o < n_outputs; ++o)
      for (const int32_t place : places) {
        add_scaled(scale, from,
                   sums.data() + ((first_output + o) * n_places + place) * tile_ + block * kBlockRows);
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
  void write(Out* values, int64_t first_row, int n_rows) {
    write_values(values + first_row * plan_.n_outputs * plan_.n_features, n_rows);
    const size_t n_used = plan_.features.size();
    for (int row = 0; row < n_rows; ++row) {
      for (int32_t o = 0; o < plan_.n_outputs; ++o) {
        const size_t index = (first_row + row) * plan_.n_outputs + o;
        if (result_.margin) result_.margin[index] = margin_.data()[static_cast<size_t>(o) * tile_ + row];
        if (result_.pairs)
          write_sums(static_cast<Out*>(result_.pairs), index, o, row, pair_sums_, plan_.pairs.size());
        if (result_.triples)
          write_sums(static_cast<Out*>(result_.triples), index, o, row, triple_sums_, plan_.triples.size());
        if (result_.matrices)
          write_matrix(plan_, sums_.data() + o * n_used * tile_ + row,
                       pair_sums_.data() + o * plan_.pairs.size() * tile_ + row, tile_, main_.data(),
                       static_cast<Out*>(result_.matrices) + index * plan_.n_features * plan_.n_features);
      }
    }
  }

  // Some rows at a time, so that both what is read and what is written stay in the cache: sums of a feature
  // lie together, values of a row.
  template <class Out>
  void write_values(Out* values, int n_rows) const {
    constexpr int kRows = 16;
    const size_t n_used = plan_.features.size(), n_features = plan_.n_features,
                 row_size = plan_.n_outputs * n_features;
    if (n_used < n_features) std::fill_n(values, n_rows * row_size, Out(0));
    for (int begin = 0; begin < n_rows; begin += kRows) {
      const int n = std::min(kRows, n_rows - begin);
      const double* sums = sums_.data() + begin;
      for (int32_t o = 0; o < plan_.n_outputs; ++o)
        for (const int32_t feature : plan_.features) {
          Out* const out = values + begin * row_size + o * n_features + feature;
          for (int row = 0; row < n; ++row) out[row * row_size] = static_cast<Out>(sums[row]);
          sums += tile_;
        }
    }
  }

  template <class Out>
  void write_sums(Out* out, size_t index, int32_t o, int row, const Aligned<double>& from, size_t n) const {
    const double* sums = from.data() + o * n * tile_ + row;
    for (size_t i = 0; i < n; ++i) out[index * n + i] = static_cast<Out>(sums[i * tile_]);
  }

  const Plan& plan_;
  const Kernels& kernels_;
  const Rows& rows_;
  const Result& result_;
  const size_t tile_;
  CodeTile codes_;
  Aligned<T> phi_, pair_phi_, triple_phi_, stack_;
  Aligned<uint64_t> words_;
  Aligned<double> sums_, pair_sums_, triple_sums_, margin_;
  Margins margins_;
  TableRunner<T> tables_;
  std::vector<double> main_;  // main effects of one row
  std::unique_ptr<Recursion<T>> recursion_;
  std::unique_ptr<FastV2<T>> fast_v2_;
};

template <class T>
bool explain_tiles(const Plan& plan, const Rows& rows, const Result& result, int64_t n_threads,
                   const std::function<bool()>& interrupted) {
  const Kernels& table = kernels();
  const int tile = tile_rows(plan, rows.n_rows, n_threads);
  return work_off((rows.n_rows + tile - 1) / tile, n_threads, interrupted, [&] {
    return [&, worker = Worker<T>(plan, table, rows, result, tile)](int64_t i, const Stop& stop) mutable {
      const int64_t first = i * tile;
      return worker.run(first, static_cast<int>(std::min<int64_t>(tile, rows.n_rows - first)), stop);
    };
  });
}

}  // namespace

bool explain(const Plan& plan, const Rows& rows, const Result& result, int n_threads,
             const std::function<bool()>& interrupted) {
  return (plan.precision == Precision::kSingle
              ? explain_tiles<float>
              : explain_tiles<double>)(plan, rows, result, n_threads, interrupted);
}

size_t scratch_bytes(const Plan& plan) {
  const size_t element = plan.precision == Precision::kSingle ? 4 : 8;
  const StackSizes sizes = stack_sizes(plan);
  const size_t tile = tile_rows(plan, INT64_MAX / 8, 1);
  const size_t method = element == 4 ? method_bytes<float>(plan) : method_bytes<double>(plan);
  return method + element * (sizes.phi + sizes.pair_phi + sizes.triple_phi + sizes.stack) +
         8 * (6 * most_inner_nodes(plan) + 5) +
         tile * (plan.columns.size() * (plan.wide_codes ? 4 : 2) + 8 * plan.n_outputs * (n_sums(plan) + 1) +
                 table_row_bytes(plan) + fast_v2_row_bytes(plan)) +
         tile / kBlockRows * plan.columns.size() * sizeof(CategoryRows);
}

}  // namespace skshap
