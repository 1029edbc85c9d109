// Ensemble -> Plan: codes the thresholds, labels the nodes and writes the programs. Host only.
#include "plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "interactions.h"
#include "quadrature.h"
#include "tree_paths.h"

namespace skshap {
namespace {

// Sums in single precision are moved to double after this many trees.
constexpr size_t kMaxChunkTrees = 64;
// Half of a common L2 cache, for the programs of a chunk.
constexpr size_t kMaxChunkBytes = 512 << 10;

// That many more features than nodes are no reason to number them anew.
constexpr size_t kFewFeatures = 1 << 16;

// Each inner node has some numbers for each quadrature node, and the stack of a walk has some for each level:
// with these limits about a gigabyte. No training makes trees beyond them, but the memory of a chain in a
// file would grow like the square of its length.
constexpr int kMaxNodes = 512;
constexpr int64_t kMaxStackNodes = 1 << 20;

// Thresholds as x meets them: x is float32, so the nearest float32 on the side of the comparison
// decides the same.
float as_float(double threshold, bool strict) {
  const float rounded = static_cast<float>(threshold);
  constexpr float inf = std::numeric_limits<float>::infinity();
  if (strict) return rounded < threshold ? std::nextafter(rounded, inf) : rounded;
  return rounded > threshold ? std::nextafter(rounded, -inf) : rounded;
}

template <class X>
void sort_unique(std::vector<X>& x) {
  std::sort(x.begin(), x.end());
  x.erase(std::unique(x.begin(), x.end()), x.end());
  x.shrink_to_fit();
}

template <class X>
uint32_t position(const std::vector<X>& sorted, X x) {
  return static_cast<uint32_t>(std::lower_bound(sorted.begin(), sorted.end(), x) - sorted.begin());
}

double left_share(double left, double right) {
  const double sum = left + right;
  if (!(sum > 0)) return 0.5;
  return std::isfinite(sum) ? left / sum : left / 2 / (left / 2 + right / 2);
}

// An inner node with its place on the path resolved. Where exactly one child is a leaf it is the
// right one (`flip` tells that children were swapped).
struct Label {
  int32_t left, right;
  uint32_t slot, word;
  bool flip, repeated;
  double share;          // of the left child
  double zero_fraction;  // of the path above, if repeated
};

class Compiler {
 public:
  Compiler(const EnsembleView& ensemble, Precision precision, int order, Index index, bool walks)
      : e_(ensemble), single_(precision == Precision::kSingle), interactions_(order >= 2), walks_(walks) {
    plan_.n_features = e_.n_players;
    plan_.n_inputs = e_.n_features;
    plan_.n_used_inputs = 0;
    plan_.n_outputs = e_.n_outputs;
    plan_.x_float32 = e_.x_float32;
    plan_.strict = e_.strict;
    plan_.precision = precision;
    plan_.order = order;
    plan_.index = index;
    plan_.constant.assign(e_.intercept, e_.intercept + e_.n_outputs);
    plan_.leaf_magnitude.assign(e_.n_outputs, 0.0);
    rest_.assign(e_.n_outputs, 0.0);
    plan_.n_leaves = 0;
    width_ = e_.value_width;
    centers_.assign(static_cast<size_t>(e_.n_trees) * width_, 0.0);
  }

  Plan compile() {
    make_columns();
    std::vector<TreeShape> shapes(e_.n_trees);
    seen_depth_.assign(plan_.n_features, 0);
    for (int32_t tree = 0; tree < e_.n_trees; ++tree) shapes[tree] = measure(tree);
    plan_.base_value = plan_.constant;
    for (int32_t o = 0; o < plan_.n_outputs; ++o) plan_.base_value[o] += rest_[o];
    choose_scale(shapes);
    make_room();

    std::vector<int32_t> order(e_.n_trees);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      if (e_.tree_output[a] != e_.tree_output[b]) return e_.tree_output[a] < e_.tree_output[b];
      return shapes[a].n_nodes < shapes[b].n_nodes;
    });
    path_ = TreePath(plan_.n_features);
    slot_of_feature_.assign(plan_.n_features, -1);
    for (const int32_t tree : order) {
      if (shapes[tree].height == 0) {
        for (int32_t o = 0; o < width_; ++o) plan_.constant[output(tree) + o] += leaf(tree, root(tree), o);
        continue;
      }
      begin_chunk(tree, shapes[tree]);
      emit(tree, shapes[tree]);
      if (!walks_) forget_walk();
    }
    numbers_.sort();
    return std::move(plan_);
  }

 private:
  struct TreeShape {
    int n_nodes = 0;  // K
    int height = 0;
    double magnitude = 0;
  };
  struct Leaf {
    int64_t node;
    double share;  // of the cover of the root
  };

  int64_t root(int32_t tree) const { return e_.tree_offsets[tree]; }
  int32_t output(int32_t tree) const { return std::max(e_.tree_output[tree], 0); }
  // A leaf's value less the center of its tree, see center().
  double leaf(int32_t tree, int64_t node, int32_t o) const {
    return e_.value[node * width_ + o] - centers_[static_cast<size_t>(tree) * width_ + o];
  }
  // For the tree that emit() writes.
  double scaled_leaf(int64_t node, int32_t o) const { return std::ldexp(leaf(tree_, node, o), -exponent_); }
  bool is_leaf(int64_t node) const { return e_.left[node] < 0; }
  int32_t feature(int64_t node) const { return e_.player ? e_.player[e_.feature[node]] : e_.feature[node]; }
  bool is_categorical(int64_t node) const { return e_.category_set && e_.category_set[node] >= 0; }

  // --- Columns ---

  void make_columns() {
    std::vector<int32_t> numeric(e_.n_features, -1), categorical(e_.n_features, -1);
    const int64_t n_nodes = e_.tree_offsets[e_.n_trees];
    for (int64_t node = 0; node < n_nodes; ++node) {
      if (is_leaf(node)) continue;
      const int32_t x = e_.feature[node];
      int32_t& index = is_categorical(node) ? categorical[x] : numeric[x];
      if (index < 0) {
        plan_.n_used_inputs += numeric[x] < 0 && categorical[x] < 0;
        index = static_cast<int32_t>(plan_.columns.size());
        plan_.columns.push_back(
            {feature(node), x, is_categorical(node), e_.zero_missing && e_.zero_missing[x], {}, {}, {}});
        plan_.features.push_back(feature(node));
      }
      Column& column = plan_.columns[index];
      if (column.categorical) {
        const int32_t set = e_.category_set[node];
        column.categories.insert(column.categories.end(), e_.category_values + e_.category_offsets[set],
                                 e_.category_values + e_.category_offsets[set + 1]);
        // A thousand nodes may list the same thousand categories: keep the list near its final size.
        if (column.categories.size() > 2 * n_listed_ + 4096) {
          sort_unique(column.categories);
          n_listed_ = column.categories.size();
        }
      } else if (e_.x_float32) {
        column.thresholds_float.push_back(as_float(e_.threshold[node], e_.strict));
      } else {
        column.thresholds_double.push_back(e_.threshold[node]);
      }
    }
    size_t most = 0;
    for (Column& column : plan_.columns) {
      sort_unique(column.thresholds_float);
      sort_unique(column.thresholds_double);
      sort_unique(column.categories);
      most = std::max({most, column.thresholds_float.size(), column.thresholds_double.size()});
    }
    // The largest code is kept for missing, and a rank plus its bias must not wrap.
    plan_.wide_codes = most > 0xfffe;
    sort_unique(plan_.features);
    numeric_ = std::move(numeric);
    categorical_ = std::move(categorical);
  }

  // --- First pass: distinct features on a path, height, expected value ---

  TreeShape measure(int32_t tree) {
    struct Item {
      int64_t node;
      double share;
      int depth;
      bool leave;
    };
    TreeShape shape;
    std::vector<Leaf> leaves;
    int distinct = 0, most_distinct = 0;
    std::vector<Item> stack{{root(tree), 1.0, 0, false}};
    while (!stack.empty()) {
      const Item item = stack.back();
      stack.pop_back();
      if (item.leave) {
        if (--seen_depth_[feature(item.node)] == 0) --distinct;
        continue;
      }
      if (is_leaf(item.node)) {
        ++plan_.n_leaves;
        shape.height = std::max(shape.height, item.depth);
        most_distinct = std::max(most_distinct, distinct);
        leaves.push_back({item.node, item.share});
        continue;
      }
      const int64_t left = root(tree) + e_.left[item.node], right = root(tree) + e_.right[item.node];
      const double r = left_share(e_.cover[left], e_.cover[right]);
      if (seen_depth_[feature(item.node)]++ == 0) ++distinct;
      stack.push_back({item.node, 0, 0, true});
      stack.push_back({right, item.share * (1 - r), item.depth + 1, false});
      stack.push_back({left, item.share * r, item.depth + 1, false});
    }
    for (int32_t o = 0; o < width_; ++o) shape.magnitude = std::max(shape.magnitude, center(tree, o, leaves));
    shape.n_nodes = quadrature_nodes(plan_.index, most_distinct);
    if (shape.n_nodes > kMaxNodes)
      throw std::invalid_argument("tree " + std::to_string(tree) + " has a path of " +
                                  std::to_string(most_distinct) + " different features, more than " +
                                  std::to_string(2 * kMaxNodes));
    if (int64_t{shape.height} * shape.n_nodes > kMaxStackNodes)
      throw std::invalid_argument("tree " + std::to_string(tree) + " is too deep: it has " +
                                  std::to_string(shape.height) + " levels, and a path of " +
                                  std::to_string(most_distinct) + " different features");
    return shape;
  }

  // Moves the expected value of a tree from its leaves into the constant of the output, and returns the
  // largest magnitude that its leaves have then. Values and interactions are differences of leaves and stay
  // as they are, but an offset that all leaves share, such as that of the target in a forest, would otherwise
  // use up the digits of the precision. It stays in the leaves only where moving it would overflow.
  double center(int32_t tree, int32_t o, const std::vector<Leaf>& leaves) {
    const size_t output = this->output(tree) + o;
    double& center = centers_[static_cast<size_t>(tree) * width_ + o];
    center = expected(tree, o, leaves);
    double largest = largest_leaf(tree, o, leaves);
    if (std::isfinite(largest) && std::isfinite(plan_.constant[output] + center)) {
      plan_.constant[output] += center;
    } else {
      center = 0;
      largest = largest_leaf(tree, o, leaves);
    }
    plan_.leaf_magnitude[output] += largest;
    // Rounding leaves an expected value other than 0, which the base value needs: the constant and the
    // leaves may be much smaller than the center.
    rest_[output] += expected(tree, o, leaves);
    return largest;
  }

  double expected(int32_t tree, int32_t o, const std::vector<Leaf>& leaves) const {
    double sum = 0;
    for (const Leaf& l : leaves) sum += l.share * leaf(tree, l.node, o);
    return sum;
  }

  double largest_leaf(int32_t tree, int32_t o, const std::vector<Leaf>& leaves) const {
    double largest = 0;
    for (const Leaf& l : leaves) {
      const double magnitude = std::fabs(leaf(tree, l.node, o));
      if (!(magnitude <= largest)) largest = magnitude;  // NaN, too
    }
    return largest;
  }

  void choose_scale(const std::vector<TreeShape>& shapes) {
    // Leaf values are brought near 1, exactly, so that neither they nor their differences leave
    // the range of the precision.
    double largest = 0;
    for (const TreeShape& shape : shapes) largest = std::max(largest, shape.magnitude);
    if (largest > 0) std::frexp(largest, &exponent_);
    exponent_ = std::min(exponent_, std::numeric_limits<double>::max_exponent - 1);
    plan_.leaf_scale = std::ldexp(1.0, exponent_);
  }

  // Of what each node has: streams that grow would be copied again and again.
  void make_room() {
    const size_t n_leaves = static_cast<size_t>(plan_.n_leaves);
    const size_t n_inner = static_cast<size_t>(e_.tree_offsets[e_.n_trees]) - n_leaves;
    plan_.decide.reserve(n_inner);
    plan_.shares.reserve(n_inner);
    plan_.children.reserve(2 * (n_inner + n_leaves));
    plan_.leaf_values.reserve(n_leaves * width_);
  }

  // --- Chunks ---

  // Of all trees so far, with what is forgotten.
  size_t stream_bytes() const { return plan_.stream_bytes() + forgotten_bytes_; }

  void forget_walk() {
    forgotten_bytes_ += plan_.ops.size() * 4 + n_constants() * (single_ ? 4 : 8);
    plan_.ops.clear();
    plan_.constants_float.clear();
    plan_.constants_double.clear();
  }

  void begin_chunk(int32_t tree, const TreeShape& shape) {
    const bool fits = !plan_.chunks.empty() && plan_.chunks.back().output == e_.tree_output[tree] &&
                      plan_.chunks.back().n_nodes == shape.n_nodes &&
                      plan_.chunks.back().tree_end - plan_.chunks.back().tree_begin < kMaxChunkTrees &&
                      stream_bytes() - chunk_start_bytes_ < kMaxChunkBytes;
    if (fits) return;
    for (const int32_t f : slot_features_) slot_of_feature_[f] = -1;
    slot_features_.clear();
    numbers_.begin_chunk();
    chunk_start_bytes_ = stream_bytes();
    Chunk chunk{};
    chunk.output = e_.tree_output[tree];
    chunk.n_nodes = shape.n_nodes;
    chunk.tree_begin = chunk.tree_end = plan_.trees.size();
    chunk.quadrature = n_constants();
    plan_.chunks.push_back(chunk);
    std::vector<double> weights;
    quadrature(plan_.index, shape.n_nodes, t_, weights);
    for (const double t : t_) push(t);
    for (const double w : weights) push(w);
    if (!interactions_) return;
    for (const double t : t_) push(dead_lambda(plan_.index, t));
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

  void emit(int32_t tree, const TreeShape& shape) {
    enum Stage : uint8_t { kVisit, kBetween, kLeave };
    struct Item {
      int64_t node;
      Stage stage;
      int32_t parent;  // preorder number
      bool right;      // child of the parent
    };
    tree_ = tree;
    base_ = root(tree);
    first_decide_ = plan_.decide.size();
    first_child_ = plan_.children.size();
    first_leaf_ = plan_.leaf_values.size();
    plan_.trees.push_back(
        {first_decide_, 0, plan_.ops.size(), n_constants(), first_child_, first_leaf_, shape.height, false});
    Chunk& chunk = plan_.chunks.back();
    chunk.tree_end = plan_.trees.size();
    chunk.height = std::max(chunk.height, shape.height);
    // Fused subtrees keep K values of three nodes in registers, and one value a leaf.
    const bool fuse = shape.n_nodes <= kMaxFixedNodes && chunk.output >= 0 && !interactions_;

    std::vector<Label> labels;
    std::vector<Item> stack{{base_, kVisit, -1, false}};
    while (!stack.empty()) {
      const Item item = stack.back();
      stack.pop_back();
      if (item.stage == kVisit) {
        const Label n = label(item.node, item.parent, item.right);
        const bool right_leaf = is_leaf(n.right);
        if (is_leaf(n.left)) {
          op(n.repeated ? kPairRep : kPairNew, n.slot);
          if (fuse)
            fused_pair(n);
          else
            pair_stream(n);
          if (interactions_) list_interactions(n, labels);
          continue;
        }
        const int32_t index = last_inner();
        path_.enter(feature(item.node));
        take(n, false);
        if (fuse && is_pair(n.left) && (right_leaf || is_pair(n.right))) {
          const Label first = label(n.left, index, false);
          if (right_leaf) {
            op(static_cast<Op>(kTrio + 2 * n.repeated + first.repeated), n.slot);
            plan_.ops.push_back(first.slot);
            split_stream(n, true);
            fused_pair(first);
            push(scaled_leaf(n.right, 0));
          } else {
            take(n, true);
            const Label second = label(n.right, index, true);
            op(static_cast<Op>(kQuad + 4 * n.repeated + 2 * first.repeated + second.repeated), n.slot);
            plan_.ops.push_back(first.slot);
            plan_.ops.push_back(second.slot);
            split_stream(n, true);
            fused_pair(first);
            fused_pair(second);
          }
          path_.leave();
          continue;
        }
        op(n.repeated ? kEnterRep : kEnterNew, n.slot);
        split_stream(n, false);
        if (interactions_) lambda_stream(n, false);
        labels.push_back(n);
        stack.push_back({item.node, kLeave, 0, false});
        if (!right_leaf) {
          stack.push_back({n.right, kVisit, index, true});
          stack.push_back({item.node, kBetween, 0, false});
        }
        stack.push_back({n.left, kVisit, index, false});
      } else if (item.stage == kBetween) {
        const Label& n = labels.back();
        if (interactions_) {
          const uint32_t number = (n.word - kFirstWord) / 2;
          if (number >= kMaxSlots) throw std::invalid_argument("a tree has too many nodes for interactions");
          op(kMiddle, number);
          lambda_stream(n, true);
        } else {
          op(kMiddle, 0);
        }
        take(n, true);
      } else {
        const Label n = labels.back();
        const bool right_leaf = is_leaf(n.right);
        if (right_leaf)
          op(n.repeated ? kExitLeafRep : kExitLeafNew, n.slot);
        else
          op(n.repeated ? kExitRep : kExitNew, n.slot);
        if (n.repeated)
          derivative_stream(n);
        else
          push(n.share);
        if (right_leaf) push_leaf(n.right);
        path_.leave();
        labels.pop_back();
        if (interactions_) list_interactions(n, labels);
      }
    }
    op(kEnd, 0);
    const size_t n_inner = plan_.decide.size() - first_decide_;
    plan_.trees.back().n_inner = n_inner;
    chunk.max_inner = std::max(chunk.max_inner, n_inner);
    // Leaves were numbered ~0, ~1, ...; now that all inner nodes are, they follow them.
    for (size_t i = first_child_; i < plan_.children.size(); ++i)
      if (plan_.children[i] < 0) plan_.children[i] = static_cast<int32_t>(n_inner) + ~plan_.children[i];
    for (size_t leaf = n_inner; leaf <= 2 * n_inner; ++leaf)
      plan_.children.insert(plan_.children.end(), 2, static_cast<int32_t>(leaf));
  }

  bool is_pair(int64_t node) const {
    return !is_leaf(node) && is_leaf(base_ + e_.left[node]) && is_leaf(base_ + e_.right[node]);
  }
  int32_t last_inner() const { return static_cast<int32_t>(plan_.decide.size() - first_decide_) - 1; }

  // Goes down an edge of the last node of the path.
  void take(const Label& n, bool right) { path_.take(n.word << 1 | right, right ? 1 - n.share : n.share); }

  // Resolves a node, writes its decision and its children.
  Label label(int64_t node, int32_t parent, bool right_of_parent) {
    Label n;
    n.left = 0;
    int64_t left = base_ + e_.left[node], right = base_ + e_.right[node];
    n.flip = is_leaf(left) && !is_leaf(right);
    if (n.flip) std::swap(left, right);
    if (left > std::numeric_limits<int32_t>::max() || right > std::numeric_limits<int32_t>::max())
      throw std::invalid_argument("the ensemble has more than 2,147,483,647 nodes");
    n.left = static_cast<int32_t>(left);
    n.right = static_cast<int32_t>(right);
    const int32_t f = feature(node);
    const PathStep* const previous = path_.find(f);
    n.slot = slot(f);
    n.repeated = previous != nullptr;
    n.zero_fraction = previous ? previous->share : 1.0;
    n.share = left_share(e_.cover[left], e_.cover[right]);
    n.word = static_cast<uint32_t>(kFirstWord + 2 * (plan_.decide.size() - first_decide_));
    write_decision(node, n, previous);
    plan_.shares.push_back(n.share);

    if (parent >= 0) plan_.children[first_child_ + 2 * parent + right_of_parent] = last_inner();
    for (const int64_t child : {left, right})
      plan_.children.push_back(is_leaf(child) ? write_leaf(child) : 0);
    return n;
  }

  int32_t write_leaf(int64_t node) {
    const size_t index = (plan_.leaf_values.size() - first_leaf_) / width_;
    for (int32_t o = 0; o < width_; ++o) plan_.leaf_values.push_back(leaf(tree_, node, o));
    return ~static_cast<int32_t>(index);
  }

  void write_decision(int64_t node, const Label& n, const PathStep* previous) {
    const int32_t x = e_.feature[node];
    const bool missing_left = e_.missing_left[node];
    DecideNode d{0, 0, 0, 0, 0};
    if (is_categorical(node)) {
      d.column = static_cast<uint32_t>(categorical_[x]);
      d.operand = write_categories(plan_.columns[d.column], e_.category_set[node], missing_left);
      d.flags |= kCategorical;
    } else {
      d.column = static_cast<uint32_t>(numeric_[x]);
      const Column& column = plan_.columns[d.column];
      d.bias = missing_left;
      d.operand =
          d.bias + (e_.x_float32 ? position(column.thresholds_float, as_float(e_.threshold[node], e_.strict))
                                 : position(column.thresholds_double, e_.threshold[node]));
    }
    if (n.flip) d.flags |= kFlip;
    if (previous) {
      d.previous = previous->bit >> 1;
      if (previous->bit & 1) d.flags |= kPreviousRight;
    }
    plan_.decide.push_back(d);
  }

  // Bits of the codes that go left: listed categories, then any other, then missing.
  uint32_t write_categories(const Column& column, int32_t set, bool missing_left) {
    const size_t n_codes = column.categories.size() + 2, first = plan_.category_bits.size();
    if (first > std::numeric_limits<uint32_t>::max()) throw std::invalid_argument("too many categories");
    const bool listed_left = e_.category_listed_left[set];
    plan_.category_bits.resize(first + (n_codes + 31) / 32, listed_left ? 0u : ~0u);
    uint32_t* bits = plan_.category_bits.data() + first;
    const auto assign = [bits](size_t code, bool left) {
      const uint32_t bit = 1u << (code & 31);
      bits[code >> 5] = left ? bits[code >> 5] | bit : bits[code >> 5] & ~bit;
    };
    for (int64_t i = e_.category_offsets[set]; i < e_.category_offsets[set + 1]; ++i)
      assign(position(column.categories, e_.category_values[i]), listed_left);
    assign(n_codes - 1, missing_left);
    return static_cast<uint32_t>(first);
  }

  // --- Streams; kernel.h says what each op reads ---

  void op(Op code, uint32_t slot) { plan_.ops.push_back(slot << kSlotShift | code); }
  size_t n_constants() const {
    return single_ ? plan_.constants_float.size() : plan_.constants_double.size();
  }
  void push(double x) {
    if (single_)
      plan_.constants_float.push_back(static_cast<float>(x));
    else
      plan_.constants_double.push_back(x);
  }
  void push_leaf(int64_t node) {
    for (int32_t o = 0; o < width_; ++o) push(scaled_leaf(node, o));
  }

  // Left factor of an alive row of a repeated node, that goes right or left.
  double factor(const Label& n, double t, bool left) const {
    const double z = n.zero_fraction, a = z * (1 - t) + t;
    return (z * n.share * (1 - t) + (left ? t : 0)) / a;
  }
  void derivative_stream(const Label& n) {
    for (const double t : t_) push(repeated_gain(n.zero_fraction, t));
  }
  void factor_stream(const Label& n) {
    for (const double t : t_) push(factor(n, t, false));
    for (const double t : t_) push(factor(n, t, true));
  }

  void split_stream(const Label& n, bool fused) {
    push(n.share);
    push(-n.share);
    push(1 - n.share);
    if (!n.repeated) return;
    factor_stream(n);
    if (fused) derivative_stream(n);
  }

  // The generic form of a pair, for any K and number of outputs.
  void pair_stream(const Label& n) {
    if (n.repeated) {
      derivative_stream(n);
      factor_stream(n);
    }
    for (int32_t o = 0; o < width_; ++o) {
      slope_stream(n, o);
      if (!n.repeated) continue;
      push(scaled_leaf(n.right, o));
      push(scaled_leaf(n.left, o) - scaled_leaf(n.right, o));
    }
  }

  // The form in registers, with B itself instead of the factors.
  void fused_pair(const Label& n) {
    slope_stream(n, 0);
    if (!n.repeated) return;
    const double right = scaled_leaf(n.right, 0), difference = scaled_leaf(n.left, 0) - right;
    derivative_stream(n);
    for (const double t : t_) push(right + factor(n, t, false) * difference);
    for (const double t : t_) push(right + factor(n, t, true) * difference);
  }

  // Logarithmic derivative of the factor of the node's feature, for alive rows, beyond one of its edges, with
  // the weight of a pair.
  void lambda_stream(const Label& n, bool right) {
    const double z = n.zero_fraction * (right ? 1 - n.share : n.share);
    for (const double t : t_) push(alive_lambda(plan_.index, z, t));
  }

  // The pairs of a node's feature with the other features of the path above it, and the triples with two of
  // them.
  void list_interactions(const Label& n, const std::vector<Label>& above) {
    const size_t count = plan_.ops.size();
    plan_.ops.push_back(0);
    listed_.assign(plan_.chunks.back().slots.size(), 0);
    listed_[n.slot] = 1;
    others_.clear();
    for (size_t level = above.size(); level-- > 0;) {
      const uint32_t other = above[level].slot;
      if (listed_[other]) continue;
      listed_[other] = 1;
      plan_.ops.push_back(numbers_.pair(n.slot, other));
      plan_.ops.push_back(static_cast<uint32_t>(level));
      ++plan_.ops[count];
      others_.push_back(other);
    }
    if (plan_.order < 3) return;
    for (size_t i = 1; i < others_.size(); ++i)
      for (size_t j = 0; j < i; ++j) plan_.ops.push_back(numbers_.triple(n.slot, others_[i], others_[j]));
  }

  void slope_stream(const Label& n, int32_t o) {
    const double right = scaled_leaf(n.right, o), difference = scaled_leaf(n.left, o) - right, r = n.share;
    push(right + r * difference);
    push(-r * difference);
    push((1 - r) * difference);
  }

  const EnsembleView& e_;
  const bool single_, interactions_, walks_;
  Plan plan_;
  int32_t width_;
  std::vector<double> centers_;  // [tree][width_]
  std::vector<double> rest_;     // per output: expected values of the centered trees
  int exponent_ = 0;
  size_t n_listed_ = 0;
  std::vector<int32_t> numeric_, categorical_;  // column of X -> column
  std::vector<int32_t> seen_depth_;
  TreePath path_;
  std::vector<int32_t> slot_of_feature_, slot_features_;
  InteractionNumbers numbers_{plan_};
  std::vector<char> listed_;      // by slot
  std::vector<uint32_t> others_;  // slots
  std::vector<double> t_;
  size_t chunk_start_bytes_ = 0, forgotten_bytes_ = 0;
  int32_t tree_ = 0;
  int64_t base_ = 0;
  size_t first_decide_ = 0, first_child_ = 0, first_leaf_ = 0;
};

// An ensemble whose features are numbered anew, without those that no tree splits on.
class UsedFeatures {
 public:
  explicit UsedFeatures(const EnsembleView& ensemble)
      : view_(ensemble),
        number_(ensemble.feature, ensemble.feature + ensemble.tree_offsets[ensemble.n_trees]) {
    for (size_t node = 0; node < number_.size(); ++node)
      if (ensemble.left[node] >= 0) used_.push_back(number_[node]);
    sort_unique(used_);
    for (size_t node = 0; node < number_.size(); ++node)
      number_[node] = ensemble.left[node] < 0 ? 0 : static_cast<int32_t>(position(used_, number_[node]));
    if (ensemble.zero_missing)
      for (const int32_t f : used_) zero_missing_.push_back(ensemble.zero_missing[f]);
    for (const int32_t f : used_) players_.push_back(ensemble.player ? ensemble.player[f] : f);
    sort_unique(players_);
    for (const int32_t f : used_)
      player_.push_back(static_cast<int32_t>(position(players_, ensemble.player ? ensemble.player[f] : f)));
    view_.n_features = static_cast<int32_t>(used_.size());
    view_.n_players = static_cast<int32_t>(players_.size());
    view_.player = player_.data();
    view_.feature = number_.data();
    view_.zero_missing = ensemble.zero_missing ? zero_missing_.data() : nullptr;
  }

  const EnsembleView& view() const { return view_; }
  int32_t feature(int32_t number) const { return used_[number]; }
  int32_t player(int32_t number) const { return players_[number]; }

 private:
  EnsembleView view_;
  std::vector<int32_t> number_;  // of each node's feature
  std::vector<int32_t> used_, players_;
  std::vector<int32_t> player_;  // of each used feature
  std::vector<uint8_t> zero_missing_;
};

}  // namespace

size_t Plan::bytes() const { return stream_bytes() + shares.size() * 8; }

size_t Plan::stream_bytes() const {
  return decide.size() * sizeof(DecideNode) + category_bits.size() * 4 + ops.size() * 4 +
         constants_float.size() * 4 + constants_double.size() * 8 + children.size() * 4 +
         leaf_values.size() * 8 + tables.bytes();
}

size_t walk_stack(const Plan& plan, const Chunk& chunk) {
  const size_t rows = chunk.output < 0                       ? kVectorWalkRows
                      : plan.precision == Precision::kSingle ? walk_rows<float>(plan.interactions())
                                                             : walk_rows<double>(plan.interactions());
  const int n_outputs = static_cast<int>(n_used_outputs(plan, chunk));
  return rows * stack_size(chunk.n_nodes, n_outputs, chunk.height, plan.order);
}

Plan make_plan(const EnsembleView& ensemble, Precision precision, int order, Index index, bool walks) {
  const size_t n_nodes = static_cast<size_t>(ensemble.tree_offsets[ensemble.n_trees]);
  if (static_cast<size_t>(ensemble.n_features) <= n_nodes + kFewFeatures)
    return Compiler(ensemble, precision, order, index, walks).compile();
  // The compiler has lists with a place for each feature, which would outgrow the trees.
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
