// The tables of rescaled outputs in the form for a GPU.
#pragma once

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "background/rescaled_tables.h"
#include "base/threads.h"
#include "cuda/cuda.h"
#include "cuda/program/columns.h"
#include "cuda/program/tuning.h"
#include "cuda/rescaled.cuh"

namespace skshap {

template <class T>
class RescaledProgram {
 public:
  static constexpr int kThreads = rescaled_threads<T>(), kSize = RescaledPiece<T>::kSize;

  // Compile tables for blocks with at most `max_shared` bytes of shared memory.
  RescaledProgram(const RescaledTables& tables, const CudaColumns& columns, size_t max_shared)
      : plan_(tables.plan), max_shared_(max_shared) {
    write_decisions(columns);
    write_slopes(tables);
    write_tables(tables);
  }

  std::vector<CudaTableTree> trees;
  std::vector<CudaTableNode> nodes;
  std::vector<RescaledIndex> lookups;
  uint32_t max_words = kFirstWord;  // of the decisions of a tree

  std::vector<RescaledSlope> slopes;  // by output
  std::vector<double> slope_nodes, factors;
  int n_terms = 0;      // that a thread keeps in registers
  int32_t n_alpha = 0;  // factors of a row

  std::vector<RescaledChunk> chunks;
  std::vector<RescaledStage> stages;
  std::vector<uint32_t> targets;
  std::vector<T> data;
  std::vector<uint32_t> places;  // of the slots of all chunks, as in Tables::places
  uint32_t shared_phi = 0;       // slots of phi in shared memory, or 0
  uint32_t buffer = 0;           // pieces of 16 bytes of each of the two buffers

 private:
  void write_decisions(const CudaColumns& columns) {
    for (const TableTree& tree : plan_.tables.trees) {
      if (tree.lookups == tree.lookups_end) continue;  // all leaves are without a table
      const TreeProgram& program = plan_.trees[tree.tree];
      trees.push_back({nodes.size(), static_cast<int32_t>(program.n_inner),
                       static_cast<int32_t>(tree.lookups), static_cast<int32_t>(tree.lookups_end)});
      for (size_t i = 0; i < program.n_inner; ++i)
        nodes.push_back(table_node(columns, plan_.decide[program.decide + i]));
      max_words = std::max(max_words, static_cast<uint32_t>(kFirstWord + 2 * program.n_inner));
    }
    for (const Lookup& lookup : plan_.tables.lookups) lookups.push_back({lookup.bits, lookup.n_bits});
    if (sizeof(uint32_t) * max_words > max_shared_)
      throw CudaMemoryError("the GPU has too little shared memory for the decisions of a tree with " +
                            std::to_string((max_words - kFirstWord) / 2) + " splits; use device='cpu'");
  }

  void write_slopes(const RescaledTables& tables) {
    size_t most = 1;
    for (const SeparableSlope& slope : tables.slopes) most = std::max(most, slope.n_terms);
    const size_t n_panels = (most + kMostTerms - 1) / kMostTerms;
    n_terms = static_cast<int>(((most + n_panels - 1) / n_panels + 1) / 2 * 2);
    for (const SeparableSlope& slope : tables.slopes) {
      const int32_t n = static_cast<int32_t>(slope.n_terms), rows = (n + n_terms - 1) / n_terms * n_terms;
      slopes.push_back({.n_nodes = static_cast<int32_t>(slope.nodes.size()),
                        .n_terms = n,
                        .first_row = n_alpha,
                        .n_rows = rows,
                        .nodes = slope_nodes.size(),
                        .factors = factors.size()});
      n_alpha += rows;
      slope_nodes.insert(slope_nodes.end(), slope.nodes.begin(), slope.nodes.end());
      factors.insert(factors.end(), slope.factors.begin(), slope.factors.end());
    }
  }

  // Stages are planned first. Then their numbers are written, in parallel.
  struct StageSource {
    const Lookup* lookup;
    int32_t output;
    size_t first_term;              // of the output
    std::vector<uint32_t> columns;  // of the lookup's entries
  };

  void write_tables(const RescaledTables& tables) {
    plan_chunks();
    const uint32_t most_slots = largest_of(chunks, &RescaledChunk::n_slots);
    const size_t phi_bytes = sizeof(T) * kThreads * most_slots;
    shared_phi = phi_bytes <= max_shared_ / 3 ? most_slots : 0;
    buffer = static_cast<uint32_t>((max_shared_ - (shared_phi ? phi_bytes : 0)) / 2 / 16);
    for (size_t i = 0; i < chunks.size(); ++i) plan_stages(chunks[i], chunk_trees_[i], chunk_trees_[i + 1]);
    data.resize(n_pieces_ * kSize);
    std::atomic<size_t> next{0};
    run_threads(std::min<int64_t>(8, std::max(1u, std::thread::hardware_concurrency())), [&](bool) {
      for (size_t i; (i = next++) < stages.size();) write(tables, stages[i], sources_[i]);
    });
  }

  // Divide the trees into chunks of about the same size. List the slots of each chunk.
  void plan_chunks() {
    const Tables& t = plan_.tables;
    size_t all = 0, done = 0;
    const auto size_of = [&](const TableTree& tree) {
      size_t size = 0;
      for (size_t l = tree.lookups; l < tree.lookups_end; ++l)
        size += static_cast<size_t>(t.lookups[l].n_targets) << t.lookups[l].n_bits;
      return size;
    };
    for (const TableTree& tree : t.trees) all += size_of(tree);
    slot_of_.assign(t.trees.size(), {});
    for (size_t i = 0; i < t.trees.size(); ++i) {
      if (t.trees[i].lookups == t.trees[i].lookups_end) continue;
      if (chunks.empty() || done * kRescaledChunks >= all * chunks.size()) {
        chunks.push_back({0, 0, static_cast<uint32_t>(places.size()), 0});
        chunk_trees_.push_back(i);
      }
      RescaledChunk& chunk = chunks.back();
      const TableBatch& batch = t.batches[t.trees[i].batch];
      for (size_t p = batch.places; p < batch.places_end; ++p) {
        const uint32_t place = t.places[p];
        const auto first = places.begin() + chunk.first_slot;
        const size_t slot = std::find(first, places.end(), place) - first;
        if (slot == chunk.n_slots) {
          places.push_back(place);
          ++chunk.n_slots;
        }
        slot_of_[i].push_back(static_cast<uint32_t>(slot));
      }
      done += size_of(t.trees[i]);
    }
    chunk_trees_.push_back(t.trees.size());
  }

  void plan_stages(RescaledChunk& chunk, size_t tree_begin, size_t tree_end) {
    const Tables& t = plan_.tables;
    chunk.stages = static_cast<int32_t>(stages.size());
    for (int32_t output = 0; output < plan_.n_outputs; ++output)
      for (int32_t panel = 0; panel < slopes[output].n_rows; panel += n_terms)
        for (size_t tree = tree_begin; tree < tree_end; ++tree)
          for (size_t l = t.trees[tree].lookups; l < t.trees[tree].lookups_end; ++l)
            add_stages(t.lookups[l], l, tree, output, panel);
    chunk.stages_end = static_cast<int32_t>(stages.size());
  }

  // Add the stages of a lookup, for an output and a panel: a single stage if the entries fit into shared
  // memory.
  void add_stages(const Lookup& lookup, size_t number, size_t tree, int32_t output, int32_t panel) {
    const Tables& t = plan_.tables;
    const uint32_t* const positions = t.targets.data() + lookup.targets;
    const TableBatch& batch = t.batches[t.trees[tree].batch];
    std::vector<uint32_t> columns;
    for (uint32_t i = 0; i < lookup.n_targets; ++i)
      if (t.places[batch.places + positions[i]] / plan_.features.size() == static_cast<size_t>(output))
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
        stage.panel = static_cast<uint32_t>(slopes[output].first_row + panel);
        stage.first_term = static_cast<uint32_t>(stage.panel + k);
        stage.n_terms = static_cast<uint32_t>(n_stage_terms);
        stage.targets = static_cast<uint32_t>(targets.size());
        stage.n_targets = static_cast<uint32_t>(last - first);
        for (size_t i = first; i < last; ++i) targets.push_back(slot_of_[tree][positions[columns[i]]]);
        stages.push_back(stage);
        sources_.push_back({&lookup, output, panel + k, {columns.begin() + first, columns.begin() + last}});
        n_pieces_ += n_entries * stage.entry;
      }
  }

  void write(const RescaledTables& tables, const RescaledStage& stage, const StageSource& source) {
    const size_t n_entries = size_t{1} << source.lookup->n_bits, n_targets = source.lookup->n_targets;
    T* const out = data.data() + stage.data * kSize;
    for (uint32_t k = 0; k < stage.n_terms; ++k) {
      const size_t term = source.first_term + k;
      if (term >= static_cast<size_t>(slopes[source.output].n_terms)) break;
      const T* from = numbers_of<T>(tables)[source.output][term].data() + source.lookup->table;
      for (size_t index = 0; index < n_entries; ++index, from += n_targets)
        for (size_t i = 0; i < source.columns.size(); ++i)
          out[(index * stage.entry + i / kSize * stage.n_terms + k) * kSize + i % kSize] =
              from[source.columns[i]];
    }
  }

  const Plan& plan_;
  const size_t max_shared_;
  std::vector<size_t> chunk_trees_;             // the first tree of each chunk, and the end
  std::vector<std::vector<uint32_t>> slot_of_;  // [tree][position in its batch]
  std::vector<StageSource> sources_;
  size_t n_pieces_ = 0;
};

}  // namespace skshap
