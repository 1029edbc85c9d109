#include "tables/lookup.h"

#include <algorithm>

namespace skshap {
namespace {

// The number of blocks that go through all tables of a tree together. With so few blocks, their rows of phi
// stay in the L1 cache. With this many, most of a table is used while it is in the cache.
constexpr size_t kPartBlocks = 4;

size_t n_decided(const Plan& plan, const TableTree& tree) {
  return tree.n_levels ? tree.n_levels : plan.trees[tree.tree].n_inner;
}

size_t most_decided(const Plan& plan) {
  return largest_of(plan.tables.trees, [&](const TableTree& tree) { return n_decided(plan, tree); });
}

uint32_t longest_pattern(const Plan& plan) { return largest_of(plan.tables.leaves, &PatternLeaf::n_bits); }

size_t longest_row(const Plan& plan) { return largest_of(plan.tables.batches, &TableBatch::row_size); }

}  // namespace

size_t table_row_bytes(const Plan& plan) {
  if (plan.tables.trees.empty()) return 0;
  return block_words(most_decided(plan)) * 8 / kBlockRows + sizeof(uint16_t) +
         longest_row(plan) * element_bytes(plan);
}

size_t table_runner_bytes(const Plan& plan) {
  if (plan.tables.leaves.empty()) return 0;
  const uint32_t longest = longest_pattern(plan);
  return PatternVectors::bytes(plan.order, longest) + 8 * size_t{leaf_numbers(plan.order, longest)};
}

template <class T>
TableRunner<T>::TableRunner(const Plan& plan, size_t tile) : plan_(plan) {
  if (plan.tables.trees.empty()) return;
  // Behind the words of the last block, the words of its leaves are read as well.
  words_.resize(tile / kBlockRows * block_words(most_decided(plan)) + 2 * (most_inner_nodes(plan) + 1));
  std::fill_n(words_.data(), words_.size(), uint64_t{0});
  index_.resize(tile);
  phi_.resize(tile * longest_row(plan));
  if (plan.tables.leaves.empty()) return;
  vectors_.emplace(plan.index, plan.order);
  numbers_.resize(leaf_numbers(plan.order, longest_pattern(plan)));
}

template <class T>
bool TableRunner<T>::run(const CodeTile& codes, int n_rows, TileSums& sums, TileSums* margin,
                         Margins& margins, const Stop& stop) {
  codes_ = &codes;
  n_rows_ = static_cast<size_t>(n_rows);
  n_blocks_ = block_count(n_rows_);
  for (const TableBatch& batch : plan_.tables.batches) {
    std::fill_n(phi_.data(), n_blocks_ * kBlockRows * batch.row_size, T(0));
    for (size_t i = batch.trees; i < batch.trees_end; ++i)
      run_tree(plan_.tables.trees[i], batch, margin, margins);
    add_row_sums(phi_.data(), batch.row_size, n_blocks_, plan_.leaf_scale,
                 plan_.tables.places.data() + batch.places, batch.places_end - batch.places, sums);
    if (stop()) return false;
  }
  return true;
}

template <class T>
void TableRunner<T>::run_tree(const TableTree& tree, const TableBatch& batch, TileSums* margin,
                              Margins& margins) {
  const Chunk& chunk = plan_.chunks[batch.chunk];
  const size_t n_outputs = n_used_outputs(plan_, chunk);
  const size_t first_output = std::max(chunk.output, 0);
  const DecideNode* const nodes = tree.n_levels ? plan_.tables.levels.data() + tree.levels
                                                : plan_.decide.data() + plan_.trees[tree.tree].decide;
  block_words_ =
      decide_blocks(plan_, nodes, n_decided(plan_, tree), *codes_, 0, n_blocks_, words_.data()).block_words;
  if (margin && tree.adds_margin && !tree.n_levels)
    for (size_t block = 0; block < n_blocks_; ++block)
      margins.add(plan_.trees[tree.tree], n_outputs, words_.data() + block * block_words_,
                  static_cast<int>(std::min<size_t>(kBlockRows, n_rows_ - block * kBlockRows)),
                  margin->at(first_output) + block * kBlockRows, margin->stride());
  for (size_t first = 0; first < n_blocks_; first += kPartBlocks)
    lookup(tree, batch.row_size, first, std::min(kPartBlocks, n_blocks_ - first));
  if (margin && tree.n_levels)
    kernels().add_margins({.index = index_.data(),
                           .n_tables = 1,
                           .index_stride = 0,
                           .n_rows = n_blocks_ * kBlockRows,
                           .margins = plan_.tables.level_values.data() + tree.values,
                           .n_outputs = n_outputs,
                           .margin = margin->at(first_output),
                           .stride = margin->stride()});
  for (size_t i = tree.leaves; i < tree.leaves_end; ++i) add_pattern_leaf(plan_.tables.leaves[i], batch);
}

template <class T>
void TableRunner<T>::lookup(const TableTree& tree, size_t row_size, size_t first_block, size_t n_blocks) {
  const Tables& tables = plan_.tables;
  const size_t first_row = first_block * kBlockRows;
  const size_t n_rows = std::min(n_blocks * kBlockRows, n_rows_ - first_row);
  const Kernels& set = kernels();
  for (size_t i = tree.lookups; i < tree.lookups_end; ++i) {
    const Lookup& group = tables.lookups[i];
    set.index({.words = words_.data() + first_block * block_words_,
               .block_words = block_words_,
               .n_blocks = n_blocks,
               .bits = tables.bits.data() + group.bits,
               .n_bits = group.n_bits,
               .index = index_.data() + first_row});
    set.of<T>().lookup({.index = index_.data() + first_row,
                        .n_rows = n_rows,
                        .table = numbers_of<T>(tables).data() + group.table,
                        .targets = tables.targets.data() + group.targets,
                        .n_targets = group.n_targets,
                        .phi = phi_.data() + first_row * row_size,
                        .row_size = row_size});
  }
}

template <class T>
void TableRunner<T>::add_pattern_leaf(const PatternLeaf& leaf, const TableBatch& batch) {
  const Tables& tables = plan_.tables;
  std::vector<uint64_t> groups;  // for Owen values
  if (!plan_.groups.empty())
    groups = members_of_groups<uint64_t>(leaf.n_bits, [&](uint32_t i) {
      const uint32_t place = tables.places[batch.places + tables.targets[leaf.targets + i]];
      return plan_.groups[place % plan_.features.size()];
    });
  const double* const values = plan_.leaf_values.data() + leaf.leaf;
  const uint32_t n_numbers = leaf_numbers(plan_.order, leaf.n_bits);
  for (size_t row = 0; row < n_rows_; ++row) {
    const uint64_t* const words = words_.data() + row / kBlockRows * block_words_;
    uint64_t x = 0;
    for (uint32_t i = 0; i < leaf.n_bits; ++i)
      x |= (bit_rows(words, tables.bits[leaf.bits + i]) >> row % kBlockRows & 1) << i;
    const uint64_t* const patterns = tables.patterns.data() + leaf.patterns;
    const double* const weights = tables.weights.data() + leaf.patterns;
    if (plan_.groups.empty())
      vectors_->write(leaf.n_bits, x, patterns, weights, leaf.n_patterns, 1.0, numbers_.data());
    else
      vectors_->write_owen(leaf.n_bits, x, groups, patterns, weights, leaf.n_patterns, numbers_.data());
    T* const phi = phi_.data() + row * batch.row_size;
    for (uint32_t i = 0; i < n_numbers; ++i) {
      const double number = i < leaf.n_bits ? numbers_[i] : 2 * numbers_[i];  // tables have twice a pair
      for (size_t o = 0; o < leaf.n_outputs; ++o)
        phi[tables.targets[leaf.targets + i] + o] += static_cast<T>(number * values[o] / plan_.leaf_scale);
    }
  }
}

template class TableRunner<float>;
template class TableRunner<double>;

}  // namespace skshap
