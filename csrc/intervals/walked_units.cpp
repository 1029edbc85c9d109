#include "intervals/walked_units.h"

#include <algorithm>

#include "rows/margin.h"
#include "rows/value_walk.h"
#include "simd/kernels.h"

namespace skshap {
namespace {

template <class T>
class Walker : public UnitValues<T> {
 public:
  Walker(const IntervalLayout& layout, const Plan& plan, const std::vector<size_t>& tree_of_unit)
      : layout_(layout), plan_(plan), tree_of_unit_(tree_of_unit), margins_(plan, kernels()) {
    size_t phi = 0, stack = 0;
    for (const Chunk& chunk : plan.chunks) {
      phi = std::max(phi, n_used_outputs(plan, chunk) * chunk.slots.size() * kBlockRows);
      stack = std::max(stack, walk_stack(plan, chunk));
    }
    phi_.resize(phi);
    stack_.resize(stack);
    grow(zeros_, kBlockRows);
    grow(words_, kFirstWord + 2 * (2 * most_inner_nodes(plan) + 1));  // the words of leaves are read, too
  }

  void write(size_t unit, const CodeTile& codes, const EntryNumbers& numbers, T* sums,
             double* margins) override {
    const size_t tree = tree_of_unit_[unit], n_entries = layout_.units.units[unit].n_entries;
    const TreeProgram& program = plan_.trees[tree];
    const Chunk& chunk = chunk_of(plan_, tree);
    find_columns(chunk, numbers);
    for (size_t first = 0; first < n_entries; first += kBlockRows) {
      const size_t n_rows = std::min<size_t>(kBlockRows, n_entries - first);
      decide_block(plan_, kernels(), plan_.decide.data() + program.decide, program.n_inner, codes,
                   static_cast<int>(first / kBlockRows), words_.data());
      std::fill_n(phi_.data(), numbers.n_outputs * chunk.slots.size() * kBlockRows, T(0));
      walk_values(plan_, chunk, program, words_.data(), static_cast<int>(n_rows), phi_.data(), stack_.data());
      interleave(
          InterleaveArgs<T>{columns_.data(), numbers.row_size, n_rows, sums + first * numbers.row_size});
      write_margins(program, n_rows, numbers.n_outputs, margins + first * numbers.n_outputs);
    }
  }

 private:
  // Find the sums of the walk that belong to each number of an entry.
  void find_columns(const Chunk& chunk, const EntryNumbers& numbers) {
    columns_.assign(numbers.row_size, zeros_.data());
    for (size_t slot = 0; slot < chunk.slots.size(); ++slot) {
      const int32_t position = numbers.position[chunk.slots[slot]];
      if (position < 0) continue;  // of other units of the chunk
      for (size_t o = 0; o < numbers.n_outputs; ++o)
        columns_[o * numbers.n_features + position] =
            phi_.data() + (o * chunk.slots.size() + slot) * kBlockRows;
    }
  }

  void write_margins(const TreeProgram& program, size_t n_rows, size_t n_outputs, double* margins) {
    grow(margin_, n_outputs * kBlockRows);
    std::fill_n(margin_.data(), n_outputs * kBlockRows, 0.0);
    margins_.add(program, n_outputs, words_.data(), static_cast<int>(n_rows), margin_.data(), kBlockRows);
    for (size_t o = 0; o < n_outputs; ++o)
      for (size_t row = 0; row < n_rows; ++row)
        margins[row * n_outputs + o] = margin_.data()[o * kBlockRows + row];
  }

  const IntervalLayout& layout_;
  const Plan& plan_;
  const std::vector<size_t>& tree_of_unit_;
  Margins margins_;
  Aligned<uint64_t> words_;
  Aligned<T> phi_, stack_, zeros_;
  std::vector<const T*> columns_;  // by number of an entry: 64 of them
  Aligned<double> margin_;
};

}  // namespace

WalkedUnits::WalkedUnits(const Plan& plan, const IntervalLayout& layout, int64_t n_threads)
    : layout_(layout) {
  const UnitTrees trees(plan, layout);
  n_walked_ = trees.n_walked();
  out_ = make_plan(trees.view(), trees.tests(), n_threads);
  out_.n_leaves = plan.n_leaves;
  out_.base_value = plan.base_value;
  out_.leaf_magnitude = plan.leaf_magnitude;
  tree_of_unit_.resize(layout.units.units.size());
  for (size_t i = 0; i < out_.trees.size(); ++i)
    if (out_.trees[i].source >= n_walked_) tree_of_unit_[out_.trees[i].source - n_walked_] = i;
}

template <class T>
std::unique_ptr<UnitValues<T>> WalkedUnits::make() const {
  return std::make_unique<Walker<T>>(layout_, out_, tree_of_unit_);
}

void WalkedUnits::drop_units() {
  const auto first = std::find_if(out_.trees.begin(), out_.trees.end(),
                                  [&](const TreeProgram& tree) { return tree.source >= n_walked_; });
  if (first == out_.trees.end()) return;
  const size_t n_trees = static_cast<size_t>(first - out_.trees.begin());
  const auto chunk = std::find_if(out_.chunks.begin(), out_.chunks.end(),
                                  [&](const Chunk& each) { return each.tree_begin >= n_trees; });
  const auto cut = [](auto& stream, size_t n) {
    stream.resize(std::min(stream.size(), n));
    stream.shrink_to_fit();
  };
  cut(out_.decide, first->decide);
  cut(out_.shares, first->decide);
  cut(out_.ops, first->ops);
  cut(out_.constants_float, chunk->quadrature);
  cut(out_.constants_double, chunk->quadrature);
  cut(out_.children, first->children);
  cut(out_.leaf_values, first->leaves);
  out_.trees.resize(n_trees);
  out_.chunks.erase(chunk, out_.chunks.end());
}

template std::unique_ptr<UnitValues<float>> WalkedUnits::make() const;
template std::unique_ptr<UnitValues<double>> WalkedUnits::make() const;

}  // namespace skshap
