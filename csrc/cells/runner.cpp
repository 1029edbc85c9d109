#include "cells/runner.h"

#include <algorithm>

#include "base/aligned.h"
#include "cells/chains.h"
#include "cells/part_sums.h"
#include "cells/program.h"
#include "plan/tree_paths.h"
#include "rows/coding.h"
#include "rows/results.h"
#include "rows/tiles.h"
#include "simd/cell_kernels.h"
#include "simd/kernels.h"

namespace skshap {
namespace {

// The most rows of a tile. The more rows a tile has, the more rows share a cell.
constexpr int64_t kTileRows = 16384;
static_assert(kTileRows <= kCellNumbers);
// The least rows of a tile that descend together, in one thread. With more rows, a tree's nodes are loaded
// into the cache less often.
constexpr int kLeastMarginRows = 1024;
// The cells of units whose tables rows look up together are numbered by 16 bits.
constexpr size_t kMostTableCells = 1 << 16;
static_assert(kTablesAtOnce * kTileRows <= kMostTableCells);

// Numbers the cells of rows.
class CellNumbers {
 public:
  explicit CellNumbers(size_t n_rows) {
    map_.resize(1 << 16);
    std::fill_n(map_.data(), map_.size(), kNoCell);
    places_.resize(n_rows);
    for (Aligned<uint16_t>& merged : merged_) merged.resize(n_rows);
    representatives_.resize(whole_blocks(n_rows + 1));
    std::fill_n(representatives_.data(), representatives_.size(), uint16_t{0});
  }

  // Write the number of each row's cell, from `first` on. Row representatives()[i] is of cell number
  // first + i; any rows follow. Return the number of cells.
  size_t number(const uint16_t* keys, size_t n_keys, size_t stride, size_t n_rows, uint16_t first,
                uint16_t* numbers) {
    const uint16_t* second = n_keys > 1 ? keys + (n_keys - 1) * stride : nullptr;
    // The numbers of the cells of two keys are the keys of larger cells.
    for (size_t k = n_keys; k-- > 2;) {
      uint16_t* const merged = merged_[k % 2].data();
      number(keys + (k - 1) * stride, second, n_rows, 0, merged);
      second = merged;
    }
    return number(keys, second, n_rows, first, numbers);
  }

  const uint16_t* representatives() const { return representatives_.data(); }

 private:
  size_t number(const uint16_t* keys, const uint16_t* second, size_t n_rows, uint16_t first,
                uint16_t* numbers) {
    return kernels().cells->number({.keys = keys,
                                    .second = second,
                                    .n_rows = n_rows,
                                    .first = first,
                                    .map = map_.data(),
                                    .places = places_.data(),
                                    .numbers = numbers,
                                    .representatives = representatives_.data()});
  }

  Aligned<uint32_t> map_;
  Aligned<uint16_t> places_, merged_[2], representatives_;
};

size_t n_unit_outputs(const Plan& plan, const CellPart& part) {
  return part.output < 0 ? static_cast<size_t>(plan.n_outputs) : 1;
}

// The largest sizes that the units and parts of a plan need.
struct Needs {
  explicit Needs(const Plan& plan) {
    for (const CellUnit& unit : plan.cells.program->units) {
      n_keys = std::max<size_t>(n_keys, unit.n_keys);
      n_columns = std::max<size_t>(n_columns, unit.n_columns);
      n_trees = std::max<size_t>(n_trees, unit.trees_end - unit.trees);
    }
    for (const UnitTree& tree : plan.cells.program->unit_trees)
      n_tests = std::max<size_t>(n_tests, tree.n_tests);
    for (const CellPart& part : plan.cells.program->parts) {
      row_size = std::max(row_size, part.row_size);
      n_outputs = std::max(n_outputs, n_unit_outputs(plan, part));
    }
    n_phi = n_outputs * plan.features.size() * kBlockRows;
    const Plan& trees = plan.cells.program->trees;
    for (const Chunk& chunk : trees.chunks) n_stack = std::max(n_stack, walk_stack(trees, chunk));
  }

  size_t n_keys = 1, n_columns = 0, n_trees = 0, n_tests = 0, row_size = 8, n_outputs = 1;
  size_t n_phi = 0, n_stack = 0;  // elements for the walk of a block of cells
};

// One thread's work: the sums of a part for the rows of a tile.
template <class T>
class PartWorker {
 public:
  // `side_by_side` has the codes of tiles; see CellCodeArgs.
  PartWorker(const Plan& plan, size_t n_rows, const uint16_t* side_by_side, bool needs_margins)
      : plan_(plan),
        side_by_side_(side_by_side),
        cells_(*plan.cells.program),
        trees_(cells_.trees),
        needs_margins_(needs_margins),
        numbers_(n_rows),
        feature_of_column_(column_features(plan)),
        position_(plan.features.size(), -1),
        stride_(n_rows) {
    const Needs needs(plan);
    keys_.resize(needs.n_keys * n_rows);
    index_.resize(std::min(kMostNarrow * n_rows, kMostTableCells));
    phi_.resize(needs.n_phi);
    stack_.resize(needs.n_stack);
    grow(zeros_, kBlockRows);
    words_.resize(kFirstWord + 2 * needs.n_tests);
    reach_.resize(needs.n_tests + 1);
    index_columns_.resize(needs.n_columns);
    chains_.resize(needs.n_trees);
    deltas_.resize(needs.n_columns * kBlockRows);
  }

  // Compute the sums of a part.
  bool run(const CellPart& part, const CodeTile& codes, size_t n_rows, PartSums<T>& sums, const Stop& stop) {
    sums_ = &sums;
    n_rows_ = n_rows;
    n_outputs_ = n_unit_outputs(plan_, part);
    n_features_ = part.features_end - part.features;
    std::fill(position_.begin(), position_.end(), -1);
    for (size_t i = 0; i < n_features_; ++i)
      position_[cells_.features[part.features + i]] = static_cast<int32_t>(i);
    std::fill_n(sums.rows.data(), whole_blocks(n_rows) * part.row_size, T(0));
    sums.margin.clear();
    const size_t most_narrow = std::min(kMostNarrow, kMostTableCells / stride_);
    for (size_t i = part.units, n; i < part.units_end; i += n) {
      n = std::min(most_narrow, part.units_end - i);
      if (!are_narrow(part, i, n)) n = std::min(kTablesAtOnce, n);
      look_up(part, i, n, codes);
      if (stop()) return false;
    }
    return true;
  }

 private:
  // Look up units that follow each other.
  void look_up(const CellPart& part, size_t first, size_t n_units, const CodeTile& codes) {
    const bool narrow = are_narrow(part, first, n_units);
    row_size_ = narrow ? kNarrowEntry : part.row_size;
    size_t n_cells = 0;
    for (size_t i = 0; i < n_units; ++i) {
      const CellUnit& unit = cells_.units[first + i];
      list_columns(unit);
      find_keys(unit, codes);
      const size_t n = numbers_.number(keys_.data(), unit.n_keys, stride_, n_rows_,
                                       static_cast<uint16_t>(n_cells), index_.data() + i * stride_);
      make_room(n_cells + n);
      copy_codes(unit, codes, n);
      list_features(unit);
      narrow ? find_narrow_columns(lanes_ + i * kWideRow) : find_columns();
      walk(unit, n, n_cells);
      n_cells += n;
    }
    const bool one_output = needs_margins_ && n_outputs_ == 1;
    const double* const margins = one_output ? entry_margins_.data() : nullptr;
    double* const margin = one_output ? sums_->margin.at(0) : nullptr;
    if (narrow)
      add_narrow(n_units, margins, margin);
    else
      kernels().of<T>().add_entries({.index = index_.data(),
                                     .n_tables = n_units,
                                     .index_stride = stride_,
                                     .n_rows = n_rows_,
                                     .entries = entries_.data(),
                                     .row_size = row_size_,
                                     .sums = sums_->rows.data(),
                                     .margins = margins,
                                     .margin = margin});
    if (needs_margins_ && !one_output)
      kernels().add_margins({.index = index_.data(),
                             .n_tables = n_units,
                             .index_stride = stride_,
                             .n_rows = n_rows_,
                             .margins = entry_margins_.data(),
                             .n_outputs = n_outputs_,
                             .margin = sums_->margin.at(0),
                             .stride = sums_->margin.stride()});
  }

  // Return whether the entries of units are shorter than the sums of a row.
  bool are_narrow(const CellPart& part, size_t first, size_t n_units) const {
    if (sizeof(T) != sizeof(float) || !kernels().cells->add_narrow || part.row_size != kWideRow ||
        n_outputs_ > 1)
      return false;
    const auto units = cells_.units.begin() + static_cast<std::ptrdiff_t>(first);
    return std::all_of(units, units + static_cast<std::ptrdiff_t>(n_units),
                       [](const CellUnit& unit) { return unit.n_columns < kNarrowEntry; });
  }

  void add_narrow(size_t n_units, const double* margins, double* margin) {
    if constexpr (sizeof(T) == sizeof(float))
      kernels().cells->add_narrow({.index = index_.data(),
                                   .n_tables = n_units,
                                   .index_stride = stride_,
                                   .n_rows = n_rows_,
                                   .entries = entries_.data(),
                                   .lanes = lanes_,
                                   .sums = sums_->rows.data(),
                                   .margins = margins,
                                   .margin = margin});
  }

  void list_columns(const CellUnit& unit) {
    uint32_t steps = unit.steps;
    for (uint32_t i = 0; i < unit.n_columns; ++i) {
      const CellColumn& column = cells_.columns[unit.columns + i];
      index_columns_[i] = {.column = column.column,
                           .steps = steps,
                           .n_steps = column.n_steps,
                           .categorical = plan_.columns[column.column].categorical};
      steps += column.n_steps;
    }
  }

  void find_keys(const CellUnit& unit, const CodeTile& codes) {
    const IndexColumn* columns = index_columns_.data();
    for (size_t i = 0; i < unit.n_keys; ++i) {
      const CellKey& key = cells_.keys[unit.keys + i];
      kernels().entry_index(
          {.codes = codes.narrow.data(),
           .code_stride = codes.stride,
           .category_rows = codes.category_rows.empty() ? nullptr : codes.category_rows.data(),
           .n_columns = plan_.columns.size(),
           .columns = columns,
           .n_index_columns = key.n_columns,
           .steps = cells_.steps.data(),
           .n_blocks = block_count(n_rows_),
           .first = key.first,
           .index = keys_.data() + i * stride_});
      columns += key.n_columns;
    }
  }

  void make_room(size_t n_cells) {
    keep(entries_, n_cells * row_size_);
    keep(entry_margins_, n_cells * n_outputs_);
  }

  // Grow a buffer without losing its contents.
  template <class X>
  static void keep(std::vector<X, AlignedAllocator<X>>& buffer, size_t n) {
    if (buffer.size() < n) buffer.resize(n + n / 2);
  }

  void copy_codes(const CellUnit& unit, const CodeTile& codes, size_t n_cells) {
    code_stride_ = whole_blocks(n_cells);
    keep(codes_, (unit.n_columns + 1) * code_stride_);
    kernels().cells->copy_codes({.row_codes = codes.narrow.data(),
                                 .row_stride = codes.stride,
                                 .side_by_side = side_by_side_,
                                 .columns = index_columns_.data(),
                                 .n_columns = unit.n_columns,
                                 .rows = numbers_.representatives(),
                                 .n_cells = n_cells,
                                 .codes = codes_.data(),
                                 .code_stride = code_stride_});
  }

  // Walk the cells of a unit, and write their entries from number `first` on.
  void walk(const CellUnit& unit, size_t n_cells, size_t first) {
    const UnitTree* const trees = cells_.unit_trees.data() + unit.trees;
    const size_t n_trees = unit.trees_end - unit.trees;
    if constexpr (sizeof(T) == sizeof(float))
      for (size_t i = 0; i < n_trees; ++i) chains_[i].take(cells_, trees[i], phi_.data());
    for (size_t begin = 0; begin < n_cells; begin += kBlockRows) {
      const size_t n = std::min<size_t>(kBlockRows, n_cells - begin);
      double* const margins = entry_margins_.data() + (first + begin) * n_outputs_;
      kernels().cells->clear(unit_phi_.data(), unit_phi_.size(), kBlockRows * sizeof(T));
      if (needs_margins_) std::fill_n(margins, n * n_outputs_, 0.0);
      for (size_t i = 0; i < n_trees; ++i) {
        decide(trees[i], begin);
        walk_block(trees[i], chains_[i], static_cast<int>(n));
        if (needs_margins_) add_margins(trees[i], n, margins);
      }
      kernels().of<T>().interleave(
          {columns_.data(), row_size_, n, entries_.data() + (first + begin) * row_size_});
    }
  }

  void decide(const UnitTree& tree, size_t begin) {
    kernels().cells->decide({.tests = cells_.tests.data() + tree.tests,
                             .flags = cells_.flags.data() + tree.tests,
                             .n_tests = tree.n_tests,
                             .n_above = tree.n_above,
                             .codes = codes_.data() + begin,
                             .code_stride = code_stride_,
                             .category_bits = plan_.category_bits.data(),
                             .words = words_.data()});
  }

  void walk_block(const UnitTree& tree, const UnitChain& chain, int n_cells) {
    const Chunk& chunk = trees_.chunks[tree.chunk];
    const T* const nodes = constants<T>(trees_).data() + chunk.quadrature;
    const WalkArgs<T> walk_args{.ops = trees_.ops.data() + tree.ops,
                                .constants = constants<T>(trees_).data() + tree.constants,
                                .words = words_.data(),
                                .nodes = nodes,
                                .weights = nodes + chunk.n_nodes,
                                .n_nodes = chunk.n_nodes,
                                .n_outputs = static_cast<int>(n_outputs_),
                                .height = chunk.height,
                                .n_rows = n_cells,
                                .phi = phi_.data(),
                                .output_stride = plan_.features.size() * kBlockRows,
                                .stack = stack_.data()};
    if constexpr (sizeof(T) == sizeof(float)) {
      if (tree.n_chain > 0) return chain.walk(walk_args, deltas_.data());
    }
    run_walk(kernels(), trees_.order, chunk.output < 0, walk_args);
  }

  void add_margins(const UnitTree& tree, size_t n_cells, double* margins) {
    kernels().cells->margins({.flags = cells_.flags.data() + tree.tests,
                              .n_tests = tree.n_tests,
                              .n_above = tree.n_above,
                              .words = words_.data(),
                              .reach = reach_.data(),
                              .leaf_values = cells_.leaf_values.data() + tree.leaf_values,
                              .n_outputs = n_outputs_,
                              .n_cells = n_cells,
                              .margins = margins});
  }

  void list_features(const CellUnit& unit) {
    unit_features_.clear();
    for (uint32_t i = 0; i < unit.n_columns; ++i)
      unit_features_.push_back(feature_of_column_[index_columns_[i].column]);
  }

  // Return where the walk adds up the values of a feature.
  T* phi(int32_t feature, size_t output = 0) {
    return phi_.data() + (output * plan_.features.size() + static_cast<size_t>(feature)) * kBlockRows;
  }

  // Find, for each number of an entry, the sums of the walk that belong to it.
  void find_columns() {
    columns_.assign(row_size_, zeros_.data());
    unit_phi_.clear();
    for (const int32_t feature : unit_features_)
      for (size_t o = 0; o < n_outputs_; ++o) {
        columns_[o * n_features_ + static_cast<size_t>(position_[feature])] = phi(feature, o);
        unit_phi_.push_back(phi(feature, o));
      }
  }

  // Find the sums of the walk that belong to the numbers of a narrow entry, and the numbers that are added to
  // the sums of a row.
  void find_narrow_columns(int32_t* lanes) {
    columns_.assign(kNarrowEntry, zeros_.data());
    std::fill_n(lanes, kWideRow, static_cast<int32_t>(kNarrowEntry - 1));
    unit_phi_.clear();
    for (const int32_t feature : unit_features_) {
      lanes[position_[feature]] = static_cast<int32_t>(unit_phi_.size());
      columns_[unit_phi_.size()] = phi(feature);
      unit_phi_.push_back(phi(feature));
    }
  }

  const Plan& plan_;
  const uint16_t* const side_by_side_;
  const CellProgram& cells_;
  const Plan& trees_;
  const bool needs_margins_;
  CellNumbers numbers_;
  const std::vector<int32_t> feature_of_column_;
  std::vector<int32_t> position_;  // by feature: position in the rows of the part, or -1
  const size_t stride_;
  size_t n_rows_ = 0, n_outputs_ = 1, n_features_ = 0;
  size_t row_size_ = 0;  // of entries
  int32_t lanes_[kMostNarrow * kWideRow];
  Aligned<uint16_t> keys_;   // [key][row]
  Aligned<uint16_t> index_;  // [unit][row]: the number of the row's cell
  PartSums<T>* sums_ = nullptr;
  std::vector<T, AlignedAllocator<T>> entries_;                  // [cell][row size of the part]
  std::vector<double, AlignedAllocator<double>> entry_margins_;  // [cell][output]
  std::vector<uint16_t, AlignedAllocator<uint16_t>> codes_;      // of a unit's cells, [column][code_stride_]
  size_t code_stride_ = 0;
  Aligned<T> phi_, stack_, zeros_;
  std::vector<UnitChain> chains_;  // of the trees of the unit, in single precision
  Aligned<float> deltas_;
  Aligned<uint64_t> words_, reach_;
  std::vector<IndexColumn> index_columns_;  // of the unit
  std::vector<int32_t> unit_features_;
  std::vector<void*> unit_phi_;  // the sums of the walk of the unit's features
  std::vector<const T*> columns_;
};

template <class T>
class CellRun {
 public:
  CellRun(const Plan& plan, const Rows& rows, const Result& result, int64_t n_threads,
          const Stop& interrupted)
      : plan_(plan),
        rows_(rows),
        result_(result),
        n_threads_(n_threads),
        interrupted_(interrupted),
        most_rows_(tile_rows(rows.n_rows)),
        n_side_by_side_(std::min(plan.columns.size(), kMostSideBySide)),
        tile_(plan, static_cast<int>(most_rows_)) {
    values_.resize(plan.n_outputs, plan.features.size(), most_rows_);
    side_by_side_.resize(tile_.codes.stride *
                         ((n_side_by_side_ + kSideBySide - 1) / kSideBySide * kSideBySide));
  }

  bool run() {
    for (int64_t first = 0; first < rows_.n_rows; first += tile_.n_rows) {
      tile_.first_row = first;
      tile_.n_rows = static_cast<int>(std::min<int64_t>(most_rows_, rows_.n_rows - first));
      if (!code() || !find_margins() || !run_parts()) return false;
      write();
    }
    return true;
  }

  // Return the rows of a tile. Tiles are about equally large.
  static size_t tile_rows(int64_t n_rows) {
    const int64_t n_tiles = std::max<int64_t>(1, (n_rows + kTileRows - 1) / kTileRows);
    return std::max<size_t>(whole_blocks(static_cast<size_t>((n_rows + n_tiles - 1) / n_tiles)), kBlockRows);
  }

 private:
  bool code() {
    return work_off(tile_.n_blocks(), n_threads_, interrupted_, [this] {
      return [this](int64_t block, const Stop& stop) {
        const int number = static_cast<int>(block);
        code_block(plan_, kernels(), rows_, tile_.first_row + block * kBlockRows, tile_.block_rows(number),
                   number, tile_.codes);
        list_categories(block);
        kernels().cells->put_side_by_side(
            {.codes = tile_.codes.narrow.data() + block * kBlockRows,
             .n_columns = n_side_by_side_,
             .stride = tile_.codes.stride,
             .side_by_side = side_by_side_.data() + block * kBlockRows * kSideBySide});
        return !stop();
      };
    });
  }

  // Write the positions of the categories of a block as codes, too.
  void list_categories(int64_t block) {
    CodeTile& codes = tile_.codes;
    for (size_t c = 0; c < plan_.columns.size(); ++c) {
      if (!plan_.columns[c].categorical) continue;
      const CategoryRows& groups = codes.category_rows[static_cast<size_t>(block) * plan_.columns.size() + c];
      uint16_t* const to = codes.narrow.data() + c * codes.stride + block * kBlockRows;
      for (uint32_t i = 0; i < groups.n; ++i)
        for (uint64_t rows = groups.rows[i]; rows; rows &= rows - 1)
          to[__builtin_ctzll(rows)] = static_cast<uint16_t>(groups.code[i]);
    }
  }

  // Begin the margins: with those of all trees, if cells have none.
  bool find_margins() {
    begin_rows(plan_, tile_.margin, tile_.totals);
    const MarginTrees& trees = plan_.cells.program->margin_trees;
    if (!result_.needs_margins() || !trees.any()) return true;
    const size_t rows_of_thread = static_cast<size_t>((tile_.n_rows + n_threads_ - 1) / n_threads_);
    const int n_rows = std::max(static_cast<int>(whole_blocks(rows_of_thread)), kLeastMarginRows);
    return work_off((tile_.n_rows + n_rows - 1) / n_rows, n_threads_, interrupted_, [&] {
      return [&](int64_t i, const Stop& stop) {
        const int first = static_cast<int>(i) * n_rows;
        return trees.write(tile_.codes, first, std::min(n_rows, tile_.n_rows - first), tile_.margin, stop);
      };
    });
  }

  bool run_parts() {
    const bool cell_margins = result_.needs_margins() && !plan_.cells.program->margin_trees.any();
    values_.clear();
    const std::vector<CellPart>& parts = plan_.cells.program->parts;
    const Needs needs(plan_);
    SumsInOrder<T> in_order(
        parts.size(), tile_.n_rows, n_threads_,
        [&] { return std::make_unique<PartSums<T>>(most_rows_, needs.row_size, needs.n_outputs); },
        [&](size_t part, const PartSums<T>& sums, size_t begin, size_t end) {
          add(parts[part], sums, cell_margins, begin, end);
        });
    return work_off(static_cast<int64_t>(parts.size()), n_threads_, interrupted_, [&] {
      return [&, worker = PartWorker<T>(plan_, most_rows_, side_by_side_.data(), cell_margins),
              sums = in_order.first()](int64_t i, const Stop& stop) mutable {
        if (!worker.run(parts[i], tile_.codes, tile_.n_rows, *sums, stop)) return false;
        sums = in_order.exchange(i, std::move(sums), stop);
        return sums != nullptr;
      };
    });
  }

  // Add the sums of a part to the sums of the rows from `begin`, a multiple of kBlockRows, to `end`.
  void add(const CellPart& part, const PartSums<T>& from, bool with_margins, size_t begin, size_t end) {
    const size_t first = static_cast<size_t>(std::max(part.output, 0)),
                 n_outputs = n_unit_outputs(plan_, part);
    std::vector<double*> sums;
    for (size_t o = 0; o < n_outputs; ++o)
      for (size_t i = part.features; i < part.features_end; ++i)
        sums.push_back(values_.at(first + o, plan_.cells.program->features[i]) + begin);
    kernels().cells->add_sums(CellSumArgs<T>{.rows = from.rows.data() + begin * part.row_size,
                                             .row_size = part.row_size,
                                             .n_rows = whole_blocks(end - begin),
                                             .scale = plan_.leaf_scale,
                                             .sums = sums.data(),
                                             .n_columns = sums.size()});
    for (size_t o = 0; o < n_outputs && with_margins; ++o)
      for (size_t row = begin; row < end; ++row) tile_.margin.at(first + o)[row] += from.margin.at(o)[row];
  }

  void write() {
    write_values(plan_, result_, values_, 0, tile_.first_row, tile_.n_rows,
                 result_.gaps ? &tile_.totals : nullptr);
    write_margins(plan_, result_, tile_.first_row, tile_.n_rows, tile_.margin, tile_.totals);
  }

  const Plan& plan_;
  const Rows& rows_;
  const Result& result_;
  const int64_t n_threads_;
  const Stop& interrupted_;
  const size_t most_rows_, n_side_by_side_;
  Tile tile_;
  Aligned<uint16_t> side_by_side_;  // codes of the tile; see CellCodeArgs
  TileSums values_;
};

template <class T>
size_t scratch_bytes_of(const Plan& plan) {
  const size_t rows = kTileRows, n_outputs = static_cast<size_t>(plan.n_outputs);
  const Needs needs(plan);
  const size_t entries = kTablesAtOnce * rows * 3 / 2;  // their number grows by halves
  const size_t thread =
      rows * 2 * (needs.n_keys + kTablesAtOnce + 4) +
      2 * rows * (needs.row_size * sizeof(T) + TileSums::row_bytes(needs.n_outputs, 1)) +
      (sizeof(uint32_t) << 16) + entries * (needs.row_size * sizeof(T) + needs.n_outputs * sizeof(double)) +
      rows * (needs.n_columns + 1) * sizeof(uint16_t) * 3 / 2 + (needs.n_phi + needs.n_stack) * sizeof(T) +
      needs.n_trees * UnitChain::bytes(needs.n_columns) + needs.n_columns * kBlockRows * sizeof(float);
  const size_t tile =
      rows * (TileSums::row_bytes(n_outputs, plan.features.size()) + 3 * TileSums::row_bytes(n_outputs, 1)) +
      rows / kBlockRows * code_bytes(plan) + rows * kMostSideBySide * sizeof(uint16_t);
  return thread + tile;
}

}  // namespace

size_t cell_scratch_bytes(const Plan& plan) {
  return in_precision(plan.precision, [&](auto number) { return scratch_bytes_of<decltype(number)>(plan); });
}

bool explain_by_cells(const Plan& plan, const Rows& rows, const Result& result, int64_t n_threads,
                      const Stop& interrupted) {
  return in_precision(plan.precision, [&](auto number) {
    return CellRun<decltype(number)>(plan, rows, result, n_threads, interrupted).run();
  });
}

}  // namespace skshap
