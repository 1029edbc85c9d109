// For each unit, values are computed for each combination of the unit's classes, from rows of codes that
// stand for the combinations. The entries of a table are sums of the entries of its units.
#include "intervals/builder.h"

#include <algorithm>
#include <memory>

#include "base/threads.h"
#include "intervals/background_units.h"
#include "intervals/walked_units.h"
#include "rows/tiles.h"
#include "simd/kernels.h"
#include "tables/table_builder.h"

namespace skshap {
namespace {

constexpr uint16_t kMissing = 0xffff;
// Sums of single precision in the widest vector.
constexpr size_t kVectorSums = 16;

// --- The index of a table ---

// Find a code for each class of a digit.
void find_class_codes(const Digits& numbers, const Digit& digit, std::vector<uint16_t>& codes) {
  codes.assign(digit.n_classes, kMissing);
  for (uint32_t i = digit.n_intervals; i-- > 0;) {
    const uint16_t first = digit.categorical ? i : i ? numbers.operands(digit)[i - 1] + 1 : 0;
    codes[numbers.classes(digit)[i]] = first;
  }
}

uint16_t class_of(const Digits& numbers, const Digit& digit, uint16_t code) {
  if (code == kMissing) return digit.missing;
  if (digit.categorical) return numbers.classes(digit)[code];
  const uint16_t* const operands = numbers.operands(digit);
  return numbers.classes(
      digit)[std::lower_bound(operands, operands + digit.n_intervals - 1, code) - operands];
}

// Write the steps of a digit. Its classes are `stride` apart in the index. The first class is 0, because
// classes are numbered in the order in which they occur.
IndexColumn write_column(const Digits& numbers, const Digit& digit, uint32_t stride,
                         std::vector<IndexStep>& steps) {
  const uint32_t first = static_cast<uint32_t>(steps.size());
  const uint16_t* const classes = numbers.classes(digit);
  const auto number = [&](uint32_t to, uint32_t from) { return static_cast<uint16_t>((to - from) * stride); };
  const auto step = [&](uint16_t operand, uint32_t to, uint32_t from) {
    if (to != from) steps.push_back({operand, number(to, from)});
  };
  if (digit.categorical) {
    for (uint32_t i = 0; i < digit.n_intervals; ++i) steps.push_back({0, number(classes[i], 0)});
    steps.push_back({0, number(digit.missing, 0)});
  } else {
    const uint32_t last = digit.n_intervals - 1u;
    for (uint32_t i = 0; i < last; ++i) step(numbers.operands(digit)[i], classes[i + 1], classes[i]);
    step(kMissing - 1, digit.missing, classes[last]);
  }
  return {digit.column, first, static_cast<uint32_t>(steps.size()) - first, digit.categorical};
}

// --- Filling ---

// One thread's work: fills tables.
template <class T>
class IntervalTableWriter {
 public:
  IntervalTableWriter(const IntervalLayout& layout, std::unique_ptr<UnitValues<T>> values, Plan& plan)
      : layout_(layout), values_(std::move(values)), plan_(plan) {
    const uint32_t most_entries = largest_of(layout.units.units, &Unit::n_entries);
    codes_.allocate(plan, static_cast<int>(whole_blocks(most_entries)));
  }

  void write(const PackedTable& packed, const TableWindow& window, const IntervalTable& table) {
    begin_window(window);
    T* const sums = numbers_of<T>(plan_.intervals).data() + table.sums;
    double* const margins = plan_.intervals.margins.data() + table.margins;
    if (packed.units.size() == 1) {
      write_unit(packed.units[0], sums, margins);
      return;
    }
    const size_t row_size = window.row_size, n_outputs = window.n_outputs;
    codes_of_table_.resize(std::max(codes_of_table_.size(), packed.digits.size()));
    for (size_t i = 0; i < packed.digits.size(); ++i)
      find_class_codes(layout_.units.numbers, packed.digits[i], codes_of_table_[i]);
    // If the other units distinguish no more codes than the first unit, the entries of the first unit are the
    // entries of the table.
    const bool alike = layout_.units.units[packed.units[0]].n_entries == table.n_entries;
    if (alike) {
      write_unit(packed.units[0], sums, margins);
    } else {
      std::fill_n(sums, table.n_entries * row_size, T(0));
      std::fill_n(margins, table.n_entries * n_outputs, 0.0);
    }
    for (size_t n = alike; n < packed.units.size(); ++n) {
      const size_t i = packed.units[n];
      const Unit& unit = layout_.units.units[i];
      grow(unit_sums_, unit.n_entries * row_size);
      grow(unit_margins_, unit.n_entries * n_outputs);
      write_unit(i, unit_sums_.data(), unit_margins_.data());
      index_entries(packed, unit, table.n_entries);
      const bool one_output = n_outputs == 1;
      kernels().of<T>().add_entries({.index = index_.data(),
                                     .n_tables = 1,
                                     .index_stride = 0,
                                     .n_rows = table.n_entries,
                                     .entries = unit_sums_.data(),
                                     .row_size = row_size,
                                     .sums = sums,
                                     .margins = one_output ? unit_margins_.data() : nullptr,
                                     .margin = one_output ? margins : nullptr});
      for (size_t entry = 0; entry < table.n_entries && !one_output; ++entry)
        for (size_t o = 0; o < n_outputs; ++o)
          margins[entry * n_outputs + o] += unit_margins_.data()[index_.data()[entry] * n_outputs + o];
    }
  }

 private:
  void begin_window(const TableWindow& window) {
    if (numbers_.window == &window) return;
    const uint32_t* const places = plan_.intervals.places.data() + window.places;
    numbers_.window = &window;
    numbers_.n_features = (window.places_end - window.places) / window.n_outputs;
    numbers_.position.assign(plan_.features.size(), -1);
    for (size_t i = 0; i < numbers_.n_features; ++i)
      numbers_.position[places[i] % plan_.features.size()] = static_cast<int32_t>(i);
  }

  void write_unit(size_t number, T* sums, double* margins) {
    const Unit& unit = layout_.units.units[number];
    code(unit, whole_blocks(unit.n_entries));
    values_->write(number, unit, codes_, numbers_, sums, margins);
  }

  // Set the codes to the codes of the classes, for all entries. The last block is filled up.
  void code(const Unit& unit, size_t n_entries) {
    size_t stride = 1;
    for (size_t i = 0; i < unit.n_digits; ++i) {
      const Digit& digit = layout_.units.digits_of(unit)[i];
      if (digit.categorical) pattern_.resize(n_entries);
      uint16_t* const codes =
          digit.categorical ? pattern_.data() : codes_.narrow.data() + digit.column * codes_.stride;
      find_class_codes(layout_.units.numbers, digit, codes_of_class_);
      size_t done = 0;
      for (uint32_t number = 0; number < digit.n_classes && done < n_entries; ++number) {
        const size_t n = std::min(stride, n_entries - done);
        std::fill_n(codes + done, n, codes_of_class_[number]);
        done += n;
      }
      // The classes repeat.
      for (size_t n; done < n_entries; done += n) {
        n = std::min(done, n_entries - done);
        std::copy_n(codes, n, codes + done);
      }
      if (digit.categorical) group_codes(digit, n_entries);
      stride *= digit.n_classes;
    }
  }

  void group_codes(const Digit& digit, size_t n_entries) {
    for (size_t first = 0; first < n_entries; first += kBlockRows) {
      uint32_t wide[kBlockRows];
      std::transform(pattern_.begin() + first, pattern_.begin() + first + kBlockRows, wide,
                     [](uint16_t code) { return code == kMissing ? kMissingCode : code; });
      group_by_category(plan_.columns[digit.column], wide,
                        codes_.category_rows[first / kBlockRows * plan_.columns.size() + digit.column]);
    }
  }

  // Write, for each entry of the table, the number of the unit's entry to index_.
  void index_entries(const PackedTable& table, const Unit& unit, size_t n_entries) {
    const Digits& numbers = layout_.units.numbers;
    grow(index_, whole_blocks(n_entries));
    uint16_t* const index = index_.data();
    index[0] = 0;
    size_t size = 1, at = 0, stride = 1;
    for (size_t d = 0; d < table.digits.size(); ++d) {
      const Digit& digit = table.digits[d];
      class_numbers_.assign(digit.n_classes, 0);
      if (at < unit.n_digits && layout_.units.digits_of(unit)[at].column == digit.column) {
        const Digit& own = layout_.units.digits_of(unit)[at++];
        for (uint32_t i = 0; i < digit.n_classes; ++i)
          class_numbers_[i] = static_cast<uint16_t>(class_of(numbers, own, codes_of_table_[d][i]) * stride);
        stride *= own.n_classes;
      }
      for (uint32_t i = digit.n_classes; i-- > 0;)
        for (size_t x = 0; x < size; ++x)
          index[i * size + x] = static_cast<uint16_t>(index[x] + class_numbers_[i]);
      size *= digit.n_classes;
    }
  }

  const IntervalLayout& layout_;
  const std::unique_ptr<UnitValues<T>> values_;
  Plan& plan_;
  EntryNumbers numbers_{};
  std::vector<uint16_t> codes_of_class_, pattern_;     // of a digit of the unit
  std::vector<std::vector<uint16_t>> codes_of_table_;  // by digit of the table: a code for each class
  // By class of a digit of the table: its part of the unit's entry number.
  std::vector<uint16_t> class_numbers_;
  CodeTile codes_;
  Aligned<T> unit_sums_;
  Aligned<double> unit_margins_;
  Aligned<uint16_t> index_;
};

// --- The plan ---

void write_window(const PackedWindow& packed, Plan& plan) {
  IntervalTables& out = plan.intervals;
  TableWindow window{};
  window.places = out.places.size();
  window.first_output = static_cast<uint32_t>(std::max(packed.output, 0));
  window.n_outputs = packed.output < 0 ? static_cast<uint32_t>(plan.n_outputs) : 1;
  for (uint32_t o = 0; o < window.n_outputs; ++o)
    for (uint32_t feature = 0; feature < plan.features.size(); ++feature)
      if (packed.features >> feature & 1)
        out.places.push_back((window.first_output + o) * static_cast<uint32_t>(plan.features.size()) +
                             feature);
  window.places_end = out.places.size();
  window.row_size = padded_sums(window.places_end - window.places);
  window.tables = out.tables.size();
  window.tables_end = window.tables + packed.tables.size();
  out.windows.push_back(window);
}

// Allocate the contents of all tables. Whole vectors are loaded from rows of 16 sums, so these rows come
// first: after rows of 8 numbers in single precision, a row could begin in the middle of a vector.
void place_contents(Plan& plan) {
  IntervalTables& out = plan.intervals;
  size_t n_sums = 0, n_margins = 0;
  for (const bool is_short : {false, true})
    for (const TableWindow& window : out.windows) {
      if ((window.row_size < kVectorSums) != is_short) continue;
      for (size_t i = window.tables; i < window.tables_end; ++i) {
        IntervalTable& table = out.tables[i];
        table.sums = n_sums;
        table.margins = n_margins;
        n_sums += table.n_entries * window.row_size;
        n_margins += table.n_entries * window.n_outputs;
      }
    }
  in_precision(plan.precision, [&](auto number) { numbers_of<decltype(number)>(out).resize(n_sums); });
  out.margins.resize(n_margins);
}

// Write the places and indices of all tables.
void write_layout(const IntervalLayout& layout, Plan& plan) {
  IntervalTables& out = plan.intervals;
  out.n_nodes = layout.costs.tables.n_nodes;
  out.n_trees = layout.costs.tables.n_trees;
  out.n_leaves = layout.costs.tables.n_leaves;
  for (const PackedWindow& packed : layout.windows) {
    write_window(packed, plan);
    for (const size_t i : packed.tables) {
      const PackedTable& table = layout.tables[i];
      const uint32_t first = static_cast<uint32_t>(out.columns.size());
      uint32_t stride = 1;
      for (const Digit& digit : table.digits) {
        out.columns.push_back(write_column(layout.units.numbers, digit, stride, out.steps));
        stride *= digit.n_classes;
      }
      out.tables.push_back({first, static_cast<uint32_t>(table.digits.size()), table.n_entries, 0, 0});
    }
  }
}

// Add the tables of a layout to a plan of the trees without tables. make(number) returns UnitValues of the
// type of the number.
template <class Make>
void add_tables(const IntervalLayout& layout, const Make& make, int64_t n_threads, Plan& plan) {
  write_layout(layout, plan);
  place_contents(plan);
  struct Task {
    size_t packed, window;
  };
  std::vector<Task> tasks;  // by table of the plan
  for (size_t w = 0; w < layout.windows.size(); ++w)
    for (const size_t packed : layout.windows[w].tables) tasks.push_back({packed, w});
  in_precision(plan.precision, [&](auto number) {
    share_items(static_cast<int64_t>(tasks.size()), n_threads, [&] {
      return [&, writer = IntervalTableWriter(layout, make(number), plan)](int64_t i) mutable {
        writer.write(layout.tables[tasks[i].packed], plan.intervals.windows[tasks[i].window],
                     plan.intervals.tables[i]);
      };
    });
  });
}

}  // namespace

Plan make_interval_plan(const Plan& plan, const IntervalLayout& layout, int64_t n_threads, bool unwalked) {
  const TableClock clock;
  if (plan.tables.against_background) {
    Plan out = trees_without_units(plan, layout);
    const auto make = [&](auto number) { return make_background_units<decltype(number)>(plan); };
    add_tables(layout, make, n_threads, out);
    clock.stop(out);
    return out;
  }
  WalkedUnits units(plan, layout, n_threads, unwalked);
  const auto make = [&](auto number) { return units.make<decltype(number)>(); };
  add_tables(layout, make, n_threads, units.plan());
  units.drop_units();
  clock.stop(units.plan());
  return std::move(units.plan());
}

}  // namespace skshap
