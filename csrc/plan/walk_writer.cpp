#include "plan/walk_writer.h"

#include <stdexcept>

#include "plan/quadrature.h"

namespace skshap {

WalkWriter::WalkWriter(const EnsembleView& ensemble, const MeasuredTrees& measured, Plan& plan)
    : e_(ensemble),
      measured_(measured),
      plan_(plan),
      single_(plan.precision == Precision::kSingle),
      interactions_(plan.interactions()),
      width_(ensemble.value_width),
      numbers_(plan) {}

void WalkWriter::begin_chunk(int n_nodes) {
  vector_ = plan_.chunks.back().output < 0;
  numbers_.begin_chunk();
  std::vector<double> weights;
  quadrature(plan_.index, n_nodes, t_, weights);
  for (const double t : t_) push(t);
  for (const double w : weights) push(w);
  if (!interactions_) return;
  for (const double t : t_) push(dead_lambda(plan_.index, t));
}

void WalkWriter::clear() {
  plan_.ops.clear();
  plan_.constants_float.clear();
  plan_.constants_double.clear();
}

// --- Nodes ---

void WalkWriter::pair(const Label& n, bool fused, const std::vector<Label>& above) {
  op(n.repeated ? kPairRep : kPairNew, n.slot);
  if (fused)
    fused_pair(n);
  else
    pair_stream(n);
  if (interactions_) list_interactions(n, above);
}

void WalkWriter::trio(const Label& n, const Label& first) {
  op(static_cast<Op>(kTrio + 2 * n.repeated + first.repeated), n.slot);
  plan_.ops.push_back(first.slot);
  split_stream(n, true);
  if (vector_) {
    split_stream(first, true);
    for (int32_t o = 0; o < width_; ++o) {
      push(difference(first, o));
      push(leaf(first.right, o) - leaf(n.right, o));
      push(leaf(n.right, o));
    }
    return;
  }
  fused_pair(first);
  push(leaf(n.right, 0));
}

void WalkWriter::quad(const Label& n, const Label& first, const Label& second) {
  op(static_cast<Op>(kQuad + 4 * n.repeated + 2 * first.repeated + second.repeated), n.slot);
  plan_.ops.push_back(first.slot);
  plan_.ops.push_back(second.slot);
  split_stream(n, true);
  if (vector_) {
    split_stream(first, true);
    split_stream(second, true);
    for (int32_t o = 0; o < width_; ++o) {
      push(difference(first, o));
      push(difference(second, o));
      push(leaf(first.right, o) - leaf(second.right, o));
      push(leaf(second.right, o));
    }
    return;
  }
  fused_pair(first);
  fused_pair(second);
}

void WalkWriter::enter(const Label& n, double z) {
  op(n.repeated ? kEnterRep : kEnterNew, n.slot);
  split_stream(n, false);
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
  const bool right_leaf = e_.is_leaf(n.right);
  if (right_leaf)
    op(n.repeated ? kExitLeafRep : kExitLeafNew, n.slot);
  else
    op(n.repeated ? kExitRep : kExitNew, n.slot);
  if (n.repeated)
    derivative_stream(n);
  else
    push(n.share);
  if (right_leaf) push_leaf(n.right);
  if (interactions_) list_interactions(n, above);
}

// --- Streams; simd/walk_kernel-inl.h says what each operation reads ---

void WalkWriter::push_leaf(int64_t node) {
  for (int32_t o = 0; o < width_; ++o) push(leaf(node, o));
}

// Return the left factor of an alive row that goes left or right at a repeated node.
double WalkWriter::factor(const Label& n, double t, bool left) const {
  const double z = n.zero_fraction, a = z * (1 - t) + t;
  return (z * n.share * (1 - t) + (left ? t : 0)) / a;
}
void WalkWriter::derivative_stream(const Label& n) {
  for (const double t : t_) push(repeated_gain(n.zero_fraction, t));
}
void WalkWriter::factor_stream(const Label& n) {
  for (const double t : t_) push(factor(n, t, false));
  for (const double t : t_) push(factor(n, t, true));
}

void WalkWriter::split_stream(const Label& n, bool fused) {
  push(n.share);
  push(-n.share);
  push(1 - n.share);
  if (!n.repeated) return;
  factor_stream(n);
  if (fused) derivative_stream(n);
}

// Write the generic form of a pair, for any K and number of outputs.
void WalkWriter::pair_stream(const Label& n) {
  if (n.repeated) {
    derivative_stream(n);
    factor_stream(n);
  }
  for (int32_t o = 0; o < width_; ++o) {
    slope_stream(n, o);
    if (!n.repeated) continue;
    push(leaf(n.right, o));
    push(difference(n, o));
  }
}

// Write the form that is kept in registers: of scalar leaves, with B itself instead of the factors.
void WalkWriter::fused_pair(const Label& n) {
  if (vector_) {
    split_stream(n, true);
    for (int32_t o = 0; o < width_; ++o) {
      push(difference(n, o));
      push(leaf(n.right, o));
    }
    return;
  }
  slope_stream(n, 0);
  if (!n.repeated) return;
  derivative_stream(n);
  for (const double t : t_) push(leaf(n.right, 0) + factor(n, t, false) * difference(n, 0));
  for (const double t : t_) push(leaf(n.right, 0) + factor(n, t, true) * difference(n, 0));
}

// Write lambda of the rows that are alive beyond an edge.
void WalkWriter::lambda_stream(double z) {
  for (const double t : t_) push(alive_lambda(plan_.index, z, t));
}

// List the pairs of a node's feature with the other features of the path above it, and the triples with two
// of them.
void WalkWriter::list_interactions(const Label& n, const std::vector<Label>& above) {
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

void WalkWriter::slope_stream(const Label& n, int32_t o) {
  const double r = n.share;
  push(leaf(n.right, o) + r * difference(n, o));
  push(-r * difference(n, o));
  push((1 - r) * difference(n, o));
}

}  // namespace skshap
