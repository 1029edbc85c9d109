// Plan + background rows -> values of a function of the margin.
//
// The factor of each pair of rows is known from the two margins, before any tree is walked. A tree is then
// walked once for a block of 64 rows and a tile of background rows. At each node, the background rows that
// arrive at it are grouped by the features of the path that they fail. A group leaves the walk when no row of
// the block satisfies all features that the group fails. See simd/rescaled_kernel-inl.h for the leaves.
#include "background/rescaled.h"

#include <algorithm>

#include "base/aligned.h"
#include "plan/tree_paths.h"
#include "rows/margin.h"
#include "rows/results.h"
#include "rows/tiles.h"
#include "tables/table_builder.h"

namespace skshap {
namespace {

// Decide the nodes of a tree for 64 rows.
void decide(const Plan& plan, const TreeProgram& tree, const CodeTile& codes, int block, uint64_t* words) {
  decide_block(plan, kernels(), plan.decide.data() + tree.decide, tree.n_inner, codes, block, words);
}

// Return the number of words of a tree's decisions, including the words of leaves, which are read as well.
size_t n_words(const Plan& plan) { return kFirstWord + 2 * (2 * most_inner_nodes(plan) + 1); }

// Return the most sums of a row in a chunk.
size_t most_sums(const Plan& plan) {
  return largest_of(plan.chunks,
                    [&](const Chunk& chunk) { return n_used_outputs(plan, chunk) * chunk.slots.size(); });
}

// Add the margins of the trees to the margins of the 64 rows of a block.
void add_margins(const Plan& plan, Margins& margins, const CodeTile& codes, int block, uint64_t* words,
                 TileSums& margin) {
  for (const Chunk& chunk : plan.chunks)
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      const TreeProgram& tree = plan.trees[i];
      decide(plan, tree, codes, block, words);
      margins.add(tree, n_used_outputs(plan, chunk), words, kBlockRows, margin.at(std::max(chunk.output, 0)),
                  margin.stride());
    }
}

// One thread's work: it takes blocks of rows through the background data and all trees, and writes the
// results.
template <class T>
class RescaledWorker {
 public:
  RescaledWorker(const RescaledPlan& rescaled, const double* labels, const double* slopes,
                 const Result& result)
      : rescaled_(rescaled),
        plan_(rescaled.plan),
        kernels_(kernels()),
        labels_(labels),
        slopes_(slopes),
        result_(result),
        n_words_(n_words(rescaled.plan)),
        margins_(rescaled.plan, kernels()),
        walk_(rescaled.plan) {
    words_.assign(n_words_, 0);
    background_words_.assign(n_words_ * kBackgroundWords, 0);
    grow(phi_, most_sums(plan_) * kBlockRows);
    factors_.resize(static_cast<size_t>(plan_.n_outputs) * kBackgroundTile * kBlockRows);
    sums_.resize(plan_.n_outputs, plan_.features.size(), kBlockRows);
    slot_of_.assign(plan_.features.size(), 0);
  }

  bool run(Tile& tile, const Stop& stop) {
    n_rows_ = tile.n_rows;
    add_margins(plan_, margins_, tile.codes, 0, words_.data(), tile.margin);
    sums_.clear();
    const size_t n_background = rescaled_.weights.size();
    for (size_t first = 0; first < n_background; first += kBackgroundTile) {
      first_background_ = first;
      n_background_ = std::min<size_t>(kBackgroundTile, n_background - first);
      find_factors(tile);
      for (const Chunk& chunk : plan_.chunks) {
        find_slots(chunk);
        for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) run_tree(chunk, plan_.trees[i], tile);
        if (stop()) return false;
      }
    }
    write_values(plan_, result_, sums_, 0, tile.first_row, n_rows_, &tile.totals);
    return true;
  }

 private:
  void find_factors(const Tile& tile) {
    const size_t n_background = rescaled_.weights.size();
    for (int32_t o = 0; o < plan_.n_outputs; ++o)
      for (size_t b = 0; b < n_background_; ++b) {
        T* out = factors_.data() + (o * kBackgroundTile + b) * kBlockRows;
        const double weight = rescaled_.weights[first_background_ + b];
        const double background_margin = rescaled_.margins[o * n_background + first_background_ + b];
        for (int row = 0; row < n_rows_; ++row) {
          const double label = labels_ ? labels_[tile.first_row + row] : 0;
          const double row_margin = tile.margin.at(o)[row];
          const double slope =
              slopes_ ? slopes_[((tile.first_row + row) * plan_.n_outputs + o) * n_background +
                                first_background_ + b]
                      : secant_slope(rescaled_.link, rescaled_.scale, row_margin, background_margin, label);
          out[row] = static_cast<T>(weight * slope);
        }
        std::fill(out + n_rows_, out + kBlockRows, T(0));
      }
  }

  void find_slots(const Chunk& chunk) {
    for (size_t slot = 0; slot < chunk.slots.size(); ++slot)
      slot_of_[chunk.slots[slot]] = static_cast<uint32_t>(slot);
  }

  void run_tree(const Chunk& chunk, const TreeProgram& tree, const Tile& tile) {
    decide(plan_, tree, tile.codes, 0, words_.data());
    groups_.assign(1, {0, ~uint64_t{0} >> (kBlockRows - n_rows_), {}});
    for (int word = 0; word < kBackgroundWords && 64u * word < n_background_; ++word) {
      const size_t n = n_background_ - 64 * word;
      groups_[0].members[word] = n < 64 ? ~(~uint64_t{0} << n) : ~uint64_t{0};
      decide(plan_, tree, rescaled_.background, static_cast<int>(first_background_ / 64) + word,
             background_words_.data() + word * n_words_);
    }
    group_begin_.assign(tree.height + 1, 0);
    walk_.run<LeafOrder::kDepthFirst>(
        tree, [this](const PathNode& at) { group_begin_[at.level + 1] = groups_.size(); },
        [this](const PathEdge& edge) { return split_groups(edge); },
        [&](int32_t leaf) { add_leaf(chunk, tree, leaf); });
    flush(chunk);
  }

  using Members = uint64_t[kBackgroundWords];

  // Replace the groups below an edge's node by the groups of the node, split by the node's decision. Return
  // whether there are any groups.
  bool split_groups(const PathEdge& edge) {
    const size_t begin = group_begin_[edge.level], end = group_begin_[edge.level + 1];
    groups_.resize(end);
    const uint64_t rows = bit_rows(words_.data(), edge.bit), failed = uint64_t{1} << edge.place;
    Members satisfied, not_satisfied;
    for (int word = 0; word < kBackgroundWords; ++word) {
      satisfied[word] = bit_rows(background_words_.data() + word * n_words_, edge.bit);
      not_satisfied[word] = ~satisfied[word];
    }
    for (size_t i = begin; i < end; ++i) {
      if (has_members(groups_[i], satisfied)) add_part(groups_[i], satisfied);
      if (!(groups_[i].rows & rows) || !has_members(groups_[i], not_satisfied)) continue;
      add_part(groups_[i], not_satisfied);
      groups_.back().failed |= failed;
      groups_.back().rows &= rows;
      if (edge.is_repeated) merge_last_group(end);
    }
    first_group_ = end;
    return groups_.size() > end;
  }

  // Return whether any of the members `those` belong to a group.
  static bool has_members(const BackgroundGroup& group, const Members& those) {
    uint64_t any = 0;
    for (int word = 0; word < kBackgroundWords; ++word) any |= group.members[word] & those[word];
    return any;
  }

  // Add a group with the members of another group that are in `those`.
  void add_part(const BackgroundGroup& group, const Members& those) {
    groups_.push_back(group);
    for (int word = 0; word < kBackgroundWords; ++word) groups_.back().members[word] &= those[word];
  }

  // If a group from number `first` fails the same features as the last group, merge the last group with it.
  // This happens when a feature is repeated.
  void merge_last_group(size_t first) {
    const BackgroundGroup& last = groups_.back();
    for (size_t i = first; i < groups_.size() - 1; ++i)
      if (groups_[i].failed == last.failed) {
        for (int word = 0; word < kBackgroundWords; ++word) groups_[i].members[word] |= last.members[word];
        groups_.pop_back();
        return;
      }
  }

  // Add the leaf at the end of the path, for the groups that arrive at it.
  void add_leaf(const Chunk& chunk, const TreeProgram& tree, int32_t leaf) {
    uint32_t n_features = 0;
    for (const PathStep& step : walk_.steps()) {
      slots_[n_features] = slot_of_[step.feature];
      failing_[n_features++] = ~bit_rows(words_.data(), step.bit);
    }
    const size_t width = n_used_outputs(plan_, chunk), n_slots = chunk.slots.size();
    for (size_t o = 0; o < width; ++o) {
      const double value = plan_.leaf_values[tree.leaves + leaf * width + o];
      const PairLeafArgs<T> args{
          .failing = failing_,
          .slots = slots_,
          .n_features = n_features,
          .groups = groups_.data() + first_group_,
          .n_groups = groups_.size() - first_group_,
          .factors = factors_.data() + (std::max(chunk.output, 0) + o) * kBackgroundTile * kBlockRows,
          .value = static_cast<T>(value / plan_.leaf_scale),
          .n_rows = n_rows_,
          .phi = phi_.data() + o * n_slots * kBlockRows};
      kernels_.of<T>().pair_leaf(args);
    }
  }

  // Add a tree's values to the sums. Each leaf adds so many numbers that single precision is accurate enough
  // only for one tree at a time.
  void flush(const Chunk& chunk) {
    T* from = phi_.data();
    for (size_t o = 0; o < n_used_outputs(plan_, chunk); ++o)
      for (const int32_t feature : chunk.slots) {
        double* const to = sums_.at(std::max(chunk.output, 0) + o, feature);
        for (int row = 0; row < kBlockRows; ++row) {
          to[row] += plan_.leaf_scale * from[row];
          from[row] = 0;
        }
        from += kBlockRows;
      }
  }

  const RescaledPlan& rescaled_;
  const Plan& plan_;
  const Kernels& kernels_;
  const double* labels_;
  const double* slopes_;
  const Result& result_;
  const size_t n_words_;  // of a tree's decisions
  Margins margins_;
  int n_rows_ = 0;  // of the block
  size_t first_background_ = 0, n_background_ = 0;
  std::vector<uint64_t> words_, background_words_;  // the latter [word of a mask][n_words_]
  Aligned<T> phi_, factors_;                        // factors: [output][background row][64]
  TileSums sums_;
  std::vector<uint32_t> slot_of_;  // by used feature
  PathWalk walk_;
  std::vector<BackgroundGroup> groups_;  // of the nodes of the path, and of the current edge
  std::vector<size_t> group_begin_;      // by level: number of the first group of the path's node
  size_t first_group_ = 0;               // of the current edge
  // The path of a leaf, in the form that the kernel takes:
  uint32_t slots_[kMaxPathFeatures];
  uint64_t failing_[kMaxPathFeatures];
};

}  // namespace

RescaledPlan make_rescaled_plan(const EnsembleView& ensemble, Precision precision, const Rows& rows,
                                const double* weights, Link link, double scale) {
  RescaledPlan out{};
  out.plan = make_plan(ensemble, precision);
  out.link = link;
  out.scale = scale;
  const Plan& plan = out.plan;
  require_short_path(longest_path(plan));
  const size_t n = static_cast<size_t>(rows.n_rows);
  out.background = code_all_rows(plan, rows);
  out.weights.assign(weights, weights + n);
  std::vector<uint64_t> words(n_words(plan), 0);
  Margins margins(plan, kernels());
  TileSums block;
  block.resize(plan.n_outputs, 1, kBlockRows);
  out.margins.resize(plan.n_outputs * n);
  for (size_t first = 0; first < n; first += kBlockRows) {
    for (int32_t o = 0; o < plan.n_outputs; ++o) std::fill_n(block.at(o), kBlockRows, plan.constant[o]);
    add_margins(plan, margins, out.background, static_cast<int>(first / kBlockRows), words.data(), block);
    for (int32_t o = 0; o < plan.n_outputs; ++o)
      std::copy_n(block.at(o), std::min<size_t>(kBlockRows, n - first), out.margins.data() + o * n + first);
  }
  return out;
}

bool explain_rescaled(const RescaledPlan& plan, const Rows& rows, const double* labels, const double* slopes,
                      const Result& result, int n_threads, const std::function<bool()>& interrupted) {
  const TileSize size{kBlockRows, 1};
  return in_precision(plan.plan.precision, [&](auto number) {
    return explain_tiles(plan.plan, rows, result, size, n_threads, interrupted,
                         [&](int) { return RescaledWorker<decltype(number)>(plan, labels, slopes, result); });
  });
}

size_t scratch_bytes(const RescaledPlan& rescaled) {
  const Plan& plan = rescaled.plan;
  const size_t element = element_bytes(plan), outputs = plan.n_outputs;
  const int height = largest_of(plan.chunks, &Chunk::height);
  const size_t groups = std::min<size_t>(kBackgroundTile, rescaled.weights.size());
  return kBlockRows *
             (element * (most_sums(plan) + outputs * kBackgroundTile) +
              TileSums::row_bytes(outputs, plan.features.size()) + 2 * TileSums::row_bytes(outputs, 1) +
              plan.columns.size() * (plan.wide_codes ? 4 : 2)) +
         plan.columns.size() * sizeof(CategoryRows) + 8 * n_words(plan) * (kBackgroundWords + 1) +
         (height + size_t{1}) * groups * sizeof(BackgroundGroup);
}

}  // namespace skshap
