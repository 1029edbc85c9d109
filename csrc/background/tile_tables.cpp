#include "background/tile_tables.h"

#include <algorithm>

namespace skshap {
namespace {

// The size of the tables that rows go through together. Tables of this size stay in the L2 cache.
constexpr size_t kTableBytes = 512 << 10;
constexpr size_t kMaxTables = 16;
// The number of rows that go through the tables together. If possible, they are so few that their phi stays
// in the L1 cache.
constexpr size_t kPartRows = 128;
// The number of tables whose entries are added up in the plan's precision. Adding up more entries would lose
// accuracy.
constexpr int kMaxAdded = 256;

constexpr size_t kGroupSize = size_t{1} << kGroupBits;
constexpr uint16_t kNone = 0xffff;

size_t row_size(const Chunk& chunk, size_t element) {
  return padded_row(chunk.slots.size() + chunk.pairs.size(), element);
}

size_t longest_row(const Plan& plan) {
  return largest_of(plan.chunks, [&](const Chunk& chunk) { return row_size(chunk, element_bytes(plan)); });
}

// Return the number of elements of the tables: at least as many as the tables of the longest leaf have for a
// block of rows.
size_t table_elements(const Plan& plan, uint32_t longest_path) {
  const size_t block_elements = size_t{leaf_numbers(2, longest_path)} * kBlockRows;
  return std::max(kTableBytes / element_bytes(plan), block_elements);
}

}  // namespace

void find_groups(const Chunk& chunk, const TreeProgram& tree, TreeGroups& groups, const TableLimits& limits) {
  groups.find(chunk, tree, limits);
  for (const TreeGroups::Leaf& leaf : groups.leaves)
    std::sort(groups.steps.begin() + leaf.path, groups.steps.begin() + leaf.path + leaf.n_features,
              [](const PathStep& a, const PathStep& b) { return a.feature < b.feature; });
}

template <class T>
TileTables<T>::TileTables(const Plan& plan, size_t tile, uint32_t longest_path)
    : plan_(plan),
      capacity_(table_elements(plan, longest_path)),
      indices_(kMaxTables),
      group_words_(plan),
      group_targets_(plan),
      vectors_(plan.index),
      pattern_vectors_(plan.index, 2) {
  grow(phi_, tile * longest_row(plan));
  tables_.resize(capacity_ + kTablePadding);
  for (Aligned<uint16_t>& index : indices_) index.resize(tile);
  patterns_.resize(tile);
  number_of_.assign(kGroupSize, kNone);
  leaf_number_of_.assign(kGroupSize, kNone);
  leaf_index_.resize(kGroupSize);
  const uint32_t most_numbers = leaf_numbers(2, kGroupBits);
  group_table_.resize(kGroupSize * padded_row(most_numbers, sizeof(T)));
  leaf_table_.resize(kGroupSize * most_numbers + kTablePadding);
  slot_of_.resize(plan.features.size());
}

size_t tile_table_row_bytes(const Plan& plan) {
  return longest_row(plan) * element_bytes(plan) + sizeof(uint64_t) + kMaxTables * sizeof(uint16_t);
}

size_t tile_table_bytes(const Plan& plan, uint32_t longest_path) {
  const size_t element = element_bytes(plan);
  const size_t most_slots = largest_of(plan.chunks, [](const Chunk& chunk) { return chunk.slots.size(); });
  return element * (table_elements(plan, longest_path) +
                    kGroupSize * 2 * padded_row(leaf_numbers(2, kGroupBits), element)) +
         8 * kGroupSize + (size_t{8} << std::min(longest_path, kMostSubsetBits)) +
         4 * most_slots * most_slots + 8 * plan.features.size() + LeafVectors::bytes(plan, longest_path) +
         PatternVectors::bytes(2, longest_path);
}

template <class T>
void TileTables<T>::begin(const Chunk& chunk, size_t n_rows, double* sums) {
  chunk_ = &chunk;
  n_rows_ = n_rows;
  n_blocks_ = block_count(n_rows);
  sums_ = sums;
  row_size_ = row_size(chunk, sizeof(T));
  n_slots_ = chunk.slots.size();
  for (size_t slot = 0; slot < n_slots_; ++slot) slot_of_[chunk.slots[slot]] = static_cast<uint32_t>(slot);
  pair_position_.resize(n_slots_ * n_slots_);
  for (size_t i = 0; i < chunk.pairs.size(); ++i) {
    const auto [first, second] = plan_.pairs[chunk.pairs[i]];
    pair_position_[slot_of_[first] * n_slots_ + slot_of_[second]] = static_cast<uint32_t>(n_slots_ + i);
  }
}

template <class T>
void TileTables<T>::add_tree(const TreeProgram& tree, const TreeGroups& groups, const PatternCounts& counts,
                             const double* values, const Decisions& decisions) {
  decisions_ = decisions;
  size_t part = 0;
  for (const TreeGroups::Group& group : groups.groups)
    add_group(tree, groups, group, counts.part(part++), values);
  for (const TreeGroups::Leaf& leaf : groups.leaves)
    if (!leaf.grouped) add_leaf(groups, leaf, counts.part(part++), values[leaf.value] / plan_.leaf_scale);
}

// --- Groups ---

template <class T>
void TileTables<T>::add_group(const TreeProgram& tree, const TreeGroups& groups,
                              const TreeGroups::Group& group, const Counts& counts, const double* values) {
  list_bits(groups, group, bits_);
  uint16_t* const index = new_index();
  decisions_.index(bits_.data(), group.n_bits(), index);
  number(index, group.n_bits());
  list_targets(groups, group);
  group_words_.make(tree, groups, group);
  const size_t n_needed = needed_.size(), n_targets = targets_.size();
  T* const table = make_room(n_needed * n_targets);
  const bool alone = group.leaves_end - group.leaves == 1;
  const size_t stride = padded_row(n_targets, sizeof(T));
  if (!alone) std::fill_n(group_table_.data(), n_needed * stride, T(0));
  for (size_t i = group.leaves; i < group.leaves_end; ++i) {
    const TreeGroups::Leaf& leaf = groups.leaves[i];
    const PathStep* const path = groups.steps.data() + leaf.path;
    const uint32_t n = leaf.n_features, n_numbers = leaf_numbers(2, n);
    const double value = values[leaf.value] / plan_.leaf_scale;
    sum_up_group_leaf(path, n, counts);
    if (alone) {
      for (size_t id = 0; id < n_needed; ++id)
        vectors_.write(group_index_.data()[needed_[id]], value, table + id * n_targets);
      break;
    }
    uint16_t n_different = 0;
    for (size_t id = 0; id < n_needed; ++id) {
      const uint16_t x = group_index_.data()[needed_[id]];
      if (leaf_number_of_[x] == kNone) {
        vectors_.write(x, value, leaf_table_.data() + n_different * n_numbers);
        leaf_number_of_[x] = n_different++;
      }
      leaf_index_[id] = leaf_number_of_[x];
    }
    std::fill_n(leaf_number_of_.begin(), size_t{1} << n, kNone);
    group_targets_.list_leaf(path, n, leaf_targets_);
    kernels().of<T>().lookup({.index = leaf_index_.data(),
                              .n_rows = n_needed,
                              .table = leaf_table_.data(),
                              .targets = leaf_targets_.data(),
                              .n_targets = n_numbers,
                              .phi = group_table_.data(),
                              .row_size = stride});
  }
  for (size_t id = 0; !alone && id < n_needed; ++id)
    std::copy_n(group_table_.data() + id * stride, n_targets, table + id * n_targets);
  add_lookup(0, n_blocks_ * kBlockRows, table);
  count_table();
}

// Sum the background weights of a leaf by the leaf's pattern, which is found for each index of its group.
template <class T>
void TileTables<T>::sum_up_group_leaf(const PathStep* path, uint32_t n, const Counts& counts) {
  group_words_.leaf_patterns(path, n, group_index_);
  weights_.assign(size_t{1} << n, 0.0);
  for (size_t i = 0; i < counts.n; ++i)
    weights_[group_index_.data()[counts.patterns[i]]] += counts.weights[i];
  vectors_.sum_up(n, weights_.data());
}

// List the positions of the features and pairs of a group, in ascending order.
template <class T>
void TileTables<T>::list_targets(const TreeGroups& groups, const TreeGroups::Group& group) {
  group_targets_.find(groups, group);
  targets_.clear();
  for (const int32_t feature : group_targets_.features()) targets_.push_back(slot_of_[feature]);
  for (const auto [first, second] : group_targets_.pairs()) targets_.push_back(position(first, second));
}

// Replace the index of each row by the number of this index among the indices that occur.
template <class T>
void TileTables<T>::number(uint16_t* index, uint32_t n_bits) {
  const size_t n_rows = n_blocks_ * kBlockRows;
  for (size_t row = 0; row < n_rows; ++row) number_of_[index[row]] = 0;
  needed_.clear();
  for (size_t x = 0; x < size_t{1} << n_bits; ++x) {
    if (number_of_[x] == kNone) continue;
    number_of_[x] = static_cast<uint16_t>(needed_.size());
    needed_.push_back(static_cast<uint16_t>(x));
  }
  for (size_t row = 0; row < n_rows; ++row) index[row] = number_of_[index[row]];
  for (const uint16_t x : needed_) number_of_[x] = kNone;
}

// --- Leaves with long paths ---

template <class T>
void TileTables<T>::add_leaf(const TreeGroups& groups, const TreeGroups::Leaf& leaf, const Counts& counts,
                             double value) {
  const PathStep* const path = groups.steps.data() + leaf.path;
  const uint32_t n = leaf.n_features, n_numbers = leaf_numbers(2, n);
  targets_.clear();
  for (uint32_t i = 0; i < n; ++i) targets_.push_back(slot_of_[path[i].feature]);
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t j = i + 1; j < n; ++j) targets_.push_back(position(path[i].feature, path[j].feature));
  list_bits(groups, leaf, bits_);
  row_patterns(decisions_, bits_.data(), n, new_index(), patterns_.data());
  const bool by_sums = LeafVectors::prefers_sums(n, counts.n);
  if (by_sums) {
    weights_.assign(size_t{1} << n, 0.0);
    for (size_t i = 0; i < counts.n; ++i) weights_[counts.patterns[i]] += counts.weights[i];
    vectors_.sum_up(n, weights_.data());
  }
  const auto add_rows = [&](size_t first, size_t end) {
    const std::vector<uint64_t>& different = ids_.patterns();
    T* const table = make_room(different.size() * n_numbers);
    for (size_t id = 0; id < different.size(); ++id) {
      T* const out = table + id * n_numbers;
      if (by_sums)
        vectors_.write(different[id], value, out);
      else
        pattern_vectors_.write(n, different[id], counts.patterns, counts.weights, counts.n, value, out);
    }
    add_lookup(first, end - first, table);
    ids_.clear();
  };
  ids_.clear();
  size_t first = 0;
  const size_t n_rows = n_blocks_ * kBlockRows;
  for (size_t row = 0; row < n_rows; ++row) {
    if ((ids_.patterns().size() + 1) * n_numbers > capacity_) {
      add_rows(first, row);
      first = row;
    }
    indices_[n_indices_ - 1].data()[row] = static_cast<uint16_t>(ids_.id(patterns_[row]));
  }
  add_rows(first, n_rows);
  count_table();
}

// --- Lookups ---

// Return where to write the rows' indices into the next table.
template <class T>
uint16_t* TileTables<T>::new_index() {
  if (n_indices_ == kMaxTables) run_lookups();
  return indices_[n_indices_++].data();
}

// Ensure that the table that is being built has enough memory.
template <class T>
T* TileTables<T>::make_room(size_t n_elements) {
  if (n_elements_ + n_elements > capacity_) {
    std::swap(indices_[0], indices_[n_indices_ - 1]);
    run_lookups();
    n_indices_ = 1;
  }
  n_elements_ += n_elements;
  return tables_.data() + n_elements_ - n_elements;
}

template <class T>
void TileTables<T>::add_lookup(size_t first_row, size_t n_rows, const T* table) {
  lookups_.push_back({.first_row = first_row,
                      .n_rows = n_rows,
                      .index = indices_[n_indices_ - 1].data(),
                      .table = table,
                      .targets = waiting_targets_.size(),
                      .n_targets = static_cast<uint32_t>(targets_.size())});
  waiting_targets_.insert(waiting_targets_.end(), targets_.begin(), targets_.end());
}

template <class T>
void TileTables<T>::run_lookups() {
  for (size_t first = 0; first < n_blocks_ * kBlockRows; first += kPartRows)
    for (const TileLookup& waiting : lookups_) {
      const size_t begin = std::max(first, waiting.first_row),
                   end = std::min(first + kPartRows, waiting.first_row + waiting.n_rows);
      if (begin >= end) continue;
      kernels().of<T>().lookup({.index = waiting.index + begin,
                                .n_rows = end - begin,
                                .table = waiting.table,
                                .targets = waiting_targets_.data() + waiting.targets,
                                .n_targets = waiting.n_targets,
                                .phi = phi_.data() + begin * row_size_,
                                .row_size = row_size_});
    }
  lookups_.clear();
  waiting_targets_.clear();
  n_elements_ = n_indices_ = 0;
}

template <class T>
void TileTables<T>::count_table() {
  if (++n_tables_ == kMaxAdded) flush();
}

template <class T>
void TileTables<T>::flush() {
  run_lookups();
  const size_t n_used = plan_.features.size(), n_sums = n_used + plan_.pairs.size();
  for (size_t row = 0; row < n_rows_; ++row) {
    const T* from = phi_.data() + row * row_size_;
    double* const to = sums_ + row * n_sums;
    for (const int32_t slot : chunk_->slots) to[slot] += plan_.leaf_scale * *from++;
    for (const int32_t pair : chunk_->pairs) to[n_used + pair] += plan_.leaf_scale * *from++;
  }
  std::fill_n(phi_.data(), n_blocks_ * kBlockRows * row_size_, T(0));
  n_tables_ = 0;
}

template class TileTables<float>;
template class TileTables<double>;

}  // namespace skshap
