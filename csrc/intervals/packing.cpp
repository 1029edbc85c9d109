#include "intervals/packing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/threads.h"
#include "plan/tree_paths.h"

namespace skshap {
namespace {

// The most tables that may take more units. Similar units are in the same tree or in neighbouring trees.
constexpr size_t kMostOpen = 128;
// The most tables to which a unit is compared. These are the tables with most of its thresholds.
constexpr size_t kMostCompared = 4;
// For each further threshold, a table grows by about this factor. Tables that could not grow so much are not
// compared.
constexpr double kThresholdGrowth = 1.25;
// Units that are placed between two checks for interrupts, which read the clock.
constexpr size_t kUncheckedUnits = 64;

// Return how many bits are set. The compiler vectorizes these operations.
uint64_t n_bits(uint64_t x) {
  x -= x >> 1 & 0x5555555555555555;
  x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333);
  x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
  x += x >> 8;
  x += x >> 16;
  return (x + (x >> 32)) & 0x7f;
}

class Packer {
 public:
  Packer(const Plan& plan, Units& units, uint32_t most_entries, size_t most_features)
      : plan_(plan),
        units_(units),
        most_entries_(most_entries),
        most_features_(most_features),
        feature_of_column_(column_features(plan)) {}

  std::vector<PackedTable> pack() {
    for (size_t unit = 0; unit < units_.units.size(); ++unit) {
      if (unit % kUncheckedUnits == 0) check_interrupt();
      place(unit);
    }
    return std::move(tables_);
  }

 private:
  void place(size_t unit) {
    const Unit& u = units_.units[unit];
    const Digit* const digits = units_.digits_of(u);
    features_ = 0;
    for (size_t i = 0; i < u.n_digits; ++i)
      features_ |= FeatureSet{1} << feature_of_column_[digits[i].column];
    // The trees of a plan are sorted by output.
    const int32_t output = chunk_of(plan_, u.tree).output;
    if (n_open_ && tables_[open_[0]].output != output) n_open_ = 0;
    size_t best = kMostOpen;
    double least = 0;
    find_similar_tables(u);
    for (size_t n = 0; n < n_similar_; ++n) {
      const size_t i = similar_[n];
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
    tables_.push_back({.units = {unit},
                       .digits = {digits, digits + u.n_digits},
                       .features = features_,
                       .output = output,
                       .n_entries = u.n_entries,
                       .thresholds = u.thresholds});
    update(n_open_++);
  }

  // Update the arrays that find_similar_tables() reads for an open table.
  void update(size_t i) {
    const PackedTable& table = tables_[open_[i]];
    n_entries_[i] = table.n_entries;
    thresholds_[i] = table.thresholds;
    const double room = static_cast<double>(most_entries_) / table.n_entries;
    most_lacking_[i] = room > 1 ? static_cast<int16_t>(std::log(room) / log_growth_) : 0;
  }

  // Find the open tables that lack the fewest of a unit's thresholds, among the tables that could take the
  // lacking thresholds. The loops have no branches, so that the compiler vectorizes them.
  void find_similar_tables(const Unit& unit) {
    constexpr int16_t kTooMany = std::numeric_limits<int16_t>::max();
    static_assert(64 * kMostOpen + kMostOpen <= kTooMany);
    // The key orders tables by how many thresholds they lack, and then by their number.
    int16_t key[kMostOpen];
    for (size_t i = 0; i < kMostOpen; ++i) {
      const int16_t lacks = static_cast<int16_t>(n_bits(unit.thresholds & ~thresholds_[i]));
      key[i] = lacks > most_lacking_[i] ? kTooMany : static_cast<int16_t>(lacks * kMostOpen + i);
    }
    for (n_similar_ = 0; n_similar_ < kMostCompared; ++n_similar_) {
      int16_t least = kTooMany;
      for (size_t i = 0; i < n_open_; ++i) least = std::min(least, key[i]);
      if (least == kTooMany) return;
      similar_[n_similar_] = least % kMostOpen;
      key[similar_[n_similar_]] = kTooMany;
    }
  }

  // Return the factor by which a table would grow. Return 0 if it cannot take the unit, or would grow by at
  // least `bound`.
  double growth_of(const PackedTable& table, const Unit& unit, double bound) {
    const double most = std::min(bound, static_cast<double>(most_entries_) / table.n_entries);
    double growth = 1;
    size_t i = 0;
    for (size_t j = 0; j < unit.n_digits; ++j) {
      const Digit& more = units_.digits_of(unit)[j];
      while (i < table.digits.size() && table.digits[i].column < more.column) ++i;
      if (i < table.digits.size() && table.digits[i].column == more.column) {
        const Digit& old = table.digits[i];
        growth *= static_cast<double>(units_.numbers.merged_classes(old, more)) / old.n_classes;
      } else {
        growth *= more.n_classes;
      }
      if (growth > most) return 0;
    }
    return growth < bound && has_room(table) ? growth : 0;
  }

  // Return whether a table can take the features of the unit in addition to its own features.
  bool has_room(const PackedTable& table) const {
    return size(table.features | features_) <= std::max(most_features_, size(table.features));
  }

  void add(PackedTable& table, size_t unit) {
    const Unit& u = units_.units[unit];
    digits_.clear();
    size_t i = 0;
    for (size_t j = 0; j < u.n_digits; ++j) {
      const Digit& more = units_.digits_of(u)[j];
      while (i < table.digits.size() && table.digits[i].column < more.column)
        digits_.push_back(table.digits[i++]);
      if (i < table.digits.size() && table.digits[i].column == more.column)
        digits_.push_back(units_.numbers.merge(table.digits[i++], more));
      else
        digits_.push_back(more);
    }
    digits_.insert(digits_.end(), table.digits.begin() + i, table.digits.end());
    table.digits.swap(digits_);
    table.n_entries = 1;
    for (const Digit& digit : table.digits) table.n_entries *= digit.n_classes;
    table.features |= features_;
    table.thresholds |= u.thresholds;
    table.units.push_back(unit);
  }

  // Close the largest open table.
  void close_one() {
    // Comparing each element with the largest one so far, by its address, takes several times as long.
    uint32_t most = 0;
    for (size_t i = 0; i < n_open_; ++i) most = std::max(most, n_entries_[i]);
    const size_t i = static_cast<size_t>(std::find(n_entries_, n_entries_ + n_open_, most) - n_entries_);
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
  const std::vector<int32_t> feature_of_column_;  // positions in Plan::features
  std::vector<PackedTable> tables_;
  // The open tables: their numbers, sizes and thresholds, and how many more thresholds they could take.
  size_t n_open_ = 0, open_[kMostOpen];
  uint32_t n_entries_[kMostOpen];
  int16_t most_lacking_[kMostOpen] = {};
  uint64_t thresholds_[kMostOpen] = {};
  const double log_growth_ = std::log(kThresholdGrowth);
  // Open tables that are similar to the unit, and the features of the unit.
  size_t n_similar_ = 0, similar_[kMostCompared];
  FeatureSet features_ = 0;
  std::vector<Digit> digits_;  // of a table to which a unit is being added
};

}  // namespace

size_t size(FeatureSet features) { return n_bits(features); }

std::vector<PackedTable> pack_units(const Plan& plan, Units& units, uint32_t most_entries,
                                    size_t most_features) {
  return Packer(plan, units, most_entries, most_features).pack();
}

std::vector<PackedWindow> group_tables(const std::vector<PackedTable>& tables, size_t most_features) {
  std::vector<size_t> order(tables.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return size(tables[a].features) > size(tables[b].features); });
  std::vector<PackedWindow> windows;
  for (const size_t i : order) {
    check_interrupt();
    const PackedTable& table = tables[i];
    PackedWindow* best = nullptr;
    size_t least = SIZE_MAX;  // new features
    for (PackedWindow& window : windows) {
      if (window.output != table.output) continue;
      const size_t n_old = size(window.features), n_all = size(window.features | table.features);
      if (n_all > std::max(most_features, n_old) || n_all - n_old >= least) continue;
      best = &window;
      least = n_all - n_old;
    }
    if (!best) best = &windows.emplace_back(PackedWindow{{}, 0, table.output});
    best->tables.push_back(i);
    best->features |= table.features;
  }
  return windows;
}

}  // namespace skshap
