#include "intervals/walked_units.h"

#include <algorithm>
#include <numeric>

#include "plan/owen_trees.h"
#include "rows/margin.h"
#include "rows/value_walk.h"
#include "simd/kernels.h"

namespace skshap {
namespace {

template <class T>
class UnitWalker : public UnitValues<T> {
 public:
  UnitWalker(const Plan& plan, const std::vector<std::vector<UnitCopy>>& trees_of_unit)
      : plan_(plan), trees_of_unit_(trees_of_unit), margins_(plan, kernels()) {
    grow(zeros_, kBlockRows);
    grow(words_, kFirstWord + 2 * (2 * most_inner_nodes(plan) + 1));  // the words of leaves are read, too
  }

  void write(size_t number, const Unit& unit, const CodeTile& codes, const EntryNumbers& numbers, T* sums,
             double* margins) override {
    const std::vector<UnitCopy>& copies = trees_of_unit_[number];
    const size_t row_size = numbers.window->row_size, n_outputs = numbers.window->n_outputs;
    find_columns(copies, numbers);
    for (size_t first = 0; first < unit.n_entries; first += kBlockRows) {
      const size_t n_rows = std::min<size_t>(kBlockRows, unit.n_entries - first);
      T* phi = phi_.data();
      for (const UnitCopy& copy : copies) {
        const TreeProgram& program = plan_.trees[copy.tree];
        const Chunk& chunk = chunk_of(plan_, copy.tree);
        decide_block(plan_, kernels(), plan_.decide.data() + program.decide, program.n_inner, codes,
                     static_cast<int>(first / kBlockRows), words_.data());
        std::fill_n(phi, n_sums(chunk), T(0));
        grow(stack_, walk_stack(plan_, chunk));
        walk_values(plan_, chunk, program, words_.data(), static_cast<int>(n_rows), phi, stack_.data());
        phi += n_sums(chunk);
        if (program.adds_margin)
          this->write_margins(n_rows, n_outputs, margins + first * n_outputs, [&](double* margin) {
            margins_.add(program, n_outputs, words_.data(), static_cast<int>(n_rows), margin, kBlockRows);
          });
      }
      kernels().of<T>().interleave({columns_.data(), row_size, n_rows, sums + first * row_size});
    }
  }

 private:
  // Return the number of sums of the walk of a tree of a chunk.
  size_t n_sums(const Chunk& chunk) const {
    return n_used_outputs(plan_, chunk) * chunk.slots.size() * kBlockRows;
  }

  // Find, for each number of an entry, the sums of the walks that belong to it.
  void find_columns(const std::vector<UnitCopy>& copies, const EntryNumbers& numbers) {
    size_t n_all = 0;
    for (const UnitCopy& copy : copies) n_all += n_sums(chunk_of(plan_, copy.tree));
    grow(phi_, n_all);
    columns_.assign(numbers.window->row_size, zeros_.data());
    const T* phi = phi_.data();
    for (const UnitCopy& copy : copies) {
      const Chunk& chunk = chunk_of(plan_, copy.tree);
      for (size_t slot = 0; slot < chunk.slots.size(); ++slot) {
        if (!has_value(copies, copy, chunk.slots[slot])) continue;
        const int32_t position = numbers.position[chunk.slots[slot]];
        if (position < 0) continue;  // of other units of the chunk
        for (size_t o = 0; o < numbers.window->n_outputs; ++o)
          columns_[o * numbers.n_features + position] = phi + (o * chunk.slots.size() + slot) * kBlockRows;
      }
      phi += n_sums(chunk);
    }
  }

  // Return whether the value of a feature is from this copy. The value of a feature is from one copy only.
  bool has_value(const std::vector<UnitCopy>& copies, const UnitCopy& copy, int32_t feature) const {
    if (static_cast<size_t>(feature) >= plan_.features.size()) return false;
    if (copies.size() == 1) return true;
    const int32_t group = plan_.groups[feature];
    if (copy.apart != kNoGroup) return copy.apart == group;
    return std::none_of(copies.begin(), copies.end(),
                        [&](const UnitCopy& other) { return other.apart == group; });
  }

  const Plan& plan_;
  const std::vector<std::vector<UnitCopy>>& trees_of_unit_;
  Margins margins_;
  Aligned<uint64_t> words_;
  Aligned<T> phi_, stack_, zeros_;
  std::vector<const T*> columns_;  // by number of an entry: 64 sums of the walk
};

}  // namespace

WalkedUnits::WalkedUnits(const Plan& plan, const IntervalLayout& layout, int64_t n_threads, bool unwalked)
    : trees_of_unit_(layout.units.units.size()) {
  const UnitTrees units(plan, layout);
  const CodedTrees trees = units.trees();
  std::vector<int32_t> unit_of(trees.n_trees), apart(unit_of.size(), kNoGroup);  // by tree that is compiled
  std::iota(unit_of.begin(), unit_of.end(), -trees.n_first);
  if (plan.groups.empty()) {
    n_walked_ = trees.n_first;
    out_ = make_plan(trees, plan, n_threads);
  } else {
    const OwenTrees copies(trees, plan.groups, unwalked);
    n_walked_ = copies.trees().n_first;
    out_ = make_plan(copies.trees(), plan, n_threads);
    apart = copies.apart();
    unit_of.resize(apart.size());
    for (int32_t tree = 0; tree < trees.n_trees; ++tree)
      std::fill(unit_of.begin() + copies.first_copies()[tree],
                unit_of.begin() + copies.first_copies()[tree + 1], tree - trees.n_first);
  }
  out_.groups = plan.groups;
  out_.unwalked = unwalked;
  out_.n_leaves = plan.n_leaves;
  out_.base_value = plan.base_value;
  out_.leaf_magnitude = plan.leaf_magnitude;
  for (size_t i = 0; i < out_.trees.size(); ++i)
    if (const int32_t source = out_.trees[i].source; unit_of[source] >= 0)
      trees_of_unit_[unit_of[source]].push_back({i, apart[source]});
}

template <class T>
std::unique_ptr<UnitValues<T>> WalkedUnits::make() const {
  return std::make_unique<UnitWalker<T>>(out_, trees_of_unit_);
}

void WalkedUnits::drop_units() {
  const auto first = std::find_if(out_.trees.begin(), out_.trees.end(),
                                  [&](const TreeProgram& tree) { return tree.source >= n_walked_; });
  if (first == out_.trees.end()) return;
  const size_t n_trees = static_cast<size_t>(first - out_.trees.begin());
  const auto chunk = std::find_if(out_.chunks.begin(), out_.chunks.end(),
                                  [&](const Chunk& candidate) { return candidate.tree_begin >= n_trees; });
  const auto cut = [](auto& stream, size_t n) {
    stream.resize(std::min(stream.size(), n));
    stream.shrink_to_fit();
  };
  cut(out_.decide, first->decide);
  cut(out_.shares, first->decide);
  cut(out_.players, first->decide);
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
