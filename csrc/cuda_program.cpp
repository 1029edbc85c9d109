// Plan -> CudaProgram. Host only, needs no CUDA.
#include "cuda_program.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "quadrature.h"
#include "tree_paths.h"

namespace skshap {
namespace {

// A chunk is what one warp walks for one tile of rows: enough work to hide its start, and few
// enough trees that their sum is safe in single precision and that a job of few rows fills a GPU.
constexpr size_t kMaxChunkTrees = 32;
constexpr size_t kMaxChunkLeaves = 512;
// Small models have smaller chunks, about so many, since there one chunk's time is that of a job.
constexpr size_t kChunks = 5, kMinChunkLeaves = 16;
constexpr uint32_t kMaxIndex = 0xffff;  // of slots, columns and category sets, in the fused form

// Nodes of the quadrature that a kernel exists for.
template <class T>
int rounded_nodes(int n) {
  return sizeof(T) == 4 ? n : n + (n & 1);
}

template <class T>
class CudaCompiler {
 public:
  explicit CudaCompiler(const Plan& plan) : plan_(plan), pairs_(plan.interactions()), walk_(plan) {}

  CudaProgram<T> compile() {
    split_columns();
    size_up();
    slot_.assign(plan_.features.size() + plan_.pairs.size(), -1);
    listed_.assign(plan_.features.size(), 0);
    for (const Chunk& chunk : plan_.chunks) {
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
        open(chunk, plan_.trees[i]);
        write_margin_nodes();
        if (tree_->by_tables) continue;
        label(chunk);
        if (!open_ || !fits()) begin_chunk(chunk);
        count_tree();
        general_ ? emit_general() : emit();
      }
      end_chunk();
    }
    add_tables<T>(plan_, [this](const DecideNode& node) { return margin_node(node); }, out_);
    return std::move(out_);
  }

 private:
  using Element = typename CudaProgram<T>::Element;

  void split_columns() {
    for (size_t c = 0; c < plan_.columns.size(); ++c) {
      const Column& column = plan_.columns[c];
      first_column_.push_back(static_cast<uint32_t>(out_.columns.size()));
      const auto add = [&](size_t origin) {
        out_.columns.push_back({static_cast<int32_t>(c), static_cast<uint32_t>(origin)});
      };
      add(0);
      if (column.categorical) {
        if (wide(c)) add(1);
        continue;
      }
      const size_t n = column.thresholds_float.size() + column.thresholds_double.size();
      for (size_t origin = kCudaRanks; origin < n; origin += kCudaRanks) add(origin);
    }
  }

  void size_up() {
    size_t leaves[kMaxFixedNodes + 1] = {}, n_leaves = 0;
    for (const Chunk& chunk : plan_.chunks)
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
        if (plan_.trees[i].by_tables) continue;
        const int n = rounded_nodes<T>(chunk.n_nodes);
        if (n <= kMaxFixedNodes) leaves[n] += plan_.trees[i].n_inner + 1;
        n_leaves += plan_.trees[i].n_inner + 1;
      }
    chunk_leaves_ = std::clamp(n_leaves / kChunks, kMinChunkLeaves, kMaxChunkLeaves);
    // More nodes are exact, too, and fewer leaves than a chunk has are not worth a launch of their own.
    for (int n = kMaxFixedNodes, next = 0; n > 0; --n) {
      launched_nodes_[n] = next && leaves[n] < kMaxChunkLeaves ? next : n;
      if (leaves[n]) next = launched_nodes_[n];
    }
  }

  bool wide(size_t column) const { return plan_.columns[column].categories.size() > kCudaCategories; }

  // --- The labelled tree, and what the walk needs to know of each inner node ---

  struct Node {
    int32_t left, right;                   // inner node, or -1: a leaf
    const double *left_leaf, *right_leaf;  // their values
    double share, zero_fraction;           // of the path above, if repeated
    int32_t previous, parent;              // -1: new on the path; none
    int32_t height;                        // above the fused subtrees; -1 for a pair, trio or quad
    uint32_t level, tracked_above;         // nodes above, and those of them that are tracked
    bool pair, tracked, is_right;
  };

  void open(const Chunk& chunk, const TreeProgram& tree) {
    tree_ = &tree;
    output_ = chunk.output;
    decide_ = plan_.decide.data() + tree.decide;
    children_ = plan_.children.data() + tree.children;
  }

  void label(const Chunk& chunk) {
    label_nodes();
    measure_heights();
    const uint32_t most_tracked = count_tracked();
    count_slots();
    general_ = !fits_ || chunk.output < 0 || rounded_nodes<T>(chunk.n_nodes) > kMaxFixedNodes ||
               most_tracked > (pairs_ ? kAliveBits - 1 : kAliveBits) || new_sets_ > kMaxIndex ||
               tree_slots_ > kMaxIndex;
    n_ = general_ ? chunk.n_nodes : launched_nodes_[rounded_nodes<T>(chunk.n_nodes)];
  }

  void label_nodes() {
    const double* leaves = plan_.leaf_values.data() + tree_->leaves;
    const int32_t n_inner = static_cast<int32_t>(tree_->n_inner);
    const auto leaf = [&](int32_t child) {
      return child < n_inner ? nullptr : leaves + static_cast<size_t>(child - n_inner) * width();
    };
    nodes_.assign(n_inner, Node{});
    new_sets_ = 0;
    fits_ = true;
    walk_.run(
        *tree_,
        [&](const PathNode& at) {
          Node& node = nodes_[at.node];
          const int32_t l = children_[2 * at.node], r = children_[2 * at.node + 1];
          node.left = l < n_inner ? l : -1;
          node.right = r < n_inner ? r : -1;
          node.pair = node.left < 0 && node.right < 0;
          node.left_leaf = leaf(l);
          node.right_leaf = leaf(r);
          node.share = plan_.shares[tree_->decide + at.node];
          node.parent = at.parent;
          node.is_right = at.is_right;
          node.level = at.level;
          node.previous = at.previous ? bit_node(at.previous->bit) : -1;
          node.zero_fraction = at.previous ? at.previous->share : 1;
          if (at.previous) nodes_[node.previous].tracked = true;
          if (pairs_) node.tracked = !node.pair;
          const DecideNode& d = decide_[at.node];
          const bool categorical = d.flags & kCategorical;
          new_sets_ += categorical;
          fits_ = fits_ && !(categorical && wide(d.column)) && first_column_[d.column] <= kMaxIndex / 2;
        },
        [](int32_t) {});
  }

  // Preorder: children come after their parent.
  void measure_heights() {
    n_frames_ = 0;
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      node->height = -1;
      if (fused(*node)) continue;
      for (const int32_t child : {node->left, node->right})
        if (child >= 0) node->height = std::max(node->height, nodes_[child].height);
      n_frames_ = std::max(n_frames_, static_cast<uint32_t>(++node->height) + 1);
    }
  }

  // Returns the most tracked nodes of a path.
  uint32_t count_tracked() {
    uint32_t most = 0;
    for (const Node& node : nodes_) {
      const uint32_t tracked = node.tracked_above + node.tracked;
      most = std::max(most, tracked);
      for (const int32_t child : {node.left, node.right})
        if (child >= 0) nodes_[child].tracked_above = tracked;
    }
    return most;
  }

  bool pair(int32_t i) const { return i >= 0 && nodes_[i].pair; }
  bool fused(const Node& node) const {
    return node.pair || (!pairs_ && pair(node.left) && (node.right < 0 || pair(node.right)));
  }

  void count_slots() {
    counted_.resize(slot_.size(), 0);
    tree_slots_ = 0;
    ++tree_number_;
    const auto count = [&](int32_t place) {
      tree_slots_ += counted_[place] != tree_number_;
      counted_[place] = tree_number_;
    };
    for (int32_t i = 0; i < static_cast<int32_t>(nodes_.size()); ++i) {
      count(feature_of(i));
      if (!pairs_) continue;
      for (const int32_t other : others_above(i)) count(pair_of(i, other));
    }
  }

  // The latest nodes on the other features of the path above a node, from the nearest on.
  const std::vector<int32_t>& others_above(int32_t i) {
    above_.clear();
    listed_[feature_of(i)] = ++stamp_;
    for (int32_t parent = nodes_[i].parent; parent >= 0; parent = nodes_[parent].parent) {
      uint32_t& listed = listed_[feature_of(parent)];
      if (listed != stamp_) above_.push_back(parent);
      listed = stamp_;
    }
    return above_;
  }

  // --- Chunks ---

  bool fits() const {
    const CudaChunk& c = out_.chunks.back();
    return c.general == general_ && chunk_trees_ < kMaxChunkTrees &&
           c.n_leaves + nodes_.size() < chunk_leaves_ &&
           (general_ || (chunk_sets_ + new_sets_ <= kMaxIndex && c.n_slots + tree_slots_ <= kMaxIndex));
  }

  void begin_chunk(const Chunk& chunk) {
    end_chunk();
    open_ = true;
    CudaChunk c{};
    c.output = chunk.output;
    c.n_nodes = n_;
    c.general = general_;
    c.begin = out_.stream.size();
    c.first_slot = out_.slots.size();
    c.category_base = static_cast<uint32_t>(out_.category_sets.size());
    out_.chunks.push_back(c);
    chunk_trees_ = chunk_sets_ = 0;
    std::vector<double> weights;
    quadrature(plan_.index, n_, t_, weights);
    if (!general_) return;
    element(n_);
    element(width());
    element(chunk.height);
    for (const double t : t_) value(t);
    for (const double w : weights) value(w);
    if (!pairs_) return;
    for (const double t : t_) value(dead_lambda(plan_.index, t));
  }

  void count_tree() {
    CudaChunk& c = out_.chunks.back();
    c.n_frames = std::max(c.n_frames, n_frames_);
    c.n_leaves += nodes_.size() + 1;
    ++chunk_trees_;
    chunk_sets_ += new_sets_;
  }

  void end_chunk() {
    if (!open_) return;
    CudaChunk& c = out_.chunks.back();
    op(c.general ? static_cast<uint32_t>(kGeneralEnd) : kCudaEnd);
    if (!c.general) {
      close();
      c.n_segments = static_cast<uint32_t>((out_.stream.size() - c.begin + kCudaSegment - 1) / kCudaSegment);
      out_.stream.resize(c.begin + c.n_segments * kCudaSegment);
    }
    out_.stream.resize((out_.stream.size() + 3) / 4 * 4);  // chunks begin where 16 bytes can be read at once
    for (const int32_t place : slot_places_) slot_[place] = -1;
    slot_places_.clear();
    open_ = false;
  }

  uint32_t width() const { return output_ < 0 ? plan_.n_outputs : 1; }

  int32_t feature_of(int32_t node) const { return plan_.feature_of(decide_[node]); }

  // Where the pair of two nodes' features is, behind the features.
  int32_t pair_of(int32_t i, int32_t j) const {
    const auto [first, second] = std::minmax({feature_of(i), feature_of(j)});
    const auto less = [](const FeaturePair& a, const FeaturePair& b) {
      return a.first != b.first ? a.first < b.first : a.second < b.second;
    };
    const auto found =
        std::lower_bound(plan_.pairs.begin(), plan_.pairs.end(), FeaturePair{first, second}, less);
    return static_cast<int32_t>(plan_.features.size() + (found - plan_.pairs.begin()));
  }

  // Slot of a feature, or of a pair behind the features.
  uint32_t slot(int32_t place) {
    if (slot_[place] < 0) {
      slot_[place] = static_cast<int32_t>(out_.chunks.back().n_slots);
      slot_places_.push_back(place);
      const int32_t n = static_cast<int32_t>(width()), first = std::max(output_, 0);
      for (int32_t o = 0; o < n; ++o) out_.slots.push_back({first + o, place});
      out_.chunks.back().n_slots += n;
    }
    return static_cast<uint32_t>(slot_[place]);
  }

  // --- The stream ---

  void emit() {
    struct Item {
      int32_t node;
      int stage;
    };
    own_.assign(nodes_.size(), -1);
    free_bits_ = pairs_ ? ~(1u << kAlwaysAlive) : ~uint32_t{0};
    op(kCudaNextTree);
    close();
    std::vector<Item> stack{{0, 0}};
    while (!stack.empty()) {
      const Item item = stack.back();
      stack.pop_back();
      const Node& n = nodes_[item.node];
      const bool repeated = n.previous >= 0;
      if (item.stage == 0 && fused(n)) {
        emit_fused(item.node);
        continue;
      }
      if (item.stage == 0) {
        take_bit(item.node);
        op(cuda_code(kCudaEnter, n.height, repeated), n.height);
        node(item.node);
        value(n.share);
        if (repeated) factors(n);
        close();
        stack.push_back({item.node, 2});
        if (n.right >= 0) {
          stack.push_back({n.right, 0});
          stack.push_back({item.node, 1});
        }
        stack.push_back({n.left, 0});
      } else if (item.stage == 1) {
        op(cuda_code(kCudaMiddle, n.height, repeated), n.height);
        node(item.node, false);
        value(0);
        if (repeated) factors(n);
        close();
      } else {
        op(cuda_code(n.right < 0 ? kCudaExitLeaf : kCudaExit, n.height, repeated), n.height);
        node(item.node, false);
        value(n.right < 0 ? leaf(n.right_leaf) : 0);
        if (repeated) factors(n);
        close();
        give_bit(item.node);
        if (pairs_) emit_pairs(item.node);
      }
    }
  }

  void emit_pairs(int32_t i) {
    const std::vector<int32_t>& others = others_above(i);
    if (others.empty()) return;
    const size_t n_steps = (others.size() + 1) / 2;
    op(kCudaPairs, static_cast<uint32_t>(n_steps));
    pad(4);
    for (size_t step = 0; step < n_steps; ++step) {
      const bool both = 2 * step + 1 < others.size();
      const int32_t first = others[2 * step], second = both ? others[2 * step + 1] : -1;
      element(slot(pair_of(i, first)) | static_cast<uint32_t>(own_[first]) << kPairBitShift);
      element(both ? slot(pair_of(i, second)) | static_cast<uint32_t>(own_[second]) << kPairBitShift
                   : slot(feature_of(i)) | static_cast<uint32_t>(kAlwaysAlive) << kPairBitShift);
      lambda(first, i);
      if (both)
        lambda(second, i);
      else
        for (int k = 0; k < n_; ++k) value(0);
      pad(4);
    }
    close();
  }

  // lambda_k of alive rows beyond that edge of `above` which leads to the node.
  void lambda(int32_t above, int32_t node) {
    while (nodes_[node].parent != above) node = nodes_[node].parent;
    const Node& n = nodes_[above];
    const double z = n.zero_fraction * (nodes_[node].is_right ? 1 - n.share : n.share);
    for (const double t : t_) value(alive_lambda(plan_.index, z, t));
  }

  void emit_fused(int32_t i) {
    const Node& n = nodes_[i];
    const bool repeated = n.previous >= 0;
    if (n.pair) {
      op(kCudaPair + repeated);
      pair_elements(i);
      if (repeated) factors(n);
      close();
      if (pairs_) emit_pairs(i);
      return;
    }
    take_bit(i);
    const Node& first = nodes_[n.left];
    const bool first_repeated = first.previous >= 0;
    if (n.right < 0) {
      op(kCudaTrio + 2 * repeated + first_repeated);
      node(i);
      value(n.share);
      pair_elements(n.left);
      value(leaf(n.right_leaf));
      if (repeated) factors(n);
      if (first_repeated) factors(first);
    } else {
      const Node& second = nodes_[n.right];
      const bool second_repeated = second.previous >= 0;
      op(kCudaQuad + 4 * repeated + 2 * first_repeated + second_repeated);
      node(i);
      value(n.share);
      pair_elements(n.left);
      pair_elements(n.right);
      if (repeated) factors(n);
      if (first_repeated) factors(first);
      if (second_repeated) factors(second);
    }
    close();
    give_bit(i);
  }

  // Slot, column, test; B of rows that are not alive; delta times the difference of the leaves for
  // rows that go right, left; if repeated, the leaves' values: right, left.
  void pair_elements(int32_t i) {
    const Node& n = nodes_[i];
    node(i);
    const double left = leaf(n.left_leaf), right = leaf(n.right_leaf), difference = left - right;
    value(right + n.share * difference);
    value(-n.share * difference);
    value((1 - n.share) * difference);
    if (n.previous < 0) return;
    value(right);
    value(left);
  }

  // u_k = z (1 - t_k) / a_k with a_k = z (1 - t_k) + t_k: g_k = o - delta u_k for alive rows.
  void factors(const Node& n) {
    for (const double t : t_) {
      const double off = n.zero_fraction * (1 - t);
      value(off / (off + t));
    }
  }

  // `decides`: the first time that the walk meets the node.
  void node(int32_t i, bool decides = true) {
    const Node& n = nodes_[i];
    Decision d{};
    uint32_t test = 0;
    if (decides) {  // else only the alive bits are needed
      d = decision(decide_[i]);
      if (d.flags & kNodeCategorical) d.operand = set_number(d.operand);
      if (d.flags & kNodeBias) test |= kTestBias;
      if (d.flags & kNodeCategorical) test |= kTestCategorical;
      if (d.flags & kNodeFlip) test |= kTestFlip;
    }
    if (n.tracked) test |= kTestTracked | static_cast<uint32_t>(own_[i]) << kTestOwnShift;
    if (n.previous >= 0) test |= static_cast<uint32_t>(own_[n.previous]) << kTestPreviousShift;
    element(slot(feature_of(i)) << 16 | d.column);
    element(test | d.operand);
  }

  // A node's test on the columns of the GPU.
  struct Decision {
    uint32_t column, operand, flags;
  };
  Decision decision(const DecideNode& from) const {
    Decision d{first_column_[from.column], from.operand, 0};
    if (from.flags & kFlip) d.flags |= kNodeFlip;
    if (from.flags & kCategorical) {
      d.flags |= kNodeCategorical;
      if (wide(from.column)) d.flags |= kNodeWide;
    } else {
      const uint32_t rank = from.operand - from.bias;
      d.column += rank / kCudaRanks;
      d.operand = rank % kCudaRanks + from.bias;
      if (from.bias) d.flags |= kNodeBias;
    }
    return d;
  }

  // --- The general form ---

  void emit_general() {
    struct Item {
      int32_t node;
      CudaGeneralOp stage;
    };
    op(kGeneralNextTree);
    std::vector<Item> stack{{0, kGeneralEnter}};
    while (!stack.empty()) {
      const Item item = stack.back();
      stack.pop_back();
      const Node& n = nodes_[item.node];
      if (item.stage == kGeneralEnter && n.pair) {
        general_node(item.node, kGeneralPair);
        general_leaf(n.right_leaf);
        general_leaf(n.left_leaf);
        if (pairs_) general_pairs(item.node);
        continue;
      }
      general_node(item.node, item.stage);
      if (item.stage == kGeneralExitLeaf) general_leaf(n.right_leaf);
      if (item.stage >= kGeneralExit && pairs_) general_pairs(item.node);
      if (item.stage != kGeneralEnter) continue;
      stack.push_back({item.node, n.right < 0 ? kGeneralExitLeaf : kGeneralExit});
      if (n.right >= 0) {
        stack.push_back({n.right, kGeneralEnter});
        stack.push_back({item.node, kGeneralMiddle});
      }
      stack.push_back({n.left, kGeneralEnter});
    }
  }

  void general_node(int32_t i, CudaGeneralOp code) {
    const Node& n = nodes_[i];
    const Decision d = decision(decide_[i]);
    const bool repeated = n.previous >= 0;
    element(code | (repeated ? 8u : 0u) | n.level << 4);
    element(slot(feature_of(i)));
    element(d.column);
    element(d.flags);
    element(d.operand);
    element(repeated ? nodes_[n.previous].level : 0);
    value(n.share);
    if (!repeated) return;
    factors(n);
    for (const double t : t_) value(repeated_gain(n.zero_fraction, t));
  }

  void general_pairs(int32_t i) {
    const std::vector<int32_t>& others = others_above(i);
    element(static_cast<uint32_t>(others.size()));
    for (const int32_t other : others) {
      element(slot(pair_of(i, other)));
      element(nodes_[other].level);
      lambda(other, i);
    }
  }

  void general_leaf(const double* values) {
    for (uint32_t o = 0; o < width(); ++o) value(leaf(values + o));
  }

  double leaf(const double* x) const { return *x / plan_.leaf_scale; }

  uint32_t set_number(uint32_t first_word) {
    out_.category_sets.push_back(first_word);
    return static_cast<uint32_t>(out_.category_sets.size()) - 1 - out_.chunks.back().category_base;
  }

  void take_bit(int32_t i) {
    if (!nodes_[i].tracked) return;
    own_[i] = __builtin_ctz(free_bits_);
    free_bits_ &= free_bits_ - 1;
  }
  void give_bit(int32_t i) {
    if (nodes_[i].tracked) free_bits_ |= 1u << own_[i];
  }

  void op(uint32_t code, uint32_t frame = 0) {
    op_begin_ = out_.stream.size();
    element(frame << 8 | code);
  }
  void element(uint32_t x) { out_.stream.push_back(x); }
  void value(double x) {
    const T rounded = static_cast<T>(x);
    Element e;
    std::memcpy(&e, &rounded, sizeof(e));
    out_.stream.push_back(e);
  }
  void pad(size_t multiple) {
    const size_t begin = out_.chunks.back().begin;
    out_.stream.resize(begin + (out_.stream.size() - begin + multiple - 1) / multiple * multiple);
  }
  // Ends an operation: pads it to 16 bytes, and moves it to a new segment where it would not leave
  // room for the segment's end.
  void close() {
    std::vector<Element>& stream = out_.stream;
    pad(4);
    const size_t begin = out_.chunks.back().begin;
    if ((op_begin_ - begin) / kCudaSegment == (stream.size() + 3 - begin) / kCudaSegment) return;
    const std::vector<Element> moved(stream.begin() + op_begin_, stream.end());
    stream.resize(op_begin_);
    element(kCudaEndSegment);
    pad(kCudaSegment);
    stream.insert(stream.end(), moved.begin(), moved.end());
  }

  void write_margin_nodes() {
    const int64_t first = static_cast<int64_t>(out_.nodes.size());
    const int64_t first_leaf = static_cast<int64_t>(tree_->leaves / width());
    const int32_t n_inner = static_cast<int32_t>(tree_->n_inner);
    out_.tree_nodes.push_back(first);
    out_.tree_output.push_back(output_);
    const auto link = [&](int32_t child) {
      return static_cast<int32_t>(child < n_inner ? first + child : ~(first_leaf + child - n_inner));
    };
    for (int32_t i = 0; i < n_inner; ++i) {
      CudaNode node = margin_node(decide_[i]);
      node.left = link(children_[2 * i]);
      node.right = link(children_[2 * i + 1]);
      out_.nodes.push_back(node);
    }
  }

  CudaNode margin_node(const DecideNode& node) const {
    const Decision d = decision(node);
    return {d.column << kNodeColumnShift | d.flags, d.operand, 0, 0};
  }

  const Plan& plan_;
  const bool pairs_;
  PathWalk walk_;
  CudaProgram<T> out_;
  std::vector<uint32_t> first_column_;
  std::vector<int32_t> slot_, slot_places_;  // of the chunk: place -> slot, and those that have one
  std::vector<uint32_t> listed_, counted_;   // when a feature, or a place, was met last
  uint32_t stamp_ = 0, tree_number_ = 0;
  std::vector<int32_t> above_;
  std::vector<double> t_;
  std::vector<Node> nodes_;
  std::vector<int32_t> own_;  // alive bit of a tracked node
  uint32_t free_bits_ = 0;
  const TreeProgram* tree_ = nullptr;
  const DecideNode* decide_ = nullptr;
  const int32_t* children_ = nullptr;
  int n_ = 0;  // K
  int32_t output_ = 0;
  bool open_ = false, general_ = false, fits_ = false;
  uint32_t n_frames_ = 0;
  size_t op_begin_ = 0;
  int launched_nodes_[kMaxFixedNodes + 1] = {};  // K that trees of a K are walked with
  size_t chunk_leaves_ = 0;
  size_t chunk_trees_ = 0, chunk_sets_ = 0, new_sets_ = 0, tree_slots_ = 0;
};

}  // namespace

template <class T>
CudaProgram<T> make_cuda_program(const Plan& plan) {
  return CudaCompiler<T>(plan).compile();
}
template CudaProgram<float> make_cuda_program(const Plan&);
template CudaProgram<double> make_cuda_program(const Plan&);

}  // namespace skshap
