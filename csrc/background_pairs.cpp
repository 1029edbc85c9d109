#include "background_pairs.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "aligned.h"
#include "group_words.h"
#include "leaf_vectors.h"
#include "margin.h"
#include "matrices.h"
#include "threads.h"

namespace skshap {
namespace {

// Bits of the index of leaves that share a table: more make fewer look-ups, but larger tables.
constexpr uint32_t kGroupBits = 8;
// Look-ups whose numbers are added up in the plan's precision: too many would lose digits.
constexpr int kMaxLookUps = 256;
// What a thread keeps of a tile, of which tables are made anew.
constexpr size_t kTileBytes = 16 << 20;
constexpr int64_t kMaxTileRows = 4096;
// A table of the patterns that occur in some rows.
constexpr size_t kRowTableBytes = 4 << 20;
// Elements that a look-up reads beyond the end of a table.
constexpr size_t kPadding = 16;

constexpr TableLimits kLimits{kGroupBits};

// Positions of a chunk: its features, then its pairs, and room for what a table is padded with.
size_t n_positions(const Chunk& chunk) { return chunk.slots.size() + chunk.pairs.size(); }
size_t row_size(const Chunk& chunk, size_t element) {
  return padded_row(n_positions(chunk) + kPadding, element);
}

size_t n_sums(const Plan& plan) { return plan.features.size() + plan.pairs.size(); }

size_t longest_row(const Plan& plan, size_t element) {
  size_t longest = 0;
  for (const Chunk& chunk : plan.chunks) longest = std::max(longest, row_size(chunk, element));
  return longest;
}

// What a thread keeps of each row of a tile.
size_t row_bytes(const Plan& plan) {
  const size_t element = plan.precision == Precision::kSingle ? 4 : 8;
  return plan.columns.size() * (plan.wide_codes ? 4 : 2) + 8 * (n_sums(plan) + plan.n_outputs) +
         longest_row(plan, element) * element + block_words(most_inner_nodes(plan)) * 8 / kBlockRows +
         sizeof(uint16_t) + sizeof(uint64_t) + 1;
}

// As many rows as there is room for, in equal parts for the threads.
int tile_rows(const Plan& plan, int64_t n_rows, int64_t n_threads) {
  const int64_t most =
      std::clamp<int64_t>(static_cast<int64_t>(kTileBytes / row_bytes(plan)), kBlockRows, kMaxTileRows);
  const int64_t n_rounds = std::max<int64_t>(1, (n_rows + n_threads * most - 1) / (n_threads * most));
  const int64_t rows = (n_rows + n_rounds * n_threads - 1) / (n_rounds * n_threads);
  return static_cast<int>(std::max<int64_t>(1, (std::min(rows, most) + kBlockRows - 1) / kBlockRows)) *
         kBlockRows;
}

// Finds the groups of a tree, with the features of each path in ascending order.
void find_groups(const Chunk& chunk, const TreeProgram& tree, TreeGroups& groups) {
  groups.find(chunk, tree, kLimits);
  for (const TreeGroups::Leaf& leaf : groups.leaves)
    std::sort(groups.steps.begin() + leaf.path, groups.steps.begin() + leaf.path + leaf.n_features,
              [](const PathStep& a, const PathStep& b) { return a.feature < b.feature; });
}

}  // namespace

// --- Plan ---

size_t BackgroundPairsPlan::count_bytes() const {
  size_t total = 0;
  for (const PatternCounts& of_tree : counts) total += of_tree.bytes();
  return total;
}

size_t BackgroundPairsPlan::bytes() const {
  return plan.bytes() + 8 * weights.size() + 2 * background.narrow.size() + 4 * background.wide.size() +
         sizeof(CategoryRows) * background.category_rows.size() + count_bytes();
}

namespace {

// Counts the background at the leaves of all trees, and keeps what there is room for.
void count_background(BackgroundPairsPlan& out, size_t count_bytes, int64_t n_threads) {
  const Plan& plan = out.plan;
  std::vector<size_t> chunk_of(plan.trees.size());
  for (size_t c = 0; c < plan.chunks.size(); ++c)
    for (size_t i = plan.chunks[c].tree_begin; i < plan.chunks[c].tree_end; ++i) chunk_of[i] = c;
  out.counts.resize(plan.trees.size());
  std::atomic<size_t> next{0}, kept{0}, largest{0};
  run_threads(std::min<int64_t>(n_threads, static_cast<int64_t>(plan.trees.size())), [&](bool) {
    BackgroundCounter counter(plan, out.background, out.weights, kGroupBits);
    TreeGroups groups(plan);
    PatternCounts counts;
    for (size_t i; (i = next++) < plan.trees.size();) {
      find_groups(plan.chunks[chunk_of[i]], plan.trees[i], groups);
      counter.count(plan.trees[i], groups, counts);
      const size_t bytes = counts.bytes();
      for (size_t seen = largest; seen < bytes && !largest.compare_exchange_weak(seen, bytes);) continue;
      if ((kept += bytes) <= count_bytes)
        out.counts[i] = counts;
      else
        kept -= bytes;
    }
  });
  out.largest_count = largest;
}

}  // namespace

BackgroundPairsPlan make_background_pairs_plan(const EnsembleView& ensemble, Precision precision,
                                               const Rows& rows, const double* weights, int order,
                                               Index index, size_t count_bytes, int64_t n_threads) {
  BackgroundPairsPlan out{make_plan(ensemble, precision, order, index), {}, {}, {}, 0};
  Plan& plan = out.plan;
  const uint32_t longest = longest_path(plan);
  if (longest > kMaxPatternBits)
    throw std::invalid_argument("a path has " + std::to_string(longest) +
                                " different features; background data allow for at most " +
                                std::to_string(kMaxPatternBits));
  if (rows.n_rows > INT32_MAX - kBlockRows) throw std::invalid_argument("too many background rows");
  for (TreeProgram& tree : plan.trees) tree.by_tables = true;
  drop_walks(plan);
  for (Chunk& chunk : plan.chunks) {
    std::sort(chunk.slots.begin(), chunk.slots.end());
    std::sort(chunk.pairs.begin(), chunk.pairs.end());
  }
  const int n = static_cast<int>(rows.n_rows);
  out.weights.assign(weights, weights + n);
  out.background.allocate(plan, (n + kBlockRows - 1) / kBlockRows * kBlockRows);
  code_tile(plan, kernels(), rows, 0, n, out.background);
  count_background(out, count_bytes, n_threads);
  const auto is_counted = [](const PatternCounts& counts) { return !counts.begin.empty(); };
  if (std::all_of(out.counts.begin(), out.counts.end(), is_counted)) {
    out.background = {};
    out.weights = {};
  }
  return out;
}

// --- Rows ---

namespace {

// One thread's work: tiles of rows, for one output after the other, through all trees, into the result.
template <class T>
class Worker {
 public:
  Worker(const BackgroundPairsPlan& pairs_plan, const Rows& rows, const Result& result, int tile)
      : pairs_plan_(pairs_plan),
        plan_(pairs_plan.plan),
        rows_(rows),
        result_(result),
        tile_(tile),
        margins_(plan_, kernels()),
        groups_(plan_),
        group_words_(plan_),
        counter_(plan_, pairs_plan.background, pairs_plan.weights, kGroupBits),
        vectors_(plan_.index, plan_.order) {
    codes_.allocate(plan_, tile);
    const size_t n_words = tile / kBlockRows * block_words(most_inner_nodes(plan_));
    words_.assign(n_words + 2 * (most_inner_nodes(plan_) + 1), 0);  // those of leaves are read, too
    phi_.resize(tile * longest_row(plan_, sizeof(T)));
    std::fill_n(phi_.data(), phi_.size(), T(0));
    sums_.resize(tile * n_sums(plan_));
    margin_.resize(static_cast<size_t>(plan_.n_outputs) * tile);
    index_.resize(tile);
    patterns_.resize(tile);
    main_.resize(plan_.features.size());
    slot_of_.resize(plan_.features.size());
    group_feature_.resize(plan_.features.size());
  }

  // Returns false when `stop` asked to.
  bool run(int64_t first_row, int n_rows, const Stop& stop) {
    n_rows_ = n_rows;
    n_blocks_ = (static_cast<size_t>(n_rows) + kBlockRows - 1) / kBlockRows;
    code_tile(plan_, kernels(), rows_, first_row, n_rows, codes_);
    for (int32_t o = 0; o < plan_.n_outputs; ++o)
      std::fill_n(margin_.data() + static_cast<size_t>(o) * tile_, tile_, plan_.constant[o]);
    for (output_ = 0; output_ < plan_.n_outputs; ++output_) {
      std::fill_n(sums_.data(), n_rows_ * n_sums(plan_), 0.0);
      for (const Chunk& chunk : plan_.chunks)
        if ((chunk.output < 0 || chunk.output == output_) && !run_chunk(chunk, stop)) return false;
      if (result_.is_float32)
        write<float>(first_row);
      else
        write<double>(first_row);
    }
    for (size_t row = 0; result_.margin && row < n_rows_; ++row)
      for (int32_t o = 0; o < plan_.n_outputs; ++o)
        result_.margin[(first_row + row) * plan_.n_outputs + o] = margin_.data()[o * tile_ + row];
    return true;
  }

 private:
  bool run_chunk(const Chunk& chunk, const Stop& stop) {
    row_size_ = row_size(chunk, sizeof(T));
    const size_t n_slots = chunk.slots.size();
    for (size_t slot = 0; slot < n_slots; ++slot) slot_of_[chunk.slots[slot]] = static_cast<uint32_t>(slot);
    pair_position_.resize(n_slots * n_slots);
    for (size_t i = 0; i < chunk.pairs.size(); ++i) {
      const FeaturePair pair = plan_.pairs[chunk.pairs[i]];
      pair_position_[slot_of_[pair.first] * n_slots + slot_of_[pair.second]] =
          static_cast<uint32_t>(n_slots + i);
    }
    n_slots_ = n_slots;
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      run_tree(chunk, i);
      if (stop()) return false;
    }
    flush(chunk);
    return true;
  }

  void run_tree(const Chunk& chunk, size_t index) {
    const TreeProgram& tree = plan_.trees[index];
    const size_t n_outputs = n_used_outputs(plan_, chunk);
    block_words_ = block_words(tree.n_inner);
    for (size_t block = 0; block < n_blocks_; ++block) {
      uint64_t* const words = words_.data() + block * block_words_;
      decide_block(plan_, kernels(), plan_.decide.data() + tree.decide, tree.n_inner, codes_,
                   static_cast<int>(block), words);
    }
    if (result_.margin && (chunk.output >= 0 || output_ == 0))
      for (size_t block = 0; block < n_blocks_; ++block)
        margins_.add(tree, n_outputs, words_.data() + block * block_words_,
                     margin_.data() + std::max(chunk.output, 0) * tile_ + block * kBlockRows, tile_);
    find_groups(chunk, tree, groups_);
    const PatternCounts* counts = &pairs_plan_.counts[index];
    if (counts->begin.empty()) {
      counter_.count(tree, groups_, counts_);
      counts = &counts_;
    }
    const double* const values = plan_.leaf_values.data() + tree.leaves + (chunk.output < 0 ? output_ : 0);
    const size_t* part = counts->begin.data();
    for (const TreeGroups::Group& group : groups_.groups) {
      add_group(tree, group, *counts, part[0], part[1], values);
      ++part;
      count_look_up(chunk);
    }
    for (const TreeGroups::Leaf& leaf : groups_.leaves) {
      if (leaf.grouped) continue;
      add_leaf(leaf, counts->patterns.data() + part[0], counts->weights.data() + part[0], part[1] - part[0],
               values[leaf.value] / plan_.leaf_scale);
      ++part;
      count_look_up(chunk);
    }
  }

  void count_look_up(const Chunk& chunk) {
    if (++n_look_ups_ == kMaxLookUps) flush(chunk);
  }

  void add_group(const TreeProgram& tree, const TreeGroups::Group& group, const PatternCounts& counts,
                 size_t first_count, size_t end_count, const double* values) {
    list_group_targets(group);
    const size_t n_targets = targets_.size(), n_leaves = group.leaves_end - group.leaves;
    group_words_.make(tree, groups_, group);
    const size_t n_indices = group_words_.n_blocks() * kBlockRows;
    // A vector of the table may be padded, with zeros for the positions that follow.
    const size_t stride = n_leaves == 1 ? n_targets : padded_row(n_targets, sizeof(T));
    grow(group_index_, n_indices);
    grow(table_, n_indices * stride + kPadding);
    if (n_leaves > 1) std::fill_n(table_.data(), n_indices * stride, T(0));
    for (size_t i = group.leaves; i < group.leaves_end; ++i) {
      const TreeGroups::Leaf& leaf = groups_.leaves[i];
      const PathStep* const path = groups_.steps.data() + leaf.path;
      const uint32_t d = leaf.n_features;
      bits_.clear();
      for (uint32_t f = 0; f < d; ++f) bits_.push_back(group_words_.local(path[f].bit));
      kernels().index({group_words_.data(), group_words_.block_words(), group_words_.n_blocks(), bits_.data(),
                       d, group_index_.data()});
      weights_.assign(size_t{1} << d, 0.0);
      for (size_t count = first_count; count < end_count; ++count)
        weights_[group_index_.data()[counts.patterns[count]]] += counts.weights[count];
      const double value = values[leaf.value] / plan_.leaf_scale;
      if (n_leaves == 1) {
        vectors_.all(d, weights_.data(), value, table_.data());
        break;
      }
      grow(leaf_table_, (size_t{leaf_numbers(plan_.order, d)} << d) + kPadding);
      vectors_.all(d, weights_.data(), value, leaf_table_.data());
      list_leaf_targets(path, d);
      look_up({group_index_.data(), n_indices, leaf_table_.data(), leaf_targets_.data(),
               static_cast<uint32_t>(leaf_targets_.size()), table_.data(), stride});
    }
    for (size_t i = n_targets; i < stride; ++i) targets_.push_back(targets_.back() + 1);
    if (n_leaves == 1)  // whose table is by its own pattern
      list_bits(groups_, groups_.leaves[group.leaves], bits_);
    else
      list_bits(groups_, group, bits_);
    kernels().index({words_.data(), block_words_, n_blocks_, bits_.data(),
                     static_cast<uint32_t>(bits_.size()), index_.data()});
    look_up({index_.data(), n_blocks_ * kBlockRows, table_.data(), targets_.data(),
             static_cast<uint32_t>(stride), phi_.data(), row_size_});
  }

  // Positions of what a group's leaves give numbers to, ascending, and where in its table they stand.
  void list_group_targets(const TreeGroups::Group& group) {
    group_features_.clear();
    for (size_t i = group.leaves; i < group.leaves_end; ++i)
      for (uint32_t f = 0; f < groups_.leaves[i].n_features; ++f)
        group_features_.push_back(groups_.steps[groups_.leaves[i].path + f].feature);
    std::sort(group_features_.begin(), group_features_.end());
    group_features_.erase(std::unique(group_features_.begin(), group_features_.end()), group_features_.end());
    const uint32_t n = static_cast<uint32_t>(group_features_.size());
    for (uint32_t i = 0; i < n; ++i) group_feature_[group_features_[i]] = i;
    uint64_t together[kGroupBits] = {};
    for (size_t i = group.leaves; i < group.leaves_end; ++i) {
      uint64_t features = 0;
      const PathStep* const path = groups_.steps.data() + groups_.leaves[i].path;
      for (uint32_t f = 0; f < groups_.leaves[i].n_features; ++f)
        features |= uint64_t{1} << group_feature_[path[f].feature];
      for (uint64_t rest = features; rest; rest &= rest - 1) together[__builtin_ctzll(rest)] |= features;
    }
    targets_.clear();
    for (const int32_t feature : group_features_) targets_.push_back(slot_of_[feature]);
    if (plan_.order < 2) return;
    for (uint32_t i = 0; i < n; ++i)
      for (uint32_t j = i + 1; j < n; ++j) {
        if (!(together[i] >> j & 1)) continue;
        group_pair_[i][j] = static_cast<uint32_t>(targets_.size());
        targets_.push_back(position(group_features_[i], group_features_[j]));
      }
  }

  uint32_t position(int32_t first, int32_t second) const {
    return pair_position_[slot_of_[first] * n_slots_ + slot_of_[second]];
  }

  // Where the numbers of a leaf stand in the table of its group.
  void list_leaf_targets(const PathStep* path, uint32_t n) {
    leaf_targets_.clear();
    for (uint32_t i = 0; i < n; ++i) leaf_targets_.push_back(group_feature_[path[i].feature]);
    if (plan_.order < 2) return;
    for (uint32_t i = 0; i < n; ++i)
      for (uint32_t j = i + 1; j < n; ++j)
        leaf_targets_.push_back(group_pair_[leaf_targets_[i]][leaf_targets_[j]]);
  }

  // A leaf with a long path has a table of its own: of all patterns, or of those that occur.
  void add_leaf(const TreeGroups::Leaf& leaf, const uint64_t* patterns, const double* weights,
                size_t n_patterns, double value) {
    const PathStep* const path = groups_.steps.data() + leaf.path;
    const uint32_t n = leaf.n_features, n_numbers = leaf_numbers(plan_.order, n);
    targets_.clear();
    for (uint32_t i = 0; i < n; ++i) targets_.push_back(slot_of_[path[i].feature]);
    if (plan_.order > 1)
      for (uint32_t i = 0; i < n; ++i)
        for (uint32_t j = i + 1; j < n; ++j) targets_.push_back(position(path[i].feature, path[j].feature));
    list_bits(groups_, leaf, bits_);
    const bool all = vectors_.prefers_all(n, n_patterns);
    size_t n_part = n_blocks_;
    if (all) {
      grow(table_, (size_t{n_numbers} << n) + kPadding);
      weights_.assign(size_t{1} << n, 0.0);
      for (size_t i = 0; i < n_patterns; ++i) weights_[patterns[i]] += weights[i];
      vectors_.all(n, weights_.data(), value, table_.data());
      kernels().index({words_.data(), block_words_, n_blocks_, bits_.data(), n, index_.data()});
    } else {
      row_patterns(kernels(), words_.data(), block_words_, n_blocks_, bits_.data(), n, index_.data(),
                   patterns_.data());
      n_part = std::max<size_t>(1, kRowTableBytes / (n_numbers * sizeof(T) * kBlockRows));
    }
    for (size_t first = 0; first < n_blocks_; first += n_part) {
      const size_t first_row = first * kBlockRows, n_rows = std::min(n_part, n_blocks_ - first) * kBlockRows;
      if (!all) {
        ids_.clear();
        for (size_t row = first_row; row < first_row + n_rows; ++row)
          index_.data()[row] = static_cast<uint16_t>(ids_.id(patterns_[row]));
        grow(table_, ids_.patterns().size() * n_numbers + kPadding);
        for (size_t i = 0; i < ids_.patterns().size(); ++i)
          vectors_.one(n, ids_.patterns()[i], patterns, weights, n_patterns, value,
                       table_.data() + i * n_numbers);
      }
      look_up({index_.data() + first_row, n_rows, table_.data(), targets_.data(), n_numbers,
               phi_.data() + first_row * row_size_, row_size_});
    }
  }

  static void look_up(const LookUpArgs<T>& args) {
    if constexpr (sizeof(T) == 4)
      kernels().look_up_float(args);
    else
      kernels().look_up_double(args);
  }

  // Moves what look-ups gave to the sums.
  void flush(const Chunk& chunk) {
    const size_t n_used = plan_.features.size();
    for (size_t row = 0; row < n_rows_; ++row) {
      const T* from = phi_.data() + row * row_size_;
      double* const to = sums_.data() + row * n_sums(plan_);
      for (const int32_t slot : chunk.slots) to[slot] += plan_.leaf_scale * *from++;
      for (const int32_t pair : chunk.pairs) to[n_used + pair] += plan_.leaf_scale * *from++;
    }
    std::fill_n(phi_.data(), n_blocks_ * kBlockRows * row_size_, T(0));
    n_look_ups_ = 0;
  }

  template <class Out>
  void write(int64_t first_row) {
    const size_t n_features = plan_.n_features, n_used = plan_.features.size(), n_pairs = plan_.pairs.size();
    for (size_t row = 0; row < n_rows_; ++row) {
      const size_t index = (first_row + row) * plan_.n_outputs + output_;
      const double *const values = sums_.data() + row * n_sums(plan_), *const pairs = values + n_used;
      Out* const out = static_cast<Out*>(result_.values) + index * n_features;
      std::fill_n(out, n_features, Out(0));
      for (size_t i = 0; i < n_used; ++i) out[plan_.features[i]] = static_cast<Out>(values[i]);
      if (result_.pairs) {
        Out* const to = static_cast<Out*>(result_.pairs) + index * n_pairs;
        for (size_t i = 0; i < n_pairs; ++i) to[i] = static_cast<Out>(pairs[i]);
      }
      if (result_.matrices)
        write_matrix(plan_, values, pairs, 1, main_.data(),
                     static_cast<Out*>(result_.matrices) + index * n_features * n_features);
    }
  }

  template <class X>
  static void grow(Aligned<X>& buffer, size_t n) {
    if (buffer.size() >= n) return;
    buffer.resize(n);
    std::fill_n(buffer.data(), n, X(0));
  }

  const BackgroundPairsPlan& pairs_plan_;
  const Plan& plan_;
  const Rows& rows_;
  const Result& result_;
  const size_t tile_;
  size_t n_rows_ = 0, n_blocks_ = 0;  // of the tile
  int32_t output_ = 0;
  size_t n_slots_ = 0, row_size_ = 0;  // of the chunk
  size_t block_words_ = 0;             // of the tree
  int n_look_ups_ = 0;                 // since the last flush
  CodeTile codes_;
  Margins margins_;
  TreeGroups groups_;
  GroupWords group_words_;
  BackgroundCounter counter_;
  PatternCounts counts_;
  LeafVectors vectors_;
  PatternIds ids_;
  std::vector<uint64_t> words_, patterns_;
  Aligned<uint16_t> index_, group_index_;
  Aligned<T> phi_, table_, leaf_table_;  // phi: [row][row_size_]
  Aligned<double> sums_, margin_;        // sums: [row][used feature, then pair]
  std::vector<double> main_, weights_;
  std::vector<uint32_t> slot_of_, pair_position_;  // by used feature; [slot][slot]
  std::vector<int32_t> group_features_;
  std::vector<uint32_t> group_feature_;  // by used feature: its place in group_features_
  uint32_t group_pair_[kGroupBits][kGroupBits];
  std::vector<uint32_t> bits_, targets_, leaf_targets_;
};

template <class T>
bool explain_tiles(const BackgroundPairsPlan& plan, const Rows& rows, const Result& result, int64_t n_threads,
                   const std::function<bool()>& interrupted) {
  const int tile = tile_rows(plan.plan, rows.n_rows, n_threads);
  return work_off((rows.n_rows + tile - 1) / tile, n_threads, interrupted, [&] {
    return [&, worker = Worker<T>(plan, rows, result, tile)](int64_t i, const Stop& stop) mutable {
      const int64_t first = i * tile;
      return worker.run(first, static_cast<int>(std::min<int64_t>(tile, rows.n_rows - first)), stop);
    };
  });
}

// Elements of the tables that are made.
size_t table_elements(const Plan& plan, uint32_t longest, size_t element) {
  const uint32_t n = std::min(longest, kGroupBits);
  const size_t of_group = (padded_row(leaf_numbers(plan.order, n), element) + leaf_numbers(plan.order, n))
                          << kGroupBits;
  if (longest <= kGroupBits) return of_group;
  const uint32_t most = std::min(longest, kMostForAll);
  return of_group + std::max({size_t{leaf_numbers(plan.order, most)} << most, kRowTableBytes / element,
                              size_t{leaf_numbers(plan.order, longest)} * kBlockRows});
}

}  // namespace

bool explain_background_pairs(const BackgroundPairsPlan& plan, const Rows& rows, const Result& result,
                              int n_threads, const std::function<bool()>& interrupted) {
  return (plan.plan.precision == Precision::kSingle
              ? explain_tiles<float>
              : explain_tiles<double>)(plan, rows, result, n_threads, interrupted);
}

size_t scratch_bytes(const BackgroundPairsPlan& pairs_plan) {
  const Plan& plan = pairs_plan.plan;
  const size_t element = plan.precision == Precision::kSingle ? 4 : 8;
  const size_t tile = tile_rows(plan, INT64_MAX / 8, 1), n_inner = most_inner_nodes(plan);
  const uint32_t longest = longest_path(plan);
  size_t most_slots = 0;
  for (const Chunk& chunk : plan.chunks) most_slots = std::max(most_slots, chunk.slots.size());
  // Of each leaf of a tree: its path, itself and its group, in vectors that may be twice as large.
  const size_t leaf_bytes =
      2 * ((longest + kGroupBits) * sizeof(PathStep) + sizeof(TreeGroups::Leaf) + sizeof(TreeGroups::Group));
  size_t counting = 0;
  if (!pairs_plan.weights.empty())
    counting =
        BackgroundCounter::bytes(plan, pairs_plan.weights.size(), kGroupBits) + 3 * pairs_plan.largest_count;
  return tile * row_bytes(plan) + tile / kBlockRows * plan.columns.size() * sizeof(CategoryRows) +
         element * table_elements(plan, longest, element) + LeafVectors::bytes(plan, longest) + counting +
         (n_inner + 1) * (leaf_bytes + 32) + 4 * most_slots * most_slots + 16 * plan.features.size();
}

}  // namespace skshap
