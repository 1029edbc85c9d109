// The tables by intervals of a plan -> the tables of a GPU. The tables are divided into parts, and the parts
// into stages.
#include "cuda/program/intervals.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "cuda/program/program.h"
#include "cuda/program/tuning.h"

namespace skshap {
namespace {

// Return the bits of an integer as a half float. The magnitude of the integer is below 2,048.
uint16_t half_bits(int n) {
  const uint16_t sign = n < 0 ? 0x8000 : 0;
  const uint32_t rest = static_cast<uint32_t>(n < 0 ? -n : n);
  if (!rest) return sign;
  int exponent = 0;
  while (rest >> (exponent + 1)) ++exponent;
  return static_cast<uint16_t>(sign | (exponent + 15) << 10 | (rest << (10 - exponent) & 0x3ff));
}

// The number of bytes of a table, and where its entries and margins begin.
struct TableShape {
  size_t bytes, entries, margins;
};

// Return the number of sums of an entry.
size_t n_values(const TableWindow& window) { return window.places_end - window.places; }

size_t step_bytes(const IndexColumn& column) {
  return rounded_up(column.n_steps * (column.categorical ? 2 : 8), 8);
}

template <class T>
TableShape shape_of(const IntervalTables& from, const IntervalTable& table, int n_sums, bool has_margins) {
  size_t steps = 0;
  for (uint32_t j = 0; j < table.n_columns; ++j) steps += step_bytes(from.columns[table.columns + j]);
  constexpr size_t kAlignment = interval_alignment<T>();
  const size_t entries = rounded_up(kIntervalHead + 2 * n_sums + steps, kAlignment),
               margins = entries + table.n_entries * n_sums * sizeof(T),
               bytes = rounded_up(margins + has_margins * table.n_entries * sizeof(T), kAlignment);
  return {bytes, entries, margins};
}

// Divides the tables into parts and stages.
template <class T>
class IntervalDivider {
 public:
  IntervalDivider(const Plan& plan, const CudaColumns& columns, size_t stage_bytes, CudaProgram<T>& program)
      : plan_(plan),
        from_(plan.intervals),
        column_of_(columns.first()),
        stage_bytes_(stage_bytes),
        program_(program),
        out_(program.intervals) {}

  void divide() {
    for (size_t form = 0; form < std::size(kIntervalForms); ++form) {
      n_sums_ = kIntervalForms[form];
      for (const TableWindow& window : from_.windows) {
        window_ = &window;
        if (form_of(window) == n_sums_) divide_window();
      }
      out_.n_parts[form] = out_.parts.size() - (form ? out_.n_parts[0] : 0);
    }
  }

 private:
  // Return the form for the numbers of an entry, which are its sums and margins. A margin that does not fit
  // beside 8 sums is stored behind the entries.
  int form_of(const TableWindow& window) const {
    const size_t n = n_values(window);
    bool is_short = n + window.n_outputs <= 8 || (n == 8 && window.n_outputs == 1);
    for (size_t i = window.tables; i < window.tables_end; ++i)
      is_short = is_short && from_.tables[i].n_columns <= 8;
    return is_short ? 8 : kMostIntervalSums;
  }

  // Add the parts of a window. If its entries have too many numbers for one part, add the parts of each slice
  // of the numbers.
  void divide_window() {
    const size_t n = n_values(*window_), all = n + window_->n_outputs, width = n_sums_;
    const bool is_left_over = n == width && window_->n_outputs == 1;
    for (first_ = 0; first_ < (is_left_over ? n : all); first_ += width) {
      has_margins_ = is_left_over;
      const size_t n_tables = window_->tables_end - window_->tables,
                   n_parts = (n_tables + kPartTables - 1) / kPartTables;
      for (size_t i = 0; i < n_parts; ++i)
        add_parts(window_->tables + n_tables * i / n_parts, window_->tables + n_tables * (i + 1) / n_parts);
    }
  }

  // Add a part for some tables, or several parts if the tables have too many columns for one.
  void add_parts(size_t first, size_t end) {
    while (first < end) {
      columns_.clear();
      size_t last = first;
      for (; last < end; ++last) {
        std::vector<uint32_t> wider = columns_;
        for (uint32_t i = 0; i < from_.tables[last].n_columns; ++i) {
          const uint32_t column = from_.columns[from_.tables[last].columns + i].column;
          if (std::find(wider.begin(), wider.end(), column) == wider.end()) wider.push_back(column);
        }
        if (wider.size() > static_cast<size_t>(n_sums_)) break;
        columns_ = std::move(wider);
      }
      if (last == first) throw std::logic_error("a table by intervals has too many columns for a GPU");
      std::sort(columns_.begin(), columns_.end());
      add_part(first, last);
      first = last;
    }
  }

  void add_part(size_t first, size_t end) {
    CudaIntervalPart part{};
    part.columns = static_cast<uint32_t>(out_.columns.size());
    part.n_columns = static_cast<uint32_t>(columns_.size());
    for (size_t i = 0; i < columns_.size(); ++i) {
      out_.columns.push_back(column_of_[columns_[i]]);
      out_.plan_columns.push_back(columns_[i]);
      if (plan_.columns[columns_[i]].categorical) part.categorical |= 1u << i;
    }
    part.targets = static_cast<uint32_t>(out_.targets.size());
    add_targets();
    part.stages = static_cast<uint32_t>(out_.stages.size());
    for (size_t i = first; i < end; ++i) add_table(i, i == first);
    part.stages_end = static_cast<uint32_t>(out_.stages.size());
    out_.stages.push_back(out_.stream_bytes);
    out_.parts.push_back(part);
  }

  void add_table(size_t i, bool is_first) {
    const size_t size = shape_of<T>(from_, from_.tables[i], n_sums_, has_margins_).bytes;
    constexpr size_t kAlignment = interval_alignment<T>();
    if (size + kAlignment > stage_bytes_ || from_.tables[i].n_entries > kMostGpuEntries)
      throw std::invalid_argument("a table by intervals is too large for this GPU");
    if (is_first || out_.stream_bytes - out_.stages.back() + size > stage_bytes_) {
      out_.stages.push_back(out_.stream_bytes);
      out_.stream_bytes += kAlignment;
      first_of_stage_ = out_.tables.size();
    }
    out_.tables.push_back({.table = static_cast<uint32_t>(i),
                           .window = static_cast<uint32_t>(window_ - from_.windows.data()),
                           .part = static_cast<uint32_t>(out_.parts.size()),
                           .first = static_cast<uint32_t>(first_),
                           .has_margins = has_margins_});
    ++out_.tables[first_of_stage_].stage_tables;
    out_.stream_bytes += size;
  }

  void add_targets() {
    const size_t n = n_values(*window_);
    for (size_t k = first_; k < first_ + n_sums_; ++k) {
      if (k < n) {
        out_.targets.push_back(static_cast<int32_t>(program_.slots.size()));
        program_.slots.push_back(slot_of_place(plan_, from_.places[window_->places + k]));
      } else if (k < n + window_->n_outputs) {
        add_margin(k - n);
      } else {
        out_.targets.push_back(kNoTarget);
      }
    }
    if (has_margins_)
      add_margin(0);
    else
      out_.targets.push_back(kNoTarget);
  }
  void add_margin(size_t output) {
    out_.targets.push_back(kMarginTarget - static_cast<int32_t>(out_.margins.size()));
    out_.margins.push_back(static_cast<int32_t>(window_->first_output + output));
  }

  const Plan& plan_;
  const IntervalTables& from_;
  const std::vector<uint32_t>& column_of_;  // on the GPU, by column of the plan
  const size_t stage_bytes_;
  CudaProgram<T>& program_;
  CudaIntervals& out_;
  const TableWindow* window_ = nullptr;
  int n_sums_ = 0;
  size_t first_ = 0;               // first number of an entry in the current slice
  bool has_margins_ = false;       // whether the margins are behind the entries
  size_t first_of_stage_ = 0;      // among all tables
  std::vector<uint32_t> columns_;  // of the plan, in the current part
};

// Writes the tables of a part.
template <class T>
class CudaIntervalTableWriter {
 public:
  CudaIntervalTableWriter(const Plan& plan, const CudaIntervals& intervals, const CudaIntervalTable& table)
      : plan_(plan),
        from_(plan.intervals),
        table_(from_.tables[table.table]),
        window_(from_.windows[table.window]),
        part_(intervals.parts[table.part]),
        columns_(intervals.plan_columns.data() + part_.columns),
        n_sums_(kIntervalForms[table.part >= intervals.n_parts[0]]),
        first_(table.first),
        has_margins_(table.has_margins),
        shape_(shape_of<T>(from_, table_, n_sums_, has_margins_)) {}

  size_t bytes() const { return shape_.bytes; }

  // Write the table to memory that is zeroed.
  void write(char* to) const {
    const uint32_t head[] = {static_cast<uint32_t>(shape_.bytes), static_cast<uint32_t>(shape_.entries),
                             static_cast<uint32_t>(shape_.margins), has_margins_};
    std::memcpy(to, head, sizeof head);
    write_steps(to + kIntervalHead);
    write_entries(reinterpret_cast<T*>(to + shape_.entries));
    for (uint32_t i = 0; i < table_.n_entries && has_margins_; ++i)
      reinterpret_cast<T*>(to + shape_.margins)[i] = margin(i, 0);
  }

 private:
  // Write the steps of the table's columns, in the order of the columns of the part.
  void write_steps(char* to) const {
    uint16_t* const counts = reinterpret_cast<uint16_t*>(to);
    char* steps = to + 2 * n_sums_;
    for (uint32_t position = 0; position < part_.n_columns; ++position)
      for (uint32_t j = 0; j < table_.n_columns; ++j) {
        const IndexColumn& column = from_.columns[table_.columns + j];
        if (column.column != columns_[position]) continue;
        counts[position] = static_cast<uint16_t>(column.n_steps);
        write_steps(column, steps);
        steps += step_bytes(column);
      }
  }

  void write_steps(const IndexColumn& column, char* to) const {
    for (uint32_t i = 0; i < column.n_steps; ++i) {
      const IndexStep& step = from_.steps[column.steps + i];
      const uint16_t number = half_bits(static_cast<int16_t>(step.number)),
                     operand = std::min(step.operand, static_cast<uint16_t>(kMostGpuCode));
      const uint16_t both[] = {operand, operand, number, number};
      if (column.categorical)
        std::memcpy(to + 2 * i, &number, sizeof number);
      else
        std::memcpy(to + 8 * i, both, sizeof both);
    }
  }

  // Write the numbers of all entries, beginning with number first_: their sums, then their margins, unless
  // the margins are behind the entries. All numbers are in units of the plan's leaf scale.
  void write_entries(T* to) const {
    const size_t n = n_values(window_), n_sums = first_ < n ? std::min<size_t>(n - first_, n_sums_) : 0,
                 end = std::min<size_t>(first_ + n_sums_, n + window_.n_outputs);
    const T* from = numbers_of<T>(from_).data() + table_.sums + first_;
    for (uint32_t i = 0; i < table_.n_entries; ++i, from += window_.row_size, to += n_sums_) {
      std::copy_n(from, n_sums, to);
      for (size_t k = first_ + n_sums; k < end; ++k) to[k - first_] = margin(i, k - n);
    }
  }
  T margin(size_t entry, size_t output) const {
    return static_cast<T>(from_.margins[table_.margins + entry * window_.n_outputs + output] /
                          plan_.leaf_scale);
  }

  const Plan& plan_;
  const IntervalTables& from_;
  const IntervalTable& table_;
  const TableWindow& window_;
  const CudaIntervalPart& part_;
  const uint32_t* const columns_;  // of the plan, in the part
  const int n_sums_;
  const size_t first_;
  const bool has_margins_;
  const TableShape shape_;
};

}  // namespace

template <class T>
void add_intervals(const Plan& plan, const CudaColumns& columns, size_t stage_bytes,
                   CudaProgram<T>& program) {
  if (plan.intervals.any()) IntervalDivider<T>(plan, columns, stage_bytes, program).divide();
}
template void add_intervals(const Plan&, const CudaColumns&, size_t, CudaProgram<float>&);
template void add_intervals(const Plan&, const CudaColumns&, size_t, CudaProgram<double>&);

template <class T>
void write_intervals(const Plan& plan, const CudaIntervals& intervals,
                     const std::function<void(const char*, size_t)>& take) {
  std::vector<char> piece;
  const auto hand_over = [&] {
    if (!piece.empty()) take(piece.data(), piece.size());
    piece.clear();
  };
  const auto add = [&](size_t bytes) {
    piece.resize(piece.size() + bytes);
    return piece.data() + piece.size() - bytes;
  };
  for (const CudaIntervalTable& table : intervals.tables) {
    if (piece.size() >= kPieceBytes) hand_over();
    if (table.stage_tables)
      std::memcpy(add(interval_alignment<T>()), &table.stage_tables, sizeof table.stage_tables);
    const CudaIntervalTableWriter<T> writer(plan, intervals, table);
    writer.write(add(writer.bytes()));
  }
  hand_over();
}
template void write_intervals<float>(const Plan&, const CudaIntervals&,
                                     const std::function<void(const char*, size_t)>&);
template void write_intervals<double>(const Plan&, const CudaIntervals&,
                                      const std::function<void(const char*, size_t)>&);

}  // namespace skshap
