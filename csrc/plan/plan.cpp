// Ensemble -> Plan: codes the thresholds and compiles the trees, chunk by chunk. This code runs on the host
// only.
#include "plan/plan.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "base/threads.h"
#include "plan/chunks.h"
#include "plan/interactions.h"
#include "plan/tree_shapes.h"
#include "plan/tree_writer.h"

namespace skshap {
namespace {

// The number of constants of a leaf for which memory is reserved: this many for each quadrature node, up to
// this many in all.
constexpr size_t kConstantsPerNode = 4, kMostConstants = 32;

// Return a plan into which nothing has been compiled yet, apart from its columns.
Plan empty_plan(CodedColumns columns, const CodedTrees& trees, Precision precision, int order, Index index) {
  Plan plan;
  static_cast<CodedColumns&>(plan) = std::move(columns);
  plan.n_outputs = trees.n_outputs;
  plan.precision = precision;
  plan.order = order;
  plan.index = index;
  return plan;
}

// Append the trees of a part, which was compiled by itself.
void append(const WalkProgram& part, WalkProgram& whole) {
  const auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  const size_t n_trees = whole.trees.size(), n_decide = whole.decide.size();
  const size_t n_constants = whole.constants_float.size() + whole.constants_double.size();
  for (Chunk chunk : part.chunks) {
    chunk.tree_begin += n_trees;
    chunk.tree_end += n_trees;
    chunk.quadrature += n_constants;
    whole.chunks.push_back(std::move(chunk));
  }
  for (TreeProgram tree : part.trees) {
    tree.decide += n_decide;
    tree.ops += whole.ops.size();
    tree.constants += n_constants;
    tree.children += whole.children.size();
    tree.leaves += whole.leaf_values.size();
    whole.trees.push_back(tree);
  }
  add(whole.decide, part.decide);
  add(whole.shares, part.shares);
  add(whole.players, part.players);
  add(whole.ops, part.ops);
  add(whole.constants_float, part.constants_float);
  add(whole.constants_double, part.constants_double);
  add(whole.children, part.children);
  add(whole.leaf_values, part.leaf_values);
}

class PlanCompiler {
 public:
  PlanCompiler(const CodedTrees& trees, Plan plan, bool walks, int64_t n_threads)
      : trees_(trees),
        walks_(walks),
        n_threads_(compiling_threads(trees.n_nodes(), n_threads)),
        plan_(std::move(plan)),
        measured_(trees, plan_, n_threads_) {}

  Plan compile() {
    make_room();
    add_constants();
    chunks_ = divide_into_chunks(trees_, measured_.shapes(), plan_);
    if (n_threads_ > 1 && !plan_.interactions())
      write_parts();
    else
      write_all();
    return std::move(plan_);
  }

 private:
  // Reserve memory for the numbers that each node has: streams that grow would be copied again and again.
  // Reserved memory of constants that are not needed costs nothing, as it is never touched.
  void make_room() {
    const size_t n_leaves = static_cast<size_t>(plan_.n_leaves);
    const size_t n_inner = static_cast<size_t>(trees_.n_nodes()) - n_leaves;
    plan_.decide.reserve(n_inner);
    plan_.shares.reserve(n_inner);
    plan_.children.reserve(2 * (n_inner + n_leaves));
    plan_.leaf_values.reserve(n_leaves * trees_.value_width);
    if (!walks_ || plan_.interactions()) return;
    plan_.ops.reserve(2 * n_inner);
    size_t n_constants = 0;
    for (const TreeShape& shape : measured_.shapes())
      n_constants += static_cast<size_t>(shape.n_leaves) *
                     (std::min(kMostConstants, kConstantsPerNode * static_cast<size_t>(shape.n_nodes)) +
                      2 * static_cast<size_t>(trees_.value_width));
    if (plan_.precision == Precision::kSingle)
      plan_.constants_float.reserve(n_constants);
    else
      plan_.constants_double.reserve(n_constants);
  }

  // Add the trees of a single leaf.
  void add_constants() {
    for (int32_t tree = 0; tree < trees_.n_trees; ++tree) {
      if (measured_.shapes()[tree].height > 0) continue;
      const int32_t output = std::max(trees_.tree_output[tree], 0);
      for (int32_t o = 0; o < trees_.value_width; ++o)
        plan_.constant[output + o] += measured_.leaf(tree, trees_.tree_offsets[tree], o);
    }
  }

  void write_all() {
    TreeWriter writer(trees_, measured_, walks_, plan_);
    for (const std::vector<int32_t>& trees : chunks_) writer.write_chunk(trees);
    sort_interactions(plan_);
  }

  // Compile each chunk by itself. Append the chunks in their order, each as soon as all chunks before it are
  // appended.
  void write_parts() {
    std::vector<std::unique_ptr<WalkProgram>> parts(chunks_.size());
    std::mutex mutex;
    size_t n_appended = 0;
    share_items(static_cast<int64_t>(chunks_.size()), n_threads_, [&] {
      return [&](int64_t i) {
        auto part = std::make_unique<WalkProgram>();
        part->set_like(plan_);
        TreeWriter(trees_, measured_, walks_, *part).write_chunk(chunks_[i]);
        const std::lock_guard<std::mutex> lock(mutex);
        parts[i] = std::move(part);
        for (; n_appended < parts.size() && parts[n_appended]; parts[n_appended++].reset())
          append(*parts[n_appended], plan_);
      };
    });
  }

  const CodedTrees& trees_;
  const bool walks_;
  const int64_t n_threads_;
  Plan plan_;
  const MeasuredTrees measured_;
  std::vector<std::vector<int32_t>> chunks_;
};

}  // namespace

size_t Plan::bytes() const {
  return WalkProgram::bytes() + list_bytes(category_bits) + tables.bytes() + intervals.bytes() +
         lanes.bytes() + cells.bytes();
}

size_t walk_stack(const WalkProgram& program, const Chunk& chunk) {
  const size_t rows = in_precision(program.precision, [&](auto number) {
    using T = decltype(number);
    return (chunk.output < 0 ? vector_walk_rows<T> : walk_rows<T>)(program.interactions());
  });
  const int n_outputs = static_cast<int>(n_used_outputs(program, chunk));
  return rows * stack_size(chunk.n_nodes, n_outputs, chunk.height, chunk.n_values, program.order);
}

Plan make_plan(const CodedTrees& trees, const Plan& like, int64_t n_threads, bool walks) {
  Plan plan = empty_plan(like, trees, like.precision, 1, like.index);
  return PlanCompiler(trees, std::move(plan), walks, n_threads).compile();
}

Plan make_plan(const EnsembleView& ensemble, Precision precision, int order, Index index, bool walks,
               int64_t n_threads) {
  CodedEnsemble coded(ensemble, n_threads);
  Plan plan = empty_plan(std::move(coded.columns), coded.trees(), precision, order, index);
  return PlanCompiler(coded.trees(), std::move(plan), walks, n_threads).compile();
}

}  // namespace skshap
