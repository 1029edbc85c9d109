// The tables of rescaled values on a device: the data that are the same in all calls.
#pragma once

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "background/rescaled_tables.h"
#include "base/threads.h"
#include "cuda/memory.h"
#include "cuda/pattern_model.cuh"
#include "cuda/program/columns.h"
#include "cuda/rescaled.cuh"

namespace skshap {

template <class T>
const std::vector<std::vector<Contents<T>>>& term_tables(const RescaledTables& tables) {
  if constexpr (sizeof(T) == 4)
    return tables.floats;
  else
    return tables.doubles;
}

template <class T>
struct RescaledModel {
  // The most terms that a thread keeps in registers. For each even number up to this one, there is a kernel.
  static constexpr int kMostTerms = 16;
  // The number of chunks of trees. With this many, a job of few rows has many blocks, and each sum in single
  // precision has few summands.
  static constexpr size_t kChunks = 32;
  // The number of trees whose margins one thread adds up for a row.
  static constexpr size_t kMarginTrees = 32;
  static constexpr int kThreads = rescaled_threads<T>(), kSize = RescaledPiece<T>::kSize;
  static constexpr size_t kStaticShared = 1024;  // that the runtime may take from a block

  const Plan plan;  // without contents of tables and patterns
  const Link link;
  const double scale;
  int multiprocessors = 0, n_terms = 0, index_warps = 0;
  int32_t n_columns = 0, n_sums = 0, n_groups = 0, n_alpha = 0, n_trees = 0, n_lookups = 0;
  uint32_t n_slots = 0, max_words = kFirstWord, shared_phi = 0, buffer = 0;
  size_t n_chunks = 0, max_shared = 0, table_bytes = 0;
  DeviceBuffer columns, thresholds, categories, category_bits;
  DeviceBuffer margin_nodes, tree_nodes, leaf_values, groups, constant;
  DeviceBuffer trees, nodes, lookups, bits, slopes, slope_nodes, factors;
  DeviceBuffer chunks, stages, targets, data;
  DeviceBuffer offsets, parts, features;
  PatternModel<T> pattern_leaves;

  // Upload the tables to the current device.
  explicit RescaledModel(const RescaledTables& tables)
      : plan(without_contents(tables.plan)), link(tables.link), scale(tables.scale) {
    int device = 0, shared = 0;
    check(cudaGetDevice(&device), "no current device");
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
          "device attribute");
    check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "device attribute");
    max_shared = static_cast<size_t>(shared) - kStaticShared;
    const CudaColumns coded(plan);
    upload_columns(coded);
    upload_trees(coded);
    upload_slopes(tables);
    upload_tables(tables);
    upload_pattern_leaves(tables, coded);
    list_sums();
    constant = upload(plan.constant);
    features = upload(plan.features);
  }

  size_t index_shared() const { return sizeof(uint32_t) * max_words * index_warps; }
  size_t lookup_shared() const { return size_t{32} * buffer + sizeof(T) * kThreads * shared_phi; }

 private:
  static Plan without_contents(Plan plan) {
    plan.tables.drop_contents();
    return plan;
  }

  void upload_columns(const CudaColumns& coded) {
    std::vector<CudaCodeColumn> list;
    std::vector<float> floats;
    std::vector<double> doubles;
    std::vector<int32_t> all_categories;
    std::vector<int64_t> begins;
    for (const Column& column : plan.columns) {
      begins.push_back(column.categorical ? all_categories.size()
                       : plan.x_float32   ? floats.size()
                                          : doubles.size());
      floats.insert(floats.end(), column.thresholds_float.begin(), column.thresholds_float.end());
      doubles.insert(doubles.end(), column.thresholds_double.begin(), column.thresholds_double.end());
      all_categories.insert(all_categories.end(), column.categories.begin(), column.categories.end());
    }
    for (const CudaColumn& c : coded.list()) {
      const Column& column = plan.columns[c.column];
      const size_t n = column.categorical ? column.categories.size()
                                          : column.thresholds_float.size() + column.thresholds_double.size();
      list.push_back({.input = column.input,
                      .n = static_cast<uint32_t>(n),
                      .origin = c.origin,
                      .categorical = column.categorical,
                      .zero_missing = column.zero_missing,
                      .values = begins[c.column]});
    }
    n_columns = static_cast<int32_t>(list.size());
    columns = upload(list);
    thresholds = plan.x_float32 ? upload(floats) : upload(doubles);
    categories = upload(all_categories);
    category_bits = upload(plan.category_bits);
  }

  // Upload the trees for margins and for decisions. List the sums of each output's margin.
  void upload_trees(const CudaColumns& coded) {
    std::vector<CudaNode> to_leaves;
    std::vector<int64_t> roots;
    std::vector<CudaMarginGroup> margin_groups;
    for (const Chunk& chunk : plan.chunks) {
      const int32_t width = static_cast<int32_t>(n_used_outputs(plan, chunk));
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
        const int32_t number = static_cast<int32_t>(roots.size());
        if (i == chunk.tree_begin || margin_groups.back().tree_end - margin_groups.back().tree_begin ==
                                         static_cast<int32_t>(kMarginTrees)) {
          margin_groups.push_back({number, number, n_sums, width});
          margin_outputs_.push_back(std::max(chunk.output, 0));
          n_sums += width;
        }
        margin_groups.back().tree_end = number + 1;
        roots.push_back(add_margin_tree(coded, plan.trees[i], width, to_leaves));
      }
    }
    n_groups = static_cast<int32_t>(margin_groups.size());
    for (const CudaMarginGroup& group : margin_groups) first_sums_.push_back({group.first_sum, group.width});
    margin_nodes = upload(to_leaves);
    tree_nodes = upload(roots);
    groups = upload(margin_groups);
    leaf_values = upload(plan.leaf_values);
    upload_decisions(coded);
  }

  int64_t add_margin_tree(const CudaColumns& coded, const TreeProgram& tree, int32_t width,
                          std::vector<CudaNode>& out) const {
    const int64_t first = static_cast<int64_t>(out.size()), first_leaf = tree.leaves / width;
    const int32_t n_inner = static_cast<int32_t>(tree.n_inner);
    const int32_t* const children = plan.children.data() + tree.children;
    const auto link_to = [&](int32_t child) {
      return static_cast<int32_t>(child < n_inner ? first + child : ~(first_leaf + child - n_inner));
    };
    for (int32_t i = 0; i < n_inner; ++i) {
      CudaNode node = coded.margin_node(plan.decide[tree.decide + i]);
      node.left = link_to(children[2 * i]);
      node.right = link_to(children[2 * i + 1]);
      out.push_back(node);
    }
    return link_to(0);
  }

  void upload_decisions(const CudaColumns& coded) {
    std::vector<RescaledTree> list;
    std::vector<CudaTableNode> all_nodes;
    std::vector<RescaledIndex> indices;
    for (const TableTree& tree : plan.tables.trees) {
      if (tree.lookups == tree.lookups_end) continue;  // all leaves are without a table
      const TreeProgram& program = plan.trees[tree.tree];
      list.push_back({all_nodes.size(), static_cast<int32_t>(program.n_inner),
                      static_cast<int32_t>(tree.lookups), static_cast<int32_t>(tree.lookups_end)});
      for (size_t i = 0; i < program.n_inner; ++i) {
        const DecideNode& from = plan.decide[program.decide + i];
        const CudaNode node = coded.margin_node(from);
        const bool right = from.flags & kPreviousRight;
        all_nodes.push_back({node.column_flags, node.operand, from.previous << 1 | right, 0});
      }
      max_words = std::max(max_words, static_cast<uint32_t>(kFirstWord + 2 * program.n_inner));
    }
    for (const Lookup& lookup : plan.tables.lookups) indices.push_back({lookup.bits, lookup.n_bits});
    const size_t warp_bytes = sizeof(uint32_t) * max_words;
    if (warp_bytes > max_shared)
      throw CudaMemoryError("the GPU has too little shared memory for the decisions of a tree with " +
                            std::to_string((max_words - kFirstWord) / 2) + " splits; use device='cpu'");
    constexpr size_t kPreferred = size_t{48} << 10;
    index_warps = static_cast<int>(std::clamp<size_t>(kPreferred / warp_bytes, 1, kIndexWarps));
    n_trees = static_cast<int32_t>(list.size());
    n_lookups = static_cast<int32_t>(indices.size());
    trees = upload(list);
    nodes = upload(all_nodes);
    lookups = upload(indices);
    bits = upload(plan.tables.bits);
  }

  void upload_slopes(const RescaledTables& tables) {
    size_t most = 1;
    for (const SeparableSlope& slope : tables.slopes) most = std::max(most, slope.n_terms);
    const size_t n_panels = (most + kMostTerms - 1) / kMostTerms;
    n_terms = static_cast<int>(((most + n_panels - 1) / n_panels + 1) / 2 * 2);
    std::vector<double> all_nodes, all_factors;
    for (const SeparableSlope& slope : tables.slopes) {
      const int32_t n = static_cast<int32_t>(slope.n_terms), rows = (n + n_terms - 1) / n_terms * n_terms;
      slope_list_.push_back({.n_nodes = static_cast<int32_t>(slope.nodes.size()),
                             .n_terms = n,
                             .first_row = n_alpha,
                             .n_rows = rows,
                             .nodes = all_nodes.size(),
                             .factors = all_factors.size()});
      n_alpha += rows;
      all_nodes.insert(all_nodes.end(), slope.nodes.begin(), slope.nodes.end());
      all_factors.insert(all_factors.end(), slope.factors.begin(), slope.factors.end());
    }
    slopes = upload(slope_list_);
    slope_nodes = upload(all_nodes);
    factors = upload(all_factors);
  }

  // Stages are planned first. Then their numbers are written, in parallel.
  struct StageSource {
    const Lookup* lookup;
    int32_t output;
    size_t first_term;              // of the output
    std::vector<uint32_t> columns;  // of the lookup's entries
  };

  void upload_tables(const RescaledTables& tables) {
    const std::vector<RescaledChunk> list = plan_chunks();
    n_chunks = list.size();
    uint32_t most_slots = 0;
    for (const RescaledChunk& chunk : list) most_slots = std::max(most_slots, chunk.n_slots);
    const size_t phi_bytes = sizeof(T) * kThreads * most_slots;
    shared_phi = phi_bytes <= max_shared / 3 ? most_slots : 0;
    buffer = static_cast<uint32_t>((max_shared - (shared_phi ? phi_bytes : 0)) / 2 / 16);
    std::vector<RescaledChunk> planned = list;
    for (size_t i = 0; i < planned.size(); ++i) plan_stages(planned[i], chunk_trees_[i], chunk_trees_[i + 1]);
    table_bytes = 16 * n_pieces_;
    std::vector<T> all(n_pieces_ * kSize);
    std::atomic<size_t> next{0};
    run_threads(std::min<int64_t>(8, std::max(1u, std::thread::hardware_concurrency())), [&](bool) {
      for (size_t i; (i = next++) < stages_.size();) write(tables, stages_[i], sources_[i], all.data());
    });
    chunks = upload(planned);
    stages = upload(stages_);
    targets = upload(targets_);
    data = upload(all);
    stages_ = {};
    sources_ = {};
  }

  // Divide the trees into chunks of about the same size. List the slots of each chunk.
  std::vector<RescaledChunk> plan_chunks() {
    const Tables& t = plan.tables;
    size_t all = 0, done = 0;
    const auto size_of = [&](const TableTree& tree) {
      size_t size = 0;
      for (size_t l = tree.lookups; l < tree.lookups_end; ++l)
        size += static_cast<size_t>(t.lookups[l].n_targets) << t.lookups[l].n_bits;
      return size;
    };
    for (const TableTree& tree : t.trees) all += size_of(tree);
    std::vector<RescaledChunk> out;
    slot_of_.assign(t.trees.size(), {});
    for (size_t i = 0; i < t.trees.size(); ++i) {
      if (t.trees[i].lookups == t.trees[i].lookups_end) continue;
      if (out.empty() || done * kChunks >= all * out.size()) {
        out.push_back({0, 0, n_slots, 0});
        chunk_trees_.push_back(i);
      }
      const TableBatch& batch = t.batches[t.trees[i].batch];
      for (size_t p = batch.places; p < batch.places_end; ++p) {
        const uint32_t place = t.places[p];
        const auto first = slot_places_.begin() + out.back().first_slot;
        auto slot = std::find(first, slot_places_.end(), place);
        if (slot == slot_places_.end()) {
          slot_places_.push_back(place);
          slot = slot_places_.end() - 1;
          ++out.back().n_slots;
          ++n_slots;
        }
        slot_of_[i].push_back(static_cast<uint32_t>(slot - slot_places_.begin() - out.back().first_slot));
      }
      done += size_of(t.trees[i]);
    }
    chunk_trees_.push_back(t.trees.size());
    return out;
  }

  void plan_stages(RescaledChunk& chunk, size_t tree_begin, size_t tree_end) {
    const Tables& t = plan.tables;
    chunk.stages = static_cast<int32_t>(stages_.size());
    for (int32_t output = 0; output < plan.n_outputs; ++output)
      for (int32_t panel = 0; panel < slope_list_[output].n_rows; panel += n_terms)
        for (size_t tree = tree_begin; tree < tree_end; ++tree)
          for (size_t l = t.trees[tree].lookups; l < t.trees[tree].lookups_end; ++l)
            add_stages(t.lookups[l], l, tree, output, panel);
    chunk.stages_end = static_cast<int32_t>(stages_.size());
  }

  // Add the stages of a lookup, for an output and a panel: a single stage if the entries fit into shared
  // memory.
  void add_stages(const Lookup& lookup, size_t number, size_t tree, int32_t output, int32_t panel) {
    const Tables& t = plan.tables;
    const uint32_t* const positions = t.targets.data() + lookup.targets;
    const TableBatch& batch = t.batches[t.trees[tree].batch];
    std::vector<uint32_t> columns;
    for (uint32_t i = 0; i < lookup.n_targets; ++i)
      if (t.places[batch.places + positions[i]] / plan.features.size() == static_cast<size_t>(output))
        columns.push_back(i);
    if (columns.empty()) return;
    const size_t n_entries = size_t{1} << lookup.n_bits, room = buffer / n_entries;
    const size_t n_vectors = (columns.size() + kSize - 1) / kSize, terms = n_terms;
    const auto pieces = [](size_t vectors, size_t n_used_terms) { return vectors * n_used_terms | 1; };
    size_t vectors = n_vectors, at_once = terms;
    while (vectors > 1 && pieces(vectors, terms) > room) --vectors;
    while (at_once > 1 && pieces(vectors, at_once) > room) --at_once;
    const bool fits = pieces(vectors, at_once) <= room;
    if (!fits) vectors = n_vectors, at_once = terms;
    for (size_t v = 0; v < n_vectors; v += vectors)
      for (size_t k = 0; k < terms; k += at_once) {
        const size_t n_stage_terms = std::min(at_once, terms - k), first = v * kSize,
                     last = std::min(columns.size(), (v + vectors) * kSize);
        RescaledStage stage{};
        stage.entry = static_cast<uint32_t>(pieces((last - first + kSize - 1) / kSize, n_stage_terms));
        stage.data = n_pieces_;
        stage.n_pieces = fits ? static_cast<uint32_t>(n_entries * stage.entry) : 0;
        stage.lookup = static_cast<uint32_t>(number);
        stage.panel = static_cast<uint32_t>(slope_list_[output].first_row + panel);
        stage.first_term = static_cast<uint32_t>(stage.panel + k);
        stage.n_terms = static_cast<uint32_t>(n_stage_terms);
        stage.targets = static_cast<uint32_t>(targets_.size());
        stage.n_targets = static_cast<uint32_t>(last - first);
        for (size_t i = first; i < last; ++i) targets_.push_back(slot_of_[tree][positions[columns[i]]]);
        stages_.push_back(stage);
        sources_.push_back({&lookup, output, panel + k, {columns.begin() + first, columns.begin() + last}});
        n_pieces_ += n_entries * stage.entry;
      }
  }

  void write(const RescaledTables& tables, const RescaledStage& stage, const StageSource& source,
             T* all) const {
    const size_t n_entries = size_t{1} << source.lookup->n_bits, n_targets = source.lookup->n_targets;
    T* const out = all + stage.data * kSize;
    for (uint32_t k = 0; k < stage.n_terms; ++k) {
      const size_t term = source.first_term + k;
      if (term >= static_cast<size_t>(slope_list_[source.output].n_terms)) break;
      const T* from = term_tables<T>(tables)[source.output][term].data() + source.lookup->table;
      for (size_t index = 0; index < n_entries; ++index, from += n_targets)
        for (size_t i = 0; i < source.columns.size(); ++i)
          out[(index * stage.entry + i / kSize * stage.n_terms + k) * kSize + i % kSize] =
              from[source.columns[i]];
    }
  }

  // Upload the leaves that have no table, and list their slots.
  void upload_pattern_leaves(const RescaledTables& tables, const CudaColumns& coded) {
    std::vector<PatternPanel> panels;
    for (size_t output = 0; output < slope_list_.size(); ++output) {
      const RescaledSlope& slope = slope_list_[output];
      for (int32_t first = 0; first < slope.n_terms; first += n_terms) {
        PatternPanel panel{output, static_cast<uint32_t>(slope.first_row + first), {}};
        for (int32_t k = first; k < std::min(first + n_terms, slope.n_terms); ++k)
          panel.weights.push_back(tables.weights[output][k].data());
        panels.push_back(std::move(panel));
      }
    }
    const CudaTest test = [&](const DecideNode& node) { return coded.margin_node(node); };
    CudaPatternLeaves<T> leaves = make_pattern_leaves<T>(tables.plan, test, &panels);
    for (CudaPatternChunk& chunk : leaves.chunks) chunk.first_slot += n_slots;
    slot_places_.insert(slot_places_.end(), leaves.places.begin(), leaves.places.end());
    n_slots += static_cast<uint32_t>(leaves.places.size());
    pattern_leaves.upload(leaves, PatternResults::kTerms, plan.index, max_shared, kRescaledTile, n_columns,
                          n_slots, category_bits);
    table_bytes += pattern_leaves.bytes();
  }

  void list_sums() {
    const size_t n_used = plan.features.size(), n_outputs = plan.n_outputs;
    std::vector<std::vector<int32_t>> of((n_used + 1) * n_outputs);
    for (size_t slot = 0; slot < slot_places_.size(); ++slot)
      of[slot_places_[slot]].push_back(static_cast<int32_t>(slot));
    for (size_t i = 0; i < first_sums_.size(); ++i)
      for (int32_t o = 0; o < first_sums_[i].second; ++o)
        of[n_used * n_outputs + margin_outputs_[i] + o].push_back(first_sums_[i].first + o);
    std::vector<int64_t> begins{0};
    std::vector<int32_t> flat;
    for (const std::vector<int32_t>& one : of) {
      flat.insert(flat.end(), one.begin(), one.end());
      begins.push_back(static_cast<int64_t>(flat.size()));
    }
    offsets = upload(begins);
    parts = upload(flat);
  }

  std::vector<int32_t> margin_outputs_;                  // by group of margins: its first output
  std::vector<std::pair<int32_t, int32_t>> first_sums_;  // and its first sum and their number
  std::vector<RescaledSlope> slope_list_;
  std::vector<size_t> chunk_trees_;
  std::vector<uint32_t> slot_places_;           // of all chunks: output * used features + feature
  std::vector<std::vector<uint32_t>> slot_of_;  // [tree][position in its batch]
  std::vector<RescaledStage> stages_;
  std::vector<StageSource> sources_;
  std::vector<uint32_t> targets_;
  size_t n_pieces_ = 0;
};

}  // namespace skshap
