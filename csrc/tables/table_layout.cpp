#include "tables/table_layout.h"

#include <algorithm>

#include "tables/table_costs.h"

#include "rows/tiles.h"

namespace skshap {
namespace {

// The number of lookups per batch. Their entries are added up in the plan's precision, and more lookups would
// lose accuracy.
constexpr size_t kBatchLookups = 256;

class TableLayout {
 public:
  TableLayout(Plan& plan, const TableLimits& limits)
      : plan_(plan), out_(plan.tables), limits_(limits), groups_(plan), position_(plan.features.size(), -1) {}

  void add_tree(size_t chunk, size_t tree) {
    groups_.find(plan_.chunks[chunk], plan_.trees[tree], limits_);
    begin_batch(chunk, groups_.features, groups_.groups.size());
    plan_.trees[tree].walked = false;
    const size_t first_lookup = out_.lookups.size(), first_leaf = out_.leaves.size();
    for (const TreeGroups::Group& group : groups_.groups) add_group(group);
    for (const TreeGroups::Leaf& leaf : groups_.leaves)
      if (!leaf.grouped) add_leaf(plan_.trees[tree], leaf);
    out_.trees.push_back({.tree = tree,
                          .batch = out_.batches.size() - 1,
                          .lookups = first_lookup,
                          .lookups_end = out_.lookups.size(),
                          .leaves = first_leaf,
                          .leaves_end = out_.leaves.size()});
    out_.batches.back().trees_end = out_.trees.size();
  }

  void add_level_tree(const LevelTree& level_tree) {
    const TreeProgram& tree = plan_.trees[level_tree.tree];
    features_.clear();
    for (const int32_t node : level_tree.nodes) {
      const DecideNode& test = plan_.decide[tree.decide + node];
      const auto feature = static_cast<int32_t>(position(plan_.features, plan_.columns[test.column].feature));
      if (std::find(features_.begin(), features_.end(), feature) == features_.end())
        features_.push_back(feature);
    }
    begin_batch(level_tree.chunk, features_, 1);
    plan_.trees[level_tree.tree].walked = false;
    out_.trees.push_back({.tree = level_tree.tree,
                          .batch = out_.batches.size() - 1,
                          .lookups = out_.lookups.size(),
                          .lookups_end = out_.lookups.size() + 1,
                          .leaves = out_.leaves.size(),
                          .leaves_end = out_.leaves.size(),
                          .levels = out_.levels.size(),
                          .values = out_.level_values.size(),
                          .n_levels = static_cast<uint32_t>(level_tree.nodes.size())});
    out_.batches.back().trees_end = out_.trees.size();
    const size_t first_bit = out_.bits.size();
    for (size_t level = 0; level < level_tree.nodes.size(); ++level) {
      DecideNode node = plan_.decide[tree.decide + level_tree.nodes[level]];
      node.previous = 0;  // only the row's decision on this level counts
      node.flags &= kCategorical;
      out_.levels.push_back(node);
      out_.bits.push_back(bit_of(static_cast<int32_t>(level), false));
    }
    add_lookup(first_bit);
    add_level_values(level_tree);
  }

  void end() {
    if (out_.trees.empty()) return;
    require_positions(std::max(out_.bits.size(), out_.targets.size()));
    require_positions<int32_t>(plan_.features.size() * plan_.n_outputs);  // places
    for (TableBatch& batch : out_.batches)
      batch.row_size = padded_row(batch.places_end - batch.places, element_bytes(plan_));
    out_.n_elements = n_elements_ + kTablePadding;
  }

 private:
  // Prepare positions for a tree's features, in the last batch or in a new one.
  void begin_batch(size_t chunk, const std::vector<int32_t>& features, size_t n_lookups) {
    const size_t width = n_used_outputs(plan_, plan_.chunks[chunk]);
    size_t n_new = 0;
    for (const int32_t feature : features) n_new += position_[feature] < 0;
    const bool fits = !out_.batches.empty() && out_.batches.back().chunk == chunk &&
                      (placed_.size() + n_new) * width <= kBatchPositions &&
                      n_lookups_ + n_lookups <= kBatchLookups;
    if (!fits) {
      for (const int32_t feature : placed_) position_[feature] = -1;
      placed_.clear();
      n_lookups_ = 0;
      out_.batches.push_back({.chunk = chunk,
                              .trees = out_.trees.size(),
                              .trees_end = out_.trees.size(),
                              .places = out_.places.size(),
                              .places_end = out_.places.size()});
    }
    n_lookups_ += n_lookups;
    const size_t first_output = std::max(plan_.chunks[chunk].output, 0);
    for (const int32_t feature : features) {
      if (position_[feature] >= 0) continue;
      position_[feature] = static_cast<int32_t>(placed_.size() * width);
      placed_.push_back(feature);
      for (size_t o = 0; o < width; ++o)
        out_.places.push_back(static_cast<uint32_t>((first_output + o) * plan_.features.size() + feature));
    }
    out_.batches.back().places_end = out_.places.size();
    width_ = width;
  }

  void add_group(const TreeGroups::Group& group) {
    groups_.list_features(group, features_);
    const size_t first_bit = out_.bits.size();
    for (size_t i = 0; i < group.n_above; ++i) out_.bits.push_back(groups_.steps[group.above + i].bit);
    for (int32_t i = 0; i < group.n_nodes; ++i) out_.bits.push_back(bit_of(group.first_node + i, false));
    add_lookup(first_bit);
  }

  // Add a lookup of features_, whose bits were added from first_bit on.
  void add_lookup(size_t first_bit) {
    const size_t first_target = out_.targets.size();
    for (int32_t& feature : features_) feature = position_[feature];
    std::sort(features_.begin(), features_.end());
    for (const int32_t position : features_)
      for (size_t o = 0; o < width_; ++o) out_.targets.push_back(static_cast<uint32_t>(position + o));
    const uint32_t n_bits = static_cast<uint32_t>(out_.bits.size() - first_bit),
                   n_targets = static_cast<uint32_t>(out_.targets.size() - first_target);
    out_.lookups.push_back({static_cast<uint32_t>(first_bit), n_bits, static_cast<uint32_t>(first_target),
                            n_targets, n_elements_});
    n_elements_ += static_cast<size_t>(n_targets) << n_bits;
  }

  void add_level_values(const LevelTree& level_tree) {
    const TreeProgram& tree = plan_.trees[level_tree.tree];
    const int32_t n_inner = static_cast<int32_t>(tree.n_inner);
    const int32_t* const children = plan_.children.data() + tree.children;
    for (size_t index = 0; index < size_t{1} << level_tree.nodes.size(); ++index) {
      int32_t node = 0;
      for (size_t level = 0; node < n_inner; ++level) {
        const bool flip = plan_.decide[tree.decide + node].flags & kFlip;
        node = children[2 * node + 1 - ((index >> level & 1) ^ flip)];
      }
      const double* const values = plan_.leaf_values.data() + tree.leaves + (node - n_inner) * width_;
      out_.level_values.insert(out_.level_values.end(), values, values + width_);
    }
  }

  void add_leaf(const TreeProgram& tree, const TreeGroups::Leaf& leaf) {
    require_short_path(leaf.n_features);
    out_.leaves.push_back({.bits = static_cast<uint32_t>(out_.bits.size()),
                           .n_bits = leaf.n_features,
                           .targets = static_cast<uint32_t>(out_.targets.size()),
                           .n_outputs = static_cast<uint32_t>(width_),
                           .leaf = tree.leaves + leaf.value});
    for (uint32_t i = 0; i < leaf.n_features; ++i) {
      const PathStep& step = groups_.steps[leaf.path + i];
      out_.bits.push_back(step.bit);
      out_.targets.push_back(static_cast<uint32_t>(position_[step.feature]));
    }
  }

  Plan& plan_;
  Tables& out_;
  const TableLimits limits_;
  TreeGroups groups_;
  std::vector<int32_t> position_;  // by feature: its position in the batch, or -1
  std::vector<int32_t> placed_;    // the features of the batch
  std::vector<int32_t> features_;
  size_t width_ = 1, n_lookups_ = 0, n_elements_ = 0;
};

}  // namespace

void lay_out_tables(Plan& plan, const TableLimits& limits) {
  TableLayout layout(plan, limits);
  for (size_t c = 0; c < plan.chunks.size(); ++c)
    for (size_t i = plan.chunks[c].tree_begin; i < plan.chunks[c].tree_end; ++i) layout.add_tree(c, i);
  layout.end();
}

void lay_out_level_tables(Plan& plan, const std::vector<LevelTree>& trees) {
  TableLayout layout(plan, {});
  for (const LevelTree& tree : trees) layout.add_level_tree(tree);
  layout.end();
}

// --- Memory ---

void allocate_tables(Plan& plan) {
  in_precision(plan.precision, [&](auto number) {
    auto& tables = numbers_of<decltype(number)>(plan.tables).own();
    const size_t n = plan.tables.n_elements;
    tables.resize(n);
    // No builder of tables writes the padding, but files store all of it.
    std::fill(tables.end() - std::min(n, kTablePadding), tables.end(), 0);
  });
}

namespace {

template <class T>
void drop_walks(Plan& plan, std::vector<T>& stream) {
  std::vector<uint32_t> ops;
  std::vector<T> constants;
  // Keep a part of a stream. Return where it begins among the parts that are kept.
  const auto keep = [](const auto& all, size_t begin, size_t end, auto& kept) {
    kept.insert(kept.end(), all.begin() + begin, all.begin() + end);
    return kept.size() - (end - begin);
  };
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    Chunk& chunk = plan.chunks[c];
    const bool last_chunk = c + 1 == plan.chunks.size();
    bool has_walks = false;
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) has_walks |= plan.trees[i].walked;
    const size_t first = plan.trees[chunk.tree_begin].constants;
    chunk.quadrature = has_walks ? keep(stream, chunk.quadrature, first, constants) : 0;
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      TreeProgram& tree = plan.trees[i];
      const bool last = i + 1 == plan.trees.size();
      const size_t ops_end = last ? plan.ops.size() : plan.trees[i + 1].ops;
      const size_t constants_end = i + 1 < chunk.tree_end ? plan.trees[i + 1].constants
                                   : last_chunk           ? stream.size()
                                                          : plan.chunks[c + 1].quadrature;
      tree.ops = tree.walked ? keep(plan.ops, tree.ops, ops_end, ops) : 0;
      tree.constants = tree.walked ? keep(stream, tree.constants, constants_end, constants) : 0;
    }
  }
  ops.shrink_to_fit();
  constants.shrink_to_fit();
  plan.ops = std::move(ops);
  stream = std::move(constants);
}

}  // namespace

void drop_walks(Plan& plan) {
  if (plan.precision == Precision::kSingle)
    drop_walks(plan, plan.constants_float);
  else
    drop_walks(plan, plan.constants_double);
}

}  // namespace skshap
