// explain(): takes the rows of a tile through the trees of a plan.
#include <algorithm>

#include "base/aligned.h"
#include "cells/runner.h"
#include "cpu/chunk_walk.h"
#include "intervals/lookup.h"
#include "lanes/runner.h"
#include "plan/balance.h"
#include "plan/plan.h"
#include "rows/coding.h"
#include "rows/grid.h"
#include "rows/margin.h"
#include "rows/results.h"
#include "rows/tiles.h"
#include "tables/lookup.h"

namespace skshap {
namespace {

// The bytes for the codes and sums of a tile, per thread. With larger tiles, a large model is streamed less
// often, and each table is read once for a whole tile, so larger tiles save time with tables. But each tree
// adds to the sums, which must stay in the L2 cache. Several tables by intervals are added to the sums at
// once.
constexpr size_t kTileBytes = 2 << 20, kTableTileBytes = 1 << 20;
// The bytes per thread for the sums of few rows that threads share.
constexpr size_t kSharedBytes = 4 << 20;
constexpr int64_t kMaxTileRows = 1024, kMaxTableTileRows = 4096, kMaxIntervalTileRows = 16384;

// Return whether trees are explained by tables or by leaves in lanes.
bool has_tables(const Plan& plan) {
  return !plan.tables.trees.empty() || plan.intervals.any() || plan.lanes.any();
}

// Return the bytes that a thread allocates for decisions and for the walk, leaves in lanes or another
// algorithm. They do not depend on the rows.
size_t walk_bytes(const Plan& plan) {
  return in_precision(plan.precision, [&](auto number) {
    return ChunkWalk<decltype(number)>::bytes(plan) + LaneRunner<decltype(number)>::bytes(plan);
  });
}

// Return the number of outputs that the sums of a tile have. If each tree has only one output, this is 1, so
// that the sums stay in the L2 cache: outputs follow one after another.
size_t outputs_at_once(const Plan& plan) {
  const bool has_vectors = std::any_of(plan.chunks.begin(), plan.chunks.end(),
                                       [](const Chunk& chunk) { return chunk.output < 0; });
  return has_vectors || has_tables(plan) ? plan.n_outputs : 1;
}

// Return the number of sums for the values of an output. Sums of pairs to which tables add come after the
// sums of features.
size_t n_value_sums(const Plan& plan) {
  return plan.features.size() + (plan.tables.any() ? plan.pairs.size() : 0);
}

// Return the bytes of the sums of a row of a tile.
size_t sum_bytes(const Plan& plan) {
  const size_t n_outputs = outputs_at_once(plan);
  return TileSums::row_bytes(n_outputs, n_value_sums(plan)) +
         TileSums::row_bytes(n_outputs, plan.pairs.size()) +
         TileSums::row_bytes(n_outputs, plan.triples.size());
}

// Return whether tables of single trees take more memory than tables by intervals, so that tiles have the
// size that is best for them. A few leaves with patterns, as one member of a sum may have, do not.
bool has_mostly_tree_tables(const Plan& plan) {
  return plan.tables.any() && plan.tables.table_bytes() >= plan.intervals.table_bytes();
}

// Choose a tile size that fits the memory. Threads share tables best if tiles are large.
TileSize tile_size(const Plan& plan) {
  const bool by_trees = has_mostly_tree_tables(plan);
  const size_t row_bytes = plan.columns.size() * (plan.wide_codes ? 4 : 2) + sum_bytes(plan) +
                           table_row_bytes(plan) + interval_row_bytes(plan);
  const size_t most_bytes = by_trees ? kTableTileBytes : kTileBytes;
  const int64_t most_rows = plan.lanes.any()       ? kBlockRows
                            : by_trees             ? kMaxTableTileRows
                            : plan.intervals.any() ? kMaxIntervalTileRows
                                                   : kMaxTileRows;
  const int64_t n_blocks = std::min(static_cast<int64_t>(most_bytes / row_bytes), most_rows) / kBlockRows;
  return {std::max<int64_t>(1, n_blocks) * kBlockRows, 4, !has_tables(plan)};
}

// The sums of rows for some outputs at once. They become the values and interactions of the rows.
class RowSums {
 public:
  RowSums(const Plan& plan, const Result& result, size_t n_outputs, int n_rows)
      : plan_(plan), result_(result), balance_(plan.groups) {
    values_.resize(n_outputs, n_value_sums(plan), n_rows);
    pairs_.resize(n_outputs, plan.pairs.size(), n_rows);
    triples_.resize(n_outputs, plan.triples.size(), n_rows);
    main_.resize(plan.features.size());
  }

  // Begin with zeros for several outputs, of which first_output is the first.
  void begin(size_t first_output) {
    first_output_ = first_output;
    values_.clear();
    pairs_.clear();
    triples_.clear();
  }

  // Add the sums of a chunk to a block of the rows. The sums of margins are added unless `margin` is null.
  template <class T>
  void add(const Chunk& chunk, int block, const ChunkSums<T>& sums, TileSums* margin) {
    if (margin)
      for (size_t o = 0; o < n_used_outputs(plan_, chunk); ++o)
        kernels_.of<double>().add_scaled(1, sums.margin + o * kBlockRows,
                                         margin->at(std::max(chunk.output, 0) + o) + block * kBlockRows);
    add_places(chunk, block, chunk.slots, plan_.leaf_scale, sums.values, values_);
    if (chunk.balanced) add_shares(chunk, block, sums.values);
    // The walk finds twice the interaction of a pair.
    add_places(chunk, block, chunk.pairs, plan_.leaf_scale / 2, sums.pairs, pairs_);
    add_places(chunk, block, chunk.triples, plan_.leaf_scale, sums.triples, triples_);
  }

  // Write the results of the first n_rows rows. Add their values to the totals unless these are null.
  void write(int64_t first_row, int n_rows, const TileSums* totals) {
    add_table_pairs();
    if (result_.is_float32)
      write_as<float>(first_row, n_rows, totals);
    else
      write_as<double>(first_row, n_rows, totals);
  }

  size_t n_outputs() const { return values_.n_outputs(); }
  TileSums& values() { return values_; }

 private:
  // Add the sums of a chunk to the sums of the rows. places[slot] is the place for the sum of a slot.
  template <class T>
  void add_places(const Chunk& chunk, int block, const std::vector<int32_t>& places, double scale,
                  const T* from, const TileSums& sums) const {
    const size_t n_outputs = n_used_outputs(plan_, chunk);
    const size_t first = static_cast<size_t>(std::max(chunk.output, 0)) - first_output_;
    for (size_t o = 0; o < n_outputs; ++o)
      for (const int32_t place : places) {
        if (static_cast<size_t>(place) < sums.n_places())  // if not, nobody needs the sum
          kernels_.of<T>().add_scaled(scale, from, sums.at(first + o, place) + block * kBlockRows);
        from += kBlockRows;
      }
  }

  // Add the shares of the sums of a balanced chunk.
  template <class T>
  void add_shares(const Chunk& chunk, int block, const T* from) const {
    const size_t n_outputs = n_used_outputs(plan_, chunk);
    const size_t first = static_cast<size_t>(std::max(chunk.output, 0)) - first_output_;
    for (size_t o = 0; o < n_outputs; ++o)
      for (const int32_t player : chunk.slots) {
        balance_.share(chunk, player, [&](int32_t feature, double weight) {
          kernels_.of<T>().add_scaled(plan_.leaf_scale * weight, from,
                                      values_.at(first + o, feature) + block * kBlockRows);
        });
        from += kBlockRows;
      }
  }

  // Add the sums of pairs from tables, halved, to the sums of pairs from the walk: tables have twice the
  // interaction.
  void add_table_pairs() {
    const size_t n_used = plan_.features.size();
    for (size_t o = 0; o < n_outputs(); ++o)
      for (size_t place = n_used; place < values_.n_places(); ++place) {
        const double* const from = values_.at(o, place);
        double* const to = pairs_.at(o, place - n_used);
        for (size_t row = 0; row < values_.stride(); ++row) to[row] += from[row] / 2;
      }
  }

  template <class Out>
  void write_as(int64_t first_row, int n_rows, const TileSums* totals) {
    const size_t n_features = plan_.n_features;
    write_values_as<Out>(plan_, result_, values_, first_output_, first_row, n_rows, totals);
    Out *const pairs = static_cast<Out*>(result_.pairs), *const triples = static_cast<Out*>(result_.triples),
               *const matrices = static_cast<Out*>(result_.matrices);
    if (!pairs && !triples && !matrices) return;
    for (int row = 0; row < n_rows; ++row)
      for (size_t o = 0; o < n_outputs(); ++o) {
        const size_t index = (first_row + row) * plan_.n_outputs + first_output_ + o;
        if (pairs) write_places(pairs_, o, row, pairs + index * plan_.pairs.size());
        if (triples) write_places(triples_, o, row, triples + index * plan_.triples.size());
        if (matrices)
          write_matrix(plan_, values_.at(o) + row, pairs_.at(o) + row, values_.stride(), main_.data(),
                       matrices + index * n_features * n_features);
      }
  }

  const Plan& plan_;
  const Kernels& kernels_ = kernels();
  const Result& result_;
  const Balance balance_;
  size_t first_output_ = 0;
  TileSums values_, pairs_, triples_;
  std::vector<double> main_;  // main effects of one row
};

size_t most_sum_bytes(const Plan& plan) {
  return largest_of(plan.chunks, [&](const Chunk& chunk) {
    return has_walks(plan, chunk) ? chunk_sum_bytes(plan, chunk) : size_t{0};
  });
}

// One thread's work on a plan: it takes tiles of rows through all trees, and writes the results.
template <class T>
class TileWorker {
 public:
  TileWorker(const Plan& plan, const Result& result, int tile_rows)
      : plan_(plan),
        result_(result),
        walk_(plan, result.needs_margins()),
        sums_(plan, result, outputs_at_once(plan), tile_rows),
        tables_(plan, tile_rows),
        intervals_(plan, tile_rows) {
    chunk_sums_.resize(most_sum_bytes(plan));
  }

  bool run(Tile& tile, const Stop& stop) {
    auto chunk = plan_.chunks.begin();
    for (size_t output = 0; output < static_cast<size_t>(plan_.n_outputs); output += sums_.n_outputs()) {
      sums_.begin(output);
      if (!look_up(tile, stop)) return false;
      // Chunks are sorted by output.
      const int32_t end = static_cast<int32_t>(output + sums_.n_outputs());
      for (; chunk != plan_.chunks.end() && chunk->output < end; ++chunk)
        if (!run_chunk(*chunk, tile, stop)) return false;
      sums_.write(tile.first_row, tile.n_rows, result_.gaps ? &tile.totals : nullptr);
    }
    return true;
  }

 private:
  TileSums* margin(Tile& tile) const { return result_.needs_margins() ? &tile.margin : nullptr; }

  bool look_up(Tile& tile, const Stop& stop) {
    TileSums* const margin = this->margin(tile);
    return tables_.run(tile.codes, tile.n_rows, sums_.values(), margin, walk_.margins(), stop) &&
           intervals_.run(tile.codes, tile.n_rows, sums_.values(), margin, stop);
  }

  bool run_chunk(const Chunk& chunk, Tile& tile, const Stop& stop) {
    if (!has_walks(plan_, chunk)) return true;
    const ChunkSums<T> sums(plan_, chunk, chunk_sums_.data());
    for (int block = 0; block < tile.n_blocks(); ++block) {
      walk_.run(chunk, tile.codes, block, tile.block_rows(block), sums);
      sums_.add(chunk, block, sums, margin(tile));
    }
    return !stop();
  }

  const Plan& plan_;
  const Result& result_;
  ChunkWalk<T> walk_;
  RowSums sums_;
  TableRunner<T> tables_;
  IntervalRunner<T> intervals_;
  Aligned<char> chunk_sums_;
};

// One thread's work on a plan whose leaves are in lanes: it takes blocks of rows. A call of one row takes so
// little time that it allocates nothing that it does not need.
template <class T>
class LaneWorker {
 public:
  LaneWorker(const Plan& plan, const Result& result, int most_rows)
      : result_(result), sums_(plan, result, plan.n_outputs, kBlockRows), lanes_(plan, most_rows) {}

  bool run(Tile& tile, const Stop& stop) {
    sums_.begin(0);
    TileSums* const margin = result_.needs_margins() ? &tile.margin : nullptr;
    if (!lanes_.run(tile.codes, tile.n_rows, sums_.values(), margin, stop)) return false;
    sums_.write(tile.first_row, tile.n_rows, result_.gaps ? &tile.totals : nullptr);
    return true;
  }

 private:
  const Result& result_;
  RowSums sums_;
  LaneRunner<T> lanes_;
};

// --- Few rows ---

// If there are at least this many blocks of rows for each thread, threads take tiles. If there are fewer, the
// work is a grid.
constexpr int64_t kTiledBlocks = 8;
// The work for which a thread is worth waking: the number of vectors of 16 rows times the number of leaves.
// This work takes tens of microseconds.
constexpr int64_t kLeastWork = 2048;

// The results of a block of rows, for which one part after another is added up.
struct BlockResults {
  BlockResults(const Plan& explained, const Result& arrays)
      : plan(explained), result(arrays), sums(plan, result, plan.n_outputs, kBlockRows) {
    margin.resize(plan.n_outputs, 1, kBlockRows);
    totals.resize(plan.n_outputs, 1, kBlockRows);
    begin();
  }

  TileSums* margin_or_null() { return result.needs_margins() ? &margin : nullptr; }

  // Write the results, and begin the next block.
  void write(int64_t first_row, int n_rows) {
    sums.write(first_row, n_rows, result.gaps ? &totals : nullptr);
    write_margins(plan, result, first_row, n_rows, margin, totals);
    begin();
  }

  void begin() {
    sums.begin(0);
    begin_rows(plan, margin, totals);
  }

  const Plan& plan;
  const Result& result;
  RowSums sums;
  TileSums margin, totals;
};

// The chunks of a plan, as parts of a grid.
template <class T>
struct ChunkParts {
  size_t count() const { return plan.chunks.size(); }
  size_t bytes(size_t part) const { return chunk_sum_bytes(plan, plan.chunks[part]); }
  ChunkWalk<T> worker() const { return ChunkWalk<T>(plan, result.needs_margins()); }
  BlockResults writer() const { return BlockResults(plan, result); }

  void run(ChunkWalk<T>& walk, size_t part, const CodeTile& codes, int block, int n_rows, void* sums) const {
    const Chunk& chunk = plan.chunks[part];
    walk.run(chunk, codes, block, n_rows, ChunkSums<T>(plan, chunk, sums));
  }
  void add(BlockResults& block, size_t part, void* sums) const {
    const Chunk& chunk = plan.chunks[part];
    block.sums.add(chunk, 0, ChunkSums<T>(plan, chunk, sums), block.margin_or_null());
  }

  const Plan& plan;
  const Result& result;
};

// The leaves in the lanes of a plan, as parts of a grid.
template <class T>
struct LaneParts {
  size_t count() const { return plan.lanes.parts.size(); }
  size_t bytes(size_t part) const { return n_part_sums(plan, plan.lanes.parts[part]) * sizeof(double); }
  LaneRunner<T> worker() const { return LaneRunner<T>(plan, block_rows); }
  BlockResults writer() const { return BlockResults(plan, result); }

  void run(LaneRunner<T>& runner, size_t part, const CodeTile& codes, int block, int n_rows,
           void* sums) const {
    double* const part_sums = static_cast<double*>(sums);
    std::fill_n(part_sums, bytes(part) / sizeof(double), 0.0);  // for rows that the block does not have
    runner.run_part(plan.lanes.parts[part], codes, block, n_rows, part_sums);
  }
  void add(BlockResults& block, size_t part, void* sums) const {
    add_part(plan, plan.lanes.parts[part], static_cast<double*>(sums), kBlockRows, block.sums.values(),
             block.margin_or_null());
  }

  const Plan& plan;
  const Result& result;
  int block_rows;  // of the only block
};

// Return the bytes of a block of a grid: the bytes of its codes, and of the sums of all chunks.
size_t block_bytes(const Plan& plan) {
  size_t bytes = code_bytes(plan);
  for (const Chunk& chunk : plan.chunks) bytes += chunk_sum_bytes(plan, chunk);
  return bytes;
}

// Return the number of threads that are worth waking.
int64_t useful_threads(const Plan& plan, int64_t n_rows, int64_t n_threads) {
  if (has_tables(plan)) return n_threads;
  const int64_t n_vectors = (n_rows + 15) / 16;
  return std::min(n_threads, 1 + plan.n_leaves * n_vectors / kLeastWork);
}

bool is_grid(const Plan& plan, int64_t n_rows, int64_t n_threads) {
  return n_threads > 1 && n_rows <= n_threads * kTiledBlocks * kBlockRows && !has_tables(plan) &&
         plan.chunks.size() > 1 && block_bytes(plan) <= n_threads * kSharedBytes;
}

}  // namespace

bool explain(const Plan& plan, const Rows& rows, const Result& result, int most_threads,
             const std::function<bool()>& interrupted) {
  if (plan.cells.any()) return explain_by_cells(plan, rows, result, most_threads, interrupted);
  const int64_t n_threads = useful_threads(plan, rows.n_rows, most_threads);
  return in_precision(plan.precision, [&](auto number) {
    using T = decltype(number);
    const auto run_grid = [&](const auto& parts) {
      return Grid(plan, rows, parts, n_threads).run(n_threads * kSharedBytes, interrupted);
    };
    const int block_rows = static_cast<int>(std::min<int64_t>(rows.n_rows, kBlockRows));
    if (plan.lanes.parts.size() > 1 && n_threads > 1 && rows.n_rows <= kBlockRows)
      return run_grid(LaneParts<T>{plan, result, block_rows});
    if (plan.lanes.any())
      return explain_tiles(plan, rows, result, tile_size(plan), n_threads, interrupted,
                           [&](int) { return LaneWorker<T>(plan, result, block_rows); });
    if (is_grid(plan, rows.n_rows, n_threads)) return run_grid(ChunkParts<T>{plan, result});
    return explain_tiles(plan, rows, result, tile_size(plan), n_threads, interrupted,
                         [&](int tile_rows) { return TileWorker<T>(plan, result, tile_rows); });
  });
}

size_t shared_bytes(const Plan& plan) {
  if (has_tables(plan) || plan.cells.any() || plan.chunks.size() < 2) return 0;
  return std::min<size_t>(kSharedBytes, kTiledBlocks * block_bytes(plan));
}

size_t scratch_bytes(const Plan& plan) {
  if (plan.cells.any()) return cell_scratch_bytes(plan);
  const size_t tile = tile_size(plan).most_rows;
  return walk_bytes(plan) + most_sum_bytes(plan) + table_runner_bytes(plan) +
         tile * (sum_bytes(plan) + 2 * TileSums::row_bytes(plan.n_outputs, 1) + table_row_bytes(plan) +
                 interval_row_bytes(plan)) +
         tile / kBlockRows * code_bytes(plan);
}

}  // namespace skshap
