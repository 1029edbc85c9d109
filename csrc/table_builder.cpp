#include "table_builder.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <atomic>
#include <map>
#include <stdexcept>

#include "aligned.h"
#include "group_words.h"
#include "quadrature.h"
#include "threads.h"

namespace skshap {
namespace {

// Look-ups of a batch, whose numbers are added up in the plan's precision: too many would lose digits.
constexpr size_t kBatchLookUps = 256;
// Positions of a batch of several trees: as many as a vector holds.
constexpr size_t kBatchPositions = 16;
// Read beyond the end of the last table.
constexpr size_t kPadding = 16;

size_t n_chunk_outputs(const Plan& plan, size_t chunk) { return n_used_outputs(plan, plan.chunks[chunk]); }

// Lists each feature of a group once.
void list_features(const Plan& plan, const TreeProgram& tree, const TreeGroups& groups,
                   const TreeGroups::Group& group, std::vector<int32_t>& features) {
  features.clear();
  for (size_t i = 0; i < group.n_above; ++i) features.push_back(groups.steps[group.above + i].feature);
  for (int32_t i = 0; i < group.n_nodes; ++i) {
    const int32_t feature = plan.feature_of(plan.decide[tree.decide + group.first_node + i]);
    if (std::find(features.begin(), features.end(), feature) == features.end()) features.push_back(feature);
  }
}

}  // namespace

// --- Layout ---

namespace {

// The list's entry of a tree, or null; trees are asked for in the order of the plan.
class LevelTrees {
 public:
  explicit LevelTrees(const std::vector<LevelTree>& list) : next_(list.data()), end_(next_ + list.size()) {}
  const LevelTree* find(size_t tree) { return next_ != end_ && next_->tree == tree ? next_++ : nullptr; }

 private:
  const LevelTree *next_, *end_;
};

}  // namespace

std::vector<TableCost> table_costs(const Plan& plan, uint32_t leaf_bits) {
  TreeGroups groups(plan);
  std::vector<int32_t> features;
  std::map<int, TableCost> found;
  for (const Chunk& chunk : plan.chunks)
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      if (plan.trees[i].by_tables) continue;
      TableCost& cost =
          found.try_emplace(chunk.n_nodes, TableCost{chunk.n_nodes, 0, 0, 0, 0, 0, 0}).first->second;
      groups.find(chunk, plan.trees[i], {leaf_bits});
      cost.n_trees += 1;
      cost.n_leaves += groups.leaves.size();
      cost.n_look_ups += groups.groups.size();
      const size_t width = n_used_outputs(plan, chunk);
      if (plan.features.size() * width > kBatchPositions) cost.n_places += groups.features.size() * width;
      for (const TreeGroups::Leaf& leaf : groups.leaves)
        cost.longest_path = std::max(cost.longest_path, leaf.n_features);
      for (const TreeGroups::Group& group : groups.groups) {
        list_features(plan, plan.trees[i], groups, group, features);
        // Groups have at most 2^kMaxTableBits indices; a sum of so many bytes stays below 2^64.
        cost.bytes += features.size() * width * element_bytes(plan) << group.n_bits();
      }
    }
  std::vector<TableCost> costs;
  for (const auto& [n_nodes, cost] : found) costs.push_back(cost);
  return costs;
}

size_t tables_bytes(const Plan& plan, const TableLimits& limits) {
  size_t bytes = 0;
  for (const TableCost& cost : table_costs(plan, limits.leaf_bits))
    if (cost.n_nodes <= limits.max_nodes) bytes += cost.bytes;
  return bytes;
}

uint32_t longest_path(const Plan& plan) {
  uint32_t longest = 0;
  for (const TableCost& cost : table_costs(plan, 0)) longest = std::max(longest, cost.longest_path);
  return longest;
}

void require_short_paths(const Plan& plan) {
  const uint32_t longest = longest_path(plan);
  if (longest > kMaxTableBits)
    throw std::invalid_argument("a path has " + std::to_string(longest) +
                                " different features; tables allow for at most " +
                                std::to_string(kMaxTableBits));
}

void require_room(size_t needed, size_t table_bytes) {
  if (needed > table_bytes)
    throw TableMemoryError("tables of all trees need " + std::to_string(needed) + " bytes, but may take " +
                           std::to_string(table_bytes));
}

namespace {

// On pages of 2 MiB where the system has them: otherwise to make a table costs a fault for every 4 KiB of it.
template <class X>
void resize_on_large_pages(X& table, size_t n) {
  table.reserve(n);
#ifdef __linux__
  constexpr uintptr_t kPage = 2 << 20;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(table.data()) + kPage - 1) / kPage * kPage;
  const uintptr_t end = reinterpret_cast<uintptr_t>(table.data() + n) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
  table.resize(n);
  std::fill(table.end() - std::min(n, kPadding), table.end(), 0);  // no table writes there, but all is stored
}

class Layout {
 public:
  Layout(Plan& plan, const TableLimits& limits)
      : plan_(plan), out_(plan.tables), limits_(limits), groups_(plan) {
    position_.assign(plan.features.size(), -1);
  }

  void add_tree(size_t chunk, size_t tree) {
    groups_.find(plan_.chunks[chunk], plan_.trees[tree], limits_);
    begin_batch(chunk, groups_.features, groups_.groups.size());
    plan_.trees[tree].by_tables = true;
    const size_t first_look_up = out_.look_ups.size(), first_leaf = out_.leaves.size();
    for (const TreeGroups::Group& group : groups_.groups) add_group(plan_.trees[tree], group);
    for (const TreeGroups::Leaf& leaf : groups_.leaves)
      if (!leaf.grouped) add_leaf(plan_.trees[tree], leaf);
    out_.trees.push_back({tree, out_.batches.size() - 1, first_look_up, out_.look_ups.size(), first_leaf,
                          out_.leaves.size(), 0, 0, 0});
    out_.batches.back().trees_end = out_.trees.size();
  }

  void add_level_tree(size_t chunk, const LevelTree& level_tree) {
    const TreeProgram& tree = plan_.trees[level_tree.tree];
    features_.clear();
    for (const int32_t node : level_tree.nodes) {
      const int32_t feature = plan_.feature_of(plan_.decide[tree.decide + node]);
      if (std::find(features_.begin(), features_.end(), feature) == features_.end())
        features_.push_back(feature);
    }
    begin_batch(chunk, features_, 1);
    plan_.trees[level_tree.tree].by_tables = true;
    out_.trees.push_back({level_tree.tree, out_.batches.size() - 1, out_.look_ups.size(),
                          out_.look_ups.size() + 1, out_.leaves.size(), out_.leaves.size(),
                          out_.levels.size(), out_.level_values.size(),
                          static_cast<uint32_t>(level_tree.nodes.size())});
    out_.batches.back().trees_end = out_.trees.size();
    const size_t first_bit = out_.bits.size(), first_target = out_.targets.size();
    for (size_t level = 0; level < level_tree.nodes.size(); ++level) {
      DecideNode node = plan_.decide[tree.decide + level_tree.nodes[level]];
      node.previous = 0;  // what the row does on this level alone
      node.flags &= kCategorical;
      out_.levels.push_back(node);
      out_.bits.push_back(bit_of(static_cast<int32_t>(level), false));
    }
    add_look_up(first_bit, first_target);
    add_level_values(level_tree);
  }

  void end() {
    if (out_.trees.empty()) return;
    for (TableBatch& batch : out_.batches)
      batch.row_size = padded_row(batch.places_end - batch.places, element_bytes(plan_));
    out_.n_elements = n_elements_ + kPadding;
  }

 private:
  // Makes room for a tree's features in the last batch, or in a new one.
  void begin_batch(size_t chunk, const std::vector<int32_t>& features, size_t n_look_ups) {
    const size_t width = n_chunk_outputs(plan_, chunk);
    size_t n_new = 0;
    for (const int32_t feature : features) n_new += position_[feature] < 0;
    const bool fits = !out_.batches.empty() && out_.batches.back().chunk == chunk &&
                      (placed_.size() + n_new) * width <= kBatchPositions &&
                      n_look_ups_ + n_look_ups <= kBatchLookUps;
    if (!fits) {
      for (const int32_t feature : placed_) position_[feature] = -1;
      placed_.clear();
      n_look_ups_ = 0;
      out_.batches.push_back(
          {chunk, out_.trees.size(), out_.trees.size(), out_.places.size(), out_.places.size(), 0});
    }
    n_look_ups_ += n_look_ups;
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

  void add_group(const TreeProgram& tree, const TreeGroups::Group& group) {
    list_features(plan_, tree, groups_, group, features_);
    const size_t first_bit = out_.bits.size(), first_target = out_.targets.size();
    for (size_t i = 0; i < group.n_above; ++i) out_.bits.push_back(groups_.steps[group.above + i].bit);
    for (int32_t i = 0; i < group.n_nodes; ++i) out_.bits.push_back(bit_of(group.first_node + i, false));
    add_look_up(first_bit, first_target);
  }

  void add_look_up(size_t first_bit, size_t first_target) {
    for (int32_t& feature : features_) feature = position_[feature];
    std::sort(features_.begin(), features_.end());
    for (const int32_t position : features_)
      for (size_t o = 0; o < width_; ++o) out_.targets.push_back(static_cast<uint32_t>(position + o));
    const uint32_t n_bits = static_cast<uint32_t>(out_.bits.size() - first_bit),
                   n_targets = static_cast<uint32_t>(out_.targets.size() - first_target);
    out_.look_ups.push_back({static_cast<uint32_t>(first_bit), n_bits, static_cast<uint32_t>(first_target),
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
    if (leaf.n_features > kMaxPatternBits)
      throw std::invalid_argument("a path has " + std::to_string(leaf.n_features) +
                                  " different features; background data allow for at most " +
                                  std::to_string(kMaxPatternBits));
    out_.leaves.push_back({static_cast<uint32_t>(out_.bits.size()), leaf.n_features,
                           static_cast<uint32_t>(out_.targets.size()), 0, 0, tree.leaves + leaf.value});
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
  std::vector<int32_t> position_;  // of a feature in the batch, or -1
  std::vector<int32_t> placed_;    // features of the batch
  std::vector<int32_t> features_;
  size_t width_ = 1, n_look_ups_ = 0, n_elements_ = 0;
};

}  // namespace

void lay_out_tables(Plan& plan, const std::vector<LevelTree>& levels, const TableLimits& limits) {
  LevelTrees level_trees(levels);
  Layout layout(plan, limits);
  for (size_t c = 0; c < plan.chunks.size(); ++c)
    for (size_t i = plan.chunks[c].tree_begin; i < plan.chunks[c].tree_end; ++i)
      if (const LevelTree* const tree = level_trees.find(i))
        layout.add_level_tree(c, *tree);
      else if (plan.chunks[c].n_nodes <= limits.max_nodes)
        layout.add_tree(c, i);
  layout.end();
}

// --- What is in the tables ---

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
    width_ = n_chunk_outputs(plan_, batch.chunk);
    for (size_t i = batch.places; i < batch.places_end; i += width_)
      position_[plan_.tables.places[i] % plan_.features.size()] = static_cast<uint32_t>(i - batch.places);
    groups_.find(plan_.chunks[batch.chunk], *tree_, limits_);
    for (size_t i = 0; i < groups_.groups.size(); ++i)
      write_group(index, table_tree.look_ups + i, groups_.groups[i]);
  }

 private:
  void write_group(size_t table_tree, size_t look_up, const TreeGroups::Group& group) {
    const LookUp& to = plan_.tables.look_ups[look_up];
    words_.make(*tree_, groups_, group);
    const size_t size = size_t{1} << to.n_bits, n_blocks = words_.n_blocks();
    const size_t row_size = padded_row(to.n_targets, sizeof(double));
    grow(sum_, n_blocks * kBlockRows * row_size);
    std::fill_n(sum_.data(), n_blocks * kBlockRows * row_size, 0.0);
    for (size_t i = group.leaves; i < group.leaves_end; ++i) {
      const TreeGroups::Leaf& leaf = groups_.leaves[i];
      make_leaf_table(table_tree, look_up, leaf);
      kernels().look_up_double({index_.data(), n_blocks * kBlockRows, leaf_.data(), targets_.data(),
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

  void make_leaf_table(size_t table_tree, size_t look_up, const TreeGroups::Leaf& leaf) {
    const uint32_t d = leaf.n_features;
    const size_t size = size_t{1} << d;
    PathStep* const path = groups_.steps.data() + leaf.path;
    // In the order of the targets, which the look-up needs.
    std::sort(path, path + d, [&](const PathStep& a, const PathStep& b) {
      return position_[a.feature] < position_[b.feature];
    });
    const LookUp& to = plan_.tables.look_ups[look_up];
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
    weigh_({table_tree, look_up, d, index_.data(), size_t{1} << to.n_bits, values, width_}, weights_.data());
    scaled_.resize(width_);
    for (size_t o = 0; o < width_; ++o) scaled_[o] = values[o] / plan_.leaf_scale;
    grow(sums_, 4 * size);
    grow(leaf_, size * d * width_ + kPadding);
    kernels().leaf_table({weights_.data(), static_cast<int>(d), n_nodes(d), factors(d).data(), scaled_.data(),
                          width_, sums_.data(), leaf_.data()});
  }

  int n_nodes(uint32_t d) const { return quadrature_nodes(plan_.index, static_cast<int>(d)); }

  // What the sums of a leaf with d features are made with; see leaf_table in kernel.h.
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
  std::vector<uint32_t> position_;  // of a feature in the batch
  std::vector<uint32_t> bits_, targets_;
  std::vector<double> weights_, scaled_, factors_[kMaxTableBits + 1];
  Aligned<uint16_t> index_;
  Aligned<double> sum_, sums_, leaf_;
};

}  // namespace

void allocate_tables(Plan& plan) {
  if (element_bytes(plan) == 4)
    resize_on_large_pages(plan.tables.floats.own(), plan.tables.n_elements);
  else
    resize_on_large_pages(plan.tables.doubles.own(), plan.tables.n_elements);
}

void write_tables(Plan& plan, const TableLimits& limits, int64_t n_threads, const WeighPatterns& weigh) {
  const size_t n_trees = plan.tables.trees.size();
  std::atomic<size_t> next{0};
  run_threads(std::min<int64_t>(n_threads, static_cast<int64_t>(n_trees)), [&](bool) {
    Writer writer(plan, limits, weigh);
    for (size_t i; (i = next++) < n_trees;)
      if (!plan.tables.trees[i].n_levels) writer.write_tree(i);
  });
}

namespace {

// What is left of a stream when only some of its parts are kept, and where these begin then.
template <class X>
class Kept {
 public:
  explicit Kept(std::vector<X>& stream) : stream_(stream) {}
  size_t keep(size_t begin, size_t end) {
    kept_.insert(kept_.end(), stream_.begin() + begin, stream_.begin() + end);
    return kept_.size() - (end - begin);
  }
  void replace() {
    kept_.shrink_to_fit();
    stream_ = std::move(kept_);
  }

 private:
  std::vector<X>& stream_;
  std::vector<X> kept_;
};

template <class T>
void drop_walks(Plan& plan, std::vector<T>& stream) {
  Kept<uint32_t> ops(plan.ops);
  Kept<T> constants(stream);
  const size_t n_ops = plan.ops.size(), n_constants = stream.size();
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    Chunk& chunk = plan.chunks[c];
    const bool last_chunk = c + 1 == plan.chunks.size();
    bool has_walks = false;
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) has_walks |= !plan.trees[i].by_tables;
    const size_t first = plan.trees[chunk.tree_begin].constants;
    chunk.quadrature = has_walks ? constants.keep(chunk.quadrature, first) : 0;
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      TreeProgram& tree = plan.trees[i];
      const bool last = i + 1 == plan.trees.size();
      const size_t ops_end = last ? n_ops : plan.trees[i + 1].ops;
      const size_t constants_end = i + 1 < chunk.tree_end ? plan.trees[i + 1].constants
                                   : last_chunk           ? n_constants
                                                          : plan.chunks[c + 1].quadrature;
      tree.ops = tree.by_tables ? 0 : ops.keep(tree.ops, ops_end);
      tree.constants = tree.by_tables ? 0 : constants.keep(tree.constants, constants_end);
    }
  }
  ops.replace();
  constants.replace();
}

}  // namespace

void drop_walks(Plan& plan) {
  if (plan.precision == Precision::kSingle)
    drop_walks(plan, plan.constants_float);
  else
    drop_walks(plan, plan.constants_double);
}

uint64_t index_bit(uint32_t bit, size_t block) {
  constexpr uint64_t kLow[6] = {0xaaaaaaaaaaaaaaaa, 0xcccccccccccccccc, 0xf0f0f0f0f0f0f0f0,
                                0xff00ff00ff00ff00, 0xffff0000ffff0000, 0xffffffff00000000};
  if (bit < 6) return kLow[bit];
  return block >> (bit - 6) & 1 ? ~uint64_t{0} : 0;
}

}  // namespace skshap
