// Each unit is compiled as a tree of its own and walked once for each combination of its classes: the rows
// are codes that stand for them. The entries of a table are sums of those of its units.
#include "intervals/builder.h"

#include <algorithm>
#include <atomic>

#include "base/large_pages.h"
#include "base/threads.h"
#include "intervals/unit_trees.h"
#include "rows/coding.h"
#include "rows/margin.h"
#include "rows/value_walk.h"
#include "simd/kernels.h"
#include "tables/table_builder.h"

namespace skshap {
namespace {

constexpr uint16_t kMissing = 0xffff;
// Sums of single precision in the widest vector.
constexpr size_t kVectorSums = 16;

size_t whole_blocks(size_t n_rows) { return (n_rows + kBlockRows - 1) / kBlockRows * kBlockRows; }

// --- The index of a table ---

// Find a code of each class of a digit.
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

// Write the steps of a digit whose classes are `stride` apart in the index. The first class is 0, because
// classes are numbered as they occur.
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
class TableWriter {
 public:
  TableWriter(const IntervalLayout& layout, const std::vector<size_t>& tree_of_unit, Plan& plan)
      : layout_(layout),
        tree_of_unit_(tree_of_unit),
        plan_(plan),
        margins_(plan, kernels()),
        position_(plan.features.size(), -1) {
    size_t phi = 0, stack = 0;
    for (const Chunk& chunk : plan.chunks) {
      phi = std::max(phi, n_used_outputs(plan, chunk) * chunk.slots.size() * kBlockRows);
      stack = std::max(stack, walk_stack(plan, chunk));
    }
    phi_.resize(phi);
    zeros_.resize(kBlockRows);
    std::fill_n(zeros_.data(), kBlockRows, T(0));
    stack_.resize(stack);
    words_.resize(kFirstWord + 2 * (2 * most_inner_nodes(plan) + 1));
    std::fill_n(words_.data(), words_.size(), uint64_t{0});  // the words of leaves are read, too
    uint32_t most_entries = 0;
    for (const Unit& unit : layout.units.units) most_entries = std::max(most_entries, unit.n_entries);
    codes_.allocate(plan, static_cast<int>(whole_blocks(most_entries)));
  }

  void write(const PackedTable& packed, const TableWindow& window, const IntervalTable& table) {
    T* const sums = interval_sums<T>(plan_.intervals).data() + table.sums;
    double* const margins = plan_.intervals.margins.data() + table.margins;
    row_size_ = window.row_size;
    width_ = window.n_outputs;
    const size_t n_places = window.places_end - window.places;
    for (size_t i = 0; i < n_places / width_; ++i)
      position_[plan_.intervals.places[window.places + i] % plan_.features.size()] = static_cast<int32_t>(i);
    n_features_ = n_places / width_;
    if (packed.units.size() == 1) {
      fill(layout_.units.units[packed.units[0]], sums, margins);
    } else {
      std::fill_n(sums, table.n_entries * row_size_, T(0));
      std::fill_n(margins, table.n_entries * width_, 0.0);
      codes_of_table_.resize(std::max(codes_of_table_.size(), packed.digits.size()));
      for (size_t i = 0; i < packed.digits.size(); ++i)
        find_class_codes(layout_.units.numbers, packed.digits[i], codes_of_table_[i]);
      for (const size_t i : packed.units) {
        const Unit& unit = layout_.units.units[i];
        grow(unit_sums_, unit.n_entries * row_size_);
        grow(unit_margins_, unit.n_entries * width_);
        fill(unit, unit_sums_.data(), unit_margins_.data());
        index_entries(packed, unit, table.n_entries);
        add_entries(EntryArgs<T>{index_.data(), 1, 0, table.n_entries, unit_sums_.data(), row_size_, sums,
                                 nullptr, nullptr});
        for (size_t entry = 0; entry < table.n_entries; ++entry)
          for (size_t o = 0; o < width_; ++o)
            margins[entry * width_ + o] += unit_margins_.data()[index_.data()[entry] * width_ + o];
      }
    }
    for (size_t i = 0; i < n_features_; ++i)
      position_[plan_.intervals.places[window.places + i] % plan_.features.size()] = -1;
  }

 private:
  // Fill sums[entry][row_size_] and margins[entry][width_] of a unit.
  void fill(const Unit& unit, T* sums, double* margins) {
    const size_t tree = tree_of_unit_[&unit - layout_.units.units.data()];
    const TreeProgram& program = plan_.trees[tree];
    const Chunk& chunk = chunk_of(plan_, tree);
    const size_t n_entries = unit.n_entries;
    code(unit, whole_blocks(n_entries));
    find_columns(chunk);
    for (size_t first = 0; first < n_entries; first += kBlockRows) {
      const size_t n_rows = std::min<size_t>(kBlockRows, n_entries - first);
      decide_block(plan_, kernels(), plan_.decide.data() + program.decide, program.n_inner, codes_,
                   static_cast<int>(first / kBlockRows), words_.data());
      walk(chunk, program, static_cast<int>(n_rows));
      interleave(InterleaveArgs<T>{columns_.data(), row_size_, n_rows, sums + first * row_size_});
      take_margins(program, static_cast<int>(n_rows), margins + first * width_);
    }
  }

  // Set the codes to those of the classes of all entries; the last block is filled up.
  void code(const Unit& unit, size_t n_entries) {
    size_t stride = 1;
    for (size_t i = 0; i < unit.n_digits; ++i) {
      const Digit& digit = layout_.units.digits[unit.digits + i];
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

  void walk(const Chunk& chunk, const TreeProgram& program, int n_rows) {
    const size_t n_outputs = n_used_outputs(plan_, chunk);
    std::fill_n(phi_.data(), n_outputs * chunk.slots.size() * kBlockRows, T(0));
    walk_values(plan_, chunk, program, words_.data(), n_rows, phi_.data(), stack_.data());
  }

  // Find the sums of the walk that belong to each number of an entry.
  void find_columns(const Chunk& chunk) {
    columns_.assign(row_size_, zeros_.data());
    for (size_t slot = 0; slot < chunk.slots.size(); ++slot) {
      const int32_t position = position_[chunk.slots[slot]];
      if (position < 0) continue;  // of other units of the chunk
      for (size_t o = 0; o < width_; ++o)
        columns_[o * n_features_ + position] = phi_.data() + (o * chunk.slots.size() + slot) * kBlockRows;
    }
  }

  void take_margins(const TreeProgram& program, int n_rows, double* margins) {
    grow(margin_, width_ * kBlockRows);
    std::fill_n(margin_.data(), width_ * kBlockRows, 0.0);
    margins_.add(program, width_, words_.data(), n_rows, margin_.data(), kBlockRows);
    for (size_t o = 0; o < width_; ++o)
      for (int row = 0; row < n_rows; ++row)
        margins[row * width_ + o] = margin_.data()[o * kBlockRows + row];
  }

  // Fill index_ with the entry of the unit for each entry of the table.
  void index_entries(const PackedTable& table, const Unit& unit, size_t n_entries) {
    const Digits& numbers = layout_.units.numbers;
    grow(index_, whole_blocks(n_entries));
    uint16_t* const index = index_.data();
    index[0] = 0;
    size_t size = 1, at = 0, stride = 1;
    for (size_t d = 0; d < table.digits.size(); ++d) {
      const Digit& digit = table.digits[d];
      of_class_.assign(digit.n_classes, 0);
      const bool used = at < unit.n_digits && layout_.units.digits[unit.digits + at].column == digit.column;
      if (used) {
        const Digit& own = layout_.units.digits[unit.digits + at++];
        for (uint32_t i = 0; i < digit.n_classes; ++i)
          of_class_[i] = static_cast<uint16_t>(class_of(numbers, own, codes_of_table_[d][i]) * stride);
        stride *= own.n_classes;
      }
      for (uint32_t i = digit.n_classes; i-- > 0;)
        for (size_t x = 0; x < size; ++x)
          index[i * size + x] = static_cast<uint16_t>(index[x] + of_class_[i]);
      size *= digit.n_classes;
    }
  }

  const IntervalLayout& layout_;
  const std::vector<size_t>& tree_of_unit_;
  Plan& plan_;
  Margins margins_;
  std::vector<uint16_t> codes_of_class_, pattern_;     // of a digit of the unit
  std::vector<std::vector<uint16_t>> codes_of_table_;  // by digit of the table: of its classes
  std::vector<uint16_t> of_class_;  // by class of a digit of the table: its part of the unit's entry
  std::vector<int32_t> position_;   // by position in Plan::features: in the window, or -1
  size_t row_size_ = 0, width_ = 0, n_features_ = 0;
  CodeTile codes_;
  Aligned<uint64_t> words_;
  Aligned<T> phi_, stack_, zeros_, unit_sums_;
  std::vector<const T*> columns_;  // by number of an entry: 64 of them
  Aligned<double> unit_margins_, margin_;
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
    for (const int32_t feature : packed.features)
      out.places.push_back((window.first_output + o) * static_cast<uint32_t>(plan.features.size()) +
                           static_cast<uint32_t>(feature));
  window.places_end = out.places.size();
  window.row_size = padded_sums(window.places_end - window.places);
  window.tables = out.tables.size();
  window.tables_end = window.tables + packed.tables.size();
  out.windows.push_back(window);
}

// Allocate the contents of all tables. Whole vectors are loaded from rows of 16 sums, so these come first:
// rows of 8 numbers in single precision may end in the middle of a vector.
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
  if (plan.precision == Precision::kSingle)
    resize_on_large_pages(out.floats, n_sums);
  else
    resize_on_large_pages(out.doubles, n_sums);
  resize_on_large_pages(out.margins, n_margins);
}

// Write the places and indices of all tables.
void write_layout(const IntervalLayout& layout, Plan& plan) {
  IntervalTables& out = plan.intervals;
  for (const TreeGroup& group : layout.costs.groups) {
    if (!group.tables) continue;
    out.n_nodes = group.cost.n_nodes;
    out.n_trees = group.cost.n_trees;
    out.n_leaves = group.cost.n_leaves;
  }
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

template <class T>
void write_tables(const IntervalLayout& layout, const std::vector<size_t>& tree_of_unit, int64_t n_threads,
                  Plan& plan) {
  struct Task {
    size_t packed, window, table;
  };
  std::vector<Task> tasks;
  for (size_t w = 0; w < layout.windows.size(); ++w)
    for (const size_t packed : layout.windows[w].tables) tasks.push_back({packed, w, tasks.size()});
  std::atomic<size_t> next{0};
  run_threads(std::min<int64_t>(n_threads, static_cast<int64_t>(tasks.size())), [&](bool) {
    TableWriter<T> writer(layout, tree_of_unit, plan);
    for (size_t i; (i = next++) < tasks.size();)
      writer.write(layout.tables[tasks[i].packed], plan.intervals.windows[tasks[i].window],
                   plan.intervals.tables[tasks[i].table]);
  });
}

// Remove the programs of the units, which lie behind those of the trees that are walked.
void drop_units(int32_t n_walked, Plan& plan) {
  const auto first = std::find_if(plan.trees.begin(), plan.trees.end(),
                                  [&](const TreeProgram& tree) { return tree.source >= n_walked; });
  if (first == plan.trees.end()) return;
  const size_t n_trees = static_cast<size_t>(first - plan.trees.begin());
  const auto chunk = std::find_if(plan.chunks.begin(), plan.chunks.end(),
                                  [&](const Chunk& each) { return each.tree_begin >= n_trees; });
  plan.decide.resize(first->decide);
  plan.shares.resize(first->decide);
  plan.ops.resize(first->ops);
  plan.constants_float.resize(std::min(plan.constants_float.size(), chunk->quadrature));
  plan.constants_double.resize(std::min(plan.constants_double.size(), chunk->quadrature));
  plan.children.resize(first->children);
  plan.leaf_values.resize(first->leaves);
  plan.trees.resize(n_trees);
  plan.chunks.erase(chunk, plan.chunks.end());
  plan.decide.shrink_to_fit();
  plan.ops.shrink_to_fit();
  plan.constants_float.shrink_to_fit();
  plan.constants_double.shrink_to_fit();
  plan.children.shrink_to_fit();
  plan.leaf_values.shrink_to_fit();
}

}  // namespace

Plan make_interval_plan(const Plan& plan, const IntervalLayout& layout, int64_t n_threads) {
  const TableClock clock;
  const UnitTrees trees(plan, layout);
  Plan out = make_plan(trees.view(), trees.tests());
  out.n_leaves = plan.n_leaves;
  out.base_value = plan.base_value;
  out.leaf_magnitude = plan.leaf_magnitude;
  std::vector<size_t> tree_of_unit(layout.units.units.size());
  for (size_t i = 0; i < out.trees.size(); ++i)
    if (out.trees[i].source >= trees.n_walked()) tree_of_unit[out.trees[i].source - trees.n_walked()] = i;
  write_layout(layout, out);
  place_contents(out);
  if (out.precision == Precision::kSingle)
    write_tables<float>(layout, tree_of_unit, n_threads, out);
  else
    write_tables<double>(layout, tree_of_unit, n_threads, out);
  drop_units(trees.n_walked(), out);
  clock.stop(out);
  return out;
}

}  // namespace skshap
