// Plan -> CudaOwenLeaves. Host only, needs no CUDA.
#include "cuda/program/owen_leaves.h"

#include <algorithm>
#include <cstring>

#include "cuda/program/columns.h"
#include "cuda/program/program.h"
#include "plan/owen_path.h"
#include "plan/quadrature.h"

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
        feature_of_column_(column_features(plan)),
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
  // A node of the path: which subtree is visited, and whether it is the second one.
  struct Visit {
    int32_t node;
    bool right, second;
    uint32_t bits;
  };

  void write_tree(const TreeProgram& tree) {
    if (!tree.n_inner) return;
    tree_ = &tree;
    path_.open(tree);
    const int32_t n_inner = static_cast<int32_t>(tree.n_inner);
    const int32_t* const children = plan_.children.data() + tree.children;
    // Leaves below each node. The subtree with fewer is visited first, so that few others are left meanwhile.
    n_below_.assign(n_inner, 0);
    const auto below = [&](int32_t child) { return child < n_inner ? n_below_[child] : 1; };
    for (int32_t node = n_inner - 1; node >= 0; --node)
      n_below_[node] = below(children[2 * node]) + below(children[2 * node + 1]);
    for (int32_t node = 0;;) {
      if (node < n_inner) {
        const bool right = below(children[2 * node + 1]) < below(children[2 * node]);
        const uint32_t bits = path_.enter(feature_of_column_[test(node).column]);
        if (is_open_) ensure_chunk();
        visits_.push_back({node, right, false, bits});
        if (is_open_) write_node(visits_.back());
        path_.take(right, share(node));
        node = children[2 * node + right];
        continue;
      }
      write_leaf(static_cast<size_t>(node - n_inner));
      while (!visits_.empty() && visits_.back().second) {
        visits_.pop_back();
        path_.leave();
      }
      if (visits_.empty()) return;
      Visit& visit = visits_.back();
      visit.right = !visit.right;
      visit.second = true;
      path_.take(visit.right, share(visit.node));
      node = children[2 * visit.node + visit.right];
    }
  }

  const DecideNode& test(int32_t node) const { return plan_.decide[tree_->decide + node]; }
  double share(int32_t node) const { return plan_.shares[tree_->decide + node]; }

  // --- Chunks ---

  // End the open chunk if it is full; the next operation begins another one.
  void ensure_chunk() {
    if (n_leaves_ >= chunk_leaves_) end_chunk();
  }

  // Begin a chunk with the path to the current node, if none is open.
  void begin_chunk() {
    ensure_chunk();
    if (is_open_) return;
    is_open_ = true;
    chunk_ = {static_cast<uint32_t>(out_.stages.size()), 0, static_cast<uint32_t>(program_.slots.size()), 0};
    for (const Visit& visit : visits_) write_node(visit);
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
    n_leaves_ = n_left_ = 0;
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

  // Begin a new stage unless so much more fits the open one.
  void ensure_stage(size_t n_words, size_t n_fours, size_t table_bytes) {
    const size_t list = rounded_up(fours_.size() + n_fours, 8) / 2,
                 words = kOwenStageHeader + tables_.size() + ops_.size() + list + n_words + 4;
    if (words > kOwenStageWords || table_bytes_ + table_bytes > kOwenTableBytes) end_stage();
  }

  void end_stage() {
    if (ops_.empty()) return;
    ops_.insert(ops_.end(), {kOwenEnd, 0, 0, 0});
    fours_.resize(rounded_up(fours_.size(), 8), 0);
    const size_t ops = kOwenStageHeader + tables_.size(), list = ops + ops_.size();
    out_.stages.push_back(static_cast<uint32_t>(out_.stream.size() * sizeof(uint32_t) / kOwenPiece));
    out_.stream.insert(out_.stream.end(),
                       {n_fours_, static_cast<uint32_t>(ops), static_cast<uint32_t>(list), 0});
    out_.stream.insert(out_.stream.end(), tables_.begin(), tables_.end());
    out_.stream.insert(out_.stream.end(), ops_.begin(), ops_.end());
    for (size_t i = 0; i < fours_.size(); i += 2)
      out_.stream.push_back(fours_[i] | static_cast<uint32_t>(fours_[i + 1]) << 16);
    tables_.clear();
    ops_.clear();
    fours_.clear();
    n_fours_ = 0;
    table_bytes_ = 0;
  }

  // --- Operations ---

  void write_node(const Visit& visit) {
    ensure_stage(4, 0, 0);
    const CudaColumns::Decision decision = columns_.decision(test(visit.node));
    const uint32_t kind = visit.second ? kOwenEdge : kOwenNode;
    // The subtree of the rows that pass the comparison is the left one, unless the test is flipped.
    const bool passes = visit.right == static_cast<bool>(decision.flags & kNodeFlip);
    ops_.insert(ops_.end(), {kind | decision.flags << kOwenFlagShift | decision.column << kOwenColumnShift,
                             decision.operand, passes ? 0 : visit.bits, passes ? visit.bits : 0});
    if (!visit.second) out_.most_left = std::max(out_.most_left, ++n_left_);
  }

  void write_leaf(size_t leaf) {
    begin_chunk();
    ++n_leaves_;
    const double value = plan_.leaf_values[tree_->leaves + leaf] / plan_.leaf_scale;
    const std::vector<OwenPath::Group>& groups = path_.groups();
    const size_t n = groups.size();
    std::vector<size_t> single, many;
    for (size_t i = 0; i < n; ++i) (groups[i].n_features == 1 ? single : many).push_back(i);
    size_t n_words = 4 + 4 * pieces(single.size()) + table_words(n), n_fours = owen_entries(n) / kOwenFour,
           bytes = owen_piece_bytes<T>(n, single.size()) + owen_list_bytes<T>(n, many.size());
    for (const size_t i : many) {
      const size_t m = groups[i].n_features;
      n_words += 4 + 4 * pieces(m) + table_words(m);
      n_fours += owen_entries(m) / kOwenFour;
      bytes += owen_piece_bytes<T>(m, m);
    }
    if (value == 0) n_words = 4, n_fours = bytes = 0;
    ensure_stage(n_words, n_fours, bytes);
    if (n_left_) --n_left_;
    const size_t op = ops_.size();
    if (value == 0) {
      ops_.insert(ops_.end(), {kOwenLeaf | 4u << kOwenLengthShift, 0, 0, 0});
      return;
    }
    std::vector<Player> players(n);
    for (size_t i = 0; i < n; ++i) players[i] = {1.0, false, 0};
    for (size_t i = 0; i < n; ++i)
      for (int f = 0; f < groups[i].n_features; ++f)
        players[i].zero_fraction *= path_.step(groups[i].steps[f]).share;
    for (size_t i = 0; i < single.size(); ++i)
      players[single[i]].differs = true, players[single[i]].place = static_cast<uint32_t>(i);
    for (size_t i = 0; i < many.size(); ++i) players[many[i]].place = kOwenList + static_cast<uint32_t>(i);
    const size_t lists = table_bytes_ + owen_piece_bytes<T>(n, single.size());
    ops_.insert(ops_.end(), {kOwenLeaf | static_cast<uint32_t>(single.size()) << kOwenSingleShift |
                                 static_cast<uint32_t>(many.size()) << kOwenManyShift,
                             static_cast<uint32_t>(table_bytes_), static_cast<uint32_t>(lists),
                             static_cast<uint32_t>(owen_entries(n))});
    write_table(players, value, single.size(), many.size());
    for (size_t i = 0; i < single.size(); ++i) write_slot(i, groups[single[i]].steps[0]);
    end_slots(single.size());
    for (const size_t i : many) {
      const OwenPath::Group& group = groups[i];
      const size_t m = group.n_features;
      ops_.insert(ops_.end(),
                  {static_cast<uint32_t>(group.field) | static_cast<uint32_t>(m) << kOwenManyShift,
                   static_cast<uint32_t>(table_bytes_), static_cast<uint32_t>(owen_entries(m)),
                   (uint32_t{1} << m) - 1});
      players.resize(m);
      for (size_t f = 0; f < m; ++f)
        players[f] = {path_.step(group.steps[f]).share, true, static_cast<uint32_t>(f)};
      write_table(players, 1, m, 0);
      for (size_t f = 0; f < m; ++f) write_slot(f, group.steps[f]);
      end_slots(m);
    }
    ops_[op] |= static_cast<uint32_t>(ops_.size() - op) << kOwenLengthShift;
  }

  static size_t pieces(size_t n_numbers) { return rounded_up(n_numbers, owen_piece<T>()) / owen_piece<T>(); }
  static size_t table_words(size_t n_players) {
    return kOwenTableHeader + rounded_up((1 + n_players) * sizeof(T), kOwenPiece) / sizeof(uint32_t);
  }

  // Write the slot of a number, of which owen_piece() share four words.
  void write_slot(size_t number, int32_t step) {
    if (number && number % owen_piece<T>() == 0) pad_slots();
    ops_.push_back(slot(path_.step(step).feature));
  }
  void end_slots(size_t n_numbers) {
    if (n_numbers) pad_slots();
  }
  void pad_slots() { ops_.resize(rounded_up(ops_.size(), 4), 0); }

  struct Player {
    double zero_fraction;
    bool differs;    // whether its number is multiplied by the difference of its fractions
    uint32_t place;  // see the description of a table
  };

  void write_table(const std::vector<Player>& players, double factor, size_t n_numbers, size_t n_lists) {
    const size_t n = players.size(), first = kOwenStageHeader + tables_.size(),
                 pieces = table_bytes_ / kOwenPiece,
                 lists = (table_bytes_ + owen_piece_bytes<T>(n, n_numbers)) / kOwenPiece;
    uint32_t differ = 0, places = 0;
    for (size_t i = 0; i < n; ++i) {
      differ |= static_cast<uint32_t>(players[i].differs) << i;
      places |= players[i].place << 4 * i;
    }
    const uint32_t n_nodes = static_cast<uint32_t>(quadrature_nodes(Index::kShapley, static_cast<int>(n)));
    tables_.insert(tables_.end(),
                   {static_cast<uint32_t>(n) | n_nodes << kOwenPlayersShift | differ << kOwenDifferenceShift |
                        static_cast<uint32_t>(n_numbers) << kOwenNumbersShift,
                    static_cast<uint32_t>(pieces | lists << kOwenListsShift), places, n_fours_});
    number(factor);
    for (const Player& player : players) number(player.zero_fraction);
    tables_.resize(rounded_up(tables_.size(), 4), 0);
    fours_.insert(fours_.end(), owen_entries(n) / kOwenFour, static_cast<uint16_t>(first));
    n_fours_ += static_cast<uint32_t>(owen_entries(n) / kOwenFour);
    table_bytes_ += owen_piece_bytes<T>(n, n_numbers) + owen_list_bytes<T>(n, n_lists);
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
  const std::vector<int32_t> feature_of_column_;
  const TreeProgram* tree_ = nullptr;
  int32_t output_ = 0;
  std::vector<uint32_t> slot_of_;  // by feature
  std::vector<int32_t> n_below_;
  std::vector<Visit> visits_;
  // The open chunk and stage.
  bool is_open_ = false;
  CudaOwenChunk chunk_{};
  size_t n_leaves_ = 0, n_left_ = 0, table_bytes_ = 0;
  uint32_t n_fours_ = 0;
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
