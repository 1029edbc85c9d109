#include "background/background_pairs.h"

#include <algorithm>
#include <atomic>

#include "background/tile_tables.h"
#include "base/aligned.h"
#include "base/threads.h"
#include "rows/margin.h"
#include "rows/results.h"
#include "rows/tiles.h"

namespace skshap {
namespace {

// The memory of a thread for a tile. The rows of a tile share the tables that are made for the tile.
constexpr size_t kTileBytes = 16 << 20;
constexpr int64_t kMaxTileRows = 4096;

size_t n_sums(const Plan& plan) { return plan.features.size() + plan.pairs.size(); }

// Return the bytes of a thread's memory for each row of a tile.
size_t row_bytes(const Plan& plan) {
  return plan.columns.size() * (plan.wide_codes ? 4 : 2) + 8 * n_sums(plan) +
         2 * TileSums::row_bytes(plan.n_outputs, 1) + block_words(most_inner_nodes(plan)) * 8 / kBlockRows +
         tile_table_row_bytes(plan);
}

TileSize tile_size(const Plan& plan) {
  const int64_t n_fitting = static_cast<int64_t>(kTileBytes / row_bytes(plan));
  return {std::clamp<int64_t>(n_fitting, kBlockRows, kMaxTileRows), 1};
}

// --- Plan ---

// Count the background data at the leaves of all trees. Keep as many counts as fit into count_bytes.
void count_background(BackgroundPairsPlan& out, size_t count_bytes, int64_t n_threads) {
  const Plan& plan = out.plan;
  out.counts.resize(plan.trees.size());
  std::atomic<size_t> kept{0}, most{0};
  share_items(static_cast<int64_t>(plan.trees.size()), n_threads, [&] {
    return [&, counter = BackgroundCounter(out), groups = TreeGroups(plan)](int64_t i) mutable {
      find_groups(chunk_of(plan, i), plan.trees[i], groups);
      const PatternCounts& counts = counter.count(i, groups);
      const size_t bytes = counts.bytes(), counting = counter.bytes() + 2 * bytes;
      for (size_t seen = most; seen < counting && !most.compare_exchange_weak(seen, counting);) continue;
      if ((kept += bytes) <= count_bytes)
        out.counts[i] = counts;
      else
        kept -= bytes;
    };
  });
  out.counting_bytes = most;
}

// --- Rows ---

// One thread's work: it takes tiles of rows through all trees, one output at a time, and writes the results.
template <class T>
class BackgroundPairsWorker {
 public:
  BackgroundPairsWorker(const BackgroundPairsPlan& pairs_plan, const Result& result, int tile_rows)
      : plan_(pairs_plan.plan),
        result_(result),
        margins_(plan_, kernels()),
        groups_(plan_),
        counter_(pairs_plan),
        tables_(plan_, tile_rows, pairs_plan.longest_path) {
    const size_t n_words = tile_rows / kBlockRows * block_words(most_inner_nodes(plan_));
    words_.assign(n_words + 2 * (most_inner_nodes(plan_) + 1), 0);  // the words of leaves are read, too
    sums_.resize(tile_rows * n_sums(plan_));
    main_.resize(plan_.features.size());
  }

  bool run(Tile& tile, const Stop& stop) {
    for (int32_t output = 0; output < plan_.n_outputs; ++output) {
      std::fill_n(sums_.data(), tile.n_rows * n_sums(plan_), 0.0);
      for (const Chunk& chunk : plan_.chunks)
        if ((chunk.output < 0 || chunk.output == output) && !run_chunk(chunk, output, tile, stop))
          return false;
      if (result_.is_float32)
        write<float>(tile, output);
      else
        write<double>(tile, output);
    }
    return true;
  }

 private:
  bool run_chunk(const Chunk& chunk, int32_t output, Tile& tile, const Stop& stop) {
    tables_.begin(chunk, tile.n_rows, sums_.data());
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      const TreeProgram& tree = plan_.trees[i];
      const Decisions decisions = decide_blocks(plan_, plan_.decide.data() + tree.decide, tree.n_inner,
                                                tile.codes, 0, tile.n_blocks(), words_.data());
      if (result_.needs_margins() && (chunk.output >= 0 || output == 0))
        add_margins(chunk, tree, decisions, tile);
      find_groups(chunk, tree, groups_);
      const size_t first_value = tree.leaves + (chunk.output < 0 ? output : 0);
      tables_.add_tree(tree, groups_, counter_.count(i, groups_), plan_.leaf_values.data() + first_value,
                       decisions);
      if (stop()) return false;
    }
    tables_.flush();
    return true;
  }

  void add_margins(const Chunk& chunk, const TreeProgram& tree, const Decisions& decisions,
                   const Tile& tile) {
    for (int block = 0; block < tile.n_blocks(); ++block)
      margins_.add(tree, n_used_outputs(plan_, chunk), decisions.words + block * decisions.block_words,
                   tile.block_rows(block), tile.margin.at(std::max(chunk.output, 0)) + block * kBlockRows,
                   tile.margin.stride());
  }

  template <class Out>
  void write(Tile& tile, int32_t output) {
    const size_t n_features = plan_.n_features, n_used = plan_.features.size(), n_pairs = plan_.pairs.size();
    for (int row = 0; row < tile.n_rows; ++row) {
      const size_t index = (tile.first_row + row) * plan_.n_outputs + output;
      const double *const values = sums_.data() + row * n_sums(plan_), *const pairs = values + n_used;
      Out* const out = static_cast<Out*>(result_.values) + index * n_features;
      std::fill_n(out, n_features, Out(0));
      double& total = tile.totals.at(output)[row];
      for (size_t i = 0; i < n_used; ++i) total += out[plan_.features[i]] = static_cast<Out>(values[i]);
      if (result_.pairs) {
        Out* const to = static_cast<Out*>(result_.pairs) + index * n_pairs;
        for (size_t i = 0; i < n_pairs; ++i) to[i] = static_cast<Out>(pairs[i]);
      }
      if (result_.matrices)
        write_matrix(plan_, values, pairs, 1, main_.data(),
                     static_cast<Out*>(result_.matrices) + index * n_features * n_features);
    }
  }

  const Plan& plan_;
  const Result& result_;
  Margins margins_;
  TreeGroups groups_;
  BackgroundCounter counter_;
  TileTables<T> tables_;
  std::vector<uint64_t> words_;
  Aligned<double> sums_;  // [row][used feature, then pair]
  std::vector<double> main_;
};

}  // namespace

size_t BackgroundPairsPlan::count_bytes() const {
  size_t total = 0;
  for (const PatternCounts& tree_counts : counts) total += tree_counts.bytes();
  return total;
}

size_t BackgroundPairsPlan::bytes() const {
  return plan.bytes() + 8 * weights.size() + background.bytes() + count_bytes();
}

BackgroundPairsPlan make_background_pairs_plan(const EnsembleView& ensemble, Precision precision,
                                               const Rows& rows, const double* weights, Index index,
                                               size_t count_bytes, int64_t n_threads) {
  BackgroundPairsPlan out{};
  out.plan = make_plan(ensemble, precision, 2, index, true, n_threads);
  out.n_background = static_cast<size_t>(rows.n_rows);
  Plan& plan = out.plan;
  out.longest_path = longest_path(plan);
  require_short_path(out.longest_path);
  for (TreeProgram& tree : plan.trees) tree.walked = false;
  drop_walks(plan);
  for (Chunk& chunk : plan.chunks) {
    std::sort(chunk.slots.begin(), chunk.slots.end());
    std::sort(chunk.pairs.begin(), chunk.pairs.end());
  }
  out.background = code_all_rows(plan, rows);
  out.weights.assign(weights, weights + rows.n_rows);
  count_background(out, count_bytes, n_threads);
  const auto is_counted = [](const PatternCounts& counts) { return !counts.begin.empty(); };
  if (std::all_of(out.counts.begin(), out.counts.end(), is_counted)) {
    out.background = {};
    out.weights = {};
  }
  return out;
}

bool explain_background_pairs(const BackgroundPairsPlan& plan, const Rows& rows, const Result& result,
                              int n_threads, const std::function<bool()>& interrupted) {
  return in_precision(plan.plan.precision, [&](auto number) {
    return explain_tiles(
        plan.plan, rows, result, tile_size(plan.plan), n_threads, interrupted,
        [&](int tile_rows) { return BackgroundPairsWorker<decltype(number)>(plan, result, tile_rows); });
  });
}

size_t scratch_bytes(const BackgroundPairsPlan& pairs_plan) {
  const Plan& plan = pairs_plan.plan;
  const size_t tile = tile_size(plan).most(), n_inner = most_inner_nodes(plan);
  // Each leaf of a tree has a path, a Leaf and a Group. They are in vectors whose capacity may be twice their
  // size.
  const size_t leaf_bytes = 2 * ((pairs_plan.longest_path + kGroupBits) * sizeof(PathStep) +
                                 sizeof(TreeGroups::Leaf) + sizeof(TreeGroups::Group));
  const size_t counting = pairs_plan.weights.empty() ? 0 : pairs_plan.counting_bytes;
  return tile * row_bytes(plan) + tile / kBlockRows * plan.columns.size() * sizeof(CategoryRows) +
         tile_table_bytes(plan, pairs_plan.longest_path) + counting + (n_inner + 1) * (leaf_bytes + 32) +
         8 * plan.features.size();
}

}  // namespace skshap
