// Ensemble -> Plan: codes the thresholds and compiles the trees, chunk by chunk. This code runs on the host
// only.
#include "plan/plan.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "base/threads.h"
#include "plan/chunks.h"
#include "plan/columns.h"
#include "plan/tree_shapes.h"
#include "plan/tree_writer.h"

namespace skshap {
namespace {

// The number of constants of a leaf for which memory is reserved: this many for each quadrature node, up to
// this many in all.
constexpr size_t kConstantsPerNode = 4, kMostConstants = 32;

// Features are renumbered only if they outnumber the nodes by more than this.
constexpr size_t kFewFeatures = 1 << 16;

// Return a plan into which nothing has been compiled yet.
Plan empty_plan(const EnsembleView& e, Precision precision, int order, Index index) {
  Plan plan;
  plan.n_features = e.n_players;
  plan.n_inputs = e.n_features;
  plan.n_outputs = e.n_outputs;
  plan.x_float32 = e.x_float32;
  plan.strict = e.strict;
  plan.precision = precision;
  plan.order = order;
  plan.index = index;
  return plan;
}

// Append the trees of a part of a plan. The part was compiled by itself.
void append(const Plan& part, Plan& plan) {
  const auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  const size_t n_trees = plan.trees.size(), n_decide = plan.decide.size();
  const size_t n_constants = plan.constants_float.size() + plan.constants_double.size();
  for (Chunk chunk : part.chunks) {
    chunk.tree_begin += n_trees;
    chunk.tree_end += n_trees;
    chunk.quadrature += n_constants;
    plan.chunks.push_back(std::move(chunk));
  }
  for (TreeProgram tree : part.trees) {
    tree.decide += n_decide;
    tree.ops += plan.ops.size();
    tree.constants += n_constants;
    tree.children += plan.children.size();
    tree.leaves += plan.leaf_values.size();
    plan.trees.push_back(tree);
  }
  add(plan.decide, part.decide);
  const size_t first_bits = plan.category_bits.size();
  if (first_bits + part.category_bits.size() > std::numeric_limits<uint32_t>::max())
    throw std::invalid_argument("too many categories");
  if (!part.category_bits.empty())
    for (size_t i = n_decide; i < plan.decide.size(); ++i)
      if (plan.decide[i].flags & kCategorical) plan.decide[i].operand += static_cast<uint32_t>(first_bits);
  add(plan.category_bits, part.category_bits);
  add(plan.shares, part.shares);
  add(plan.players, part.players);
  add(plan.ops, part.ops);
  add(plan.constants_float, part.constants_float);
  add(plan.constants_double, part.constants_double);
  add(plan.children, part.children);
  add(plan.leaf_values, part.leaf_values);
}

class PlanCompiler {
 public:
  PlanCompiler(const EnsembleView& ensemble, Precision precision, int order, Index index, bool walks,
               int64_t n_threads)
      : e_(ensemble),
        walks_(walks),
        n_threads_(n_threads),
        plan_(empty_plan(ensemble, precision, order, index)),
        columns_(ensemble, plan_, n_threads),
        measured_(ensemble, plan_, n_threads) {}

  PlanCompiler(const EnsembleView& ensemble, const CodedTests& coded, int64_t n_threads)
      : e_(ensemble),
        walks_(true),
        n_first_(coded.n_first),
        n_threads_(n_threads),
        plan_(empty_plan(ensemble, coded.plan.precision, 1, coded.plan.index)),
        columns_(ensemble, plan_, coded),
        measured_(ensemble, plan_, n_threads) {}

  Plan compile() {
    make_room();
    add_constants();
    chunks_ = divide_into_chunks(e_, measured_.shapes(), plan_, n_first_);
    const int64_t n_threads = compiling_threads(e_, n_threads_);
    if (n_threads > 1 && !plan_.interactions())
      write_parts(n_threads);
    else
      write_all();
    return std::move(plan_);
  }

 private:
  // Reserve memory for the numbers that each node has: streams that grow would be copied again and again.
  // Reserved memory of constants that are not needed costs nothing, as it is never touched.
  void make_room() {
    const size_t n_leaves = static_cast<size_t>(plan_.n_leaves);
    const size_t n_inner = static_cast<size_t>(e_.tree_offsets[e_.n_trees]) - n_leaves;
    plan_.decide.reserve(n_inner);
    plan_.shares.reserve(n_inner);
    plan_.children.reserve(2 * (n_inner + n_leaves));
    plan_.leaf_values.reserve(n_leaves * e_.value_width);
    if (!walks_ || plan_.interactions()) return;
    plan_.ops.reserve(2 * n_inner);
    size_t n_constants = 0;
    for (const TreeShape& shape : measured_.shapes())
      n_constants += static_cast<size_t>(shape.n_leaves) *
                     (std::min(kMostConstants, kConstantsPerNode * static_cast<size_t>(shape.n_nodes)) +
                      2 * static_cast<size_t>(e_.value_width));
    if (plan_.precision == Precision::kSingle)
      plan_.constants_float.reserve(n_constants);
    else
      plan_.constants_double.reserve(n_constants);
  }

  // Add the trees of a single leaf.
  void add_constants() {
    for (int32_t tree = 0; tree < e_.n_trees; ++tree) {
      if (measured_.shapes()[tree].height > 0) continue;
      const int32_t output = std::max(e_.tree_output[tree], 0);
      for (int32_t o = 0; o < e_.value_width; ++o)
        plan_.constant[output + o] += measured_.leaf(tree, e_.tree_offsets[tree], o);
    }
  }

  void write_all() {
    TreeWriter writer(e_, columns_, measured_, walks_, plan_);
    for (const std::vector<int32_t>& trees : chunks_) writer.write_chunk(trees);
    writer.sort_interactions();
  }

  // Compile each chunk by itself. Append the chunks in their order, each as soon as all chunks before it are
  // appended.
  void write_parts(int64_t n_threads) {
    std::vector<std::unique_ptr<Plan>> parts(chunks_.size());
    std::atomic<size_t> next{0};
    std::mutex mutex;
    size_t n_appended = 0;
    run_threads(n_threads, [&](bool) {
      for (size_t i; (i = next++) < chunks_.size();) {
        auto part = std::make_unique<Plan>(empty_plan(e_, plan_.precision, plan_.order, plan_.index));
        part->features = plan_.features;
        TreeWriter(e_, columns_, measured_, walks_, *part).write_chunk(chunks_[i]);
        const std::lock_guard<std::mutex> lock(mutex);
        parts[i] = std::move(part);
        for (; n_appended < parts.size() && parts[n_appended]; parts[n_appended++].reset())
          append(*parts[n_appended], plan_);
      }
    });
  }

  const EnsembleView& e_;
  const bool walks_;
  const int32_t n_first_ = -1;
  const int64_t n_threads_;
  Plan plan_;
  ColumnCoder columns_;
  const MeasuredTrees measured_;
  std::vector<std::vector<int32_t>> chunks_;
};

}  // namespace

size_t Plan::bytes() const { return stream_bytes() + shares.size() * 8 + players.size() * 4; }

size_t Plan::stream_bytes() const {
  return decide.size() * sizeof(DecideNode) + category_bits.size() * 4 + ops.size() * 4 +
         constants_float.size() * 4 + constants_double.size() * 8 + children.size() * 4 +
         leaf_values.size() * 8 + tables.bytes() + intervals.bytes();
}

size_t walk_stack(const Plan& plan, const Chunk& chunk) {
  const bool interactions = plan.interactions(), single = plan.precision == Precision::kSingle;
  const size_t rows = chunk.output < 0
                          ? (single ? vector_walk_rows<float> : vector_walk_rows<double>)(interactions)
                          : (single ? walk_rows<float> : walk_rows<double>)(interactions);
  const int n_outputs = static_cast<int>(n_used_outputs(plan, chunk));
  return rows * stack_size(chunk.n_nodes, n_outputs, chunk.height, chunk.n_values, plan.order);
}

Plan make_plan(const EnsembleView& ensemble, const CodedTests& coded, int64_t n_threads) {
  Plan plan = PlanCompiler(ensemble, coded, n_threads).compile();
  plan.features = coded.plan.features;
  return plan;
}

Plan make_plan(const EnsembleView& ensemble, Precision precision, int order, Index index, bool walks,
               int64_t n_threads) {
  const size_t n_nodes = static_cast<size_t>(ensemble.tree_offsets[ensemble.n_trees]);
  if (static_cast<size_t>(ensemble.n_features) <= n_nodes + kFewFeatures)
    return PlanCompiler(ensemble, precision, order, index, walks, n_threads).compile();
  // The compiler keeps lists with an element for each feature, which could outgrow the trees.
  const UsedFeatures used(ensemble);
  Plan plan = PlanCompiler(used.view(), precision, order, index, walks, n_threads).compile();
  plan.n_features = ensemble.n_players;
  plan.n_inputs = ensemble.n_features;
  for (Column& column : plan.columns) {
    column.input = used.feature(column.input);
    column.feature = used.player(column.feature);
  }
  for (int32_t& feature : plan.features) feature = used.player(feature);
  return plan;
}

}  // namespace skshap
