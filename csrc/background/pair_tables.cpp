#include "background/pair_tables.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

#include "background/group_targets.h"
#include "background/leaf_vectors.h"
#include "background/tile_tables.h"
#include "base/threads.h"
#include "tables/group_words.h"
#include "tables/pattern_vectors.h"
#include "tables/table_builder.h"

namespace skshap {
namespace {

static_assert(kLeafBits <= kMostSubsetBits);

// The number of sums of a batch, which a GPU keeps in shared memory for each row; and the number of its
// lookups, whose entries are added up in the plan's precision. All pairs of 20 features fit into one batch.
constexpr size_t kBatchPlaces = 210, kBatchLookups = 256;

// --- Layout ---

// Lays out the tables of all trees. A tree whose sums do not fit a batch is divided between several batches,
// and leaves with several outputs have batches of their own for each output. Both limit the number of a row's
// sums. Tables and leaves without a table are in different batches.
class PairLayout {
 public:
  // For the first output of a tree: its first table, and its first leaf without a table. The strides are the
  // distances to the table and the leaf of the next output.
  struct TreeOffsets {
    size_t lookup, lookup_stride, leaf, leaf_stride;
  };

  PairLayout(const BackgroundPairsPlan& pairs, const TableLimits& limits, Tables& out)
      : limits_(limits),
        n_background_(pairs.n_background),
        plan_(pairs.plan),
        out_(out),
        n_places_(plan_.features.size() + plan_.pairs.size()),
        groups_(plan_),
        targets_(plan_) {
    require_positions<int32_t>(n_places_ * plan_.n_outputs);
    position_.assign(n_places_, -1);
    offsets_.resize(plan_.trees.size());
    for (size_t chunk = 0; chunk < plan_.chunks.size(); ++chunk) add_chunk(chunk);
    for (TableBatch& batch : out_.batches)
      batch.row_size = padded_row(batch.places_end - batch.places, element_bytes(plan_));
    if (!out_.trees.empty()) out_.n_elements = n_elements_ + kTablePadding;
    require_positions(std::max(out_.bits.size(), out_.targets.size()));
    require_positions<int32_t>(out_.lookups.size());
  }

  const TableLimits& limits() const { return limits_; }
  const TreeOffsets& offsets(size_t tree) const { return offsets_[tree]; }
  // Return the targets of a table's numbers, in the order of group_targets.h.
  const uint32_t* columns(const Lookup& lookup) const { return columns_.data() + lookup.targets; }
  PairTableCosts costs() const {
    PairTableCosts costs{out_.lookups.size(), 0, n_tests_, out_.n_elements * element_bytes(plan_)};
    for (const Lookup& lookup : out_.lookups) costs.n_numbers += lookup.n_targets;
    return costs;
  }
  // Return the bytes of the tables plus the largest possible bytes of the patterns.
  size_t bytes() const { return costs().bytes + kPatternBytes * n_patterns_; }

 private:
  void add_chunk(size_t chunk_number) {
    const Chunk& chunk = plan_.chunks[chunk_number];
    const size_t first_batch = out_.batches.size(), first_tree = out_.trees.size(),
                 first_lookup = out_.lookups.size(), first_leaf = out_.leaves.size(),
                 first_element = n_elements_;
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) add_tree(chunk_number, i, first_batch);
    bool begun = false;
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) begun = add_leaves(chunk_number, i, begun);
    const size_t n_outputs = n_used_outputs(plan_, chunk), n_lookups = out_.lookups.size() - first_lookup,
                 n_leaves = out_.leaves.size() - first_leaf;
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      offsets_[i].lookup_stride = n_lookups;
      offsets_[i].leaf_stride = n_leaves;
    }
    const size_t batches_end = out_.batches.size(), n_trees = out_.trees.size() - first_tree,
                 n_elements = n_elements_ - first_element;
    for (size_t o = 1; o < n_outputs; ++o) {
      for (size_t b = first_batch; b < batches_end; ++b) {
        TableBatch batch = out_.batches[b];
        batch.trees += o * n_trees;
        batch.trees_end += o * n_trees;
        batch.places = out_.places.size();
        for (size_t i = out_.batches[b].places; i < out_.batches[b].places_end; ++i)
          out_.places.push_back(out_.places[i] + static_cast<uint32_t>(o * n_places_));
        batch.places_end = out_.places.size();
        out_.batches.push_back(batch);
      }
      for (size_t t = first_tree; t < first_tree + n_trees; ++t) {
        TableTree tree = out_.trees[t];
        tree.batch += o * (batches_end - first_batch);
        tree.lookups += o * n_lookups;
        tree.lookups_end += o * n_lookups;
        tree.leaves += o * n_leaves;
        tree.leaves_end += o * n_leaves;
        tree.adds_margin = false;
        out_.trees.push_back(tree);
      }
      for (size_t l = first_leaf; l < first_leaf + n_leaves; ++l) {
        PatternLeaf leaf = out_.leaves[l];
        leaf.leaf += o;
        out_.leaves.push_back(leaf);
      }
      for (size_t l = first_lookup; l < first_lookup + n_lookups; ++l) {
        Lookup lookup = out_.lookups[l];
        lookup.table += o * n_elements;
        out_.lookups.push_back(lookup);
      }
      n_elements_ += n_elements;
    }
    n_tests_ += chunk_tests_ * n_outputs;
    chunk_tests_ = 0;
  }

  void add_tree(size_t chunk, size_t tree, size_t first_batch) {
    find_groups(plan_.chunks[chunk], plan_.trees[tree], groups_, limits_);
    offsets_[tree].lookup = out_.lookups.size();
    const size_t first_tree = out_.trees.size();
    for (const TreeGroups::Group& group : groups_.groups) {
      list_numbers(group);
      size_t n_new = 0;
      for (const uint32_t place : numbers_) n_new += position_[place] < 0;
      const bool fits = out_.batches.size() > first_batch && placed_.size() + n_new <= kBatchPlaces &&
                        n_lookups_ < kBatchLookups;
      if (!fits) begin_batch(chunk);
      const bool is_first = out_.trees.size() == first_tree;
      if (!fits || is_first) add_table_tree(tree, is_first);
      add_lookup(chunk, group);
      out_.trees.back().lookups_end = out_.lookups.size();
    }
  }

  void add_table_tree(size_t tree, bool adds_margin) {
    out_.trees.push_back({.tree = tree,
                          .batch = out_.batches.size() - 1,
                          .lookups = out_.lookups.size(),
                          .lookups_end = out_.lookups.size(),
                          .leaves = out_.leaves.size(),
                          .leaves_end = out_.leaves.size(),
                          .adds_margin = adds_margin});
    out_.batches.back().trees_end = out_.trees.size();
  }

  // Add the leaves of a tree that have no table. `begun` says whether the last batch is for such leaves.
  // Return whether it is now.
  bool add_leaves(size_t chunk, size_t tree, bool begun) {
    find_groups(plan_.chunks[chunk], plan_.trees[tree], groups_, limits_);
    offsets_[tree].leaf = out_.leaves.size();
    bool is_first = true;
    for (const TreeGroups::Leaf& leaf : groups_.leaves) {
      if (leaf.grouped) continue;
      const bool fits = begun && n_lookups_ < kBatchLookups;
      if (!fits) begin_batch(chunk);
      if (!fits || is_first) add_table_tree(tree, is_first && groups_.groups.empty());
      begun = true;
      is_first = false;
      add_leaf(chunk, plan_.trees[tree], leaf);
      out_.trees.back().leaves_end = out_.leaves.size();
    }
    return begun;
  }

  // Add a leaf without a table, for its first output.
  void add_leaf(size_t chunk, const TreeProgram& tree, const TreeGroups::Leaf& leaf) {
    const PathStep* const path = groups_.steps.data() + leaf.path;
    const uint32_t n = leaf.n_features;
    out_.leaves.push_back({.bits = static_cast<uint32_t>(out_.bits.size()),
                           .n_bits = n,
                           .targets = static_cast<uint32_t>(out_.targets.size()),
                           .n_outputs = 1,
                           .leaf = tree.leaves + leaf.value});
    numbers_.clear();
    for (uint32_t i = 0; i < n; ++i) {
      out_.bits.push_back(path[i].bit);
      numbers_.push_back(static_cast<uint32_t>(path[i].feature));
    }
    for (uint32_t i = 0; i < n; ++i)
      for (uint32_t j = i + 1; j < n; ++j) numbers_.push_back(place_of({path[i].feature, path[j].feature}));
    place_numbers(chunk);
    for (const uint32_t place : numbers_) out_.targets.push_back(static_cast<uint32_t>(position_[place]));
    columns_.resize(out_.targets.size());
    const size_t n_patterns = most_patterns(n, n_background_);
    n_patterns_ += n_patterns;
    chunk_tests_ += n_patterns * (n + 1);
    ++n_lookups_;
  }

  // List the places of the numbers of a group in an output.
  void list_numbers(const TreeGroups::Group& group) {
    targets_.find(groups_, group);
    numbers_.assign(targets_.features().begin(), targets_.features().end());
    for (const FeaturePair pair : targets_.pairs()) numbers_.push_back(place_of(pair));
  }

  uint32_t place_of(const FeaturePair& pair) const {
    return static_cast<uint32_t>(plan_.features.size()) + position(plan_.pairs, pair);
  }

  void begin_batch(size_t chunk) {
    for (const uint32_t place : placed_) position_[place] = -1;
    placed_.clear();
    n_lookups_ = 0;
    out_.batches.push_back({.chunk = chunk,
                            .trees = out_.trees.size(),
                            .trees_end = out_.trees.size(),
                            .places = out_.places.size(),
                            .places_end = out_.places.size()});
  }

  // Find positions in the last batch for the places in numbers_.
  void place_numbers(size_t chunk) {
    const size_t output = std::max(plan_.chunks[chunk].output, 0);
    for (const uint32_t place : numbers_) {
      if (position_[place] >= 0) continue;
      position_[place] = static_cast<int32_t>(placed_.size());
      placed_.push_back(place);
      out_.places.push_back(static_cast<uint32_t>(output * n_places_ + place));
    }
    out_.batches.back().places_end = out_.places.size();
  }

  void add_lookup(size_t chunk, const TreeGroups::Group& group) {
    place_numbers(chunk);
    list_bits(groups_, group, bits_);
    const size_t first_bit = out_.bits.size(), first_target = out_.targets.size();
    out_.bits.insert(out_.bits.end(), bits_.begin(), bits_.end());
    for (const uint32_t place : numbers_) out_.targets.push_back(static_cast<uint32_t>(position_[place]));
    const auto sorted = out_.targets.begin() + first_target;
    std::sort(sorted, out_.targets.end());
    for (const uint32_t place : numbers_) {
      const auto target =
          std::lower_bound(sorted, out_.targets.end(), static_cast<uint32_t>(position_[place]));
      columns_.push_back(static_cast<uint32_t>(target - sorted));
    }
    out_.lookups.push_back({static_cast<uint32_t>(first_bit), group.n_bits(),
                            static_cast<uint32_t>(first_target), static_cast<uint32_t>(numbers_.size()),
                            n_elements_});
    n_elements_ += numbers_.size() << group.n_bits();
    ++n_lookups_;
  }

  const TableLimits limits_;
  const size_t n_background_;
  const Plan& plan_;
  Tables& out_;
  const size_t n_places_;  // of an output
  TreeGroups groups_;
  GroupTargets targets_;
  std::vector<uint32_t> numbers_, bits_;
  std::vector<int32_t> position_;          // by place: its position in the batch, or -1
  std::vector<uint32_t> placed_;           // the places of the batch
  std::vector<TreeOffsets> offsets_;       // by tree
  std::vector<uint32_t> columns_;          // like Tables::targets
  size_t n_lookups_ = 0, n_elements_ = 0;  // tables, or leaves without one, of the batch; of all tables
  size_t n_patterns_ = 0, n_tests_ = 0, chunk_tests_ = 0;
};

// --- Weights ---

// The weights of the background data for each pattern of a leaf, from the counts for the groups of
// tile_tables.h.
class LeafWeights {
 public:
  explicit LeafWeights(const BackgroundPairsPlan& pairs)
      : plan_(pairs.plan), groups_(plan_), counter_(pairs), words_(plan_) {}

  // Begin a tree. Its leaves follow in ascending order.
  void begin(const Chunk& chunk, size_t tree) {
    tree_ = &plan_.trees[tree];
    find_groups(chunk, *tree_, groups_);
    counts_ = &counter_.count(tree, groups_);
    group_ = 0;
    long_leaf_ = groups_.groups.size();
    has_words_ = false;
  }

  // Return the weight of each pattern of a leaf that has a table.
  const std::vector<double>& leaf_weights(size_t number) {
    const TreeGroups::Leaf& leaf = groups_.leaves[number];
    weights_.assign(size_t{1} << leaf.n_features, 0.0);
    if (!leaf.grouped) {
      const PatternCounts::Part counts = counts_->part(long_leaf_++);
      for (size_t i = 0; i < counts.n; ++i) weights_[counts.patterns[i]] += counts.weights[i];
      return weights_;
    }
    for (; groups_.groups[group_].leaves_end <= number; ++group_) has_words_ = false;
    if (!has_words_) words_.make(*tree_, groups_, groups_.groups[group_]);
    has_words_ = true;
    words_.leaf_patterns(groups_.steps.data() + leaf.path, leaf.n_features, pattern_of_);
    const PatternCounts::Part counts = counts_->part(group_);
    for (size_t i = 0; i < counts.n; ++i)
      weights_[pattern_of_.data()[counts.patterns[i]]] += counts.weights[i];
    return weights_;
  }

  // Append the patterns of a leaf that has no table to `out`, in ascending order.
  void append_patterns(size_t number, PatternCounts& out) {
    const TreeGroups::Leaf& leaf = groups_.leaves[number];
    weighted_patterns_.clear();
    if (leaf.grouped) {
      const std::vector<double>& weights = leaf_weights(number);
      for (size_t x = 0; x < weights.size(); ++x)
        if (weights[x] != 0) weighted_patterns_.emplace_back(x, weights[x]);
    } else {
      const PatternCounts::Part counts = counts_->part(long_leaf_++);
      for (size_t i = 0; i < counts.n; ++i)
        weighted_patterns_.emplace_back(counts.patterns[i], counts.weights[i]);
      std::sort(weighted_patterns_.begin(), weighted_patterns_.end());
    }
    for (const auto& [pattern, weight] : weighted_patterns_) {
      out.patterns.push_back(pattern);
      out.weights.push_back(weight);
    }
  }

 private:
  const Plan& plan_;
  const TreeProgram* tree_ = nullptr;
  TreeGroups groups_;
  BackgroundCounter counter_;
  const PatternCounts* counts_ = nullptr;
  GroupWords words_;  // of the group
  bool has_words_ = false;
  size_t group_ = 0, long_leaf_ = 0;
  Aligned<uint16_t> pattern_of_;  // by index of the group
  std::vector<double> weights_;
  std::vector<std::pair<uint64_t, double>> weighted_patterns_;
};

// --- Numbers ---

// One thread's work: it fills the tables of trees, and lists the patterns of leaves without a table.
class PairWriter {
 public:
  PairWriter(const BackgroundPairsPlan& pairs, const PairLayout& layout, Plan& out)
      : layout_(layout),
        plan_(out),
        weights_(pairs),
        groups_(out),
        words_(out),
        targets_(out),
        vectors_(out.index) {}

  // Fill the tables of a tree, and list the patterns of its leaves without a table. Add the expected value of
  // the tree's leaves over the background data to `reached`, by output of the leaves.
  void write_tree(size_t number, PatternCounts& patterns, double* reached) {
    const TreeProgram& tree = plan_.trees[number];
    const Chunk& chunk = chunk_of(plan_, number);
    n_outputs_ = n_used_outputs(plan_, chunk);
    weights_.begin(chunk, number);
    find_groups(chunk, tree, groups_, layout_.limits());
    size_t g = 0;
    for (size_t leaf = 0; leaf < groups_.leaves.size();) {
      if (groups_.leaves[leaf].grouped) {
        write_group(tree, number, g, reached);
        leaf = groups_.groups[g++].leaves_end;
      } else {
        list_patterns(tree, leaf++, patterns, reached);
      }
    }
    patterns.begin.push_back(patterns.patterns.size());
  }

 private:
  // The numbers of a leaf of the group, computed with a leaf value of 1.
  struct LeafNumbers {
    Aligned<uint16_t> patterns;     // by index of the group
    std::vector<uint32_t> numbers;  // in an entry of the group
    std::vector<double> vectors;    // [pattern][number]
  };

  void write_group(const TreeProgram& tree, size_t number, size_t g, double* reached) {
    const TreeGroups::Group& group = groups_.groups[g];
    make_leaves(tree, group, reached);
    const PairLayout::TreeOffsets& offsets = layout_.offsets(number);
    for (size_t o = 0; o < n_outputs_; ++o) {
      const Lookup& lookup = plan_.tables.lookups[offsets.lookup + o * offsets.lookup_stride + g];
      if (plan_.precision == Precision::kSingle)
        write_table(tree, lookup, group, o, plan_.tables.floats.own().data() + lookup.table);
      else
        write_table(tree, lookup, group, o, plan_.tables.doubles.own().data() + lookup.table);
    }
  }

  void list_patterns(const TreeProgram& tree, size_t number, PatternCounts& out, double* reached) {
    const TreeGroups::Leaf& leaf = groups_.leaves[number];
    const size_t first = out.patterns.size();
    out.begin.push_back(first);
    weights_.append_patterns(number, out);
    if (first == out.patterns.size() || out.patterns.back() != ~uint64_t{0} >> (64 - leaf.n_features)) return;
    const double* const values = plan_.leaf_values.data() + tree.leaves + leaf.value;
    for (size_t o = 0; o < n_outputs_; ++o) reached[o] += out.weights.back() * values[o];
  }

  void make_leaves(const TreeProgram& tree, const TreeGroups::Group& group, double* reached) {
    targets_.find(groups_, group);
    words_.make(tree, groups_, group);
    leaves_.resize(std::max(leaves_.size(), group.leaves_end - group.leaves));
    for (size_t i = group.leaves; i < group.leaves_end; ++i) {
      const TreeGroups::Leaf& from = groups_.leaves[i];
      const PathStep* const path = groups_.steps.data() + from.path;
      const uint32_t n = from.n_features;
      LeafNumbers& leaf = leaves_[i - group.leaves];
      const std::vector<double>& weights = weights_.leaf_weights(i);
      const double* const values = plan_.leaf_values.data() + tree.leaves + from.value;
      for (size_t o = 0; o < n_outputs_; ++o) reached[o] += weights.back() * values[o];
      vectors_.sum_up(n, weights.data());
      targets_.list_leaf(path, n, leaf.numbers);
      leaf.vectors.resize(leaf.numbers.size() << n);
      for (size_t x = 0; x < size_t{1} << n; ++x)
        vectors_.write(x, 1.0, leaf.vectors.data() + x * leaf.numbers.size());
      words_.leaf_patterns(path, n, leaf.patterns);
    }
  }

  template <class T>
  void write_table(const TreeProgram& tree, const Lookup& lookup, const TreeGroups::Group& group,
                   size_t output, T* to) {
    const size_t n_numbers = targets_.size(), n_features = targets_.features().size();
    const uint32_t* const columns = layout_.columns(lookup);
    entry_.resize(n_numbers);
    for (size_t index = 0; index < size_t{1} << lookup.n_bits; ++index, to += n_numbers) {
      std::fill(entry_.begin(), entry_.end(), 0.0);
      for (size_t i = group.leaves; i < group.leaves_end; ++i) {
        const LeafNumbers& leaf = leaves_[i - group.leaves];
        const double value =
            plan_.leaf_values[tree.leaves + groups_.leaves[i].value + output] / plan_.leaf_scale;
        const double* from = leaf.vectors.data() + leaf.patterns.data()[index] * leaf.numbers.size();
        for (const uint32_t number : leaf.numbers) entry_[number] += value * *from++;
      }
      for (size_t i = 0; i < n_numbers; ++i)  // plans have twice the sums of pairs
        to[columns[i]] = static_cast<T>(i < n_features ? entry_[i] : 2 * entry_[i]);
    }
  }

  const PairLayout& layout_;
  Plan& plan_;
  LeafWeights weights_;
  TreeGroups groups_;
  GroupWords words_;
  GroupTargets targets_;
  LeafVectors vectors_;
  size_t n_outputs_ = 1;
  std::vector<LeafNumbers> leaves_;
  std::vector<double> entry_;
};

// Lay out tables for leaves on paths of as many features as possible, up to kLeafBits, such that tables and
// patterns fit into table_bytes. If nothing fits, no leaf has a table.
PairLayout lay_out(const BackgroundPairsPlan& pairs, size_t table_bytes, Tables& tables) {
  for (TableLimits limits{kLeafBits, true};; --limits.leaf_bits) {
    tables = {};
    PairLayout layout(pairs, limits, tables);
    if (layout.bytes() <= table_bytes || !limits.leaf_bits) return layout;
  }
}

// Move the patterns of leaves, by tree, to the plan.
void store_patterns(const std::vector<PatternCounts>& by_tree, const PairLayout& layout, Plan& plan) {
  Tables& tables = plan.tables;
  auto& patterns = tables.patterns.own();
  auto& weights = tables.weights.own();
  for (size_t tree = 0; tree < by_tree.size(); ++tree) {
    const PatternCounts& from = by_tree[tree];
    const PairLayout::TreeOffsets& offsets = layout.offsets(tree);
    for (size_t i = 0; i + 1 < from.begin.size(); ++i)
      for (size_t o = 0; o < n_used_outputs(plan, chunk_of(plan, tree)); ++o) {
        PatternLeaf& leaf = tables.leaves[offsets.leaf + i + o * offsets.leaf_stride];
        leaf.patterns = patterns.size() + from.begin[i];
        leaf.n_patterns = from.begin[i + 1] - from.begin[i];
      }
    patterns.insert(patterns.end(), from.patterns.begin(), from.patterns.end());
    weights.insert(weights.end(), from.weights.begin(), from.weights.end());
  }
}

}  // namespace

std::optional<PairTableCosts> pair_table_costs(const BackgroundPairsPlan& pairs, size_t table_bytes) {
  try {
    Tables tables;
    const PairLayout layout = lay_out(pairs, table_bytes, tables);
    return layout.bytes() <= table_bytes ? std::optional(layout.costs()) : std::nullopt;
  } catch (const std::invalid_argument&) {  // beyond the integer ranges of tables
    return std::nullopt;
  }
}

Plan make_pair_tables(const BackgroundPairsPlan& pairs, size_t table_bytes, int64_t n_threads) {
  const TableClock clock;
  Plan plan = pairs.plan;
  const PairLayout layout = lay_out(pairs, table_bytes, plan.tables);
  require_room(layout.bytes(), table_bytes);
  plan.tables.against_background = true;
  allocate_tables(plan);
  const size_t n_trees = plan.trees.size(), n_outputs = plan.n_outputs;
  std::vector<double> reached(n_trees * n_outputs, 0.0);
  std::vector<PatternCounts> patterns(n_trees);
  share_items(static_cast<int64_t>(n_trees), n_threads, [&] {
    return [&, writer = PairWriter(pairs, layout, plan)](int64_t i) mutable {
      writer.write_tree(i, patterns[i], reached.data() + i * n_outputs);
    };
  });
  store_patterns(patterns, layout, plan);
  plan.base_value = plan.constant;
  for (size_t i = 0; i < n_trees; ++i) {
    const Chunk& chunk = chunk_of(plan, i);
    for (size_t o = 0; o < n_used_outputs(plan, chunk); ++o)
      plan.base_value[std::max(chunk.output, 0) + o] += reached[i * n_outputs + o];
  }
  clock.stop(plan);
  return plan;
}

}  // namespace skshap
