// The values of rows in the columns of linear terms, and the patterns of rows at linear leaves.
//
// The mean of a column in the background data is subtracted from its values, so that an offset of the column
// does not use up digits. A pattern says which features of a leaf a row satisfies, and which of these
// features also have no missing value in the columns of the leaf's terms.
#pragma once

#include <cstdint>
#include <vector>

#include "background/background_counts.h"
#include "base/aligned.h"
#include "plan/plan.h"
#include "rows/coding.h"

namespace skshap {

// A column that terms have.
struct LinearColumn {
  int32_t input, packed;  // as in Column
  double mean;            // of the background data, without missing values
  double largest;         // largest magnitude of the background values less the mean
};

struct LinearTerm {
  uint32_t column;  // among the columns of terms
  uint32_t player;  // position of its feature among the leaf's
  double coefficient;
};

// A feature of a leaf: a feature of its path, or of the leaf's terms only.
struct LinearFeature {
  uint32_t feature;  // position in Plan::features
  uint32_t bit;      // of the path's latest edge, see tree_paths.h; none if of terms only
};

// A leaf less the expected value of its tree. Without terms, both numbers are the value of the leaf.
struct LinearLeaf {
  size_t first_feature, first_term;
  uint32_t n_path, n_features = 0;  // features of the path come first
  uint32_t n_terms = 0;
  double constant;   // of the function of values less their means
  double otherwise;  // the value if a value is missing

  // Return a bit for each feature; and for each feature of the terms only.
  uint64_t all() const { return n_features ? ~uint64_t{0} >> (64 - n_features) : 0; }
  uint64_t off_path() const { return all() & (n_path ? ~(~uint64_t{0} >> (64 - n_path)) : ~uint64_t{0}); }
};

struct LinearTree {
  size_t decide, n_inner;
  size_t first_leaf, n_leaves;
};

struct LinearModel {
  std::vector<LinearColumn> columns;
  std::vector<LinearLeaf> leaves;
  std::vector<LinearFeature> features;
  std::vector<LinearTerm> terms;
};

// The values of rows in the columns of terms, less the means of the columns. A missing value is 0.
class TermValues {
 public:
  void allocate(const LinearModel& model, size_t most_rows);
  // Read n_rows rows, beginning with first_row.
  void read(const LinearModel& model, bool x_float32, const Rows& rows, int64_t first_row, size_t n_rows);

  const double* column(uint32_t column) const { return values_.data() + column * stride_; }
  // Return a word with a bit for each row of a block: whether the row's value is missing.
  uint64_t missing(uint32_t column, size_t block) const { return missing_[column * n_blocks_ + block]; }
  bool any_missing(uint32_t column) const { return any_missing_[column]; }

  static size_t row_bytes(const LinearModel& model) { return 9 * model.columns.size(); }
  size_t bytes() const { return 8 * (values_.size() + missing_.size()) + any_missing_.size(); }

 private:
  size_t stride_ = 0, n_blocks_ = 0;
  std::vector<double> values_;     // [column][stride]
  std::vector<uint64_t> missing_;  // [column][block]
  std::vector<uint8_t> any_missing_;
};

// The features of a leaf that a row satisfies, and the satisfied features that have no missing value.
struct LeafPattern {
  uint64_t fits, present;
};

// Finds the patterns of rows at a leaf.
class LeafPatterns {
 public:
  explicit LeafPatterns(size_t most_rows);

  void find(const LinearModel& model, const LinearLeaf& leaf, const Decisions& decisions, size_t n_rows,
            const TermValues& values);

  // Return the distinct patterns, in the order of their first rows; and the number of each row's pattern.
  const std::vector<LeafPattern>& patterns() const { return patterns_; }
  uint32_t pattern_number(size_t row) const { return pattern_numbers_[row]; }

  static size_t bytes(size_t most_rows) { return most_rows * (2 + 8 + 8 + 4 + 2 * 32); }

 private:
  void number_with_missing(const LinearModel& model, const LinearLeaf& leaf, size_t n_rows);

  std::vector<uint16_t> index_;
  std::vector<uint64_t> fits_, missing_;  // the latter: a bit for each term
  std::vector<uint32_t> pattern_numbers_;
  std::vector<LeafPattern> patterns_;
  PatternIds ids_, missing_ids_, pair_ids_;
};

// Sums over the background rows of each pattern, for the leaves of a tree.
struct PatternSums {
  std::vector<size_t> begin;  // by leaf: its first pattern; the last element is the end
  std::vector<LeafPattern> patterns;
  // The weight of each pattern, then for each term the sum of weights times values.
  std::vector<double> sums;
  std::vector<size_t> sums_begin;  // by leaf

  bool is_empty() const { return begin.empty(); }
  size_t bytes() const {
    return sizeof(size_t) * (begin.size() + sums_begin.size()) + sizeof(LeafPattern) * patterns.size() +
           8 * sums.size();
  }
};

// The background data, coded.
struct LinearBackground {
  CodeTile codes;
  TermValues values;
  std::vector<double> weights;

  size_t bytes() const { return codes.bytes() + values.bytes() + 8 * weights.size(); }
};

struct LinearPlan;

// One thread's work. The order in which it adds depends only on the background data.
class PatternSummer {
 public:
  explicit PatternSummer(const LinearPlan& linear);

  // Return the sums for a tree that the plan keeps, or sum up again. The result is valid until the next call.
  const PatternSums& sum_up(size_t tree);

  // Return the bytes that are allocated for trees of at most most_inner inner nodes.
  static size_t bytes(size_t n_background, size_t most_inner) {
    return LeafPatterns::bytes(whole_blocks(n_background)) +
           whole_blocks(n_background) / kBlockRows * block_words(most_inner) * 8;
  }

 private:
  const LinearPlan& linear_;
  PatternSums sums_;
  LeafPatterns patterns_;
  std::vector<uint64_t> words_;
};

// Decide the nodes of a tree for n_rows rows. `words` grows if it is too small.
Decisions decide_rows(const Plan& plan, const LinearTree& tree, const CodeTile& codes, size_t n_rows,
                      std::vector<uint64_t>& words);

}  // namespace skshap
