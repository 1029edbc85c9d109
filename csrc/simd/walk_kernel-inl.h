// Path-dependent SHAP values by adjoint quadrature, rows in the lanes of a vector.
//
// A leaf with value v and distinct path features P contributes to feature i
//   phi_i = v (o_i - z_i) * integral over t in [0, 1] of the product over j in P, j != i of
//           a_j(t) = z_j (1 - t) + o_j t,
// where z_j (zero fraction) is the product of the cover fractions of the path's splits on j, and o_j (one
// fraction) is 1 if the row satisfies them all, else 0. The integrand has degree |P| - 1, so Gauss-Legendre
// with K = ceil(|P| / 2) nodes t_k is exact. Summed over leaves, the integrand is the multilinear extension
// of the tree; it is evaluated bottom-up and differentiated top-down in one walk:
//
//   visit(node, C):            C_k = w_k * product of the factors above; at the root C_k = w_k
//     g_k = left factor given the path; the right factor is 1 - g_k, as cover fractions add up to 1
//     B^L = visit(left, C g)
//     B^R = visit(right, C - C g)
//     D = B^L - B^R
//     phi[feature] += delta * sum_k C_k G_k D_k
//     return B^R + g D
//
// with r the left cover fraction, o = 1 if the row goes left, delta = o - r, and
//   feature new on the path:  g_k = r + delta t_k, G_k = 1;
//   repeated, row alive:      g_k = (z r (1 - t_k) + o t_k) / a_k, G_k = z / a_k^2,
//                             a_k = z (1 - t_k) + t_k, z the zero fraction so far;
//   repeated, row not alive:  g_k = r, G_k = 0.
// A row is alive if it satisfied every split on the feature so far. Nothing is ever divided by a zero
// fraction, and every factor lies in [0, 1]. See docs/mathematics.md.
//
// From order 2, the walk also adds up the interactions of each node's feature i with every other feature j of
// the path above, whose factor is a_j and whose derivative is 1 - z_j or -z_j:
//   phi[i, j] += sum_k Q_k lambda_jk, Q_k = delta C_k G_k D_k,
//   lambda_jk = (1 - z_j) / (z_j (1 - t_k) + t_k) for rows that are alive, else -1 / (1 - t_k).
// This is twice the SHAP interaction value of i and j; for other indices lambda has a weight, pair_weight().
// Every unordered pair of features is met once for each pair of nodes on a path. In order 3, the walk also
// adds up sum_k Q_k lambda_jk lambda_lk for every two other features j and l.
//
// Included by simd/kernels-inl.h: internal linkage, for the reason given there.
#pragma once

#include <utility>

#include "simd/kernels.h"

namespace skshap {
namespace {

#define SKSHAP_INLINE inline __attribute__((always_inline))

// The state of a walk, and the operations that do not depend on the leaves.
template <class S, int K, int kRows, int kOrder>
struct WalkState {
  using T = typename S::T;
  using V = typename S::V;
  using M = typename S::M;
  static constexpr int W = S::kWidth;
  static constexpr int kFixed = K > 0 ? K : 1;
  static constexpr bool kPairs = kOrder >= 2, kTriples = kOrder >= 3;

  T* frame;           // C of the current subtree, then g and delta of its root
  T* value;           // top of the stack of results
  const T* c;         // constants of the current op
  const uint64_t* m;  // decisions of the next node
  const T* t;
  T* phi;
  size_t output_stride;
  int any_nodes, n_outputs, first, n_vectors;
  // For orders 2 and 3:
  const uint64_t* words;  // decisions of the first node
  const T *dead, *lambdas;
  T *pair_phi, *triple_phi, *scratch;
  size_t pair_stride, triple_stride;

  SKSHAP_INLINE int n_nodes() const { return K > 0 ? K : any_nodes; }
  SKSHAP_INLINE size_t frame_elements() const { return frame_size(n_nodes(), kPairs) * kRows; }
  SKSHAP_INLINE size_t value_elements() const { return static_cast<size_t>(n_nodes()) * kRows; }
  SKSHAP_INLINE V at(int i) const { return S::set1(c[i]); }
  SKSHAP_INLINE V node(int k) const { return S::set1(t[k]); }
  SKSHAP_INLINE V C(int k, int v) const { return S::load(frame + k * kRows + v * W); }
  SKSHAP_INLINE T* g(int k, int v) const { return frame + (n_nodes() + k) * kRows + v * W; }
  SKSHAP_INLINE T* delta(int v) const { return frame + 2 * n_nodes() * kRows + v * W; }
  SKSHAP_INLINE T* lambda(int k, int v) const { return frame + (2 * n_nodes() + 1 + k) * kRows + v * W; }
  SKSHAP_INLINE M mask(int word, int v) const { return S::mask(m + word, first + v); }

  SKSHAP_INLINE void add_phi(uint32_t slot, int v, V x, V y, int output = 0) const {
    T* p = phi + output * output_stride + static_cast<size_t>(slot) * kBlockRows + v * W;
    S::store(p, S::fma(x, y, S::load(p)));
  }

  // The K values of a node, in registers if K is fixed.
  struct Weights {
    V x[kFixed];
    T* memory;
    SKSHAP_INLINE void set(int k, V value) {
      if constexpr (K > 0)
        x[k] = value;
      else
        S::store(memory + k * W, value);
    }
    SKSHAP_INLINE V get(int k) const {
      if constexpr (K > 0)
        return x[k];
      else
        return S::load(memory + k * W);
    }
  };

  SKSHAP_INLINE const T* lambdas_of(uint32_t level, int v) const {
    return lambdas + level * frame_elements() + v * W;
  }
  SKSHAP_INLINE void add_product(T* out, uint32_t slot, const Weights& q, const T* l) const {
    V sum = S::mul(q.get(0), S::load(l));
    for (int k = 1; k < n_nodes(); ++k) sum = S::fma(q.get(k), S::load(l + k * kRows), sum);
    T* const phi = out + static_cast<size_t>(slot) * kBlockRows;
    S::store(phi, S::add(S::load(phi), sum));
  }

  SKSHAP_INLINE void add_interactions(const uint32_t* list, int v, const Weights& q, int output = 0) const {
    T* const out = pair_phi + output * pair_stride + v * W;
    for (const uint32_t *p = list + 1, *end = p + 2 * *list; p != end; p += 2)
      add_product(out, p[0], q, lambdas_of(p[1], v));
    if constexpr (kTriples) add_triples(list, v, q, output);
  }

  SKSHAP_INLINE void add_triples(const uint32_t* list, int v, const Weights& q, int output) const {
    T* const out = triple_phi + output * triple_stride + v * W;
    const uint32_t *const first = list + 1, *const end = first + 2 * *list, *slot = end;
    for (const uint32_t* p = first + 2; p < end; p += 2) {
      const T* l = lambdas_of(p[1], v);
      Weights product;
      product.memory = scratch + n_nodes() * W;
      for (int k = 0; k < n_nodes(); ++k) product.set(k, S::mul(q.get(k), S::load(l + k * kRows)));
      for (const uint32_t* other = first; other != p; other += 2)
        add_product(out, *slot++, product, lambdas_of(other[1], v));
    }
  }

  // Return the words of a list of n pairs.
  static SKSHAP_INLINE size_t list_size(size_t n) { return 1 + 2 * n + (kTriples ? n * (n - 1) / 2 : 0); }

  // Return delta of a repeated node: 0 for rows that are not alive.
  static SKSHAP_INLINE V repeated_delta(M alive, M alive_left, V off, V on) {
    return S::select(alive_left, S::select_or_zero(alive, off), on);
  }
  static SKSHAP_INLINE V three_way(M alive, M alive_left, V dead, V off, V on) {
    return S::select(alive_left, S::select(alive, dead, off), on);
  }

  SKSHAP_INLINE void begin(const T* weights) const {
    for (int k = 0; k < n_nodes(); ++k)
      for (int v = 0; v < n_vectors; ++v) S::store(frame + k * kRows + v * W, S::set1(weights[k]));
  }

  // Every op begins with a copy of the walker: the copy's address is never taken, so the compiler keeps its
  // members in registers although vector stores may alias anything in memory.

  // Constants: r, -r, 1 - r; if repeated also g of alive rows that go right [K], left [K]; from order 2
  // lambda of alive rows that go left [K].
  template <bool kRepeated>
  SKSHAP_INLINE void enter() {
    const WalkState w = *this;
    T* next = w.frame + w.frame_elements();
    for (int v = 0; v < w.n_vectors; ++v) {
      if constexpr (kRepeated) {
        const M alive = w.mask(0, v), alive_left = w.mask(1, v);
        S::store(w.delta(v), repeated_delta(alive, alive_left, w.at(1), w.at(2)));
        for (int k = 0; k < w.n_nodes(); ++k) {
          const V factor = three_way(alive, alive_left, w.at(0), w.at(3 + k), w.at(3 + w.n_nodes() + k));
          S::store(w.g(k, v), factor);
          S::store(next + k * kRows + v * W, S::mul(w.C(k, v), factor));
        }
      } else {
        const V d = S::select(w.mask(1, v), w.at(1), w.at(2));
        S::store(w.delta(v), d);
        for (int k = 0; k < w.n_nodes(); ++k)
          S::store(next + k * kRows + v * W, S::mul(w.C(k, v), S::fma(d, w.node(k), w.at(0))));
      }
      if constexpr (kPairs) {
        const M alive_left = w.mask(1, v);
        const T* on = w.c + (kRepeated ? 3 + 2 * w.n_nodes() : 3);
        for (int k = 0; k < w.n_nodes(); ++k)
          S::store(w.lambda(k, v), S::select(alive_left, S::set1(w.dead[k]), S::set1(on[k])));
      }
    }
    frame = next;
    c += (kRepeated ? 3 + 2 * n_nodes() : 3) + (kPairs ? n_nodes() : 0);
    m += 2;
  }

  // Go from the left to the right child, whose C is the part that the left one did not take. Constants from
  // order 2: lambda of alive rows that go right [K].
  SKSHAP_INLINE void middle(uint32_t number) {
    const WalkState w = *this;
    T* parent = w.frame - w.frame_elements();
    for (int v = 0; v < w.n_vectors; ++v)
      for (int k = 0; k < w.n_nodes(); ++k) {
        const size_t i = k * kRows + v * W;
        S::store(w.frame + i, S::sub(S::load(parent + i), S::load(w.frame + i)));
      }
    if constexpr (kPairs) {
      WalkState above = w;
      above.frame = parent;
      above.m = w.words + 2 * static_cast<size_t>(number);
      for (int v = 0; v < w.n_vectors; ++v) {
        const M alive = above.mask(0, v), alive_left = above.mask(1, v);
        for (int k = 0; k < w.n_nodes(); ++k) {
          const V gone = S::set1(w.dead[k]);
          S::store(above.lambda(k, v), three_way(alive, alive_left, gone, w.at(k), gone));
        }
      }
      c += n_nodes();
    }
  }
};

// The walk of trees whose leaves hold one number.
template <class S, int K, int kRows, int kOrder>
struct Walker : WalkState<S, K, kRows, kOrder> {
  using State = WalkState<S, K, kRows, kOrder>;
  using State::add_phi;
  using State::at;
  using State::c;
  using State::C;
  using State::frame;
  using State::frame_elements;
  using State::kFixed;
  using State::kPairs;
  using State::m;
  using State::mask;
  using State::n_nodes;
  using State::n_vectors;
  using State::node;
  using State::repeated_delta;
  using State::three_way;
  using State::value;
  using State::value_elements;
  using State::W;
  using typename State::M;
  using typename State::T;
  using typename State::V;
  using typename State::Weights;

  // Constants: r if new, G[K] if repeated; then, if the right child is a leaf, its value.
  template <bool kRepeated, bool kRightLeaf>
  SKSHAP_INLINE void exit(uint32_t slot, const uint32_t* list) {
    frame -= frame_elements();
    const Walker w = *this;
    const int n_constants = kRepeated ? w.n_nodes() : 1;
    const T* right = w.value - w.value_elements();
    T* left = w.value - (kRightLeaf ? 1 : 2) * w.value_elements();
    for (int v = 0; v < w.n_vectors; ++v) {
      const V d = S::load(w.delta(v));
      V sum = S::zero();
      Weights q;
      q.memory = w.scratch;
      for (int k = 0; k < w.n_nodes(); ++k) {
        T* l = left + k * kRows + v * W;
        const V b = kRightLeaf ? w.at(n_constants) : S::load(right + k * kRows + v * W);
        const V difference = S::sub(S::load(l), b);
        const V weight = kRepeated ? S::mul(w.C(k, v), w.at(k)) : w.C(k, v);
        sum = S::fma(weight, difference, sum);
        if constexpr (kPairs) q.set(k, S::mul(d, S::mul(weight, difference)));
        const V factor = kRepeated ? S::load(w.g(k, v)) : S::fma(d, w.node(k), w.at(0));
        S::store(l, S::fma(factor, difference, b));
      }
      w.add_phi(slot, v, d, sum);
      if constexpr (kPairs) w.add_interactions(list, v, q);
    }
    value -= kRightLeaf ? 0 : value_elements();
    c += n_constants + kRightLeaf;
  }

  // A node with two leaves that is not fused, B = v_R + g (v_L - v_R). Constants: if repeated G[K], g of
  // alive rows that go right [K], left [K]; then B of rows not alive (for a new feature: B at t = 0), the phi
  // factor of rows that go right, left, and if repeated v_R, v_L - v_R.
  template <bool kRepeated>
  SKSHAP_INLINE void leaves(uint32_t slot, const uint32_t* list) {
    const Walker w = *this;
    const int n = w.n_nodes(), n_shared = kRepeated ? 3 * n : 0;
    const T* p = w.c + n_shared;
    for (int v = 0; v < w.n_vectors; ++v) {
      const M alive = w.mask(0, v), left = w.mask(1, v);
      V sum = S::zero();
      for (int k = 0; k < n; ++k) sum = kRepeated ? S::fma(w.C(k, v), w.at(k), sum) : S::add(sum, w.C(k, v));
      T* out = w.value + v * W;
      const V off = S::set1(p[1]), on = S::set1(p[2]);
      const V slope = kRepeated ? repeated_delta(alive, left, off, on) : S::select(left, off, on);
      w.add_phi(slot, v, slope, sum);
      if constexpr (kPairs) {
        Weights q;
        q.memory = w.scratch;
        for (int k = 0; k < n; ++k) {
          const V weight = S::mul(slope, w.C(k, v));
          q.set(k, kRepeated ? S::mul(weight, w.at(k)) : weight);
        }
        w.add_interactions(list, v, q);
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
    value += value_elements();
    c += n_shared + (kRepeated ? 5 : 3);
    m += 2;
  }

  // --- Fused subtrees of two, three and four leaves, in registers (scalar leaves, fixed K) ---

  // Split at the fused root. Constants: r, -r, 1 - r; if repeated also g off [K], g on [K], G[K].
  static constexpr int split_constants(bool repeated) { return repeated ? 3 + 3 * K : 3; }
  template <bool kRepeated>
  SKSHAP_INLINE V split(int v, V (&factor)[kFixed]) const {
    if constexpr (kRepeated) {
      const M alive = mask(0, v), alive_left = mask(1, v);
      for (int k = 0; k < K; ++k) factor[k] = three_way(alive, alive_left, at(0), at(3 + k), at(3 + K + k));
      return repeated_delta(alive, alive_left, at(1), at(2));
    } else {
      const V d = S::select(mask(1, v), at(1), at(2));
      for (int k = 0; k < K; ++k) factor[k] = S::fma(d, node(k), at(0));
      return d;
    }
  }

  // A pair in registers, the node with number `index` of the subtree: takes C in x, leaves B there.
  // Constants: B at t = 0 if new, B of rows not alive if repeated; phi factor off, on; if repeated also G[K],
  // B off [K], B on [K].
  static constexpr int pair_constants(bool repeated) { return repeated ? 3 + 3 * K : 3; }
  template <bool kRepeated>
  SKSHAP_INLINE void pair(int v, int index, uint32_t slot, const T* p, V (&x)[kFixed]) const {
    const V off = S::set1(p[1]), on = S::set1(p[2]);
    if constexpr (kRepeated) {
      const M alive = mask(2 * index, v), alive_left = mask(2 * index + 1, v);
      V sum = S::mul(x[0], S::set1(p[3]));
      for (int k = 1; k < K; ++k) sum = S::fma(x[k], S::set1(p[3 + k]), sum);
      add_phi(slot, v, repeated_delta(alive, alive_left, off, on), sum);
      for (int k = 0; k < K; ++k)
        x[k] = three_way(alive, alive_left, S::set1(p[0]), S::set1(p[3 + K + k]), S::set1(p[3 + 2 * K + k]));
    } else {
      const V slope = S::select(mask(2 * index + 1, v), off, on);
      V sum = x[0];
      for (int k = 1; k < K; ++k) sum = S::add(sum, x[k]);
      add_phi(slot, v, slope, sum);
      for (int k = 0; k < K; ++k) x[k] = S::fma(slope, node(k), S::set1(p[0]));
    }
  }

  template <bool kRepeated>
  SKSHAP_INLINE void fused_pair(uint32_t slot) {
    const Walker w = *this;
    for (int v = 0; v < w.n_vectors; ++v) {
      V x[kFixed];
      for (int k = 0; k < K; ++k) x[k] = w.C(k, v);
      w.template pair<kRepeated>(v, 0, slot, w.c, x);
      for (int k = 0; k < K; ++k) S::store(w.value + k * kRows + v * W, x[k]);
    }
    value += value_elements();
    c += pair_constants(kRepeated);
    m += 2;
  }

  // Finish the root of a fused subtree, once both sides are known: add to phi, store B.
  template <bool kRepeated>
  SKSHAP_INLINE void join(uint32_t slot, int v, V d, const V (&factor)[kFixed], const V (&left)[kFixed],
                          const V (&right)[kFixed]) const {
    V sum = S::zero();
    for (int k = 0; k < K; ++k) {
      const V difference = S::sub(left[k], right[k]);
      const V weight = kRepeated ? S::mul(C(k, v), at(3 + 2 * K + k)) : C(k, v);
      sum = S::fma(weight, difference, sum);
      S::store(value + k * kRows + v * W, S::fma(factor[k], difference, right[k]));
    }
    add_phi(slot, v, d, sum);
  }

  // Walk a node with a pair on the left and a leaf on the right.
  template <bool kRoot, bool kPair>
  SKSHAP_INLINE void trio(uint32_t slot, uint32_t pair_slot) {
    const Walker w = *this;
    const T *p = w.c + split_constants(kRoot), *leaf = p + pair_constants(kPair);
    for (int v = 0; v < w.n_vectors; ++v) {
      V factor[kFixed], left[kFixed], right[kFixed];
      const V d = w.template split<kRoot>(v, factor);
      for (int k = 0; k < K; ++k) {
        left[k] = S::mul(w.C(k, v), factor[k]);
        right[k] = S::set1(*leaf);
      }
      w.template pair<kPair>(v, 1, pair_slot, p, left);
      w.template join<kRoot>(slot, v, d, factor, left, right);
    }
    value += value_elements();
    c = leaf + 1;
    m += 4;
  }

  // Walk a node with two pairs.
  template <bool kRoot, bool kFirst, bool kSecond>
  SKSHAP_INLINE void quad(uint32_t slot, uint32_t slot1, uint32_t slot2) {
    const Walker w = *this;
    const T *p1 = w.c + split_constants(kRoot), *p2 = p1 + pair_constants(kFirst);
    for (int v = 0; v < w.n_vectors; ++v) {
      if constexpr (!kRoot && !kFirst && !kSecond) {
        w.new_quad(v, slot, slot1, slot2);
      } else {
        V factor[kFixed], left[kFixed], right[kFixed];
        const V d = w.template split<kRoot>(v, factor);
        for (int k = 0; k < K; ++k) {
          left[k] = S::mul(w.C(k, v), factor[k]);
          right[k] = S::sub(w.C(k, v), left[k]);
        }
        w.template pair<kFirst>(v, 1, slot1, p1, left);
        w.template pair<kSecond>(v, 2, slot2, p2, right);
        w.template join<kRoot>(slot, v, d, factor, left, right);
      }
    }
    value += value_elements();
    c = p2 + pair_constants(kSecond);
    m += 6;
  }

  // Walk a quad whose three features are new. It is a polynomial of degree 2 in t, so it needs only the
  // moments M_j = sum_k C_k t_k^j of its C, and is evaluated at the nodes once.
  SKSHAP_INLINE void new_quad(int v, uint32_t slot, uint32_t slot1, uint32_t slot2) const {
    V m0 = C(0, v), m1 = S::mul(m0, node(0));
    for (int k = 1; k < K; ++k) {
      const V x = C(k, v);
      m0 = S::add(m0, x);
      m1 = S::fma(x, node(k), m1);
    }
    const V d = S::select(mask(1, v), at(1), at(2));
    const V slope1 = S::select(mask(3, v), at(4), at(5)), slope2 = S::select(mask(5, v), at(7), at(8));
    const V left0 = S::fma(d, m1, S::mul(m0, at(0)));
    add_phi(slot1, v, slope1, left0);
    add_phi(slot2, v, slope2, S::sub(m0, left0));
    // B of the pairs: c1 + slope1 t and c2 + slope2 t.
    const V constant = S::sub(at(3), at(6)), slope = S::sub(slope1, slope2);
    add_phi(slot, v, d, S::fma(slope, m1, S::mul(constant, m0)));
    const V b0 = S::fma(constant, at(0), at(6));
    const V b1 = S::fma(d, constant, S::fma(slope, at(0), slope2));
    const V b2 = S::mul(d, slope);
    for (int k = 0; k < K; ++k)
      S::store(value + k * kRows + v * W, S::fma(S::fma(b2, node(k), b1), node(k), b0));
  }

  void run(const uint32_t* op, const T* weights) {
    this->begin(weights);
    for (;; ++op) {
      const uint32_t slot = *op >> kSlotShift;
      const uint8_t code = static_cast<uint8_t>(*op);
      switch (code) {
        case kEnd: return;
        case kEnterNew: this->template enter<false>(); continue;
        case kEnterRep: this->template enter<true>(); continue;
        case kMiddle: this->middle(slot); continue;
        case kExitNew: exit<false, false>(slot, op + 1); break;
        case kExitRep: exit<true, false>(slot, op + 1); break;
        case kExitLeafNew: exit<false, true>(slot, op + 1); break;
        case kExitLeafRep: exit<true, true>(slot, op + 1); break;
        default:
          if constexpr (K == 0 || kPairs) {
            if (code == kPairNew)
              leaves<false>(slot, op + 1);
            else
              leaves<true>(slot, op + 1);
          } else {
            switch (code) {
              case kPairNew: fused_pair<false>(slot); break;
              case kPairRep: fused_pair<true>(slot); break;
              case kTrio: trio<false, false>(slot, op[1]); break;
              case kTrio + 1: trio<false, true>(slot, op[1]); break;
              case kTrio + 2: trio<true, false>(slot, op[1]); break;
              case kTrio + 3: trio<true, true>(slot, op[1]); break;
              case kQuad: quad<false, false, false>(slot, op[1], op[2]); break;
              case kQuad + 1: quad<false, false, true>(slot, op[1], op[2]); break;
              case kQuad + 2: quad<false, true, false>(slot, op[1], op[2]); break;
              case kQuad + 3: quad<false, true, true>(slot, op[1], op[2]); break;
              case kQuad + 4: quad<true, false, false>(slot, op[1], op[2]); break;
              case kQuad + 5: quad<true, false, true>(slot, op[1], op[2]); break;
              case kQuad + 6: quad<true, true, false>(slot, op[1], op[2]); break;
              default: quad<true, true, true>(slot, op[1], op[2]); break;
            }
            op += (code >= kTrio) + (code >= kQuad);
          }
      }
      if constexpr (kPairs) op += this->list_size(op[1]);
    }
  }
};

// Return the state in which a walk begins, for the rows of a block from `first` on.
template <class S, int K, int kRows, int kOrder>
WalkState<S, K, kRows, kOrder> walk_state(const WalkArgs<typename S::T>& args, int first) {
  constexpr bool kPairs = kOrder >= 2;
  using T = typename S::T;
  T* values = args.stack + (static_cast<size_t>(args.height) + 1) * frame_size(args.n_nodes, kPairs) * kRows;
  const size_t n_values = (static_cast<size_t>(args.height) + 2) * args.n_nodes * args.n_outputs;
  const int n_rows = args.n_rows - first < kRows ? args.n_rows - first : kRows;
  return {args.stack,
          values,
          args.constants,
          args.words + kFirstWord,
          args.nodes,
          args.phi + first,
          args.output_stride,
          args.n_nodes,
          args.n_outputs,
          first / S::kWidth,
          (n_rows + S::kWidth - 1) / S::kWidth,
          args.words + kFirstWord,
          args.dead,
          args.stack + (2 * static_cast<size_t>(args.n_nodes) + 1) * kRows,
          kPairs ? args.pair_phi + first : nullptr,
          kOrder >= 3 ? args.triple_phi + first : nullptr,
          values + n_values * kRows,
          args.pair_stride,
          args.triple_stride};
}

template <class S, int K, int kRows, int kOrder>
void walk(const WalkArgs<typename S::T>& args) {
  for (int first = 0; first < args.n_rows; first += kRows) {
    Walker<S, K, kRows, kOrder> walker{walk_state<S, K, kRows, kOrder>(args, first)};
    walker.run(args.ops, args.weights);
  }
}

template <class S, int kOrder, int kFirst, int... K>
void set_walks(void (**walks)(const WalkArgs<typename S::T>&), std::integer_sequence<int, K...>) {
  ((walks[kFirst + K] = &walk<S, kFirst + K, walk_rows<typename S::T>(kOrder >= 2), kOrder>), ...);
}

// Set the walks of an order for K from kFirst to kLast.
template <int kOrder, int kFirst, int kLast>
void set_order(Kernels& k) {
  constexpr std::make_integer_sequence<int, kLast - kFirst + 1> all{};
  set_walks<FloatVector, kOrder, kFirst>(k.walk_float[kOrder - 1], all);
  set_walks<DoubleVector, kOrder, kFirst>(k.walk_double[kOrder - 1], all);
}

}  // namespace
}  // namespace skshap
