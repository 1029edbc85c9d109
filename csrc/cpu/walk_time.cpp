#include "cpu/walk_time.h"

#include <algorithm>
#include <ctime>
#include <vector>

#include "base/aligned.h"
#include "rows/tiles.h"
#include "rows/value_walk.h"

namespace skshap {
namespace {

// Return the seconds of CPU time. They do not include waiting for a busy machine, which is not the walk's
// work.
double now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

template <class T>
WalkTime time_walk_in(const Plan& plan, const Rows& rows) {
  size_t n_phi = 0, n_stack = 0;
  for (const Chunk& chunk : plan.chunks) {
    n_phi = std::max(n_phi, n_used_outputs(plan, chunk) * chunk.slots.size() * kBlockRows);
    n_stack = std::max(n_stack, walk_stack(plan, chunk));
  }
  Aligned<T> phi, stack;
  phi.resize(n_phi);
  stack.resize(n_stack);
  Tile tile(plan, static_cast<int>(whole_blocks(rows.n_rows)));
  tile.n_rows = static_cast<int>(rows.n_rows);
  code_tile(plan, kernels(), rows, 0, tile.n_rows, tile.codes);

  WalkTime time;
  std::vector<uint64_t> words;
  for (const Chunk& chunk : plan.chunks) {
    // All trees are decided first, and then walked, because reading the clock takes as long as walking a
    // small tree.
    const auto run_trees = [&](const auto& run) {
      size_t first = 0;
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
        const TreeProgram& tree = plan.trees[i];
        if (!tree.walked) continue;
        run(tree, words.data() + first);
        first += kFirstWord + 2 * tree.n_inner;
      }
      return first;
    };
    words.resize(run_trees([](const TreeProgram&, uint64_t*) {}));
    for (int block = 0; block < tile.n_blocks(); ++block) {
      std::fill_n(phi.data(), n_phi, T(0));
      const double start = now();
      run_trees([&](const TreeProgram& tree, uint64_t* tree_words) {
        decide_block(plan, kernels(), plan.decide.data() + tree.decide, tree.n_inner, tile.codes, block,
                     tree_words);
      });
      const double decided = now();
      run_trees([&](const TreeProgram& tree, uint64_t* tree_words) {
        walk_values(plan, chunk, tree, tree_words, tile.block_rows(block), phi.data(), stack.data());
      });
      time.decide += decided - start;
      time.walk += now() - decided;
    }
  }
  return time;
}

}  // namespace

WalkTime time_walk(const Plan& plan, const Rows& rows) {
  return in_precision(plan.precision,
                      [&](auto number) { return time_walk_in<decltype(number)>(plan, rows); });
}

}  // namespace skshap
