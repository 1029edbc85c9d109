// Takes blocks of rows through those trees of a chunk that are walked.
#pragma once

#include <algorithm>
#include <memory>

#include "base/aligned.h"
#include "cpu/tree_algorithm.h"
#include "plan/plan.h"
#include "rows/coding.h"
#include "rows/margin.h"
#include "rows/value_walk.h"
#include "simd/kernels.h"

namespace skshap {

// Return whether a tree is taken through a ChunkWalk, not through tables alone.
inline bool has_walk(const Plan& plan, const TreeProgram& tree) { return tree.walked || plan.tree_algorithm; }

// Return whether a chunk has such trees.
inline bool has_walks(const Plan& plan, const Chunk& chunk) {
  return std::any_of(plan.trees.begin() + chunk.tree_begin, plan.trees.begin() + chunk.tree_end,
                     [&](const TreeProgram& tree) { return has_walk(plan, tree); });
}

// Return the bytes of the ChunkSums of a chunk.
inline size_t chunk_sum_bytes(const Plan& plan, const Chunk& chunk) {
  const size_t n_places = chunk.slots.size() + chunk.pairs.size() + chunk.triples.size();
  return n_used_outputs(plan, chunk) * kBlockRows * (sizeof(double) + n_places * element_bytes(plan));
}

// The sums of a chunk for the rows of a block. They follow each other in memory that is aligned to 64 bytes.
template <class T>
class ChunkSums {
 public:
  ChunkSums(const Plan& plan, const Chunk& chunk, void* memory)
      : margin(static_cast<double*>(memory)),
        values(reinterpret_cast<T*>(margin + n_used_outputs(plan, chunk) * kBlockRows)),
        pairs(values + n_used_outputs(plan, chunk) * chunk.slots.size() * kBlockRows),
        triples(pairs + n_used_outputs(plan, chunk) * chunk.pairs.size() * kBlockRows) {}

  double* const margin;                           // [output][64]
  T *const values, *const pairs, *const triples;  // [output][slot][64]
};

// One thread's work on any chunk.
template <class T>
class ChunkWalk {
 public:
  // Without `needs_margins`, the sums of margins are left as they are.
  ChunkWalk(const Plan& plan, bool needs_margins)
      : plan_(plan), kernels_(kernels()), needs_margins_(needs_margins), margins_(plan, kernels()) {
    stack_.resize(stack_size(plan));
    words_.resize(n_words(plan));
    std::fill_n(words_.data(), words_.size(), uint64_t{0});  // the words of leaves are read, too
    if (plan.tree_algorithm) tree_worker_ = plan.tree_algorithm->of<T>().make(plan);
  }

  // Return the bytes that a ChunkWalk allocates.
  static size_t bytes(const Plan& plan) {
    const size_t margin_bytes = 8 * most_nodes(plan);
    return stack_size(plan) * sizeof(T) + n_words(plan) * 8 + margin_bytes +
           (plan.tree_algorithm ? plan.tree_algorithm->of<T>().bytes(plan) : 0);
  }

  void run(const Chunk& chunk, const CodeTile& codes, int block, int n_rows, const ChunkSums<T>& sums) {
    const size_t n_slots = chunk.slots.size(), n_outputs = n_used_outputs(plan_, chunk);
    const size_t n_pairs = chunk.pairs.size(), n_triples = chunk.triples.size();
    if (needs_margins_) std::fill_n(sums.margin, n_outputs * kBlockRows, 0.0);
    std::fill_n(sums.values, n_outputs * (n_slots + n_pairs + n_triples) * kBlockRows, T(0));
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      const TreeProgram& tree = plan_.trees[i];
      if (!has_walk(plan_, tree)) continue;
      decide_block(plan_, kernels_, plan_.decide.data() + tree.decide, tree.n_inner, codes, block,
                   words_.data());
      if (needs_margins_ && tree.adds_margin)
        margins_.add(tree, n_outputs, words_.data(), n_rows, sums.margin, kBlockRows);
      if (tree_worker_) {
        tree_worker_->add_tree(chunk, tree, words_.data(), n_rows, sums.values);
        continue;
      }
      WalkArgs<T> walk = value_walk(plan_, chunk, tree, words_.data(), n_rows, sums.values, stack_.data());
      walk.dead = walk.weights + chunk.n_nodes;
      walk.pair_phi = sums.pairs;
      walk.pair_stride = n_pairs * kBlockRows;
      walk.triple_phi = sums.triples;
      walk.triple_stride = n_triples * kBlockRows;
      run_walk(kernels_, plan_.order, chunk.output < 0, walk);
    }
  }

  Margins& margins() { return margins_; }

 private:
  static size_t stack_size(const Plan& plan) {
    return largest_of(plan.chunks, [&](const Chunk& chunk) {
      return has_walks(plan, chunk) ? walk_stack(plan, chunk) : size_t{0};
    });
  }
  static size_t n_words(const Plan& plan) { return kFirstWord + 2 * (2 * most_inner_nodes(plan) + 1); }

  const Plan& plan_;
  const Kernels& kernels_;
  const bool needs_margins_;
  Margins margins_;
  Aligned<T> stack_;
  Aligned<uint64_t> words_;
  std::unique_ptr<TreeWorker<T>> tree_worker_;
};

}  // namespace skshap
