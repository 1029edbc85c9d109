// Plan -> CudaOwenLeaves. Host only, needs no CUDA.
#include "cuda/program/owen_leaves.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "cuda/program/columns.h"
#include "cuda/program/program.h"
#include "plan/owen_path.h"

namespace skshap {
namespace {

template <class T>
class OwenLeafWriter {
 public:
  OwenLeafWriter(const Plan& plan, const CudaColumns& columns, size_t chunk_leaves, CudaProgram<T>& program)
      : plan_(plan),
        columns_(columns),
        chunk_leaves_(chunk_leaves),
        program_(program),
        out_(program.owen_leaves),
        path_(plan),
        slot_of_(plan.features.size(), kNone) {}

  void write() {
    for (const Chunk& chunk : plan_.chunks) {
      output_ = chunk.output;
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) write_tree(plan_.trees[i]);
      end_chunk();
    }
    out_.stages.push_back(static_cast<uint32_t>(out_.stream.size() * sizeof(uint32_t) / kOwenPiece));
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  void write_tree(const TreeProgram& tree) {
    if (!tree.n_inner) return;
    tree_ = &tree;
    if (!path_.open(tree)) throw std::invalid_argument("the trees cannot be explained leaf by leaf");
    const int32_t n_inner = static_cast<int32_t>(tree.n_inner);
    const int32_t* const children = plan_.children.data() + tree.children;
    // Count the leaves below each node. The subtree with fewer leaves is visited first, so that few subtrees
    // are postponed at a time.
    n_below_.assign(n_inner, 0);
    const auto below = [&](int32_t child) { return child < n_inner ? n_below_[child] : 1; };
    for (int32_t node = n_inner - 1; node >= 0; --node)
      n_below_[node] = below(children[2 * node]) + below(children[2 * node + 1]);
    path_.walk([&](int32_t node) { return below(children[2 * node + 1]) < below(children[2 * node]); },
               [&] {
                 if (is_open_) ensure_chunk();
                 if (is_open_) write_node(path_.splits().back());
               },
               [&](int32_t leaf) { write_leaf(static_cast<size_t>(leaf)); });
  }

  const DecideNode& test(int32_t node) const { return plan_.decide[tree_->decide + node]; }

  // --- Chunks ---

  // End the open chunk if it is full. The next operation begins another chunk.
  void ensure_chunk() {
    if (n_leaves_ >= chunk_leaves_) end_chunk();
  }

  // If no chunk is open, begin one with the path to the current node.
  void begin_chunk() {
    ensure_chunk();
    if (is_open_) return;
    is_open_ = true;
    chunk_ = {static_cast<uint32_t>(out_.stages.size()), 0, static_cast<uint32_t>(program_.slots.size()), 0};
    for (const OwenPath::Split& split : path_.splits()) write_node(split);
  }

  void end_chunk() {
    if (!is_open_) return;
    end_stage();
    chunk_.n_stages = static_cast<uint32_t>(out_.stages.size()) - chunk_.stages;
    chunk_.n_slots = static_cast<uint32_t>(program_.slots.size()) - chunk_.first_slot;
    out_.chunks.push_back(chunk_);
    for (size_t i = chunk_.first_slot; i < program_.slots.size(); ++i)
      slot_of_[program_.slots[i].place] = kNone;
    is_open_ = false;
    n_leaves_ = n_postponed_ = 0;
  }

  // Return where the sums of a feature begin, in bytes.
  uint32_t slot(int32_t feature) {
    uint32_t& slot = slot_of_[feature];
    if (slot == kNone) {
      slot = static_cast<uint32_t>(program_.slots.size()) - chunk_.first_slot;
      program_.slots.push_back({output_, feature});
    }
    return slot * static_cast<uint32_t>(kTileBytes);
  }

  // --- Stages ---

  // Begin a new stage unless this much more fits into the open stage.
  void ensure_stage(size_t n_words, size_t n_fours, size_t table_bytes) {
    const size_t list = rounded_up(fours_.size() + n_fours, 8) / 2,
                 words = kOwenStageHeader + tables_.size() + ops_.size() + list + n_words + 4;
    if (words > kOwenStageWords || table_bytes_ + table_bytes > kOwenTableBytes) end_stage();
  }

  void end_stage() {
    if (ops_.empty()) return;
    ops_.insert(ops_.end(), {kOwenEnd, 0, 0, 0});
    const uint32_t n_fours = static_cast<uint32_t>(fours_.size());
    fours_.resize(rounded_up(fours_.size(), 8), 0);
    const size_t ops = kOwenStageHeader + tables_.size(), list = ops + ops_.size();
    out_.stages.push_back(static_cast<uint32_t>(out_.stream.size() * sizeof(uint32_t) / kOwenPiece));
    out_.stream.insert(out_.stream.end(),
                       {n_fours, static_cast<uint32_t>(ops), static_cast<uint32_t>(list), 0});
    out_.stream.insert(out_.stream.end(), tables_.begin(), tables_.end());
    out_.stream.insert(out_.stream.end(), ops_.begin(), ops_.end());
    for (size_t i = 0; i < fours_.size(); i += 2)
      out_.stream.push_back(fours_[i] | static_cast<uint32_t>(fours_[i + 1]) << 16);
    tables_.clear();
    ops_.clear();
    fours_.clear();
    table_bytes_ = 0;
  }

  // --- Operations ---

  void write_node(const OwenPath::Split& split) {
    ensure_stage(4, 0, 0);
    const CudaColumns::Decision decision = columns_.decision(test(split.node));
    const uint32_t kind = split.second ? kOwenEdge : kOwenNode;
    // The left subtree has the rows that pass the comparison, unless the test is flipped.
    const bool passes = split.right == static_cast<bool>(decision.flags & kNodeFlip);
    ops_.insert(ops_.end(), {kind | decision.flags << kOwenFlagShift | decision.column << kOwenColumnShift,
                             decision.operand, passes ? 0 : split.bits, passes ? split.bits : 0});
    if (!split.second) out_.most_postponed = std::max(out_.most_postponed, ++n_postponed_);
  }

  void write_leaf(size_t leaf) {
    begin_chunk();
    ++n_leaves_;
    const double value = plan_.leaf_values[tree_->leaves + leaf] / plan_.leaf_scale;
    const bool is_short = path_.template has_table<T>();
    if (value == 0)
      ensure_stage(4, 0, 0);
    else
      ensure_stage_for_leaf(is_short);
    if (n_postponed_) --n_postponed_;
    const size_t op = ops_.size();
    ops_.insert(ops_.end(), {is_short ? kOwenLeaf : kOwenLongLeaf, 0, 0, 0});
    if (value != 0) {
      if (is_short)
        write_short_leaf(op, value);
      else
        write_long_leaf(op, value);
    }
    ops_[op] |= static_cast<uint32_t>(ops_.size() - op) << kOwenLengthShift;
  }

  void ensure_stage_for_leaf(bool is_short) {
    const size_t n = groups().size();
    const size_t group_bytes = is_short ? path_.template group_bytes<T>() : owen_long_bytes<T>(n);
    size_t n_words = 4 + table_words(n), n_fours = fours(is_short ? owen_entries(n) : n), n_single = 0;
    for (const OwenPath::PathGroup& group : groups()) {
      const size_t m = group.n_features;
      n_single += m == 1;
      if (!is_short || m > 1) n_words += 4;
      if (m == 1) continue;
      n_words += 4 * pieces(m) + table_words(m);
      n_fours += fours(owen_entries(m));
    }
    if (is_short) n_words += 4 * pieces(n_single);
    ensure_stage(n_words, n_fours, group_bytes + path_.template own_bytes<T>());
  }

  void write_short_leaf(size_t op, double value) {
    const size_t n = groups().size();
    std::vector<size_t> single, many;
    for (size_t i = 0; i < n; ++i) (groups()[i].n_features == 1 ? single : many).push_back(i);
    uint32_t places = 0;
    for (size_t i = 0; i < single.size(); ++i) places |= static_cast<uint32_t>(i) << 4 * single[i];
    for (size_t i = 0; i < many.size(); ++i) places |= (kOwenList + static_cast<uint32_t>(i)) << 4 * many[i];
    std::vector<double> zero_fractions;
    for (const OwenPath::PathGroup& group : groups()) zero_fractions.push_back(zero_fraction(group));
    ops_[op] |= static_cast<uint32_t>(single.size()) << kOwenSingleShift | static_cast<uint32_t>(many.size())
                                                                               << kOwenManyShift;
    ops_[op + 1] = static_cast<uint32_t>(table_bytes_);
    ops_[op + 2] = static_cast<uint32_t>(table_bytes_ + owen_piece_bytes<T>(n, single.size()));
    ops_[op + 3] = static_cast<uint32_t>(owen_entries(n));
    write_table(places, value, zero_fractions, single.size());
    for (size_t i = 0; i < single.size(); ++i) write_slot(i, groups()[single[i]].steps[0]);
    pad(ops_);
    for (const size_t i : many) write_group(groups()[i]);
  }

  void write_long_leaf(size_t op, double value) {
    const size_t n = groups().size();
    ops_[op] |= static_cast<uint32_t>(n) << kOwenSingleShift;
    ops_[op + 1] = static_cast<uint32_t>(table_bytes_);
    ops_[op + 2] = static_cast<uint32_t>(owen_nodes(n));
    uint32_t single = 0;
    std::vector<double> zero_fractions;
    for (size_t i = 0; i < n; ++i) {
      single |= static_cast<uint32_t>(groups()[i].n_features == 1) << i;
      zero_fractions.push_back(zero_fraction(groups()[i]));
    }
    describe_table(kOwenLong, table_bytes_ / kOwenPiece, single, value, zero_fractions, n);
    table_bytes_ += owen_long_bytes<T>(n);
    for (const OwenPath::PathGroup& group : groups()) {
      if (group.n_features > 1)
        write_group(group);
      else
        ops_.insert(ops_.end(), {1u << kOwenFeaturesShift, slot(path_.step(group.steps[0]).feature), 0, 0});
    }
  }

  // Write a group with several features on the path, and the table of these features.
  void write_group(const OwenPath::PathGroup& group) {
    const size_t m = group.n_features;
    ops_.insert(ops_.end(),
                {static_cast<uint32_t>(group.field) | static_cast<uint32_t>(m) << kOwenFeaturesShift,
                 static_cast<uint32_t>(table_bytes_), static_cast<uint32_t>(owen_entries(m)),
                 (uint32_t{1} << m) - 1});
    uint32_t places = 0;
    std::vector<double> zero_fractions;
    for (size_t i = 0; i < m; ++i) {
      places |= static_cast<uint32_t>(i) << 4 * i;
      zero_fractions.push_back(path_.step(group.steps[i]).share);
    }
    write_table(places, 1, zero_fractions, m);
    for (size_t i = 0; i < m; ++i) write_slot(i, group.steps[i]);
    pad(ops_);
  }

  const std::vector<OwenPath::PathGroup>& groups() const { return path_.groups(); }
  double zero_fraction(const OwenPath::PathGroup& group) const {
    double product = 1;
    for (int i = 0; i < group.n_features; ++i) product *= path_.step(group.steps[i]).share;
    return product;
  }

  static size_t fours(size_t n_entries) { return rounded_up(n_entries, kOwenFour) / kOwenFour; }
  static size_t pieces(size_t n_numbers) { return rounded_up(n_numbers, owen_piece<T>()) / owen_piece<T>(); }
  static size_t table_words(size_t n_players) {
    return kOwenTableHeader + rounded_up((1 + n_players) * sizeof(T), kOwenPiece) / sizeof(uint32_t);
  }

  // Write the slot of a number. The slots of owen_piece() numbers share four words.
  void write_slot(size_t number, int32_t step) {
    if (number && number % owen_piece<T>() == 0) pad(ops_);
    ops_.push_back(slot(path_.step(step).feature));
  }
  static void pad(std::vector<uint32_t>& words) { words.resize(rounded_up(words.size(), 4), 0); }

  // Write a table of players, which are in the order of their bits.
  void write_table(uint32_t places, double factor, const std::vector<double>& zero_fractions,
                   size_t n_numbers) {
    const size_t n = zero_fractions.size(), lists = table_bytes_ + owen_piece_bytes<T>(n, n_numbers);
    describe_table(static_cast<uint32_t>(n_numbers) << kOwenNumbersShift,
                   table_bytes_ / kOwenPiece | lists / kOwenPiece << kOwenListsShift, places, factor,
                   zero_fractions, owen_entries(n));
    table_bytes_ = lists + owen_list_bytes<T>(n, n - n_numbers);
  }

  // Write the description of a table, and list its entries. `kind` and `begins` are parts of its first two
  // words.
  void describe_table(uint32_t kind, size_t begins, uint32_t places, double factor,
                      const std::vector<double>& zero_fractions, size_t n_entries) {
    const size_t n = zero_fractions.size(), first = kOwenStageHeader + tables_.size();
    tables_.insert(tables_.end(),
                   {static_cast<uint32_t>(n) | static_cast<uint32_t>(owen_nodes(n)) << kOwenNodesShift | kind,
                    static_cast<uint32_t>(begins), places, static_cast<uint32_t>(fours_.size())});
    number(factor);
    for (const double z : zero_fractions) number(z);
    pad(tables_);
    fours_.insert(fours_.end(), fours(n_entries), static_cast<uint16_t>(first));
  }

  void number(double x) {
    const T rounded = static_cast<T>(x);
    uint32_t words[sizeof(T) / sizeof(uint32_t)];
    std::memcpy(words, &rounded, sizeof(T));
    tables_.insert(tables_.end(), std::begin(words), std::end(words));
  }

  static constexpr size_t kTileBytes = 256;  // of the sums of a slot: 64 floats or 32 doubles

  const Plan& plan_;
  const CudaColumns& columns_;
  const size_t chunk_leaves_;
  CudaProgram<T>& program_;
  CudaOwenLeaves<T>& out_;
  OwenPath path_;
  const TreeProgram* tree_ = nullptr;
  int32_t output_ = 0;
  std::vector<uint32_t> slot_of_;  // by feature
  std::vector<int32_t> n_below_;
  // The open chunk and stage.
  bool is_open_ = false;
  CudaOwenChunk chunk_{};
  size_t n_leaves_ = 0, n_postponed_ = 0, table_bytes_ = 0;
  std::vector<uint32_t> tables_, ops_;
  std::vector<uint16_t> fours_;
};

}  // namespace

template <class T>
void add_owen_leaves(const Plan& plan, const CudaColumns& columns, size_t chunk_leaves,
                     CudaProgram<T>& program) {
  OwenLeafWriter<T>(plan, columns, chunk_leaves, program).write();
}
template void add_owen_leaves(const Plan&, const CudaColumns&, size_t, CudaProgram<float>&);
template void add_owen_leaves(const Plan&, const CudaColumns&, size_t, CudaProgram<double>&);

}  // namespace skshap
