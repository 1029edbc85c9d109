#include "intervals/packing.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "plan/columns.h"

namespace skshap {
namespace {

// Tables that may take more units. Similar units are in the same or in neighbouring trees.
constexpr size_t kMostOpen = 128;
// Tables to which a unit is compared: those with most of its thresholds.
constexpr size_t kMostCompared = 4;
// A table grows by about this factor for each further threshold; those that could not are not compared.
constexpr double kThresholdGrowth = 1.25;

std::vector<int32_t> united(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  std::vector<int32_t> out;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

class Packer {
 public:
  Packer(const Plan& plan, Units& units, uint32_t most_entries, size_t most_features)
      : plan_(plan), units_(units), most_entries_(most_entries), most_features_(most_features) {
    for (const Column& column : plan.columns)
      feature_of_column_.push_back(static_cast<int32_t>(position(plan.features, column.feature)));
  }

  std::vector<PackedTable> pack() {
    for (size_t unit = 0; unit < units_.units.size(); ++unit) place(unit);
    return std::move(tables_);
  }

 private:
  void place(size_t unit) {
    const Unit& u = units_.units[unit];
    features_.clear();
    for (size_t i = 0; i < u.n_digits; ++i) features_.push_back(feature_of_column_[digit(u, i).column]);
    sort_unique(features_);
    // The trees of a plan are sorted by output.
    const int32_t output = output_of(plan_, u.tree);
    if (n_open_ && tables_[open_[0]].output != output) n_open_ = 0;
    size_t best = kMostOpen;
    double least = 0;
    for (const size_t i : similar_tables(u)) {
      const double growth = growth_of(tables_[open_[i]], u, best < kMostOpen ? least : 1e300);
      if (growth <= 0) continue;
      best = i;
      least = growth;
      if (growth == 1) break;
    }
    if (best < kMostOpen) {
      add(tables_[open_[best]], unit);
      update(best);
      return;
    }
    if (n_open_ == kMostOpen) close_one();
    open_[n_open_] = tables_.size();
    PackedTable table{{unit}, {}, features_, output, u.n_entries, u.thresholds};
    for (size_t i = 0; i < u.n_digits; ++i) table.digits.push_back(digit(u, i));
    tables_.push_back(std::move(table));
    update(n_open_++);
  }

  // Note what similar_tables() needs to know of an open table.
  void update(size_t i) {
    const PackedTable& table = tables_[open_[i]];
    n_entries_[i] = table.n_entries;
    thresholds_[i] = table.thresholds;
    const double room = static_cast<double>(most_entries_) / table.n_entries;
    most_lacking_[i] = room > 1 ? static_cast<uint32_t>(std::log(room) / log_growth_) : 0;
  }

  const Digit& digit(const Unit& unit, size_t i) const { return units_.digits[unit.digits + i]; }

  // Return how many bits are set, by operations that the compiler vectorizes.
  static uint64_t n_bits(uint64_t x) {
    x -= x >> 1 & 0x5555555555555555;
    x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
    x += x >> 8;
    x += x >> 16;
    return (x + (x >> 32)) & 0x7f;
  }

  // Return which open tables lack the fewest thresholds of a unit.
  const std::vector<size_t>& similar_tables(const Unit& unit) {
    for (size_t i = 0; i < n_open_; ++i) lacking_[i] = n_bits(unit.thresholds & ~thresholds_[i]);
    uint64_t n_lacking[kMostCompared + 1];
    similar_.clear();
    for (size_t i = 0; i < n_open_; ++i) {
      const uint64_t lacks = lacking_[i];
      if (lacks > most_lacking_[i]) continue;
      size_t place = similar_.size();
      while (place > 0 && n_lacking[place - 1] > lacks) --place;
      if (place == kMostCompared) continue;
      similar_.insert(similar_.begin() + static_cast<std::ptrdiff_t>(place), i);
      std::copy_backward(n_lacking + place, n_lacking + similar_.size() - 1, n_lacking + similar_.size());
      n_lacking[place] = lacks;
      if (similar_.size() > kMostCompared) similar_.pop_back();
    }
    return similar_;
  }

  // Return by which factor a table would grow; 0 if it cannot take the unit, or would grow by at least
  // `bound`.
  double growth_of(const PackedTable& table, const Unit& unit, double bound) {
    const double most = std::min(bound, static_cast<double>(most_entries_) / table.n_entries);
    double growth = 1;
    size_t i = 0;
    for (size_t j = 0; j < unit.n_digits; ++j) {
      const Digit& more = digit(unit, j);
      while (i < table.digits.size() && table.digits[i].column < more.column) ++i;
      if (i < table.digits.size() && table.digits[i].column == more.column) {
        const Digit& old = table.digits[i];
        growth *= static_cast<double>(units_.numbers.merged_classes(old, more)) / old.n_classes;
      } else {
        growth *= more.n_classes;
      }
      if (growth > most) return 0;
    }
    if (growth >= bound || !has_room(table)) return 0;
    return growth;
  }

  // Return whether the features of the unit fit beside those of a table.
  bool has_room(const PackedTable& table) const {
    return plan_.features.size() <= most_features_ ||
           united(table.features, features_).size() <= std::max(most_features_, table.features.size());
  }

  void add(PackedTable& table, size_t unit) {
    const Unit& u = units_.units[unit];
    std::vector<Digit> digits;
    size_t i = 0;
    for (size_t j = 0; j < u.n_digits; ++j) {
      const Digit more = digit(u, j);
      while (i < table.digits.size() && table.digits[i].column < more.column)
        digits.push_back(table.digits[i++]);
      if (i < table.digits.size() && table.digits[i].column == more.column)
        digits.push_back(units_.numbers.merge(table.digits[i++], more));
      else
        digits.push_back(more);
    }
    digits.insert(digits.end(), table.digits.begin() + i, table.digits.end());
    table.digits = std::move(digits);
    table.n_entries = 1;
    for (const Digit& each : table.digits) table.n_entries *= each.n_classes;
    table.features = united(table.features, features_);
    table.thresholds |= u.thresholds;
    table.units.push_back(unit);
  }

  // Close the largest open table.
  void close_one() {
    const size_t i = static_cast<size_t>(std::max_element(n_entries_, n_entries_ + n_open_) - n_entries_);
    const auto remove = [&](auto* list) { std::copy(list + i + 1, list + n_open_, list + i); };
    remove(open_);
    remove(n_entries_);
    remove(thresholds_);
    remove(most_lacking_);
    --n_open_;
  }

  const Plan& plan_;
  Units& units_;
  const uint32_t most_entries_;
  const size_t most_features_;
  std::vector<int32_t> feature_of_column_;  // positions in Plan::features
  std::vector<PackedTable> tables_;
  // The open tables: their numbers, sizes, thresholds, and how many more of these they could take.
  size_t n_open_ = 0, open_[kMostOpen];
  uint32_t n_entries_[kMostOpen], most_lacking_[kMostOpen];
  uint64_t thresholds_[kMostOpen], lacking_[kMostOpen];
  const double log_growth_ = std::log(kThresholdGrowth);
  std::vector<size_t> similar_;    // in open_
  std::vector<int32_t> features_;  // of the unit
};

}  // namespace

std::vector<PackedTable> pack_units(const Plan& plan, Units& units, uint32_t most_entries,
                                    size_t most_features) {
  return Packer(plan, units, most_entries, most_features).pack();
}

std::vector<PackedWindow> group_tables(const std::vector<PackedTable>& tables, size_t most_features) {
  std::vector<size_t> order(tables.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tables[a].features.size() > tables[b].features.size(); });
  std::vector<PackedWindow> windows;
  for (const size_t i : order) {
    const PackedTable& table = tables[i];
    PackedWindow* best = nullptr;
    std::vector<int32_t> of_best;
    for (PackedWindow& window : windows) {
      if (window.output != table.output) continue;
      std::vector<int32_t> features = united(window.features, table.features);
      if (features.size() > std::max(most_features, window.features.size())) continue;
      if (best && features.size() - window.features.size() >= of_best.size() - best->features.size())
        continue;
      best = &window;
      of_best = std::move(features);
    }
    if (!best) {
      windows.push_back({{i}, table.features, table.output});
      continue;
    }
    best->tables.push_back(i);
    best->features = std::move(of_best);
  }
  return windows;
}

}  // namespace skshap
