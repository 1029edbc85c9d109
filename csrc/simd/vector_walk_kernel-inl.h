// The walk of trees whose leaves hold all outputs: forests of classifiers, trees with several targets. What
// simd/walk_kernel-inl.h shares between leaves, the decisions, the factors and C, is shared between outputs,
// too.
//
// Included by simd/kernels-inl.h: internal linkage, for the reason given there.
#pragma once

#include "simd/walk_kernel-inl.h"

namespace skshap {
namespace {

template <class S, int K, int kRows, int kOrder>
struct VectorWalker : WalkState<S, K, kRows, kOrder> {
  using State = WalkState<S, K, kRows, kOrder>;
  using typename State::M;
  using typename State::T;
  using typename State::V;
  using typename State::Weights;
  using State::c;
  using State::frame;
  using State::frame_elements;
  using State::kPairs;
  using State::m;
  using State::n_outputs;
  using State::repeated_delta;
  using State::three_way;
  using State::value;
  using State::value_elements;
  using State::W;

  // Constants: r if new, G[K] if repeated; then, if the right child is a leaf, its value for each output.
  template <bool kRepeated, bool kRightLeaf>
  SKSHAP_INLINE void exit(uint32_t slot, const uint32_t* list) {
    frame -= frame_elements();
    const VectorWalker w = *this;
    const int n_constants = kRepeated ? w.n_nodes() : 1;
    const T* right_leaf = w.c + n_constants;
    T* right = w.value - w.value_elements() * w.n_outputs;
    T* left = kRightLeaf ? right : right - w.value_elements() * w.n_outputs;
    for (int output = 0; output < w.n_outputs; ++output) {
      for (int v = 0; v < w.n_vectors; ++v) {
        const V d = S::load(w.delta(v));
        V sum = S::zero();
        Weights q;
        q.memory = w.scratch;
        for (int k = 0; k < w.n_nodes(); ++k) {
          T* l = left + k * kRows + v * W;
          const V b = kRightLeaf ? S::set1(right_leaf[output]) : S::load(right + k * kRows + v * W);
          const V difference = S::sub(S::load(l), b);
          const V weight = kRepeated ? S::mul(w.C(k, v), w.at(k)) : w.C(k, v);
          sum = S::fma(weight, difference, sum);
          if constexpr (kPairs) q.set(k, S::mul(d, S::mul(weight, difference)));
          const V factor = kRepeated ? S::load(w.g(k, v)) : S::fma(d, w.node(k), w.at(0));
          S::store(l, S::fma(factor, difference, b));
        }
        w.add_phi(slot, v, d, sum, output);
        if constexpr (kPairs) w.add_interactions(list, v, q, output);
      }
      left += w.value_elements();
      right += w.value_elements();
    }
    value -= kRightLeaf ? 0 : value_elements() * n_outputs;
    c += n_constants + (kRightLeaf ? n_outputs : 0);
  }

  // A node with two leaves, B = v_R + g (v_L - v_R). Constants: if repeated G[K], g of alive rows
  // that go right [K], left [K]; then for each output B of rows not alive (for a new feature: B at
  // t = 0), the phi factor of rows that go right, left, and if repeated v_R, v_L - v_R.
  template <bool kRepeated>
  SKSHAP_INLINE void leaves(uint32_t slot, const uint32_t* list) {
    const VectorWalker w = *this;
    const int n = w.n_nodes(), n_shared = kRepeated ? 3 * n : 0, n_each = kRepeated ? 5 : 3;
    for (int v = 0; v < w.n_vectors; ++v) {
      const M alive = w.mask(0, v), left = w.mask(1, v);
      V sum = S::zero();
      for (int k = 0; k < n; ++k) sum = kRepeated ? S::fma(w.C(k, v), w.at(k), sum) : S::add(sum, w.C(k, v));
      T* out = w.value + v * W;
      for (int output = 0; output < w.n_outputs; ++output, out += w.value_elements()) {
        const T* p = w.c + n_shared + n_each * output;
        const V off = S::set1(p[1]), on = S::set1(p[2]);
        const V slope = kRepeated ? repeated_delta(alive, left, off, on) : S::select(left, off, on);
        w.add_phi(slot, v, slope, sum, output);
        if constexpr (kPairs) {
          Weights q;
          q.memory = w.scratch;
          for (int k = 0; k < n; ++k) {
            const V weight = S::mul(slope, w.C(k, v));
            q.set(k, kRepeated ? S::mul(weight, w.at(k)) : weight);
          }
          w.add_interactions(list, v, q, output);
        }
        for (int k = 0; k < n; ++k) {
          if constexpr (kRepeated) {
            const V b_off = S::fma(w.at(n + k), S::set1(p[4]), S::set1(p[3]));
            const V b_on = S::fma(w.at(2 * n + k), S::set1(p[4]), S::set1(p[3]));
            S::store(out + k * kRows, three_way(alive, left, S::set1(p[0]), b_off, b_on));
          } else {
            S::store(out + k * kRows, S::fma(slope, w.node(k), S::set1(p[0])));
          }
        }
      }
    }
    value += value_elements() * n_outputs;
    c += n_shared + n_each * n_outputs;
    m += 2;
  }

  void run(const uint32_t* op, const T* weights) {
    this->begin(weights);
    for (;; ++op) {
      const uint32_t slot = *op >> kSlotShift;
      switch (static_cast<uint8_t>(*op)) {
        case kEnd: return;
        case kEnterNew: this->template enter<false>(); continue;
        case kEnterRep: this->template enter<true>(); continue;
        case kMiddle: this->middle(slot); continue;
        case kExitNew: exit<false, false>(slot, op + 1); break;
        case kExitRep: exit<true, false>(slot, op + 1); break;
        case kExitLeafNew: exit<false, true>(slot, op + 1); break;
        case kExitLeafRep: exit<true, true>(slot, op + 1); break;
        case kPairNew: leaves<false>(slot, op + 1); break;
        default: leaves<true>(slot, op + 1); break;
      }
      if constexpr (kPairs) op += this->list_size(op[1]);
    }
  }
};

template <class S, int kOrder>
void vector_walk(const WalkArgs<typename S::T>& args) {
  for (int first = 0; first < args.n_rows; first += kVectorWalkRows) {
    VectorWalker<S, 0, kVectorWalkRows, kOrder> walker{
        walk_state<S, 0, kVectorWalkRows, kOrder>(args, first)};
    walker.run(args.ops, args.weights);
  }
}

template <int kOrder>
void set_vector_order(Kernels& k) {
  k.walk_vector_float[kOrder - 1] = &vector_walk<FloatVector, kOrder>;
  k.walk_vector_double[kOrder - 1] = &vector_walk<DoubleVector, kOrder>;
}

}  // namespace
}  // namespace skshap
