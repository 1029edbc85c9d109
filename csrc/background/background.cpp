// Plan + background rows -> tables, and patterns of leaves without a table. All of them depend only on the
// weight of the background rows with each pattern at a leaf.
#include <algorithm>
#include <utility>

#include "background/background_counts.h"
#include "base/threads.h"
#include "plan/owen_trees.h"
#include "rows/coded_tiles.h"
#include "tables/stored_tables.h"
#include "tables/table_builder.h"

namespace skshap {
namespace {

class TableCounter {
 public:
  TableCounter(Plan& plan, const Rows& rows, const double* weights, int64_t n_threads)
      : plan_(plan), tables_(plan.tables), rows_(rows), weights_(weights), n_threads_(n_threads) {}

  void count() {
    begin_.push_back(0);
    for (const Lookup& lookup : tables_.lookups)
      begin_.push_back(begin_.back() + (size_t{1} << lookup.n_bits));
    by_index_.assign(begin_.back(), 0.0);
    patterns_.resize(tables_.leaves.size());
    const auto check = [] {
      check_interrupt();
      return false;
    };
    work_on_tiles(plan_, kCountedRows, rows_, n_threads_, check, [&](const std::vector<CodedTile>& tiles) {
      share_items(static_cast<int64_t>(tables_.trees.size()), n_threads_, [&] {
        return [&, counter = RowCounter()](int64_t tree) mutable {
          for (const CodedTile& tile : tiles) count_tile(tables_.trees[tree], tile, counter);
        };
      });
      return true;
    });
  }

  // Add the weights of the background rows for each pattern of a leaf.
  void add_weights(const TableLeaf& leaf, double* weights) const {
    const double* const by_index = by_index_.data() + begin_[leaf.lookup];
    for (size_t x = 0; x < leaf.size; ++x) weights[leaf.pattern[x]] += by_index[x];
  }

  void write_patterns() {
    for (size_t i = 0; i < patterns_.size(); ++i) {
      check_interrupt();
      merge(patterns_[i].entries);
      tables_.leaves[i].patterns = tables_.patterns.size();
      tables_.leaves[i].n_patterns = patterns_[i].entries.size();
      for (const auto& [pattern, weight] : patterns_[i].entries) {
        tables_.patterns.own().push_back(pattern);
        tables_.weights.own().push_back(weight);
      }
      patterns_[i] = {};
    }
  }

 private:
  struct Patterns {
    std::vector<std::pair<uint64_t, double>> entries;
    size_t n_merged = 0;
  };

  void count_tile(const TableTree& tree, const CodedTile& tile, RowCounter& counter) {
    counter.decide(plan_, plan_.trees[tree.tree], tile.codes, 0, tile.n_rows, weights_ + tile.first);
    for (size_t i = tree.lookups; i < tree.lookups_end; ++i) {
      const Lookup& lookup = tables_.lookups[i];
      counter.add_by_index(tables_.bits.data() + lookup.bits, lookup.n_bits, by_index_.data() + begin_[i]);
    }
    for (size_t i = tree.leaves; i < tree.leaves_end; ++i) {
      const PatternLeaf& leaf = tables_.leaves[i];
      Patterns& counted = patterns_[i];
      const auto add = [&](const uint64_t* patterns, const double* row_weights, size_t n_rows) {
        for (size_t row = 0; row < n_rows; ++row)
          counted.entries.emplace_back(patterns[row], row_weights[row]);
        if (counted.entries.size() <= 2 * counted.n_merged + 4096) return;
        merge(counted.entries);
        counted.n_merged = counted.entries.size();
      };
      counter.add_patterns(tables_.bits.data() + leaf.bits, leaf.n_bits, add);
    }
  }

  static void merge(std::vector<std::pair<uint64_t, double>>& patterns) {
    std::sort(patterns.begin(), patterns.end());
    size_t n = 0;
    for (const auto& pattern : patterns) {
      if (n && patterns[n - 1].first == pattern.first)
        patterns[n - 1].second += pattern.second;
      else
        patterns[n++] = pattern;
    }
    patterns.resize(n);
  }

  Plan& plan_;
  Tables& tables_;
  const Rows& rows_;
  const double* const weights_;
  const int64_t n_threads_;
  std::vector<size_t> begin_;     // by lookup: where it begins in by_index_
  std::vector<double> by_index_;  // weights of the background rows
  std::vector<Patterns> patterns_;
};

// Return limits for which all tables fit into table_bytes, with the longest possible paths.
TableLimits affordable(const Plan& plan, size_t table_bytes) {
  TableLimits limits{kLeafBits};
  while (limits.leaf_bits && tables_bytes(plan, limits) > table_bytes) --limits.leaf_bits;
  return limits;
}

}  // namespace

Plan make_background_plan(const EnsembleView& ensemble, Precision precision, const Rows& rows,
                          const double* weights, Index index, size_t table_bytes, int64_t n_threads,
                          const StoredTables* stored, const int32_t* groups) {
  Plan plan = make_plan(ensemble, precision, 1, index, false, n_threads);
  if (groups) set_groups(plan, groups);
  const TableLimits limits =
      stored ? TableLimits{std::min(stored->leaf_bits, kMaxTableBits)} : affordable(plan, table_bytes);
  plan.tables.against_background = true;
  plan.tables.leaf_bits = limits.leaf_bits;
  lay_out_tables(plan, limits);
  drop_walks(plan);
  if (stored) {
    take_tables(plan, *stored);
    return plan;
  }
  allocate_tables(plan);
  TableCounter counter(plan, rows, weights, n_threads);
  counter.count();
  counter.write_patterns();

  // The base value is the expected value over the background rows. A leaf counts for the rows that satisfy
  // its whole path.
  const Tables& tables = plan.tables;
  std::vector<double> reached(tables.trees.size() * plan.n_outputs, 0.0);
  write_tables(plan, limits, n_threads, [&](const TableLeaf& leaf, double* leaf_weights) {
    counter.add_weights(leaf, leaf_weights);
    const double all = leaf_weights[(size_t{1} << leaf.n_features) - 1];
    for (size_t o = 0; o < leaf.n_outputs; ++o)
      reached[leaf.tree * plan.n_outputs + o] += all * leaf.values[o];
  });
  plan.base_value = plan.constant;
  for (size_t i = 0; i < tables.trees.size(); ++i) {
    const TableTree& tree = tables.trees[i];
    const Chunk& chunk = plan.chunks[tables.batches[tree.batch].chunk];
    double* const base = plan.base_value.data() + std::max(chunk.output, 0);
    for (size_t o = 0; o < n_used_outputs(plan, chunk); ++o) {
      base[o] += reached[i * plan.n_outputs + o];
      for (size_t l = tree.leaves; l < tree.leaves_end; ++l) {
        const PatternLeaf& leaf = tables.leaves[l];
        const size_t last = leaf.patterns + leaf.n_patterns - 1;
        if (tables.patterns[last] == ~uint64_t{0} >> (64 - leaf.n_bits))
          base[o] += tables.weights[last] * plan.leaf_values[leaf.leaf + o];
      }
    }
  }
  return plan;
}

}  // namespace skshap
