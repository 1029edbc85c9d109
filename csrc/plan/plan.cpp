// Ensemble -> Plan: codes the thresholds, labels the nodes and writes the programs. Host only.
#include "plan/plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "plan/columns.h"
#include "plan/tree_paths.h"
#include "plan/tree_shapes.h"
#include "plan/walk_writer.h"

namespace skshap {
namespace {

// Sums in single precision are added to those in double precision after this many trees.
constexpr size_t kMaxChunkTrees = 64;
// Maximum size of the programs of a chunk: half of a typical L2 cache.
constexpr size_t kMaxChunkBytes = 512 << 10;
// Threads divide chunks of few rows among them, so a large model has at least about so many. To add up a
// chunk's sums is dear only if it has few leaves, or few for each of its sums.
constexpr int64_t kManyChunks = 32;
constexpr int64_t kFewLeaves = 512;
constexpr int64_t kFewLeavesPerSum = 32;

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

class Compiler {
 public:
  Compiler(const EnsembleView& ensemble, Precision precision, int order, Index index, bool walks)
      : e_(ensemble),
        walks_(walks),
        width_(ensemble.value_width),
        plan_(empty_plan(ensemble, precision, order, index)),
        columns_(ensemble, plan_),
        measured_(ensemble, plan_),
        writer_(ensemble, measured_, plan_),
        path_(ensemble.n_players),
        slot_of_feature_(ensemble.n_players, -1) {}

  Compiler(const EnsembleView& ensemble, const CodedTests& coded)
      : e_(ensemble),
        walks_(true),
        n_first_(coded.n_first),
        width_(ensemble.value_width),
        plan_(empty_plan(ensemble, coded.plan.precision, 1, coded.plan.index)),
        columns_(ensemble, plan_, coded),
        measured_(ensemble, plan_),
        writer_(ensemble, measured_, plan_),
        path_(ensemble.n_players),
        slot_of_feature_(ensemble.n_players, -1) {}

  Plan compile() {
    make_room();
    const std::vector<TreeShape>& shapes = measured_.shapes();
    std::vector<int32_t> order(e_.n_trees);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      if ((a < n_first_) != (b < n_first_)) return a < n_first_;
      if (e_.tree_output[a] != e_.tree_output[b]) return e_.tree_output[a] < e_.tree_output[b];
      return shapes[a].n_features < shapes[b].n_features;  // K, too
    });
    for (const int32_t tree : order) {
      if (shapes[tree].height == 0) {
        add_constant(tree);
        continue;
      }
      begin_chunk(tree, shapes[tree]);
      write_tree(tree, shapes[tree]);
      if (!walks_) forget_walk();
    }
    writer_.sort_interactions();
    return std::move(plan_);
  }

 private:
  enum Stage : uint8_t { kVisit, kBetween, kLeave };
  struct Item {
    int64_t node;
    Stage stage;
    int32_t parent;  // preorder number
    bool right;      // child of the parent
  };

  // Reserve memory for what each node has: streams that grow would be copied again and again.
  void make_room() {
    const size_t n_leaves = static_cast<size_t>(plan_.n_leaves);
    const size_t n_inner = static_cast<size_t>(e_.tree_offsets[e_.n_trees]) - n_leaves;
    plan_.decide.reserve(n_inner);
    plan_.shares.reserve(n_inner);
    plan_.children.reserve(2 * (n_inner + n_leaves));
    plan_.leaf_values.reserve(n_leaves * width_);
  }

  // Add a tree of a single leaf.
  void add_constant(int32_t tree) {
    const int32_t output = std::max(e_.tree_output[tree], 0);
    for (int32_t o = 0; o < width_; ++o)
      plan_.constant[output + o] += measured_.leaf(tree, e_.tree_offsets[tree], o);
  }

  // --- Chunks ---

  // Return the bytes of all trees so far, including programs that were dropped.
  size_t stream_bytes() const { return plan_.stream_bytes() + forgotten_bytes_; }

  void forget_walk() {
    forgotten_bytes_ += writer_.bytes();
    writer_.clear();
  }

  // Return whether the last chunk has room for another tree.
  bool has_room() const {
    const Chunk& chunk = plan_.chunks.back();
    const size_t n_trees = chunk.tree_end - chunk.tree_begin,
                 n_sums = chunk.slots.size() + chunk.pairs.size();
    if (n_trees >= kMaxChunkTrees || stream_bytes() - chunk_start_bytes_ >= kMaxChunkBytes) return false;
    const int64_t n_leaves = static_cast<int64_t>(plan_.decide.size() - chunk_start_nodes_ + n_trees);
    return n_leaves < std::max({plan_.n_leaves / kManyChunks, kFewLeaves,
                                kFewLeavesPerSum * static_cast<int64_t>(n_sums)});
  }

  void begin_chunk(int32_t tree, const TreeShape& shape) {
    if (!plan_.chunks.empty() && plan_.chunks.back().output == e_.tree_output[tree] &&
        plan_.chunks.back().n_nodes == shape.n_nodes && has_room() &&
        (plan_.trees.back().source < n_first_) == (tree < n_first_))
      return;
    for (const int32_t f : slot_features_) slot_of_feature_[f] = -1;
    slot_features_.clear();
    chunk_start_bytes_ = stream_bytes();
    chunk_start_nodes_ = plan_.decide.size();
    Chunk chunk{};
    chunk.output = e_.tree_output[tree];
    chunk.n_nodes = shape.n_nodes;
    chunk.radau = shape.radau;
    chunk.tree_begin = chunk.tree_end = plan_.trees.size();
    chunk.quadrature = writer_.n_constants();
    plan_.chunks.push_back(chunk);
    // The kernels for any K have no fused subtrees.
    fuse_ = shape.n_nodes <= kMaxFixedValueNodes && !plan_.interactions();
    radau_ = chunk.radau;
    writer_.begin_chunk(chunk);
  }

  uint32_t slot(int32_t feature) {
    int32_t& slot = slot_of_feature_[feature];
    if (slot < 0) {
      Chunk& chunk = plan_.chunks.back();
      slot = static_cast<int32_t>(chunk.slots.size());
      if (chunk.slots.size() >= kMaxSlots) throw std::invalid_argument("a tree uses too many features");
      chunk.slots.push_back(static_cast<int32_t>(position(plan_.features, feature)));
      slot_features_.push_back(feature);
    }
    return static_cast<uint32_t>(slot);
  }

  // --- Second pass: the programs of a tree ---

  void write_tree(int32_t tree, const TreeShape& shape) {
    begin_tree(tree, shape);
    stack_.assign(1, {root_, kVisit, -1, false});
    while (!stack_.empty()) {
      const Item item = stack_.back();
      stack_.pop_back();
      if (item.stage == kVisit)
        visit(item);
      else if (item.stage == kBetween)
        go_right();
      else
        leave();
    }
    end_tree();
  }

  void begin_tree(int32_t tree, const TreeShape& shape) {
    tree_ = tree;
    root_ = e_.tree_offsets[tree];
    first_decide_ = plan_.decide.size();
    first_child_ = plan_.children.size();
    first_leaf_ = plan_.leaf_values.size();
    plan_.trees.push_back({first_decide_, 0, plan_.ops.size(), writer_.n_constants(), first_child_,
                           first_leaf_, shape.height, shape.n_features, true, tree});
    Chunk& chunk = plan_.chunks.back();
    chunk.tree_end = plan_.trees.size();
    chunk.height = std::max(chunk.height, shape.height);
    writer_.begin_tree(tree);
  }

  void end_tree() {
    writer_.end_tree();
    const size_t n_inner = plan_.decide.size() - first_decide_;
    plan_.trees.back().n_inner = n_inner;
    Chunk& chunk = plan_.chunks.back();
    chunk.max_inner = std::max(chunk.max_inner, n_inner);
    // Leaves were numbered ~0, ~1, ... while the number of inner nodes was unknown; now they follow the inner
    // nodes.
    for (size_t i = first_child_; i < plan_.children.size(); ++i)
      if (plan_.children[i] < 0) plan_.children[i] = static_cast<int32_t>(n_inner) + ~plan_.children[i];
    for (size_t leaf = n_inner; leaf <= 2 * n_inner; ++leaf)
      plan_.children.insert(plan_.children.end(), 2, static_cast<int32_t>(leaf));
  }

  void visit(const Item& item) {
    const Label n = label(item.node, item.parent, item.right);
    if (e_.is_leaf(n.left)) return writer_.pair(n, item.right, labels_);
    const int32_t index = last_inner();
    const bool right_leaf = e_.is_leaf(n.right);
    path_.enter(e_.player_of(item.node));
    const PathStep& left = take(n, false);
    if (fuse_ && is_pair(n.left) && (right_leaf || is_pair(n.right))) {
      write_fused(n, index, item.right);
      path_.leave();
      return;
    }
    if (radau_ && item.right) writer_.middle(n, 0);
    writer_.enter(n, left.share);
    labels_.push_back(n);
    stack_.push_back({item.node, kLeave, 0, false});
    if (!right_leaf) {
      stack_.push_back({n.right, kVisit, index, true});
      stack_.push_back({item.node, kBetween, 0, false});
    }
    stack_.push_back({n.left, kVisit, index, false});
  }

  void write_fused(const Label& n, int32_t index, bool right) {
    const Label first = label(n.left, index, false);
    if (e_.is_leaf(n.right)) return writer_.trio(n, first, right);
    take(n, true);
    writer_.quad(n, first, label(n.right, index, true), right);
  }

  // Go from the left to the right child of a node. With Gauss-Radau quadrature, visit() writes what this
  // takes.
  void go_right() {
    const Label& n = labels_.back();
    const PathStep& step = take(n, true);
    if (!radau_) writer_.middle(n, step.share);
  }

  void leave() {
    const Label n = labels_.back();
    labels_.pop_back();
    path_.leave();
    writer_.exit(n, labels_);
  }

  bool is_pair(int64_t node) const {
    return !e_.is_leaf(node) && e_.is_leaf(root_ + e_.left[node]) && e_.is_leaf(root_ + e_.right[node]);
  }
  int32_t last_inner() const { return static_cast<int32_t>(plan_.decide.size() - first_decide_) - 1; }

  // Take an edge of the last node of the path.
  const PathStep& take(const Label& n, bool right) { return path_.take(n.word << 1 | right, n.share); }

  // Resolve a node; write its decision and its children.
  Label label(int64_t node, int32_t parent, bool right_of_parent) {
    Label n;
    n.left = 0;
    int64_t left = root_ + e_.left[node], right = root_ + e_.right[node];
    n.flip = e_.is_leaf(left) && !e_.is_leaf(right);
    if (n.flip) std::swap(left, right);
    if (left > std::numeric_limits<int32_t>::max() || right > std::numeric_limits<int32_t>::max())
      throw std::invalid_argument("the ensemble has more than 2,147,483,647 nodes");
    n.left = static_cast<int32_t>(left);
    n.right = static_cast<int32_t>(right);
    const int32_t f = e_.player_of(node);
    const PathStep* const previous = path_.find(f);
    n.slot = slot(f);
    n.repeated = previous != nullptr;
    n.zero_fraction = previous ? previous->share : 1.0;
    n.others = 1;
    if (radau_)
      for (const PathStep& step : path_.steps())
        if (step.feature != f) n.others *= step.share;
    n.share = left_share(e_.cover[left], e_.cover[right]);
    n.word = static_cast<uint32_t>(kFirstWord + 2 * (plan_.decide.size() - first_decide_));
    write_decision(node, n, previous);
    plan_.shares.push_back(n.share);

    if (parent >= 0) plan_.children[first_child_ + 2 * parent + right_of_parent] = last_inner();
    for (const int64_t child : {left, right})
      plan_.children.push_back(e_.is_leaf(child) ? write_leaf(child) : 0);
    return n;
  }

  int32_t write_leaf(int64_t node) {
    const size_t index = (plan_.leaf_values.size() - first_leaf_) / width_;
    for (int32_t o = 0; o < width_; ++o) plan_.leaf_values.push_back(measured_.leaf(tree_, node, o));
    return ~static_cast<int32_t>(index);
  }

  void write_decision(int64_t node, const Label& n, const PathStep* previous) {
    DecideNode d = columns_.code(node);
    if (n.flip) d.flags ^= kFlip;
    if (previous) {
      d.previous = previous->bit >> 1;
      if (previous->bit & 1) d.flags |= kPreviousRight;
    }
    plan_.decide.push_back(d);
  }

  const EnsembleView& e_;
  const bool walks_;
  const int32_t n_first_ = -1;
  const int32_t width_;
  Plan plan_;
  ColumnCoder columns_;
  const MeasuredTrees measured_;
  WalkWriter writer_;
  TreePath path_;
  std::vector<Label> labels_;  // the nodes of the path
  std::vector<Item> stack_;
  std::vector<int32_t> slot_of_feature_, slot_features_;
  size_t chunk_start_bytes_ = 0, chunk_start_nodes_ = 0, forgotten_bytes_ = 0;
  int32_t tree_ = 0;
  int64_t root_ = 0;
  bool fuse_ = false, radau_ = false;  // of the chunk
  size_t first_decide_ = 0, first_child_ = 0, first_leaf_ = 0;
};

}  // namespace

size_t Plan::bytes() const { return stream_bytes() + shares.size() * 8; }

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
  return rows * stack_size(chunk.n_nodes, n_outputs, chunk.height, plan.order);
}

Plan make_plan(const EnsembleView& ensemble, const CodedTests& coded) {
  Plan plan = Compiler(ensemble, coded).compile();
  plan.features = coded.plan.features;
  return plan;
}

Plan make_plan(const EnsembleView& ensemble, Precision precision, int order, Index index, bool walks) {
  const size_t n_nodes = static_cast<size_t>(ensemble.tree_offsets[ensemble.n_trees]);
  if (static_cast<size_t>(ensemble.n_features) <= n_nodes + kFewFeatures)
    return Compiler(ensemble, precision, order, index, walks).compile();
  // The compiler keeps lists with an element for each feature, which could outgrow the trees.
  const UsedFeatures used(ensemble);
  Plan plan = Compiler(used.view(), precision, order, index, walks).compile();
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
