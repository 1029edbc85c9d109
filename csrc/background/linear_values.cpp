// LinearPlan + rows -> values.
#include <algorithm>
#include <cmath>

#include "background/linear_leaves.h"
#include "plan/pattern_moments.h"
#include "rows/results.h"
#include "rows/tiles.h"

namespace skshap {
namespace {

// The memory of a thread for a tile. Rows of a tile with the same pattern at a leaf share the leaf's
// coefficients.
constexpr size_t kTileBytes = 16 << 20;
constexpr int64_t kMaxTileRows = 1024;

// The most numbers of a leaf: for each feature, a constant and one coefficient for each term.
constexpr size_t kMostNumbers = static_cast<size_t>(kMaxPathFeatures) * (kMaxPathFeatures + 1);

size_t row_bytes(const LinearPlan& plan) {
  return plan.plan.columns.size() * (plan.plan.wide_codes ? 4 : 2) +
         TileSums::row_bytes(1, plan.plan.features.size()) + 2 * TileSums::row_bytes(plan.plan.n_outputs, 1) +
         TermValues::row_bytes(plan.model) + LeafPatterns::bytes(1) + 4 * sizeof(uint32_t) +
         block_words(plan.most_inner) * 8 / kBlockRows;
}

TileSize tile_size(const LinearPlan& plan) {
  const int64_t n_fitting = static_cast<int64_t>(kTileBytes / row_bytes(plan));
  return {std::clamp<int64_t>(n_fitting, kBlockRows, kMaxTileRows), 1};
}

// The contributions of a leaf to its features, for rows of one pattern. They are linear functions of the
// row's values in the columns of the leaf's terms.
class Contributions {
 public:
  explicit Contributions(Index index) : moments_(index), numbers_(kMostNumbers) {}

  // Sum up the contributions against all background rows, given the sums of the tree and the leaf's number in
  // the tree. Return whether any background row reaches the leaf together with the row.
  bool find(const LinearModel& model, const LinearLeaf& leaf, LeafPattern row, const PatternSums& background,
            size_t number) {
    terms_ = model.terms.data() + leaf.first_term;
    n_terms_ = leaf.n_terms;
    n_ = leaf.n_features;
    std::fill_n(numbers_.data(), n_ * (n_terms_ + 1), 0.0);
    const uint64_t all = leaf.all();
    bool any = false;
    const double* sums = background.sums.data() + background.sums_begin[number];
    for (size_t i = background.begin[number]; i < background.begin[number + 1]; ++i, sums += 1 + n_terms_) {
      const LeafPattern pattern = background.patterns[i];
      if ((row.fits | pattern.fits) != all) continue;
      any = true;
      if (row.fits == row.present && pattern.fits == pattern.present) {
        add_function(all & ~pattern.fits, all & ~row.fits, leaf.constant, sums);
        continue;
      }
      write_game(all & ~pattern.fits, all & ~row.fits, 0, game_);
      add_constant(sums[0] * leaf.otherwise, game_);
      if ((row.present | pattern.present) == all)
        add_function(all & ~pattern.present, all & ~row.present, leaf.constant - leaf.otherwise, sums);
    }
    return any;
  }

  // Set out[feature] to the contributions to a row, given the row's values in the columns of the terms.
  void evaluate(const double* values, double* out) const {
    const double* from = numbers_.data();
    for (uint32_t i = 0; i < n_; ++i) out[i] = from[i];
    for (uint32_t j = 0; j < n_terms_; ++j) {
      from += n_;
      for (uint32_t i = 0; i < n_; ++i) out[i] += values[j] * from[i];
    }
  }

 private:
  // Write the game whose value is 1 for coalitions with all features of x, with n_added features that are in
  // neither x nor b, and with no feature of b, else 0. The numbers of the added features are left out.
  void write_game(uint64_t x, uint64_t b, uint32_t n_added, double* game) const {
    const uint32_t p = static_cast<uint32_t>(__builtin_popcountll(x)) + n_added,
                   q = static_cast<uint32_t>(__builtin_popcountll(b));
    const double value_x = p ? moments_.value(p - 1, q) : 0, value_b = q ? -moments_.value(p, q - 1) : 0;
    for (uint32_t i = 0; i < n_; ++i) game[i] = x >> i & 1 ? value_x : b >> i & 1 ? value_b : 0;
  }

  void add_constant(double value, const double* game) {
    for (uint32_t i = 0; i < n_; ++i) numbers_[i] += value * game[i];
  }

  // Add a linear function in the game of x and b, where the values of x are known and the values of b are
  // unknown. If a term's feature is in neither x nor b, knowing it changes the function. This change is a
  // game with the feature in x.
  void add_function(uint64_t x, uint64_t b, double constant, const double* sums) {
    write_game(x, b, 0, game_);
    double value = sums[0] * constant, change = 0, added = 0;
    bool any_change = false;
    for (uint32_t j = 0; j < n_terms_; ++j) {
      const uint64_t feature = uint64_t{1} << terms_[j].player;
      const double background_term = terms_[j].coefficient * sums[1 + j];
      if (x & feature) continue;
      value += background_term;
      if (b & feature) continue;
      change -= background_term;
      any_change = true;
    }
    add_constant(value, game_);
    if (any_change) {
      write_game(x, b, 1, changed_);
      add_constant(change, changed_);
      added = moments_.value(__builtin_popcountll(x), __builtin_popcountll(b));
    }
    for (uint32_t j = 0; j < n_terms_; ++j) {
      const uint64_t feature = uint64_t{1} << terms_[j].player;
      if (b & feature) continue;
      double* const numbers = numbers_.data() + (1 + j) * n_;
      const double row_term = terms_[j].coefficient * sums[0];
      const double* const game = x & feature ? game_ : changed_;
      for (uint32_t i = 0; i < n_; ++i) numbers[i] += row_term * game[i];
      if (x & feature) continue;
      numbers[terms_[j].player] += row_term * added;
      numbers_[terms_[j].player] -= terms_[j].coefficient * sums[1 + j] * added;
    }
  }

  const PatternMoments moments_;
  const LinearTerm* terms_ = nullptr;
  uint32_t n_terms_ = 0, n_ = 0;
  double game_[kMaxPathFeatures], changed_[kMaxPathFeatures];
  std::vector<double> numbers_;  // [1 + term][feature]: constants, then coefficients
};

// One thread's work: it takes tiles of rows through all trees, one output at a time, and writes the results.
class LinearWorker {
 public:
  LinearWorker(const LinearPlan& linear, const Rows& rows, const Result& result, double* reach, int tile_rows)
      : linear_(linear),
        plan_(linear.plan),
        model_(linear.model),
        rows_(rows),
        result_(result),
        reach_(reach),
        summer_(linear),
        patterns_(static_cast<size_t>(tile_rows)),
        contributions_(linear.plan.index),
        next_(static_cast<size_t>(tile_rows)) {
    values_.allocate(model_, static_cast<size_t>(tile_rows));
    totals_.resize(1, plan_.features.size(), static_cast<size_t>(tile_rows));
  }

  bool run(Tile& tile, const Stop& stop) {
    values_.read(model_, plan_.x_float32, rows_, tile.first_row, static_cast<size_t>(tile.n_rows));
    for (int32_t output = 0; output < plan_.n_outputs; ++output) {
      totals_.clear();
      for (size_t i = linear_.first_tree[output]; i < linear_.first_tree[output + 1]; ++i) {
        run_tree(i, output, tile);
        if (stop()) return false;
      }
      if (reach_) write_reach(output, tile);
      write_values(plan_, result_, totals_, output, tile.first_row, tile.n_rows, &tile.totals);
    }
    return true;
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  void run_tree(size_t number, int32_t output, Tile& tile) {
    const LinearTree& tree = linear_.trees[number];
    const PatternSums& sums = summer_.sum_up(number);
    const size_t n_rows = static_cast<size_t>(tile.n_rows);
    const Decisions decisions = decide_rows(plan_, tree, tile.codes, n_rows, words_);
    for (size_t i = 0; i < tree.n_leaves; ++i) {
      const LinearLeaf& leaf = model_.leaves[tree.first_leaf + i];
      patterns_.find(model_, leaf, decisions, n_rows, values_);
      list_rows(n_rows);
      for (size_t p = 0; p < patterns_.patterns().size(); ++p) {
        const LeafPattern pattern = patterns_.patterns()[p];
        if (result_.needs_margins() && pattern.fits == leaf.all()) add_margins(leaf, p, output, tile);
        if (contributions_.find(model_, leaf, pattern, sums, i)) add_contributions(leaf, p);
      }
    }
  }

  // List the rows of each pattern.
  void list_rows(size_t n_rows) {
    first_.assign(patterns_.patterns().size(), kNone);
    for (size_t row = n_rows; row-- > 0;) {
      uint32_t& first = first_[patterns_.pattern_number(row)];
      next_[row] = first;
      first = static_cast<uint32_t>(row);
    }
  }

  void add_margins(const LinearLeaf& leaf, size_t pattern, int32_t output, Tile& tile) {
    double* const margin = tile.margin.at(output);
    const bool is_present = patterns_.patterns()[pattern].present == leaf.all();
    for (uint32_t row = first_[pattern]; row != kNone; row = next_[row]) {
      double value = is_present ? leaf.constant : leaf.otherwise;
      for (uint32_t j = 0; is_present && j < leaf.n_terms; ++j) {
        const LinearTerm& term = model_.terms[leaf.first_term + j];
        value += term.coefficient * values_.column(term.column)[row];
      }
      margin[row] += value;
    }
  }

  void add_contributions(const LinearLeaf& leaf, size_t pattern) {
    double contributions[kMaxPathFeatures], values[kMaxPathFeatures];
    double* to[kMaxPathFeatures];
    const double* from[kMaxPathFeatures];
    for (uint32_t i = 0; i < leaf.n_features; ++i)
      to[i] = totals_.at(0, model_.features[leaf.first_feature + i].feature);
    for (uint32_t j = 0; j < leaf.n_terms; ++j)
      from[j] = values_.column(model_.terms[leaf.first_term + j].column);
    for (uint32_t row = first_[pattern]; row != kNone; row = next_[row]) {
      for (uint32_t j = 0; j < leaf.n_terms; ++j) values[j] = from[j][row];
      contributions_.evaluate(values, contributions);
      for (uint32_t i = 0; i < leaf.n_features; ++i) to[i][row] += contributions[i];
    }
  }

  void write_reach(int32_t output, const Tile& tile) {
    const size_t n_columns = model_.columns.size();
    for (int row = 0; row < tile.n_rows; ++row) {
      double total = linear_.reach[output];
      for (uint32_t c = 0; c < n_columns; ++c)
        total += linear_.column_reach[output * n_columns + c] *
                 std::max(std::fabs(values_.column(c)[row]), model_.columns[c].largest);
      reach_[(tile.first_row + row) * plan_.n_outputs + output] = total;
    }
  }

  const LinearPlan& linear_;
  const Plan& plan_;
  const LinearModel& model_;
  const Rows& rows_;
  const Result& result_;
  double* const reach_;
  PatternSummer summer_;
  LeafPatterns patterns_;
  Contributions contributions_;
  TermValues values_;
  TileSums totals_;  // of one output
  std::vector<uint64_t> words_;
  std::vector<uint32_t> first_, next_;  // rows by pattern
};

}  // namespace

bool explain_linear(const LinearPlan& plan, const Rows& rows, const Result& result, double* reach,
                    int n_threads, const std::function<bool()>& interrupted) {
  return explain_tiles(plan.plan, rows, result, tile_size(plan), n_threads, interrupted,
                       [&](int tile_rows) { return LinearWorker(plan, rows, result, reach, tile_rows); });
}

size_t scratch_bytes(const LinearPlan& linear) {
  const Plan& plan = linear.plan;
  const size_t tile = static_cast<size_t>(tile_size(linear).most());
  const auto is_empty = [](const PatternSums& sums) { return sums.is_empty(); };
  const bool sums_up = std::any_of(linear.sums.begin(), linear.sums.end(), is_empty);
  return tile * row_bytes(linear) + tile / kBlockRows * plan.columns.size() * sizeof(CategoryRows) +
         8 * (kMostNumbers + 2 * PatternMoments::kSize * PatternMoments::kSize) +
         LeafPatterns::bytes(linear.background.weights.size()) + (sums_up ? linear.summing_bytes : 0);
}

}  // namespace skshap
