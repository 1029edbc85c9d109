#include "background/background_counts.h"

#include <algorithm>

#include "background/background_pairs.h"

namespace skshap {
namespace {

constexpr uint32_t kFree = ~uint32_t{0};
constexpr int kFirstPlaceBits = 8;

}  // namespace

void PatternIds::clear() {
  n_bits_ = kFirstPlaceBits;
  places_.assign(size_t{1} << n_bits_, kFree);
  patterns_.clear();
}

// Return the place of a pattern, or an empty place if the pattern is new.
size_t PatternIds::place(uint64_t pattern) const {
  const size_t last = places_.size() - 1;
  size_t i = pattern * 0x9e3779b97f4a7c15 >> (64 - n_bits_);
  while (places_[i] != kFree && patterns_[places_[i]] != pattern) i = (i + 1) & last;
  return i;
}

uint32_t PatternIds::id(uint64_t pattern) {
  size_t i = place(pattern);
  if (places_[i] != kFree) return places_[i];
  if (2 * patterns_.size() >= places_.size()) {
    grow();
    i = place(pattern);
  }
  patterns_.push_back(pattern);
  return places_[i] = static_cast<uint32_t>(patterns_.size() - 1);
}

void PatternIds::grow() {
  ++n_bits_;
  places_.assign(size_t{1} << n_bits_, kFree);
  for (size_t id = 0; id < patterns_.size(); ++id) places_[place(patterns_[id])] = static_cast<uint32_t>(id);
}

void row_patterns(const Decisions& decisions, const uint32_t* bits, uint32_t n_bits, uint16_t* index,
                  uint64_t* patterns) {
  const size_t n_rows = decisions.n_blocks * kBlockRows;
  std::fill_n(patterns, n_rows, uint64_t{0});
  for (uint32_t first = 0; first < n_bits; first += kMaxTableBits) {
    decisions.index(bits + first, std::min(kMaxTableBits, n_bits - first), index);
    for (size_t row = 0; row < n_rows; ++row) patterns[row] |= uint64_t{index[row]} << first;
  }
}

void RowCounter::decide(const Plan& plan, const TreeProgram& tree, const CodeTile& codes, size_t first_block,
                        size_t n_rows, const double* weights) {
  weights_ = weights;
  n_rows_ = n_rows;
  const size_t n_blocks = block_count(n_rows), n_words = n_blocks * block_words(tree.n_inner);
  if (words_.size() < n_words) words_.resize(n_words);
  if (index_.size() < n_blocks * kBlockRows) {
    index_.resize(n_blocks * kBlockRows);
    patterns_.resize(index_.size());
  }
  decisions_ = decide_blocks(plan, plan.decide.data() + tree.decide, tree.n_inner, codes, first_block,
                             n_blocks, words_.data());
}

void RowCounter::add_by_index(const uint32_t* bits, uint32_t n_bits, double* by_index) {
  check_interrupt();
  decisions_.index(bits, n_bits, index_.data());
  for (size_t row = 0; row < n_rows_; ++row) by_index[index_[row]] += weights_[row];
}

void list_bits(const TreeGroups& groups, const TreeGroups::Group& group, std::vector<uint32_t>& bits) {
  bits.clear();
  for (size_t i = 0; i < group.n_above; ++i) bits.push_back(groups.steps[group.above + i].bit);
  for (int32_t i = 0; i < group.n_nodes; ++i) bits.push_back(bit_of(group.first_node + i, false));
}

void list_bits(const TreeGroups& groups, const TreeGroups::Leaf& leaf, std::vector<uint32_t>& bits) {
  bits.clear();
  for (uint32_t i = 0; i < leaf.n_features; ++i) bits.push_back(groups.steps[leaf.path + i].bit);
}

size_t BackgroundCounter::bytes() const {
  size_t total = rows_.bytes() + by_index_.capacity() * 8 + ids_.bytes();
  for (const LongLeaf& leaf : long_leaves_)
    total += sizeof(LongLeaf) + (leaf.patterns.capacity() + leaf.weights.capacity()) * 8;
  return total;
}

const PatternCounts& BackgroundCounter::count(size_t tree, const TreeGroups& groups) {
  if (!pairs_.counts[tree].begin.empty()) return pairs_.counts[tree];
  size_t n_indices = 0;
  for (const TreeGroups::Group& group : groups.groups) n_indices += size_t{1} << group.n_bits();
  by_index_.assign(n_indices, 0.0);
  long_leaves_.clear();
  for (const TreeGroups::Leaf& leaf : groups.leaves)
    if (!leaf.grouped) long_leaves_.emplace_back();
  const std::vector<double>& weights = pairs_.weights;
  for (size_t first = 0; first < weights.size(); first += kCountedRows) {
    const size_t n = std::min(kCountedRows, weights.size() - first);
    rows_.decide(pairs_.plan, pairs_.plan.trees[tree], pairs_.background, first / kBlockRows, n,
                 weights.data() + first);
    count_rows(groups);
  }
  write(groups);
  return counts_;
}

void BackgroundCounter::count_rows(const TreeGroups& groups) {
  double* by_index = by_index_.data();
  for (const TreeGroups::Group& group : groups.groups) {
    list_bits(groups, group, bits_);
    rows_.add_by_index(bits_.data(), static_cast<uint32_t>(bits_.size()), by_index);
    by_index += size_t{1} << group.n_bits();
  }
  auto counted = long_leaves_.begin();
  for (const TreeGroups::Leaf& leaf : groups.leaves) {
    if (leaf.grouped) continue;
    list_bits(groups, leaf, bits_);
    ids_.clear();
    for (const uint64_t pattern : counted->patterns) ids_.id(pattern);
    const auto add = [&](const uint64_t* patterns, const double* weights, size_t n) {
      for (size_t row = 0; row < n; ++row) {
        const uint32_t id = ids_.id(patterns[row]);
        if (id == counted->weights.size()) counted->weights.push_back(0.0);
        counted->weights[id] += weights[row];
      }
    };
    rows_.add_patterns(bits_.data(), leaf.n_features, add);
    counted->patterns = ids_.patterns();
    ++counted;
  }
}

void BackgroundCounter::write(const TreeGroups& groups) {
  PatternCounts& out = counts_;
  out.begin.clear();
  out.patterns.clear();
  out.weights.clear();
  const auto add = [&](uint64_t pattern, double weight) {
    if (weight == 0) return;
    out.patterns.push_back(pattern);
    out.weights.push_back(weight);
  };
  const double* by_index = by_index_.data();
  for (const TreeGroups::Group& group : groups.groups) {
    out.begin.push_back(out.patterns.size());
    for (size_t x = 0; x < size_t{1} << group.n_bits(); ++x) add(x, *by_index++);
  }
  for (const LongLeaf& leaf : long_leaves_) {
    out.begin.push_back(out.patterns.size());
    for (size_t i = 0; i < leaf.patterns.size(); ++i) add(leaf.patterns[i], leaf.weights[i]);
  }
  out.begin.push_back(out.patterns.size());
}

}  // namespace skshap
