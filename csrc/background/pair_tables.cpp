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
#include "tables/table_builder.h"

namespace skshap {
namespace {

static_assert(kLeafBits <= kMostSubsetBits);

constexpr TableLimits kLimits{kLeafBits, true};
// The sums of a batch, which a GPU has in shared memory for each row, and the lookups, whose entries are
// added up in the plan's precision. All pairs of 20 features are in one batch.
constexpr size_t kBatchPlaces = 210, kBatchLookups = 256;

// --- Layout ---

// Lays out the tables of all trees. Trees whose sums do not fit a batch are divided between several, and the
// outputs of leaves that have several are in batches of their own: both bound the sums of a row.
class PairLayout {
 public:
  // The first table of a tree for its first output, and the distance to those of its next output.
  struct Place {
    size_t lookup, stride;
  };

  PairLayout(const Plan& plan, Tables& out)
      : plan_(plan),
        out_(out),
        n_places_(plan.features.size() + plan.pairs.size()),
        groups_(plan),
        targets_(plan) {
    if (n_places_ * plan.n_outputs > INT32_MAX)
      throw std::invalid_argument("too many pairs and outputs for tables: use the CPU");
    position_.assign(n_places_, -1);
    places_.resize(plan.trees.size());
    for (size_t chunk = 0; chunk < plan.chunks.size(); ++chunk) add_chunk(chunk);
    for (TableBatch& batch : out_.batches)
      batch.row_size = padded_row(batch.places_end - batch.places, element_bytes(plan));
    if (!out_.trees.empty()) out_.n_elements = n_elements_ + kTablePadding;
    if (std::max(out_.bits.size(), out_.targets.size()) > UINT32_MAX || out_.lookups.size() > INT32_MAX)
      throw std::invalid_argument("too many leaves for tables: use the CPU");
  }

  const Place& place(size_t tree) const { return places_[tree]; }
  // Return the target of each of a table's numbers, which are in the order of group_targets.h.
  const uint32_t* columns(const Lookup& lookup) const { return columns_.data() + lookup.targets; }
  PairTableCosts costs() const {
    PairTableCosts costs{out_.lookups.size(), 0, out_.n_elements * element_bytes(plan_)};
    for (const Lookup& lookup : out_.lookups) costs.n_numbers += lookup.n_targets;
    return costs;
  }

 private:
  void add_chunk(size_t chunk_number) {
    const Chunk& chunk = plan_.chunks[chunk_number];
    const size_t first_batch = out_.batches.size(), first_tree = out_.trees.size(),
                 first_lookup = out_.lookups.size(), first_element = n_elements_;
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) add_tree(chunk_number, i, first_batch);
    const size_t n_outputs = n_used_outputs(plan_, chunk), n_lookups = out_.lookups.size() - first_lookup;
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) places_[i].stride = n_lookups;
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
        tree.adds_margin = false;
        out_.trees.push_back(tree);
      }
      for (size_t l = first_lookup; l < first_lookup + n_lookups; ++l) {
        Lookup lookup = out_.lookups[l];
        lookup.table += o * n_elements;
        out_.lookups.push_back(lookup);
      }
      n_elements_ += n_elements;
    }
  }

  void add_tree(size_t chunk, size_t tree, size_t first_batch) {
    find_groups(plan_.chunks[chunk], plan_.trees[tree], groups_, kLimits);
    places_[tree].lookup = out_.lookups.size();
    const size_t first_tree = out_.trees.size();
    for (const TreeGroups::Group& group : groups_.groups) {
      list_numbers(group);
      size_t n_new = 0;
      for (const uint32_t place : numbers_) n_new += position_[place] < 0;
      const bool fits = out_.batches.size() > first_batch && placed_.size() + n_new <= kBatchPlaces &&
                        n_lookups_ < kBatchLookups;
      if (!fits) begin_batch(chunk);
      if (!fits || out_.trees.size() == first_tree) {
        out_.trees.push_back({tree, out_.batches.size() - 1, out_.lookups.size(), out_.lookups.size(), 0, 0,
                              0, 0, 0, out_.trees.size() == first_tree});
        out_.batches.back().trees_end = out_.trees.size();
      }
      add_lookup(chunk, group);
      out_.trees.back().lookups_end = out_.lookups.size();
    }
  }

  // List the places of a group's numbers in an output.
  void list_numbers(const TreeGroups::Group& group) {
    targets_.find(groups_, group);
    numbers_.assign(targets_.features().begin(), targets_.features().end());
    for (const FeaturePair pair : targets_.pairs())
      numbers_.push_back(static_cast<uint32_t>(plan_.features.size() + pair_place(pair)));
  }

  size_t pair_place(const FeaturePair& pair) const {
    const auto before = [](const FeaturePair& a, const FeaturePair& b) {
      return a.first != b.first ? a.first < b.first : a.second < b.second;
    };
    return std::lower_bound(plan_.pairs.begin(), plan_.pairs.end(), pair, before) - plan_.pairs.begin();
  }

  void begin_batch(size_t chunk) {
    for (const uint32_t place : placed_) position_[place] = -1;
    placed_.clear();
    n_lookups_ = 0;
    out_.batches.push_back(
        {chunk, out_.trees.size(), out_.trees.size(), out_.places.size(), out_.places.size(), 0});
  }

  void add_lookup(size_t chunk, const TreeGroups::Group& group) {
    const size_t output = std::max(plan_.chunks[chunk].output, 0);
    for (const uint32_t place : numbers_) {
      if (position_[place] >= 0) continue;
      position_[place] = static_cast<int32_t>(placed_.size());
      placed_.push_back(place);
      out_.places.push_back(static_cast<uint32_t>(output * n_places_ + place));
    }
    out_.batches.back().places_end = out_.places.size();
    list_bits(groups_, group, bits_);
    const size_t first_bit = out_.bits.size(), first_target = out_.targets.size();
    out_.bits.insert(out_.bits.end(), bits_.begin(), bits_.end());
    for (const uint32_t place : numbers_) out_.targets.push_back(static_cast<uint32_t>(position_[place]));
    const auto sorted = out_.targets.begin() + first_target;
    std::sort(sorted, out_.targets.end());
    for (const uint32_t place : numbers_) {
      const auto found =
          std::lower_bound(sorted, out_.targets.end(), static_cast<uint32_t>(position_[place]));
      columns_.push_back(static_cast<uint32_t>(found - sorted));
    }
    out_.lookups.push_back({static_cast<uint32_t>(first_bit), group.n_bits(),
                            static_cast<uint32_t>(first_target), static_cast<uint32_t>(numbers_.size()),
                            n_elements_});
    n_elements_ += numbers_.size() << group.n_bits();
    ++n_lookups_;
  }

  const Plan& plan_;
  Tables& out_;
  const size_t n_places_;  // of an output
  TreeGroups groups_;
  GroupTargets targets_;
  std::vector<uint32_t> numbers_, bits_;
  std::vector<int32_t> position_;  // by place: its position in the batch, or -1
  std::vector<uint32_t> placed_;   // the places of the batch
  std::vector<Place> places_;      // by tree
  std::vector<uint32_t> columns_;  // like Tables::targets
  size_t n_lookups_ = 0, n_elements_ = 0;
};

// --- Weights ---

// The weights of the background data by pattern of a leaf, from counts for the groups of tile_tables.h.
class LeafWeights {
 public:
  explicit LeafWeights(const BackgroundPairsPlan& pairs)
      : pairs_(pairs),
        plan_(pairs.plan),
        groups_(plan_),
        counter_(plan_, pairs.background, pairs.weights),
        words_(plan_) {}

  // Begin with a tree, whose leaves follow in ascending order.
  void begin(const Chunk& chunk, size_t tree) {
    tree_ = &plan_.trees[tree];
    find_groups(chunk, *tree_, groups_);
    counts_ = &pairs_.counts[tree];
    if (counts_->begin.empty()) {
      counter_.count(*tree_, groups_, counted_);
      counts_ = &counted_;
    }
    group_ = 0;
    long_leaf_ = groups_.groups.size();
    has_words_ = false;
  }

  const std::vector<double>& of_leaf(size_t number) {
    const TreeGroups::Leaf& leaf = groups_.leaves[number];
    weights_.assign(size_t{1} << leaf.n_features, 0.0);
    if (!leaf.grouped) {
      add(long_leaf_++, [](uint64_t pattern) { return pattern; });
      return weights_;
    }
    for (; groups_.groups[group_].leaves_end <= number; ++group_) has_words_ = false;
    if (!has_words_) words_.make(*tree_, groups_, groups_.groups[group_]);
    has_words_ = true;
    bits_.clear();
    for (uint32_t i = 0; i < leaf.n_features; ++i)
      bits_.push_back(words_.local(groups_.steps[leaf.path + i].bit));
    words_.index(bits_, pattern_of_);
    add(group_, [this](uint64_t index) { return pattern_of_.data()[index]; });
    return weights_;
  }

 private:
  template <class PatternOf>
  void add(size_t counted, const PatternOf& pattern_of) {
    for (size_t i = counts_->begin[counted]; i < counts_->begin[counted + 1]; ++i)
      weights_[pattern_of(counts_->patterns[i])] += counts_->weights[i];
  }

  const BackgroundPairsPlan& pairs_;
  const Plan& plan_;
  const TreeProgram* tree_ = nullptr;
  TreeGroups groups_;
  BackgroundCounter counter_;
  const PatternCounts* counts_ = nullptr;
  PatternCounts counted_;
  GroupWords words_;  // of the group
  bool has_words_ = false;
  size_t group_ = 0, long_leaf_ = 0;
  Aligned<uint16_t> pattern_of_;  // by index of the group
  std::vector<uint32_t> bits_;
  std::vector<double> weights_;
};

// --- Numbers ---

// One thread's work: fills the tables of trees.
class PairWriter {
 public:
  PairWriter(const BackgroundPairsPlan& pairs, const PairLayout& layout, Plan& out)
      : layout_(layout),
        plan_(out),
        weights_(pairs),
        groups_(out),
        words_(out),
        targets_(out),
        vectors_(out.index, out.order) {}

  // Fill the tables of a tree; add to `reached`, by output of its leaves, the expected value of its leaves
  // over the background data.
  void write_tree(size_t chunk, size_t number, double* reached) {
    const TreeProgram& tree = plan_.trees[number];
    n_outputs_ = n_used_outputs(plan_, plan_.chunks[chunk]);
    weights_.begin(plan_.chunks[chunk], number);
    find_groups(plan_.chunks[chunk], tree, groups_, kLimits);
    for (size_t g = 0; g < groups_.groups.size(); ++g) {
      const TreeGroups::Group& group = groups_.groups[g];
      make_leaves(tree, group, reached);
      for (size_t o = 0; o < n_outputs_; ++o) {
        const auto [first, stride] = layout_.place(number);
        const Lookup& lookup = plan_.tables.lookups[first + o * stride + g];
        if (plan_.precision == Precision::kSingle)
          write_table(tree, lookup, group, o, plan_.tables.floats.own().data() + lookup.table);
        else
          write_table(tree, lookup, group, o, plan_.tables.doubles.own().data() + lookup.table);
      }
    }
  }

 private:
  // The numbers of a leaf of the group, for a leaf value of 1.
  struct Leaf {
    std::vector<uint16_t> patterns;  // by index of the group
    std::vector<uint32_t> numbers;   // in an entry of the group
    std::vector<double> vectors;     // [pattern][number]
  };

  void make_leaves(const TreeProgram& tree, const TreeGroups::Group& group, double* reached) {
    targets_.find(groups_, group);
    words_.make(tree, groups_, group);
    leaves_.resize(std::max(leaves_.size(), group.leaves_end - group.leaves));
    for (size_t i = group.leaves; i < group.leaves_end; ++i) {
      const TreeGroups::Leaf& from = groups_.leaves[i];
      const PathStep* const path = groups_.steps.data() + from.path;
      const uint32_t n = from.n_features;
      Leaf& leaf = leaves_[i - group.leaves];
      const std::vector<double>& weights = weights_.of_leaf(i);
      const double* const values = plan_.leaf_values.data() + tree.leaves + from.value;
      for (size_t o = 0; o < n_outputs_; ++o) reached[o] += weights.back() * values[o];
      vectors_.sum_up(n, weights.data());
      targets_.list_leaf(path, n, leaf.numbers);
      leaf.vectors.resize(leaf.numbers.size() << n);
      for (size_t x = 0; x < size_t{1} << n; ++x)
        vectors_.write(x, 1.0, leaf.vectors.data() + x * leaf.numbers.size());
      bits_.clear();
      for (uint32_t f = 0; f < n; ++f) bits_.push_back(words_.local(path[f].bit));
      words_.index(bits_, index_);
      leaf.patterns.assign(index_.data(), index_.data() + (size_t{1} << group.n_bits()));
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
        const Leaf& leaf = leaves_[i - group.leaves];
        const double value =
            plan_.leaf_values[tree.leaves + groups_.leaves[i].value + output] / plan_.leaf_scale;
        const double* from = leaf.vectors.data() + leaf.patterns[index] * leaf.numbers.size();
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
  std::vector<Leaf> leaves_;
  std::vector<uint32_t> bits_;
  Aligned<uint16_t> index_;
  std::vector<double> entry_;
};

}  // namespace

std::optional<PairTableCosts> pair_table_costs(const BackgroundPairsPlan& pairs) {
  if (pairs.longest_path > kLeafBits) return std::nullopt;
  try {
    Tables tables;
    return PairLayout(pairs.plan, tables).costs();
  } catch (const std::invalid_argument&) {  // beyond the integer ranges of tables
    return std::nullopt;
  }
}

Plan make_pair_tables(const BackgroundPairsPlan& pairs, size_t table_bytes, int64_t n_threads) {
  if (pairs.longest_path > kLeafBits)
    throw std::invalid_argument("paths that are too long for tables are explained on the CPU only");
  const TableClock clock;
  Plan plan = pairs.plan;
  const PairLayout layout(pairs.plan, plan.tables);
  require_room(layout.costs().bytes, table_bytes);
  plan.tables.against_background = true;
  allocate_tables(plan);
  const std::vector<size_t> chunk_of = chunks_of_trees(plan);
  const size_t n_trees = plan.trees.size(), n_outputs = plan.n_outputs;
  std::vector<double> reached(n_trees * n_outputs, 0.0);
  std::atomic<size_t> next{0};
  run_threads(std::min<int64_t>(n_threads, static_cast<int64_t>(n_trees)), [&](bool) {
    PairWriter writer(pairs, layout, plan);
    for (size_t i; (i = next++) < n_trees;) writer.write_tree(chunk_of[i], i, reached.data() + i * n_outputs);
  });
  plan.base_value = plan.constant;
  for (size_t i = 0; i < n_trees; ++i) {
    const Chunk& chunk = plan.chunks[chunk_of[i]];
    for (size_t o = 0; o < n_used_outputs(plan, chunk); ++o)
      plan.base_value[std::max(chunk.output, 0) + o] += reached[i * n_outputs + o];
  }
  clock.stop(plan);
  return plan;
}

}  // namespace skshap
