// The walk of trees whose leaves hold all outputs, as in forests of classifiers and trees with several
// targets. The decisions, the factors and C are shared between outputs.
//
// simd/vector_walks.cpp.in includes this file. Everything has internal linkage, for the reason given in
// simd/kernels-inl.h.
#pragma once

#include <utility>

#include "simd/walk_kernel-inl.h"

namespace skshap {
namespace {

// The walk of SHAP values with a K that is known at compile time. Below a node, B is linear in the values of
// the leaves, and so is the contribution of each split to phi. The coefficients are computed once, in
// registers, and each output multiplies them by its leaf values. Subtrees of two, three and four leaves need
// no other coefficients.
template <class S, int K, int kRows>
struct FixedVectorWalker : WalkState<S, K, kRows, 1> {
  using State = WalkState<S, K, kRows, 1>;
  using State::c;
  using State::C;
  using State::frame;
  using State::frame_elements;
  using State::m;
  using State::n_outputs;
  using State::n_vectors;
  using State::node;
  using State::value;
  using State::value_elements;
  using State::W;
  using typename State::M;
  using typename State::T;
  using typename State::V;

  // A split of a fused subtree: delta, and for each quadrature node the left factor and G, by which C is
  // multiplied in the derivative.
  struct FusedSplit {
    V delta, factor[K], gain[K];
  };
  // Constants: r, -r, 1 - r; if repeated, also g off [K], g on [K], G[K].
  static constexpr int split_constants(bool repeated) { return repeated ? 3 + 3 * K : 3; }

  // Return the split with number `index` of the subtree.
  SKSHAP_INLINE FusedSplit split(bool repeated, int v, int index, const T* p) const {
    FusedSplit s;
    const M alive_left = this->mask(2 * index + 1, v);
    const V r = S::set1(p[0]);
    if (repeated) {
      const M alive = this->mask(2 * index, v);
      s.delta = State::repeated_delta(alive, alive_left, S::set1(p[1]), S::set1(p[2]));
      for (int k = 0; k < K; ++k) {
        s.factor[k] = State::three_way(alive, alive_left, r, S::set1(p[3 + k]), S::set1(p[3 + K + k]));
        s.gain[k] = S::set1(p[3 + 2 * K + k]);
      }
    } else {
      s.delta = S::select(alive_left, S::set1(p[1]), S::set1(p[2]));
      for (int k = 0; k < K; ++k) {
        s.factor[k] = S::fma(s.delta, node(k), r);
        s.gain[k] = S::set1(1);
      }
    }
    return s;
  }

  SKSHAP_INLINE T* phi_of(uint32_t slot, int v) const {
    return this->phi + static_cast<size_t>(slot) * kBlockRows + v * W;
  }
  static SKSHAP_INLINE void add_to(T* phi, V x, V y) { S::store(phi, S::fma(x, y, S::load(phi))); }

  // Return delta sum_k C_k G_k, given C.
  static SKSHAP_INLINE V derivative(const FusedSplit& s, const V (&x)[K]) {
    V sum = S::mul(x[0], s.gain[0]);
    for (int k = 1; k < K; ++k) sum = S::fma(x[k], s.gain[k], sum);
    return S::mul(s.delta, sum);
  }

  // Constants: r if new, or G[K] if repeated; then, if the right child is a leaf, the leaf's value for each
  // output.
  template <bool kRepeated, bool kRightLeaf>
  SKSHAP_INLINE void exit(uint32_t slot) {
    frame -= frame_elements();
    const FixedVectorWalker w = *this;
    constexpr int kConstants = kRepeated ? K : 1;
    const T* right_leaf = w.c + kConstants;
    const size_t size = w.value_elements() * w.n_outputs;
    T *const rights = w.value - size, *const lefts = kRightLeaf ? rights : rights - size;
    for (int v = 0; v < w.n_vectors; ++v) {
      const V d = S::load(w.delta(v));
      V weight[K], factor[K];
      for (int k = 0; k < K; ++k) {
        weight[k] = S::mul(d, kRepeated ? S::mul(w.C(k, v), w.at(k)) : w.C(k, v));
        factor[k] = kRepeated ? S::load(w.g(k, v)) : S::fma(d, w.node(k), w.at(0));
      }
      T *left = lefts + v * W, *right = rights + v * W, *phi = w.phi_of(slot, v);
      for (int output = 0; output < w.n_outputs; ++output) {
        V sum = S::load(phi);
        for (int k = 0; k < K; ++k) {
          const V b = kRightLeaf ? S::set1(right_leaf[output]) : S::load(right + k * kRows);
          const V difference = S::sub(S::load(left + k * kRows), b);
          sum = S::fma(weight[k], difference, sum);
          S::store(left + k * kRows, S::fma(factor[k], difference, b));
        }
        S::store(phi, sum);
        left += w.value_elements();
        right += w.value_elements();
        phi += w.output_stride;
      }
    }
    value -= kRightLeaf ? 0 : size;
    c += kConstants + (kRightLeaf ? n_outputs : 0);
  }

  // Walk a node with two leaves. Constants: the constants of the split; then for each output v_L - v_R, v_R.
  SKSHAP_INLINE void pair(bool repeated, uint32_t slot) {
    const FixedVectorWalker w = *this;
    const T* leaves = w.c + split_constants(repeated);
    for (int v = 0; v < w.n_vectors; ++v) {
      const FusedSplit s = w.split(repeated, v, 0, w.c);
      V x[K];
      for (int k = 0; k < K; ++k) x[k] = w.C(k, v);
      const V weight = derivative(s, x);
      T *out = w.value + v * W, *phi = w.phi_of(slot, v);
      const T* p = leaves;
      for (int output = 0; output < w.n_outputs; ++output, p += 2) {
        const V difference = S::set1(p[0]), right = S::set1(p[1]);
        add_to(phi, difference, weight);
        for (int k = 0; k < K; ++k) S::store(out + k * kRows, S::fma(s.factor[k], difference, right));
        out += w.value_elements();
        phi += w.output_stride;
      }
    }
    value += value_elements() * n_outputs;
    c = leaves + 2 * n_outputs;
    m += 2;
  }

  // Walk a node with a pair on the left, and a leaf or, with kFour, another pair on the right. Constants: the
  // constants of the splits; then for each output the differences of the leaves of the pairs, the first
  // pair's right leaf less the right leaf, or the second pair's right leaf, and this right leaf.
  template <bool kFour>
  SKSHAP_INLINE void subtree(int flags, uint32_t slot, uint32_t slot1, uint32_t slot2) {
    const FixedVectorWalker w = *this;
    const bool repeated = flags & (kFour ? 4 : 2), repeated1 = flags & (kFour ? 2 : 1), repeated2 = flags & 1;
    const T *const constants1 = w.c + split_constants(repeated),
                   *const constants2 = constants1 + split_constants(repeated1),
                   *const leaves = constants2 + (kFour ? split_constants(repeated2) : 0);
    for (int v = 0; v < w.n_vectors; ++v) {
      const FusedSplit s = w.split(repeated, v, 0, w.c), s1 = w.split(repeated1, v, 1, constants1);
      FusedSplit s2;
      if constexpr (kFour) s2 = w.split(repeated2, v, 2, constants2);
      V weight = S::zero(), weight1 = S::zero(), weight2 = S::zero(), inner1 = S::zero(), inner2 = S::zero();
      V factor1[K], factor2[K];
      for (int k = 0; k < K; ++k) {
        const V x = w.C(k, v), left = S::mul(x, s.factor[k]), gained = S::mul(x, s.gain[k]);
        weight = S::add(weight, gained);
        inner1 = S::fma(gained, s1.factor[k], inner1);
        weight1 = S::fma(left, s1.gain[k], weight1);
        factor1[k] = S::mul(s.factor[k], s1.factor[k]);
        if constexpr (kFour) {
          inner2 = S::fma(gained, s2.factor[k], inner2);
          weight2 = S::fma(S::sub(x, left), s2.gain[k], weight2);
          factor2[k] = S::mul(S::sub(S::set1(1), s.factor[k]), s2.factor[k]);
        }
      }
      weight = S::mul(weight, s.delta);
      inner1 = S::mul(inner1, s.delta);
      weight1 = S::mul(weight1, s1.delta);
      if constexpr (kFour) {
        inner2 = S::mul(inner2, S::sub(S::zero(), s.delta));
        weight2 = S::mul(weight2, s2.delta);
      }
      T *out = w.value + v * W, *phi = w.phi_of(slot, v), *phi1 = w.phi_of(slot1, v),
        *phi2 = w.phi_of(slot2, v);
      const T* p = leaves;
      for (int output = 0; output < w.n_outputs; ++output) {
        const V difference1 = S::set1(*p++), difference2 = kFour ? S::set1(*p++) : S::zero(),
                difference = S::set1(*p++), right = S::set1(*p++);
        add_to(phi1, difference1, weight1);
        if constexpr (kFour) add_to(phi2, difference2, weight2);
        V sum = S::load(phi);  // now, because the slots may be the same
        if constexpr (kFour) sum = S::fma(difference2, inner2, sum);
        S::store(phi, S::fma(difference, weight, S::fma(difference1, inner1, sum)));
        for (int k = 0; k < K; ++k) {
          V b = S::fma(s.factor[k], difference, right);
          if constexpr (kFour) b = S::fma(factor2[k], difference2, b);
          S::store(out + k * kRows, S::fma(factor1[k], difference1, b));
        }
        out += w.value_elements();
        phi += w.output_stride;
        phi1 += w.output_stride;
        if constexpr (kFour) phi2 += w.output_stride;
      }
    }
    value += value_elements() * n_outputs;
    c = leaves + (kFour ? 4 : 3) * n_outputs;
    m += kFour ? 6 : 4;
  }

  void run(const uint32_t* op, const T* weights) {
    this->begin(weights);
    for (;; ++op) {
      const uint32_t slot = *op >> kSlotShift;
      const uint8_t code = static_cast<uint8_t>(*op);
      switch (code) {
        case kEnd: return;
        case kEnterNew: this->template enter<false>(); break;
        case kEnterRep: this->template enter<true>(); break;
        case kMiddle: this->middle(slot); break;
        case kExitNew: exit<false, false>(slot); break;
        case kExitRep: exit<true, false>(slot); break;
        case kExitLeafNew: exit<false, true>(slot); break;
        case kExitLeafRep: exit<true, true>(slot); break;
        case kPairNew:
        case kPairRep: pair(code == kPairRep, slot); break;
        default:
          if (code < kQuad) {
            subtree<false>(code - kTrio, slot, op[1], 0);
            op += 1;
          } else {
            subtree<true>(code - kQuad, slot, op[1], op[2]);
            op += 2;
          }
      }
    }
  }
};

template <class S, int K>
void vector_walk(const WalkArgs<typename S::T>& args) {
  constexpr int kRows = vector_walk_rows<typename S::T>(false);
  for (int first = 0; first < args.n_rows; first += kRows) {
    FixedVectorWalker<S, K, kRows> walker{walk_state<S, K, kRows, 1>(args, first)};
    walker.run(args.ops, args.weights);
  }
}

template <class S, int kOrder>
typename KernelsOf<typename S::T>::Walk any_vector_walk() {
  return &walk<S, 0, vector_walk_rows<typename S::T>(kOrder >= 2), kOrder, true>;
}

template <class S, int... K>
void set_vector_walks(KernelsOf<typename S::T>& k, std::integer_sequence<int, K...>) {
  ((k.vector_walks[0][walked_nodes(K + 1, false)] = &vector_walk<S, walked_nodes(K + 1, false)>), ...);
  k.vector_walks[0][0] = any_vector_walk<S, 1>();
  k.vector_walks[1][0] = any_vector_walk<S, 2>();
  k.vector_walks[2][0] = any_vector_walk<S, 3>();
}

void set_vector_walks(Kernels& k) {
  constexpr std::make_integer_sequence<int, kMaxFixedValueNodes> fixed{};
  set_vector_walks<FloatVector>(std::get<0>(k.by_precision), fixed);
  set_vector_walks<DoubleVector>(std::get<1>(k.by_precision), fixed);
}

}  // namespace
}  // namespace skshap
