#include "plan/walk_writer.h"

#include <stdexcept>

#include "plan/quadrature.h"

namespace skshap {

WalkWriter::WalkWriter(const CodedTrees& trees, const MeasuredTrees& measured, WalkProgram& out)
    : trees_(trees),
      measured_(measured),
      out_(out),
      single_(out.precision == Precision::kSingle),
      interactions_(out.interactions()),
      width_(trees.value_width),
      numbers_(out) {}

void WalkWriter::begin_chunk(const Chunk& chunk) {
  radau_ = chunk.radau;
  fused_vectors_ = chunk.output < 0 && chunk.n_nodes <= kMaxFixedValueNodes && !interactions_;
  numbers_.begin_chunk();
  std::vector<double> weights;
  if (chunk.n_apart) {
    // With Gauss-Radau quadrature of both variables, there would be nodes at which only one variable is 0.
    end_weight_ = 0;
    product_quadrature(chunk.n_nodes / chunk.n_apart, chunk.n_apart, t_, apart_, weights);
    if (t_.size() < static_cast<size_t>(chunk.n_nodes)) {  // see walked_nodes
      t_.push_back(t_.back());
      apart_.push_back(apart_.back());
      weights.push_back(0);
    }
  } else if (radau_)
    end_weight_ = radau_quadrature(out_.index, chunk.n_nodes, t_, weights);
  else
    quadrature(out_.index, chunk.n_nodes, t_, weights);
  for (const double t : t_) push(t);
  for (const double w : weights) push(w);
  if (!interactions_) return;
  for (const double t : t_) push(dead_lambda(out_.index, t));
}

void WalkWriter::clear() {
  out_.ops.clear();
  out_.constants_float.clear();
  out_.constants_double.clear();
}

// --- Nodes ---

void WalkWriter::pair(const Label& n, bool right, const std::vector<Label>& above) {
  if (n.silent) {
    op(kSilentPair, 0);
    expected_.push_back(expected(n, 0));
    return repeated_pair(n);
  }
  fused_op(n.repeated ? kPairRep : kPairNew, n, right);
  if (radau_) {
    radau_pair(n);
    expected_.push_back(expected(n, 0));
  } else if (fused_vectors_) {
    fused_split(n);
    for (int32_t o = 0; o < width_; ++o) {
      push(difference(n, o));
      push(leaf(n.right, o));
    }
  } else {
    pair_stream(n);
  }
  if (interactions_) list_interactions(n, above);
}

void WalkWriter::fused(const Label& n, const Label& first, const Label* second, bool right) {
  if (n.silent_below) return silent_subtree(n, first, second);
  const uint32_t repeated = 2 * n.repeated + first.repeated;
  fused_op(second ? kQuad + 2 * repeated + second->repeated : kTrio + repeated, n, right);
  out_.ops.push_back(first.slot);
  if (second) out_.ops.push_back(second->slot);
  if (fused_vectors_) {
    for (const Label* node : {&n, &first, second})
      if (node) fused_split(*node);
    for (int32_t o = 0; o < width_; ++o) {
      push(difference(first, o));
      if (second) push(difference(*second, o));
      const double right_leaf = leaf(second ? second->right : n.right, o);
      push(leaf(first.right, o) - right_leaf);
      push(right_leaf);
    }
    return;
  }
  if (second && !n.repeated && !first.repeated && !second->repeated) return new_quad(n, first, *second);
  const double right_value = second ? expected(*second, 0) : leaf(n.right, 0);
  radau_root(n, expected(first, 0), right_value);
  radau_pair(first);
  if (second)
    radau_pair(*second);
  else
    push(right_value);
}

void WalkWriter::silent_subtree(const Label& n, const Label& first, const Label* second) {
  op(second ? kSilentQuad : kSilentTrio, 0);
  const double left = expected(first, 0), right = second ? expected(*second, 0) : leaf(n.right, 0);
  push_shares(n);
  factor_stream(n);
  repeated_pair(first);
  if (second)
    repeated_pair(*second);
  else
    push(right);
  expected_.push_back(expected(n, left, right));
}

void WalkWriter::enter(const Label& n, double z) {
  if (n.silent_below) {
    op(kSilentEnter, 0);
    return push_shares(n);
  }
  op(n.repeated ? kEnterRep : kEnterNew, n.slot);
  split_stream(n);
  if (interactions_) lambda_stream(z);
}

void WalkWriter::middle(const Label& n, double z) {
  if (!interactions_) return op(kMiddle, 0);
  const uint32_t number = (n.word - kFirstWord) / 2;
  if (number >= kMaxSlots) throw std::invalid_argument("a tree has too many nodes for interactions");
  op(kMiddle, number);
  lambda_stream(z);
}

void WalkWriter::exit(const Label& n, const std::vector<Label>& above) {
  const bool right_leaf = trees_.is_leaf(n.right), repeated = n.repeated || n.silent_below;
  if (n.silent)
    op((right_leaf ? kSilentExitLeafNew : kSilentExitNew) + repeated, 0);
  else if (right_leaf)
    op(n.repeated ? kExitLeafRep : kExitLeafNew, n.slot);
  else
    op(n.repeated ? kExitRep : kExitNew, n.slot);
  if (!repeated) push(n.share);
  if (repeated && radau_) factor_stream(n);
  if (n.repeated && !n.silent) gain_stream(n);
  if (radau_) {
    double right = 0;
    if (right_leaf) {
      right = leaf(n.right, 0);
    } else {
      right = expected_.back();
      expected_.pop_back();
    }
    const double left = expected_.back();
    if (!n.silent) push_end(n, left - right);
    expected_.back() = expected(n, left, right);
  }
  if (right_leaf) push_leaf(n.right);
  if (interactions_) list_interactions(n, above);
}

void WalkWriter::join() {
  op(kJoin, 0);
  const double last = expected_.back();
  expected_.pop_back();
  expected_.back() += last;
}

void WalkWriter::add_leaf(int64_t node) {
  op(kAddLeaf, 0);
  push(leaf(node, 0));
  expected_.back() += leaf(node, 0);
}

// --- Streams; the kernels describe the numbers that each operation reads ---

void WalkWriter::push_leaf(int64_t node) {
  for (int32_t o = 0; o < width_; ++o) push(leaf(node, o));
}

// Return the left factor of an alive row that goes left or right at a node whose feature is repeated.
double WalkWriter::factor(const Label& n, double t, bool left) const {
  const double z = n.zero_fraction, a = z * (1 - t) + t;
  return (z * n.share * (1 - t) + (left ? t : 0)) / a;
}
void WalkWriter::gain_stream(const Label& n) {
  for (const double t : nodes(n)) push(repeated_gain(n.zero_fraction, t));
}
void WalkWriter::factor_stream(const Label& n) {
  if (radau_) {
    for (const double t : nodes(n)) push(-repeated_share(n.zero_fraction, t));
    return;
  }
  for (const double t : nodes(n)) push(factor(n, t, false));
  for (const double t : nodes(n)) push(factor(n, t, true));
}

void WalkWriter::push_shares(const Label& n) {
  push(n.share);
  push(-n.share);
  push(1 - n.share);
}

void WalkWriter::split_stream(const Label& n) {
  push_shares(n);
  if (n.repeated) factor_stream(n);
}

// Write the generic form of a pair, for an arbitrary K and number of outputs.
void WalkWriter::pair_stream(const Label& n) {
  if (n.repeated) {
    gain_stream(n);
    factor_stream(n);
  }
  for (int32_t o = 0; o < width_; ++o) {
    slope_stream(n, o);
    if (!n.repeated) continue;
    push(leaf(n.right, o));
    push(difference(n, o));
  }
}

// Return the expected value of a node, given the expected values of its children.
double WalkWriter::expected(const Label& n, double left, double right) const {
  return right + n.share * (left - right);
}
double WalkWriter::expected(const Label& pair, int32_t o) const {
  return expected(pair, leaf(pair.left, o), leaf(pair.right, o));
}

// Write the numbers of each node that a fused subtree with vector leaves reads for all outputs.
void WalkWriter::fused_split(const Label& n) {
  split_stream(n);
  if (n.repeated) gain_stream(n);
}

// Write the sum over k of C_k G_k D_k at t = 0, given the expected values of the children.
void WalkWriter::push_end(const Label& n, double difference) { push(end_weight_ * n.others * difference); }

void WalkWriter::radau_root(const Label& n, double left, double right) {
  split_stream(n);
  push_end(n, left - right);
  if (n.repeated) gain_stream(n);
  expected_.push_back(expected(n, left, right));
}

void WalkWriter::radau_pair(const Label& n) {
  push_end(n, 1);
  if (!n.repeated) return slope_stream(n, 0);
  repeated_pair(n);
  gain_stream(n);
}

// Write a silent pair, or what it has in common with a pair whose feature is repeated.
void WalkWriter::repeated_pair(const Label& n) {
  slope_stream(n, 0);
  push(leaf(n.right, 0));
  push(leaf(n.left, 0));
  factor_stream(n);
}

void WalkWriter::new_quad(const Label& n, const Label& first, const Label& second) {
  const double left = expected(first, 0), right = expected(second, 0);
  split_stream(n);
  push_end(n, 1);
  push(left - right);
  push(expected(n, left, right));
  for (const Label* pair : {&first, &second}) push_slopes(*pair, 0);
  expected_.push_back(expected(n, left, right));
}

// Write lambda of the rows that are alive beyond an edge.
void WalkWriter::lambda_stream(double z) {
  for (const double t : t_) push(alive_lambda(out_.index, z, t));
}

// List the pairs of a node's feature with the other features of the path above it, and the triples of this
// feature with two of the other features.
void WalkWriter::list_interactions(const Label& n, const std::vector<Label>& above) {
  const size_t count = out_.ops.size();
  out_.ops.push_back(0);
  listed_.assign(out_.chunks.back().slots.size(), 0);
  listed_[n.slot] = 1;
  others_.clear();
  for (size_t level = above.size(); level-- > 0;) {
    const uint32_t other = above[level].slot;
    if (listed_[other]) continue;
    listed_[other] = 1;
    out_.ops.push_back(numbers_.pair(n.slot, other));
    out_.ops.push_back(static_cast<uint32_t>(level));
    ++out_.ops[count];
    others_.push_back(other);
  }
  if (out_.order < 3) return;
  for (size_t i = 1; i < others_.size(); ++i)
    for (size_t j = 0; j < i; ++j) out_.ops.push_back(numbers_.triple(n.slot, others_[i], others_[j]));
}

void WalkWriter::slope_stream(const Label& n, int32_t o) {
  push(expected(n, o));
  push_slopes(n, o);
}

void WalkWriter::push_slopes(const Label& n, int32_t o) {
  push(-n.share * difference(n, o));
  push((1 - n.share) * difference(n, o));
}

}  // namespace skshap
