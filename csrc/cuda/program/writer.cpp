#include "cuda/program/writer.h"

#include <algorithm>
#include <numeric>

#include "plan/quadrature.h"

namespace skshap {

// --- Chunks ---

template <class T>
CudaWriter<T>::CudaWriter(const Plan& plan, const CudaColumns& columns, CudaTree& tree,
                          CudaProgram<T>& program)
    : plan_(plan),
      columns_(columns),
      tree_(tree),
      out_(program),
      pairs_(plan.interactions()),
      balance_(plan.groups),
      slot_(tree.n_places() + 1, -1) {}

template <class T>
void CudaWriter<T>::begin_chunk(const Chunk& chunk, const CudaQuadrature& nodes, bool general) {
  end_chunk();
  open_ = true;
  chunk_ = &chunk;
  nodes_ = nodes;
  n_ = static_cast<int>(nodes.t.size());
  output_ = chunk.output;
  height_ = static_cast<uint32_t>(chunk.height);
  CudaChunk c{};
  c.output = chunk.output;
  c.n_nodes = n_;
  c.quadrature = general ? -1 : number_of(nodes);
  c.general = general;
  c.begin = out_.stream.size();
  c.first_slot = out_.slots.size();
  c.category_base = static_cast<uint32_t>(out_.category_sets.size());
  out_.chunks.push_back(c);
  if (!general) return;
  element(static_cast<uint32_t>(n_));
  element(width());
  element(height_);
  for (const double t : nodes_.t) value(t);
  for (const double w : nodes_.weights) value(w);
  if (!pairs_) return;
  for (const double t : nodes_.t) value(dead_lambda(plan_.index, t));
}

// Return the position of these nodes among the nodes of the program. If they are new, add them.
template <class T>
int32_t CudaWriter<T>::number_of(const CudaQuadrature& nodes) {
  const auto position = std::find(out_.quadratures.begin(), out_.quadratures.end(), nodes);
  const int32_t number = static_cast<int32_t>(position - out_.quadratures.begin());
  if (position == out_.quadratures.end()) out_.quadratures.push_back(nodes);
  return number;
}

template <class T>
void CudaWriter<T>::end_chunk() {
  if (!open_) return;
  CudaChunk& c = out_.chunks.back();
  op(c.general ? static_cast<uint32_t>(kGeneralEnd) : kCudaEnd);
  if (!c.general) {
    close();
    if (plan_.order > 2) sort_slots();
    c.n_segments = static_cast<uint32_t>((out_.stream.size() - c.begin + kCudaSegment - 1) / kCudaSegment);
    out_.stream.resize(c.begin + c.n_segments * kCudaSegment);
  }
  out_.stream.resize((out_.stream.size() + 3) / 4 * 4);  // chunks begin where 16 bytes can be read at once
  for (const int32_t place : slot_places_) slot_[place] = -1;
  slot_places_.clear();
  open_ = false;
}

// Return the slot of a feature, or of an interaction. Interactions follow the features. For Owen values,
// groups follow the features, and all groups whose values nobody needs share one slot.
template <class T>
uint32_t CudaWriter<T>::slot(int32_t place) {
  const bool is_group = static_cast<size_t>(place) >= cuda_places(plan_);
  if (is_group && !has_shares(place)) place = static_cast<int32_t>(slot_.size()) - 1;
  if (slot_[place] < 0) {
    slot_[place] = static_cast<int32_t>(out_.chunks.back().n_slots);
    slot_places_.push_back(place);
    const int32_t n = static_cast<int32_t>(width()), first = std::max(output_, 0);
    for (int32_t o = 0; o < n; ++o) {
      const int32_t slot = static_cast<int32_t>(out_.slots.size());
      out_.slots.push_back({first + o, is_group ? kNoPlace : place});
      if (has_shares(place))
        balance_.share(*chunk_, place, [&](int32_t feature, double weight) {
          out_.shares.push_back({slot, {first + o, feature}, weight});
        });
    }
    out_.chunks.back().n_slots += n;
  }
  return static_cast<uint32_t>(slot_[place]);
}

// Return whether features get shares of the sums of a place.
template <class T>
bool CudaWriter<T>::has_shares(int32_t place) const {
  bool any = false;
  if (chunk_->balanced && static_cast<size_t>(place) + 1 < slot_.size())
    balance_.share(*chunk_, place, [&](int32_t, double) { any = true; });
  return any;
}

// Number the slots of the chunk by how often they are used, beginning with the most frequent ones: the first
// slots are in shared memory.
template <class T>
void CudaWriter<T>::sort_slots() {
  const CudaChunk& c = out_.chunks.back();
  const auto slot_of = [&](const SlotUse& use) { return out_.stream[use.at] >> use.shift & kPairSlot; };
  std::vector<size_t> n_uses(c.n_slots, 0);
  for (const SlotUse& use : uses_) ++n_uses[slot_of(use)];
  std::vector<uint32_t> order(c.n_slots), number(c.n_slots);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return n_uses[a] > n_uses[b]; });
  const std::vector<CudaSlot> slots(out_.slots.begin() + c.first_slot, out_.slots.end());
  for (uint32_t i = 0; i < c.n_slots; ++i) {
    number[order[i]] = i;
    out_.slots[c.first_slot + i] = slots[order[i]];
  }
  for (const SlotUse& use : uses_) {
    const Element old = slot_of(use);
    out_.stream[use.at] ^= (old ^ number[old]) << use.shift;
  }
  uses_.clear();
}

// --- The walk over the tree, for both forms ---

template <class T>
void CudaWriter<T>::write_tree() {
  const bool general = out_.chunks.back().general;
  if (general) {
    op(kGeneralNextTree);
  } else {
    own_.assign(tree_.nodes.size(), -1);
    free_bits_ = pairs_ || !nodes_.s.empty() ? ~(1u << kAlwaysAlive) : ~uint32_t{0};
    op(kCudaNextTree);
    close();
  }
  push_place(tree_.root);
  while (!steps_.empty()) {
    const Step step = steps_.back();
    steps_.pop_back();
    switch (step.kind) {
      case Step::kVisit:
        if (general ? general_visit(step.node) : visit(step.node)) push_children(step.node);
        break;
      case Step::kMiddle:
        general ? general_node(step.node, kGeneralMiddle) : write_frame(kCudaMiddle, step.node, 0);
        break;
      case Step::kExit: general ? general_exit(step.node) : exit(step.node); break;
      default: join(step);
    }
  }
}

template <class T>
void CudaWriter<T>::push_place(const CudaTree::Place& place) {
  if (place.is_leaf()) return;
  const int32_t frame = tree_.height(place);
  const bool several = tree_.nodes[place.first].next >= 0;
  if (place.leaf) steps_.push_back({Step::kJoinLeaf, 0, place.leaf});
  if (several) steps_.push_back({Step::kJoinExit, frame, nullptr});
  const size_t begin = steps_.size();
  for (int32_t i = place.first; i >= 0; i = tree_.nodes[i].next) {
    if (i != place.first) steps_.push_back({Step::kJoinMiddle, frame, nullptr});
    steps_.push_back({Step::kVisit, i, nullptr});
  }
  std::reverse(steps_.begin() + static_cast<std::ptrdiff_t>(begin), steps_.end());
  if (several) steps_.push_back({Step::kJoinEnter, frame, nullptr});
}

template <class T>
void CudaWriter<T>::push_children(int32_t i) {
  const CudaTree::Node& n = tree_.nodes[i];
  steps_.push_back({Step::kExit, i, nullptr});
  if (!n.right.is_leaf()) {
    push_place(n.right);
    steps_.push_back({Step::kMiddle, i, nullptr});
  }
  push_place(n.left);
}

// --- The fused form ---

// Write a node. Return whether its children are to be written: those of a fused node have been.
template <class T>
bool CudaWriter<T>::visit(int32_t i) {
  const CudaTree::Node& n = tree_.nodes[i];
  if (tree_.fused(n)) {
    emit_fused(i);
    return false;
  }
  take_bit(i);
  write_frame(kCudaEnter, i, n.share);
  return true;
}

template <class T>
void CudaWriter<T>::exit(int32_t i) {
  const CudaTree::Node& n = tree_.nodes[i];
  if (n.above_apart) return give_bit(i);
  if (n.right.is_leaf())
    write_frame(kCudaExitLeaf, i, leaf(n.right.leaf));
  else
    write_frame(kCudaExit, i, 0);
  give_bit(i);
  if (pairs_) emit_interactions(i);
}

// Write an operation on the frame of a node.
template <class T>
void CudaWriter<T>::write_frame(CudaKind kind, int32_t i, double constant) {
  const CudaTree::Node& n = tree_.nodes[i];
  op(cuda_code(kind, n.height, n.repeated()), n.height);
  node(i, kind == kCudaEnter);
  value(constant);
  factors(n);
  close();
}

// Write an operation of a joined place. `step.node` is the frame of the place.
template <class T>
void CudaWriter<T>::join(const Step& step) {
  switch (step.kind) {
    case Step::kJoinEnter: op(cuda_join_code(kCudaEnter), step.node); break;
    case Step::kJoinMiddle: op(cuda_join_code(kCudaMiddle), step.node); break;
    case Step::kJoinExit: op(cuda_join_code(kCudaExit), step.node); break;
    default: op(cuda_join_code(kCudaExitLeaf));
  }
  element(0);
  element(0);
  value(step.leaf ? leaf(step.leaf) : 0);
  close();
}

template <class T>
void CudaWriter<T>::emit_pairs(int32_t i) {
  const std::vector<int32_t>& others = tree_.others_above(i);
  if (others.empty()) return;
  op(kCudaPairs, static_cast<uint32_t>((others.size() + 1) / 2));
  pad(4);
  emit_steps(i, others, [&](int32_t other) { return tree_.pair_of(i, other); });
  close();
}

// Write a record for each other feature. It has the triples in which the feature is not the third feature of
// an earlier record. If the number of triples is odd, the record leaves one to the next record, so that only
// the last record may have to be padded.
template <class T>
void CudaWriter<T>::emit_triples(int32_t i) {
  constexpr size_t kMaxElements = kCudaSegment / 2;  // of an operation; a record has fewer
  const std::vector<int32_t>& others = tree_.others_above(i);
  const size_t record_size = cuda_triple_record(n_), step_size = cuda_pair_step(n_);
  std::vector<int32_t> thirds;
  bool is_open = false, is_left = false;
  for (size_t j = 0; j < others.size(); ++j) {
    thirds.assign(others.begin() + j + 1, others.end());
    if (is_left) thirds.push_back(others[j - 1]);
    is_left = thirds.size() % 2 && j + 1 < others.size();
    if (is_left) thirds.erase(thirds.begin());
    if (thirds.empty()) continue;
    const size_t n_steps = (thirds.size() + 1) / 2, size = record_size + n_steps * step_size;
    if (is_open && out_.stream.size() - op_begin_ + size > kMaxElements) {
      close();
      is_open = false;
    }
    if (!is_open) {
      op(kCudaTriples);
      pad(4);
      is_open = true;
    }
    out_.stream[op_begin_] += 1 << 8;
    element(static_cast<uint32_t>(own_[others[j]]) | static_cast<uint32_t>(n_steps) << kTripleStepShift);
    lambda(others[j], i);
    pad(4);
    emit_steps(i, thirds, [&](int32_t third) { return tree_.triple_of(i, others[j], third); });
  }
  if (is_open) close();
}

// Write the steps for interactions of a node, two at a time. `others` are the latest nodes on the other
// features of the interactions, and place_of(other) is the place of an interaction. If their number is odd,
// the last step has a sum of zeros.
template <class T>
template <class PlaceOf>
void CudaWriter<T>::emit_steps(int32_t i, const std::vector<int32_t>& others, const PlaceOf& place_of) {
  for (size_t l = 0; l < others.size(); l += 2) {
    const bool both = l + 1 < others.size();
    const int32_t first = others[l], second = both ? others[l + 1] : -1;
    slot_element(place_of(first), 0, static_cast<uint32_t>(own_[first]) << kPairBitShift);
    slot_element(both ? place_of(second) : tree_.nodes[i].feature, 0,
                 (both ? static_cast<uint32_t>(own_[second]) : kAlwaysAlive) << kPairBitShift);
    lambda(first, i);
    if (both)
      lambda(second, i);
    else
      for (int k = 0; k < n_; ++k) value(0);
    pad(4);
  }
}

// Write lambda_k of the rows that are alive beyond an edge: the edge of `above` on the way to the node.
template <class T>
void CudaWriter<T>::lambda(int32_t above, int32_t node) {
  while (tree_.nodes[node].parent != above) node = tree_.nodes[node].parent;
  for (const double t : nodes_.t) value(alive_lambda(plan_.index, tree_.nodes[node].edge_fraction, t));
}

template <class T>
void CudaWriter<T>::emit_fused(int32_t i) {
  const CudaTree::Node& n = tree_.nodes[i];
  if (n.pair) {
    op(kCudaPair + n.repeated());
    pair_elements(i);
    factors(n);
    close();
    if (pairs_) emit_interactions(i);
    return;
  }
  take_bit(i);
  const CudaTree::Node& first = tree_.nodes[n.left.first];
  const CudaTree::Node* const second = n.right.is_leaf() ? nullptr : &tree_.nodes[n.right.first];
  op(second ? kCudaQuad + 4 * n.repeated() + 2 * first.repeated() + second->repeated()
            : kCudaTrio + 2 * n.repeated() + first.repeated());
  node(i);
  value(n.share);
  pair_elements(n.left.first);
  if (second)
    pair_elements(n.right.first);
  else
    value(leaf(n.right.leaf));
  factors(n);
  factors(first);
  if (second) factors(*second);
  close();
  give_bit(i);
}

// Write slot, column and test; B of rows that are not alive; delta times the difference of the leaves, for
// rows that go right and left; and if repeated, the values of the right and the left leaf.
template <class T>
void CudaWriter<T>::pair_elements(int32_t i) {
  const CudaTree::Node& n = tree_.nodes[i];
  node(i);
  const double left = leaf(n.left.leaf), right = leaf(n.right.leaf), difference = left - right;
  value(right + n.share * difference);
  value(-n.share * difference);
  value((1 - n.share) * difference);
  if (!n.repeated()) return;
  value(right);
  value(left);
}

// If a node is repeated, write u_k = z (1 - t_k) / a_k, where a_k = z (1 - t_k) + t_k. For alive rows, g_k is
// o - delta u_k.
template <class T>
void CudaWriter<T>::factors(const CudaTree::Node& n) {
  if (!n.repeated()) return;
  for (const double t : times(n)) {
    const double off = n.zero_fraction * (1 - t);
    value(off / (off + t));
  }
}

// Write a node. `decides` says whether the walk visits the node for the first time.
template <class T>
void CudaWriter<T>::node(int32_t i, bool decides) {
  const CudaTree::Node& n = tree_.nodes[i];
  CudaColumns::Decision d{};
  uint32_t test = 0;
  if (decides) {  // otherwise only the alive bits are needed
    d = columns_.decision(n.test);
    if (d.flags & kNodeCategorical) d.operand = set_number(d.operand);
    if (d.flags & kNodeBias) test |= kTestBias;
    if (d.flags & kNodeCategorical) test |= kTestCategorical;
    if (d.flags & kNodeFlip) test |= kTestFlip;
  }
  if (n.tracked) test |= kTestTracked | static_cast<uint32_t>(own_[i]) << kTestOwnShift;
  if (n.repeated())
    test |= (n.previous < 0 ? kAlwaysAlive : static_cast<uint32_t>(own_[n.previous])) << kTestPreviousShift;
  slot_element(n.feature, 16, d.column);
  element(test | d.operand);
}

// --- The general form ---

// Write a node. Return whether its children are to be written: those of a pair have been.
template <class T>
bool CudaWriter<T>::general_visit(int32_t i) {
  const CudaTree::Node& n = tree_.nodes[i];
  general_node(i, n.pair ? kGeneralPair : kGeneralEnter);
  if (!n.pair) return true;
  general_leaf(n.right.leaf);
  general_leaf(n.left.leaf);
  if (pairs_) general_interactions(i);
  return false;
}

template <class T>
void CudaWriter<T>::general_exit(int32_t i) {
  const CudaTree::Node& n = tree_.nodes[i];
  general_node(i, n.right.is_leaf() ? kGeneralExitLeaf : kGeneralExit);
  if (n.right.is_leaf()) general_leaf(n.right.leaf);
  if (pairs_) general_interactions(i);
}

template <class T>
void CudaWriter<T>::general_node(int32_t i, CudaGeneralOp code) {
  const CudaTree::Node& n = tree_.nodes[i];
  const CudaColumns::Decision d = columns_.decision(n.test);
  const bool repeated = n.repeated();
  element(code | (repeated ? 8u : 0u) | n.level << 4);
  element(slot(n.feature));
  element(d.column);
  element(d.flags);
  element(d.operand);
  element(n.previous >= 0 ? tree_.nodes[n.previous].level : repeated ? height_ : 0);
  value(n.share);
  if (!repeated) return;
  factors(n);
  for (const double t : times(n)) value(repeated_gain(n.zero_fraction, t));
}

template <class T>
void CudaWriter<T>::general_pairs(int32_t i) {
  const std::vector<int32_t>& others = tree_.others_above(i);
  element(static_cast<uint32_t>(others.size()));
  for (const int32_t other : others) {
    element(slot(tree_.pair_of(i, other)));
    element(tree_.nodes[other].level);
    lambda(other, i);
  }
}

template <class T>
void CudaWriter<T>::general_triples(int32_t i) {
  const std::vector<int32_t>& others = tree_.others_above(i);
  element(static_cast<uint32_t>(others.size()));
  for (const int32_t other : others) {
    element(tree_.nodes[other].level);
    lambda(other, i);
  }
  for (size_t j = 1; j < others.size(); ++j)
    for (size_t l = 0; l < j; ++l) element(slot(tree_.triple_of(i, others[j], others[l])));
}

template <class T>
void CudaWriter<T>::general_leaf(const double* values) {
  for (uint32_t o = 0; o < width(); ++o) value(leaf(values + o));
}

template <class T>
uint32_t CudaWriter<T>::set_number(uint32_t first_word) {
  out_.category_sets.push_back(first_word);
  return static_cast<uint32_t>(out_.category_sets.size()) - 1 - out_.chunks.back().category_base;
}

template <class T>
void CudaWriter<T>::take_bit(int32_t i) {
  if (!tree_.nodes[i].tracked) return;
  own_[i] = __builtin_ctz(free_bits_);
  free_bits_ &= free_bits_ - 1;
}
template <class T>
void CudaWriter<T>::give_bit(int32_t i) {
  if (tree_.nodes[i].tracked) free_bits_ |= 1u << own_[i];
}

template class CudaWriter<float>;
template class CudaWriter<double>;

}  // namespace skshap
