#include "tables/table_builder.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/aligned.h"
#include "base/threads.h"
#include "plan/quadrature.h"
#include "simd/kernels.h"
#include "tables/group_words.h"

namespace skshap {
namespace {

// One thread's work.
class Writer {
 public:
  Writer(Plan& plan, const TableLimits& limits, const WeighPatterns& weigh)
      : plan_(plan), limits_(limits), weigh_(weigh), groups_(plan), words_(plan) {
    position_.resize(plan.features.size());
  }

  void write_tree(size_t index) {
    const TableTree& table_tree = plan_.tables.trees[index];
    const TableBatch& batch = plan_.tables.batches[table_tree.batch];
    tree_ = &plan_.trees[table_tree.tree];
    width_ = n_used_outputs(plan_, plan_.chunks[batch.chunk]);
    for (size_t i = batch.places; i < batch.places_end; i += width_)
      position_[plan_.tables.places[i] % plan_.features.size()] = static_cast<uint32_t>(i - batch.places);
    groups_.find(plan_.chunks[batch.chunk], *tree_, limits_);
    for (size_t i = 0; i < groups_.groups.size(); ++i)
      write_group(index, table_tree.lookups + i, groups_.groups[i]);
  }

 private:
  void write_group(size_t table_tree, size_t lookup, const TreeGroups::Group& group) {
    const Lookup& to = plan_.tables.lookups[lookup];
    words_.make(*tree_, groups_, group);
    const size_t size = size_t{1} << to.n_bits, n_blocks = words_.n_blocks();
    const size_t row_size = padded_row(to.n_targets, sizeof(double));
    grow(sum_, n_blocks * kBlockRows * row_size);
    std::fill_n(sum_.data(), n_blocks * kBlockRows * row_size, 0.0);
    for (size_t i = group.leaves; i < group.leaves_end; ++i) {
      const TreeGroups::Leaf& leaf = groups_.leaves[i];
      make_leaf_table(table_tree, lookup, leaf);
      kernels().lookup_double({index_.data(), n_blocks * kBlockRows, leaf_.data(), targets_.data(),
                               static_cast<uint32_t>(targets_.size()), sum_.data(), row_size});
    }
    const auto store = [&](auto* out) {
      for (size_t x = 0; x < size; ++x)
        for (size_t t = 0; t < to.n_targets; ++t)
          *out++ = static_cast<std::remove_reference_t<decltype(*out)>>(sum_.data()[x * row_size + t]);
    };
    if (plan_.precision == Precision::kSingle)
      store(plan_.tables.floats.own().data() + to.table);
    else
      store(plan_.tables.doubles.own().data() + to.table);
  }

  void make_leaf_table(size_t table_tree, size_t lookup, const TreeGroups::Leaf& leaf) {
    const uint32_t d = leaf.n_features;
    const size_t size = size_t{1} << d;
    PathStep* const path = groups_.steps.data() + leaf.path;
    // Sort the path in the order of the targets, which the lookup needs.
    std::sort(path, path + d, [&](const PathStep& a, const PathStep& b) {
      return position_[a.feature] < position_[b.feature];
    });
    const Lookup& to = plan_.tables.lookups[lookup];
    const uint32_t* const targets = plan_.tables.targets.data() + to.targets;
    bits_.clear();
    targets_.clear();
    for (uint32_t i = 0; i < d; ++i) {
      bits_.push_back(words_.local(path[i].bit));
      const uint32_t target = static_cast<uint32_t>(
          std::lower_bound(targets, targets + to.n_targets, position_[path[i].feature]) - targets);
      for (uint32_t o = 0; o < width_; ++o) targets_.push_back(target + o);
    }
    words_.index(bits_, index_);
    weights_.assign(size, 0.0);
    const double* const values = plan_.leaf_values.data() + tree_->leaves + leaf.value;
    weigh_({table_tree, lookup, d, index_.data(), size_t{1} << to.n_bits, values, width_}, weights_.data());
    scaled_.resize(width_);
    for (size_t o = 0; o < width_; ++o) scaled_[o] = values[o] / plan_.leaf_scale;
    grow(sums_, 4 * size);
    grow(leaf_, size * d * width_ + kTablePadding);
    kernels().leaf_table({weights_.data(), static_cast<int>(d), n_nodes(d), factors(d).data(), scaled_.data(),
                          width_, sums_.data(), leaf_.data()});
  }

  int n_nodes(uint32_t d) const { return quadrature_nodes(plan_.index, static_cast<int>(d)); }

  // Return the factors of the sums of a leaf with d features; see leaf_table in simd/table_kernels-inl.h.
  const std::vector<double>& factors(uint32_t d) {
    std::vector<double>& out = factors_[d];
    if (!out.empty()) return out;
    const size_t size = size_t{1} << d;
    std::vector<double> t, weights, powers(d + 1, 1.0), others(d + 1, 1.0);
    quadrature(plan_.index, n_nodes(d), t, weights);
    out.resize(4 * size * t.size());
    for (size_t k = 0; k < t.size(); ++k) {
      for (uint32_t i = 1; i <= d; ++i) {
        powers[i] = powers[i - 1] * t[k];
        others[i] = others[i - 1] * (1 - t[k]);
      }
      double* const of = out.data() + 4 * size * k;
      for (size_t x = 0; x < size; ++x) {
        const uint32_t p = __builtin_popcountll(x), q = d - p;
        of[x] = powers[p];
        of[size + x] = weights[k] / t[k] * others[q];
        of[2 * size + x] = q ? weights[k] / t[k] * others[q - 1] : 0;
        of[3 * size + x] = q ? weights[k] * others[q - 1] : 0;
      }
    }
    return out;
  }

  Plan& plan_;
  const TableLimits limits_;
  const WeighPatterns& weigh_;
  TreeGroups groups_;
  GroupWords words_;
  const TreeProgram* tree_ = nullptr;
  size_t width_ = 1;
  std::vector<uint32_t> position_;  // by feature: its position in the batch
  std::vector<uint32_t> bits_, targets_;
  std::vector<double> weights_, scaled_, factors_[kMaxTableBits + 1];
  Aligned<uint16_t> index_;
  Aligned<double> sum_, sums_, leaf_;
};

}  // namespace

void write_tables(Plan& plan, const TableLimits& limits, int64_t n_threads, const WeighPatterns& weigh) {
  const size_t n_trees = plan.tables.trees.size();
  std::atomic<size_t> next{0};
  run_threads(std::min<int64_t>(n_threads, static_cast<int64_t>(n_trees)), [&](bool) {
    Writer writer(plan, limits, weigh);
    for (size_t i; (i = next++) < n_trees;)
      if (!plan.tables.trees[i].n_levels) writer.write_tree(i);
  });
}

}  // namespace skshap
