#include "tables/table_builder.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/aligned.h"
#include "base/threads.h"
#include "plan/quadrature.h"
#include "rows/tiles.h"
#include "simd/kernels.h"
#include "tables/group_words.h"
#include "tables/pattern_vectors.h"

namespace skshap {
namespace {

// One thread's work.
class TableWriter {
 public:
  TableWriter(Plan& plan, const TableLimits& limits, const WeighPatterns& weigh)
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
    const size_t size = size_t{1} << to.n_bits, n_rows = whole_blocks(size);
    const size_t row_size = padded_row(to.n_targets, sizeof(double));
    grow(sum_, n_rows * row_size);
    std::fill_n(sum_.data(), n_rows * row_size, 0.0);
    for (size_t i = group.leaves; i < group.leaves_end; ++i) {
      const TreeGroups::Leaf& leaf = groups_.leaves[i];
      make_leaf_table(table_tree, lookup, leaf);
      kernels().of<double>().lookup({.index = index_.data(),
                                     .n_rows = n_rows,
                                     .table = leaf_.data(),
                                     .targets = targets_.data(),
                                     .n_targets = static_cast<uint32_t>(targets_.size()),
                                     .phi = sum_.data(),
                                     .row_size = row_size});
    }
    in_precision(plan_.precision, [&](auto number) {
      auto* out = numbers_of<decltype(number)>(plan_.tables).own().data() + to.table;
      for (size_t x = 0; x < size; ++x)
        for (size_t t = 0; t < to.n_targets; ++t)
          *out++ = static_cast<decltype(number)>(sum_.data()[x * row_size + t]);
    });
  }

  void make_leaf_table(size_t table_tree, size_t lookup, const TreeGroups::Leaf& leaf) {
    check_interrupt();
    const uint32_t d = leaf.n_features;
    const size_t size = size_t{1} << d;
    PathStep* const path = groups_.steps.data() + leaf.path;
    // Sort the path in the order of the targets, because the lookup needs this order.
    std::sort(path, path + d, [&](const PathStep& a, const PathStep& b) {
      return position_[a.feature] < position_[b.feature];
    });
    const Lookup& to = plan_.tables.lookups[lookup];
    const uint32_t* const targets = plan_.tables.targets.data() + to.targets;
    targets_.clear();
    for (uint32_t i = 0; i < d; ++i) {
      const uint32_t target = static_cast<uint32_t>(
          std::lower_bound(targets, targets + to.n_targets, position_[path[i].feature]) - targets);
      for (uint32_t o = 0; o < width_; ++o) targets_.push_back(target + o);
    }
    words_.leaf_patterns(path, d, index_);
    weights_.assign(size, 0.0);
    const double* const values = plan_.leaf_values.data() + tree_->leaves + leaf.value;
    weigh_({.tree = table_tree,
            .lookup = lookup,
            .n_features = d,
            .pattern = index_.data(),
            .size = size_t{1} << to.n_bits,
            .values = values,
            .n_outputs = width_},
           weights_.data());
    scaled_.resize(width_);
    for (size_t o = 0; o < width_; ++o) scaled_[o] = values[o] / plan_.leaf_scale;
    grow(sums_, 4 * size);
    grow(leaf_, size * d * width_ + kTablePadding);
    if (plan_.groups.empty())
      write_leaf_table(weights_.data(), d, n_nodes(d), factors(0, d), leaf_);
    else
      make_owen_table(path, d);
  }

  void write_leaf_table(const double* weights, uint32_t d, int n_nodes, const std::vector<double>& factors,
                        Aligned<double>& out) {
    kernels().leaf_table({.weights = weights,
                          .n_features = static_cast<int>(d),
                          .n_nodes = n_nodes,
                          .factors = factors.data(),
                          .values = scaled_.data(),
                          .n_outputs = width_,
                          .sums = sums_.data(),
                          .out = out.data()});
  }

  // Fill the table of a leaf with Owen values. The values of features that are alone in their groups are from
  // the game in which the groups are players. The values of the other features are from the games in which
  // their group is apart.
  void make_owen_table(const PathStep* path, uint32_t d) {
    const std::vector<uint32_t> members =
        members_of_groups<uint32_t>(d, [&](uint32_t i) { return plan_.groups[path[i].feature]; });
    const auto is_single = [](uint32_t group) { return !(group & (group - 1)); };
    players_ = members;
    const auto end = std::stable_partition(players_.begin(), players_.end(), is_single);
    if (end != players_.begin()) write_game(d, 0, static_cast<size_t>(end - players_.begin()));
    for (const uint32_t group : members) {
      if (is_single(group)) continue;
      players_.clear();
      for (uint32_t rest = group; rest; rest &= rest - 1) players_.push_back(rest & ~(rest - 1));
      const size_t n_apart = players_.size();
      for (const uint32_t other : members)
        if (other != group) players_.push_back(other);
      write_game(d, static_cast<uint32_t>(n_apart), n_apart);
    }
  }

  // Write the values of the first n_wanted players, each of which is a single feature. The first n_apart
  // players are apart.
  void write_game(uint32_t d, uint32_t n_apart, size_t n_wanted) {
    const size_t size = size_t{1} << d;
    const uint32_t n_players = static_cast<uint32_t>(players_.size());
    merged_.assign(size, 0);
    for (uint32_t i = 0; i < n_players; ++i)
      for (uint32_t x = 0; x < size; ++x) merged_[x] |= ((x & players_[i]) == players_[i]) << i;
    game_weights_.assign(size_t{1} << n_players, 0.0);
    for (size_t x = 0; x < size; ++x) game_weights_[merged_[x]] += weights_[x];
    grow(game_, (n_players * width_ << n_players) + kTablePadding);
    const int n_outer = n_nodes(n_players - n_apart + (n_apart > 0));
    write_leaf_table(game_weights_.data(), n_players, n_apart ? n_outer * n_nodes(n_apart) : n_outer,
                     factors(n_apart, n_players - n_apart), game_);
    for (size_t x = 0; x < size; ++x)
      for (size_t i = 0; i < n_wanted; ++i)
        std::copy_n(game_.data() + (merged_[x] * n_players + i) * width_, width_,
                    leaf_.data() + (x * d + __builtin_ctz(players_[i])) * width_);
  }

  int n_nodes(uint32_t d) const { return quadrature_nodes(plan_.index, static_cast<int>(d)); }

  // Return the factors of the sums of a leaf with n features; see leaf_table in simd/table_kernels-inl.h. For
  // Owen values, n_apart features of the group that is apart come before the n features. In this case, the
  // integral is a double integral.
  const std::vector<double>& factors(uint32_t n_apart, uint32_t n) {
    std::vector<double>& out = factors_[{n_apart, n}];
    if (!out.empty()) return out;
    const size_t size = size_t{1} << (n_apart + n), mask = (size_t{1} << n_apart) - 1;
    std::vector<double> t, s, weights;
    if (n_apart)
      product_quadrature(n_nodes(n + 1), n_nodes(n_apart), t, s, weights);
    else
      quadrature(plan_.index, n_nodes(n), t, weights);
    out.resize(4 * size * t.size());
    for (size_t k = 0; k < t.size(); ++k) {
      const std::vector<double> on = powers(t[k], n), off = powers(1 - t[k], n);
      const std::vector<double> on_apart = powers(n_apart ? s[k] : 0, n_apart),
                                off_apart = powers(n_apart ? 1 - s[k] : 0, n_apart);
      double* const node_factors = out.data() + 4 * size * k;
      for (size_t x = 0; x < size; ++x) {
        const uint32_t p = __builtin_popcountll(x & ~mask), q = n - p;
        if (!n_apart) {
          node_factors[x] = on[p];
          node_factors[size + x] = weights[k] / t[k] * off[q];
          node_factors[2 * size + x] = q ? weights[k] / t[k] * off[q - 1] : 0;
          node_factors[3 * size + x] = q ? weights[k] * off[q - 1] : 0;
          continue;
        }
        const uint32_t p_apart = __builtin_popcountll(x & mask), q_apart = n_apart - p_apart;
        const double weight = weights[k] * off[q], less = q_apart ? off_apart[q_apart - 1] : 0;
        node_factors[x] = on[p] * on_apart[p_apart];
        node_factors[size + x] = weight / s[k] * off_apart[q_apart];
        node_factors[2 * size + x] = weight / s[k] * less;
        node_factors[3 * size + x] = weight * less;
      }
    }
    return out;
  }

  // Return the powers of x from the 0th to the n-th.
  static std::vector<double> powers(double x, uint32_t n) {
    std::vector<double> out(n + 1, 1.0);
    for (uint32_t i = 1; i <= n; ++i) out[i] = out[i - 1] * x;
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
  std::vector<uint32_t> targets_;
  std::vector<double> weights_, scaled_;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<double>> factors_;  // by numbers of features
  Aligned<uint16_t> index_;
  Aligned<double> sum_, sums_, leaf_;
  // For Owen values: the players of a game, as sets of features; the pattern of players for each pattern of
  // features; the weights of the patterns of players; and the table of the game.
  std::vector<uint32_t> players_, merged_;
  std::vector<double> game_weights_;
  Aligned<double> game_;
};

}  // namespace

void write_tables(Plan& plan, const TableLimits& limits, int64_t n_threads, const WeighPatterns& weigh) {
  share_items(static_cast<int64_t>(plan.tables.trees.size()), n_threads, [&] {
    return [&, writer = TableWriter(plan, limits, weigh)](int64_t i) mutable {
      if (!plan.tables.trees[i].n_levels) writer.write_tree(static_cast<size_t>(i));
    };
  });
}

}  // namespace skshap
