#include "background/linear_patterns.h"

#include <algorithm>
#include <cmath>

#include "background/linear_leaves.h"

namespace skshap {
namespace {

template <class From>
double number(const char* p, bool x_float32) {
  const From x = *reinterpret_cast<const From*>(p);
  return x_float32 ? static_cast<double>(static_cast<float>(x)) : static_cast<double>(x);
}

}  // namespace

// --- Values ---

void TermValues::allocate(const LinearModel& model, size_t most_rows) {
  const size_t n_columns = model.columns.size();
  stride_ = whole_blocks(most_rows);
  n_blocks_ = stride_ / kBlockRows;
  values_.assign(n_columns * stride_, 0.0);
  missing_.assign(n_columns * n_blocks_, 0);
  any_missing_.assign(n_columns, 0);
}

void TermValues::read(const LinearModel& model, bool x_float32, const Rows& rows, int64_t first_row,
                      size_t n_rows) {
  std::fill(missing_.begin(), missing_.end(), uint64_t{0});
  std::fill(any_missing_.begin(), any_missing_.end(), uint8_t{0});
  const char* row = static_cast<const char*>(rows.data) + first_row * rows.row_stride;
  for (size_t i = 0; i < n_rows; ++i, row += rows.row_stride)
    for (size_t c = 0; c < model.columns.size(); ++c) {
      const LinearColumn& column = model.columns[c];
      const char* const p = row + (rows.packed ? column.packed : column.input) * rows.column_stride;
      const double x = rows.is_float32 ? number<float>(p, x_float32) : number<double>(p, x_float32);
      double& out = values_[c * stride_ + i];
      out = x - column.mean;
      if (std::isnan(x)) {
        out = 0;
        missing_[c * n_blocks_ + i / kBlockRows] |= uint64_t{1} << i % kBlockRows;
        any_missing_[c] = 1;
      }
    }
}

// --- Patterns ---

LeafPatterns::LeafPatterns(size_t most_rows)
    : index_(whole_blocks(most_rows)),
      fits_(index_.size()),
      missing_(index_.size()),
      pattern_numbers_(index_.size()) {}

void LeafPatterns::find(const LinearModel& model, const LinearLeaf& leaf, const Decisions& decisions,
                        size_t n_rows, const TermValues& values) {
  uint32_t bits[kMaxPathFeatures];
  for (uint32_t i = 0; i < leaf.n_path; ++i) bits[i] = model.features[leaf.first_feature + i].bit;
  row_patterns(decisions, bits, leaf.n_path, index_.data(), fits_.data());
  bool any_missing = false;
  for (uint32_t j = 0; j < leaf.n_terms; ++j) {
    const uint32_t column = model.terms[leaf.first_term + j].column;
    if (!values.any_missing(column)) continue;
    if (!any_missing) std::fill_n(missing_.data(), n_rows, uint64_t{0});
    any_missing = true;
    for (size_t block = 0; block < decisions.n_blocks; ++block)
      for (uint64_t rest = values.missing(column, block); rest; rest &= rest - 1)
        missing_[block * kBlockRows + __builtin_ctzll(rest)] |= uint64_t{1} << j;
  }
  patterns_.clear();
  ids_.clear();
  if (any_missing) return number_with_missing(model, leaf, n_rows);
  const uint64_t others = leaf.off_path();
  for (size_t row = 0; row < n_rows; ++row) pattern_numbers_[row] = ids_.id(fits_[row]);
  for (const uint64_t fits : ids_.patterns()) patterns_.push_back({fits | others, fits | others});
}

void LeafPatterns::number_with_missing(const LinearModel& model, const LinearLeaf& leaf, size_t n_rows) {
  missing_ids_.clear();
  pair_ids_.clear();
  for (size_t row = 0; row < n_rows; ++row)
    pattern_numbers_[row] =
        pair_ids_.id(uint64_t{ids_.id(fits_[row])} << 32 | missing_ids_.id(missing_[row]));
  for (const uint64_t pair : pair_ids_.patterns()) {
    const uint64_t fits = ids_.patterns()[pair >> 32] | leaf.off_path();
    uint64_t present = fits;
    for (uint64_t rest = missing_ids_.patterns()[pair & 0xffffffff]; rest; rest &= rest - 1)
      present &= ~(uint64_t{1} << model.terms[leaf.first_term + __builtin_ctzll(rest)].player);
    patterns_.push_back({fits, present});
  }
}

// --- Sums over the background data ---

PatternSummer::PatternSummer(const LinearPlan& linear)
    : linear_(linear), patterns_(linear.background.weights.size()) {}

const PatternSums& PatternSummer::sum_up(size_t number) {
  if (!linear_.sums[number].is_empty()) return linear_.sums[number];
  const LinearTree& tree = linear_.trees[number];
  const LinearModel& model = linear_.model;
  const LinearBackground& background = linear_.background;
  const size_t n_rows = background.weights.size();
  const Decisions decisions = decide_rows(linear_.plan, tree, background.codes, n_rows, words_);
  PatternSums& out = sums_;
  out.begin.assign(1, 0);
  out.sums_begin.clear();
  out.patterns.clear();
  out.sums.clear();
  for (size_t i = 0; i < tree.n_leaves; ++i) {
    const LinearLeaf& leaf = model.leaves[tree.first_leaf + i];
    patterns_.find(model, leaf, decisions, n_rows, background.values);
    const size_t width = 1 + leaf.n_terms, first = out.sums.size();
    out.sums_begin.push_back(first);
    out.patterns.insert(out.patterns.end(), patterns_.patterns().begin(), patterns_.patterns().end());
    out.begin.push_back(out.patterns.size());
    out.sums.resize(first + width * patterns_.patterns().size(), 0.0);
    double* const sums = out.sums.data() + first;
    for (size_t row = 0; row < n_rows; ++row)
      sums[patterns_.pattern_number(row) * width] += background.weights[row];
    for (uint32_t j = 0; j < leaf.n_terms; ++j) {
      const double* const term_values = background.values.column(model.terms[leaf.first_term + j].column);
      for (size_t row = 0; row < n_rows; ++row)
        sums[patterns_.pattern_number(row) * width + 1 + j] += background.weights[row] * term_values[row];
    }
  }
  return out;
}

Decisions decide_rows(const Plan& plan, const LinearTree& tree, const CodeTile& codes, size_t n_rows,
                      std::vector<uint64_t>& words) {
  const size_t n_blocks = block_count(n_rows), n_words = n_blocks * block_words(tree.n_inner);
  if (words.size() < n_words) words.resize(n_words);
  return decide_blocks(plan, plan.decide.data() + tree.decide, tree.n_inner, codes, 0, n_blocks,
                       words.data());
}

}  // namespace skshap
