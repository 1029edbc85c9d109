#include "cells/runner.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/aligned.h"
#include "rows/coding.h"
#include "rows/margin.h"
#include "rows/results.h"
#include "rows/tiles.h"
#include "rows/value_walk.h"
#include "simd/kernels.h"

namespace skshap {
namespace {

// The most rows of a tile. The more rows a tile has, the more rows share a cell.
constexpr int64_t kTileRows = 16384;
static_assert(kTablesAtOnce * kTileRows <= 1 << 16);  // cells are numbered by 16 bits

// Numbers the cells of rows.
class CellNumbers {
 public:
  explicit CellNumbers(size_t n_rows) : map_(1 << 16) {
    representatives_.resize(n_rows + 1);  // one element is written behind the last representative
  }

  // Write the number of each row's cell, from `first` on. Row representatives()[i] is of cell number
  // first + i. Return the number of cells.
  size_t number(const uint16_t* keys, size_t n_keys, size_t stride, size_t n_rows, uint16_t first,
                uint16_t* numbers) {
    if (n_keys > 1) return number_long(keys, n_keys, stride, n_rows, first, numbers);
    uint16_t* const map = map_.data();
    uint16_t* const representatives = representatives_.data();
    for (size_t row = 0; row < n_rows; ++row) map[keys[row]] = static_cast<uint16_t>(row);
    size_t n = 0;
    for (size_t row = 0; row < n_rows; ++row) {
      representatives[n] = static_cast<uint16_t>(row);
      n += map[keys[row]] == row;
    }
    for (size_t i = 0; i < n; ++i) map[keys[representatives[i]]] = static_cast<uint16_t>(first + i);
    for (size_t row = 0; row < n_rows; ++row) numbers[row] = map[keys[row]];
    return n;
  }

  const uint16_t* representatives() const { return representatives_.data(); }

 private:
  // Number cells with several keys. Each round maps a hash of the keys to the last row with this hash. Rows
  // with the same keys as this row are of its cell, and the other rows wait for the next round. In the first
  // round, all rows wait.
  size_t number_long(const uint16_t* keys, size_t n_keys, size_t stride, size_t n_rows, uint16_t first,
                     uint16_t* numbers) {
    waiting_.resize(n_rows + 1);
    hashes_.resize(n_rows);
    std::copy_n(keys, n_rows, hashes_.data());
    for (size_t k = 1; k < n_keys; ++k) add_hash(keys + k * stride, n_rows, k);
    const auto all = [](size_t i) { return i; };
    size_t n = 0, n_waiting = number_round(keys, n_keys, stride, n_rows, first, n, numbers, all);
    for (size_t round = 1; n_waiting; ++round) {
      for (size_t i = 0; i < n_waiting; ++i) {
        hashes_[i] = keys[waiting_[i]];
        for (size_t k = 1; k < n_keys; ++k)
          hashes_[i] = static_cast<uint16_t>(hashes_[i] + keys[k * stride + waiting_[i]] * factor(k + round));
      }
      const auto waiting = [this](size_t i) { return size_t{waiting_[i]}; };
      n_waiting = number_round(keys, n_keys, stride, n_waiting, first, n, numbers, waiting);
    }
    return n;
  }

  // Number the cells of `n_waiting` rows. Write the rows that go on waiting. Return their number.
  template <class RowOf>
  size_t number_round(const uint16_t* keys, size_t n_keys, size_t stride, size_t n_waiting, uint16_t first,
                      size_t& n, uint16_t* numbers, const RowOf& row_of) {
    uint16_t *const map = map_.data(), *const representatives = representatives_.data();
    const uint16_t* const hashes = hashes_.data();
    const size_t begin = n;
    for (size_t i = 0; i < n_waiting; ++i) map[hashes[i]] = static_cast<uint16_t>(row_of(i));
    for (size_t i = 0; i < n_waiting; ++i) {
      representatives[n] = static_cast<uint16_t>(row_of(i));
      n += map[hashes[i]] == row_of(i);
    }
    for (size_t i = begin; i < n; ++i) numbers[representatives[i]] = static_cast<uint16_t>(first + i);
    size_t n_left = 0;
    for (size_t i = 0; i < n_waiting; ++i) {
      const size_t row = row_of(i), other = map[hashes[i]];
      bool differs = false;
      for (size_t k = 0; k < n_keys; ++k) differs |= keys[k * stride + row] != keys[k * stride + other];
      numbers[row] = numbers[other];  // which is overwritten in another round if the keys differ
      waiting_[n_left] = static_cast<uint16_t>(row);
      n_left += differs;
    }
    return n_left;
  }

  // Add a key of all rows to their hashes.
  void add_hash(const uint16_t* keys, size_t n_rows, size_t k) {
    uint16_t* const hashes = hashes_.data();
    const uint16_t by = factor(k);
    for (size_t row = 0; row < n_rows; ++row)
      hashes[row] = static_cast<uint16_t>(hashes[row] + keys[row] * by);
  }
  // Return an odd number, which is another one in each round.
  static uint16_t factor(size_t k) { return static_cast<uint16_t>((40502 * k) | 1); }

  std::vector<uint16_t> map_, waiting_, hashes_;
  Aligned<uint16_t> representatives_;
};

// Divide the numbers of a block by the same number, rounding down.
void divide(const uint16_t* numbers, uint32_t divisor, uint16_t* quotients) {
  if (divisor == 1) {
    std::copy_n(numbers, kBlockRows, quotients);
    return;
  }
  // With 2^shift < divisor <= 2^(shift + 1), the factor has 16 bits. Quotients are exact if rounding the
  // factor up adds at most 2^shift to the product of factor and divisor.
  uint32_t shift = 0;
  while (2u << shift < divisor) ++shift;
  const uint32_t power = 1u << (16 + shift), factor = (power + divisor - 1) / divisor;
  if (factor * divisor - power <= 1u << shift) {
    for (int i = 0; i < kBlockRows; ++i)
      quotients[i] = static_cast<uint16_t>(static_cast<uint16_t>(numbers[i] * factor >> 16) >> shift);
    return;
  }
  // An integer plus 1/2 is farther from the next multiple than rounding errors reach.
  const float inverse = 1.0f / static_cast<float>(divisor);
  for (int i = 0; i < kBlockRows; ++i)
    quotients[i] = static_cast<uint16_t>((static_cast<float>(numbers[i]) + 0.5f) * inverse);
}

size_t n_unit_outputs(const Plan& plan, const CellPart& part) {
  return part.output < 0 ? static_cast<size_t>(plan.n_outputs) : 1;
}

// The largest sizes that the units and parts of a plan need.
struct Needs {
  explicit Needs(const Plan& plan) {
    for (const CellUnit& unit : plan.cells.units) n_keys = std::max<size_t>(n_keys, unit.n_keys);
    for (const CellPart& part : plan.cells.parts) {
      row_size = std::max(row_size, part.row_size);
      n_outputs = std::max(n_outputs, n_unit_outputs(plan, part));
    }
    const Plan& trees = *plan.cells.trees;
    for (const Chunk& chunk : trees.chunks) {
      n_phi = std::max(n_phi, n_used_outputs(trees, chunk) * chunk.slots.size() * kBlockRows);
      n_stack = std::max(n_stack, walk_stack(trees, chunk));
    }
  }

  size_t n_keys = 1, row_size = 8, n_outputs = 1;
  size_t n_phi = 0, n_stack = 0;  // elements for the walk of a block of cells
};

// One thread's work: the sums of a part for the rows of a tile.
template <class T>
class PartWorker {
 public:
  PartWorker(const Plan& plan, size_t n_rows, bool needs_margins)
      : plan_(plan),
        cells_(plan.cells),
        trees_(*plan.cells.trees),
        needs_margins_(needs_margins),
        numbers_(n_rows),
        margins_(trees_, kernels()),
        position_(plan.features.size(), -1),
        stride_(n_rows) {
    const Needs needs(plan);
    keys_.resize(needs.n_keys * n_rows);
    index_.resize(kTablesAtOnce * n_rows);
    sums_.resize(n_rows * needs.row_size);
    margin_.resize(needs.n_outputs, 1, n_rows);
    codes_.allocate(trees_, kBlockRows);
    phi_.resize(needs.n_phi);
    stack_.resize(needs.n_stack);
    block_margin_.resize(needs.n_outputs * kBlockRows);
    grow(zeros_, kBlockRows);
    grow(words_, kFirstWord + 2 * (2 * most_inner_nodes(trees_) + 1));  // the words of leaves are read, too
  }

  // Compute the sums of a part.
  bool run(const CellPart& part, const CodeTile& codes, size_t n_rows, const Stop& stop) {
    n_rows_ = n_rows;
    n_outputs_ = n_unit_outputs(plan_, part);
    n_features_ = part.features_end - part.features;
    std::fill(position_.begin(), position_.end(), -1);
    for (size_t i = 0; i < n_features_; ++i)
      position_[cells_.features[part.features + i]] = static_cast<int32_t>(i);
    std::fill_n(sums_.data(), whole_blocks(n_rows) * part.row_size, T(0));
    margin_.clear();
    for (size_t i = part.units; i < part.units_end; i += kTablesAtOnce) {
      look_up(part, i, std::min(kTablesAtOnce, part.units_end - i), codes);
      if (stop()) return false;
    }
    return true;
  }

  // Add the sums of the part to the sums of the rows.
  void add(const CellPart& part, TileSums& values, TileSums& margin) const {
    const size_t n_used = plan_.features.size(), first = static_cast<size_t>(std::max(part.output, 0));
    std::vector<uint32_t> places;
    for (size_t o = 0; o < n_outputs_; ++o)
      for (size_t i = part.features; i < part.features_end; ++i)
        places.push_back(static_cast<uint32_t>((first + o) * n_used) +
                         static_cast<uint32_t>(cells_.features[i]));
    add_row_sums(sums_.data(), part.row_size, block_count(n_rows_), plan_.leaf_scale, places.data(),
                 places.size(), values);
    for (size_t o = 0; o < n_outputs_ && needs_margins_; ++o)
      for (size_t row = 0; row < n_rows_; ++row) margin.at(first + o)[row] += margin_.at(o)[row];
  }

 private:
  // Look up units that follow each other.
  void look_up(const CellPart& part, size_t first, size_t n_units, const CodeTile& codes) {
    size_t n_cells = 0;
    for (size_t i = 0; i < n_units; ++i) {
      const CellUnit& unit = cells_.units[first + i];
      find_keys(unit, codes);
      const size_t n = numbers_.number(keys_.data(), unit.n_keys, stride_, n_rows_,
                                       static_cast<uint16_t>(n_cells), index_.data() + i * stride_);
      make_room(n_cells + n, part.row_size);
      walk(part, unit, n, n_cells);
      n_cells += n;
    }
    const bool one_output = needs_margins_ && n_outputs_ == 1;
    kernels().of<T>().add_entries({.index = index_.data(),
                                   .n_tables = n_units,
                                   .index_stride = stride_,
                                   .n_rows = n_rows_,
                                   .entries = entries_.data(),
                                   .row_size = part.row_size,
                                   .sums = sums_.data(),
                                   .margins = one_output ? entry_margins_.data() : nullptr,
                                   .margin = one_output ? margin_.at(0) : nullptr});
    if (needs_margins_ && !one_output)
      kernels().add_margins({.index = index_.data(),
                             .n_tables = n_units,
                             .index_stride = stride_,
                             .n_rows = n_rows_,
                             .margins = entry_margins_.data(),
                             .n_outputs = n_outputs_,
                             .margin = margin_.at(0),
                             .stride = margin_.stride()});
  }

  void find_keys(const CellUnit& unit, const CodeTile& codes) {
    for (size_t i = 0; i < unit.n_keys; ++i) {
      const CellKey& key = cells_.keys[unit.keys + i];
      kernels().entry_index(
          {.codes = codes.narrow.data(),
           .code_stride = codes.stride,
           .category_rows = codes.category_rows.empty() ? nullptr : codes.category_rows.data(),
           .n_columns = plan_.columns.size(),
           .columns = cells_.columns.data() + key.columns,
           .n_index_columns = key.n_columns,
           .steps = cells_.steps.data(),
           .n_blocks = block_count(n_rows_),
           .first = key.first,
           .index = keys_.data() + i * stride_});
    }
  }

  void make_room(size_t n_cells, size_t row_size) {
    keep(entries_, n_cells * row_size);
    keep(entry_margins_, n_cells * n_outputs_);
  }

  // Grow a buffer without losing its contents.
  template <class X>
  static void keep(std::vector<X, AlignedAllocator<X>>& buffer, size_t n) {
    if (buffer.size() < n) buffer.resize(n + n / 2);
  }

  // Walk the cells of a unit, and write their entries from number `first` on.
  void walk(const CellPart& part, const CellUnit& unit, size_t n_cells, size_t first) {
    const TreeProgram& tree = trees_.trees[unit.tree];
    const Chunk& chunk = trees_.chunks[unit.chunk];
    const size_t n_phi = n_outputs_ * chunk.slots.size() * kBlockRows;
    find_columns(part, chunk);
    for (size_t begin = 0; begin < n_cells; begin += kBlockRows) {
      const size_t n = std::min<size_t>(kBlockRows, n_cells - begin);
      code(unit, numbers_.representatives() + begin, n);
      decide_block(trees_, kernels(), trees_.decide.data() + tree.decide, tree.n_inner, codes_, 0,
                   words_.data());
      std::fill_n(phi_.data(), n_phi, T(0));
      walk_values(trees_, chunk, tree, words_.data(), static_cast<int>(n), phi_.data(), stack_.data());
      kernels().of<T>().interleave(
          {columns_.data(), part.row_size, n, entries_.data() + (first + begin) * part.row_size});
      if (needs_margins_) write_margins(tree, n, entry_margins_.data() + (first + begin) * n_outputs_);
    }
  }

  // Find the digits of cells, and write the codes that the tree of the unit tests.
  void code(const CellUnit& unit, const uint16_t* representatives, size_t n) {
    uint16_t rest[kBlockRows] = {};
    uint32_t key = unit.keys + unit.n_keys;  // none yet
    uint16_t* to = codes_.narrow.data();
    for (uint32_t i = unit.digits; i < unit.digits_end; ++i) {
      const CellDigit& digit = cells_.digits[i];
      if (digit.key != key) {
        key = digit.key;
        const uint16_t* const keys = keys_.data() + (key - unit.keys) * stride_;
        for (size_t cell = 0; cell < n; ++cell) rest[cell] = keys[representatives[cell]];
      }
      uint16_t quotients[kBlockRows], classes[kBlockRows];
      divide(rest, digit.n_classes, quotients);
      for (int cell = 0; cell < kBlockRows; ++cell) {
        classes[cell] = static_cast<uint16_t>(rest[cell] - quotients[cell] * digit.n_classes);
        rest[cell] = quotients[cell];
      }
      for (uint32_t c = digit.columns; c < digit.columns_end; ++c, to += kBlockRows) {
        const UnitColumn& column = cells_.unit_columns[c];
        if (column.is_class)
          std::copy_n(classes, kBlockRows, to);
        else
          for (int cell = 0; cell < kBlockRows; ++cell)
            to[cell] = cells_.class_codes[column.codes + classes[cell]];
      }
    }
  }

  // Find, for each number of an entry, the sums of the walk that belong to it.
  void find_columns(const CellPart& part, const Chunk& chunk) {
    columns_.assign(part.row_size, zeros_.data());
    for (size_t slot = 0; slot < chunk.slots.size(); ++slot) {
      const int32_t position = position_[chunk.slots[slot]];
      if (position < 0) continue;  // of other units of the chunk
      for (size_t o = 0; o < n_outputs_; ++o)
        columns_[o * n_features_ + static_cast<size_t>(position)] =
            phi_.data() + (o * chunk.slots.size() + slot) * kBlockRows;
    }
  }

  void write_margins(const TreeProgram& tree, size_t n_rows, double* margins) {
    std::fill_n(block_margin_.data(), block_margin_.size(), 0.0);
    margins_.add(tree, n_outputs_, words_.data(), static_cast<int>(n_rows), block_margin_.data(), kBlockRows);
    for (size_t row = 0; row < n_rows; ++row)
      for (size_t o = 0; o < n_outputs_; ++o)
        margins[row * n_outputs_ + o] = block_margin_.data()[o * kBlockRows + row];
  }

  const Plan& plan_;
  const OccurringCells& cells_;
  const Plan& trees_;
  const bool needs_margins_;
  CellNumbers numbers_;
  Margins margins_;
  std::vector<int32_t> position_;  // by feature: position in the rows of the part, or -1
  const size_t stride_;
  size_t n_rows_ = 0, n_outputs_ = 1, n_features_ = 0;
  Aligned<uint16_t> keys_;   // [key][row]
  Aligned<uint16_t> index_;  // [unit][row]: the number of the row's cell
  Aligned<T> sums_;          // [row][row size of the part]
  TileSums margin_;
  std::vector<T, AlignedAllocator<T>> entries_;                  // [cell][row size of the part]
  std::vector<double, AlignedAllocator<double>> entry_margins_;  // [cell][output]
  CodeTile codes_;                                               // of a block of cells
  Aligned<T> phi_, stack_, zeros_;
  Aligned<uint64_t> words_;
  Aligned<double> block_margin_;
  std::vector<const T*> columns_;
};

// Lets threads take turns in the order of parts.
class Turns {
 public:
  // Wait until all earlier parts have ended. Return false if `stop` returned true.
  bool wait(int64_t part, const Stop& stop) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (next_ != part) {
      ended_.wait_for(lock, std::chrono::milliseconds(10));
      if (next_ != part && stop()) return false;
    }
    return true;
  }
  void end(int64_t part) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      next_ = part + 1;
    }
    ended_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  int64_t next_ = 0;
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
        tile_(plan, static_cast<int>(most_rows_)) {
    values_.resize(plan.n_outputs, plan.features.size(), most_rows_);
  }

  bool run() {
    for (int64_t first = 0; first < rows_.n_rows; first += tile_.n_rows) {
      tile_.first_row = first;
      tile_.n_rows = static_cast<int>(std::min<int64_t>(most_rows_, rows_.n_rows - first));
      if (!code() || !run_parts()) return false;
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
        return !stop();
      };
    });
  }

  bool run_parts() {
    begin_rows(plan_, tile_.margin, tile_.totals);
    values_.clear();
    Turns turns;
    const std::vector<CellPart>& parts = plan_.cells.parts;
    return work_off(static_cast<int64_t>(parts.size()), n_threads_, interrupted_, [&] {
      return [&, worker = PartWorker<T>(plan_, most_rows_, result_.needs_margins())](
                 int64_t i, const Stop& stop) mutable {
        if (!worker.run(parts[i], tile_.codes, tile_.n_rows, stop) || !turns.wait(i, stop)) return false;
        worker.add(parts[i], values_, tile_.margin);
        turns.end(i);
        return true;
      };
    });
  }

  void write() {
    const auto write_as = [&](auto number) {
      using Out = decltype(number);
      write_values(plan_, values_, 0, tile_.n_rows, result_.zeroed,
                   static_cast<Out*>(result_.values) + tile_.first_row * plan_.n_outputs * plan_.n_features,
                   result_.gaps ? &tile_.totals : nullptr);
    };
    if (result_.is_float32)
      write_as(float());
    else
      write_as(double());
    write_margins(plan_, result_, tile_.first_row, tile_.n_rows, tile_.margin, tile_.totals);
  }

  const Plan& plan_;
  const Rows& rows_;
  const Result& result_;
  const int64_t n_threads_;
  const Stop& interrupted_;
  const size_t most_rows_;
  Tile tile_;
  TileSums values_;
};

template <class T>
size_t scratch_bytes_of(const Plan& plan) {
  const size_t rows = kTileRows, n_outputs = static_cast<size_t>(plan.n_outputs);
  const Needs needs(plan);
  const size_t entries = kTablesAtOnce * rows * 3 / 2;  // their number grows by halves
  const size_t thread = rows * (2 * (needs.n_keys + kTablesAtOnce + 3) + needs.row_size * sizeof(T)) +
                        entries * (needs.row_size * sizeof(T) + needs.n_outputs * sizeof(double)) +
                        (needs.n_phi + needs.n_stack) * sizeof(T);
  const size_t tile =
      rows * (TileSums::row_bytes(n_outputs, plan.features.size()) + 3 * TileSums::row_bytes(n_outputs, 1)) +
      rows / kBlockRows * code_bytes(plan);
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
