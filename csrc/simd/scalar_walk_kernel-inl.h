// The walk of simd/walk_kernel-inl.h for SHAP values of trees whose leaves hold one number, with a fixed K.
// Nodes with two leaves are fused, and so are the subtrees of three and four leaves that such nodes form.
// Intermediate results of fused subtrees stay in registers.
//
// A vector store may alias anything in memory, so the compiler would read the constants of an operation again
// for each vector of rows. Therefore, as many constants as there are registers for are read before the loop
// over the vectors (simd/held_constants-inl.h).
//
// The quadrature is Gauss-Radau quadrature, with t = 0 among the nodes. At t = 0, the factor of each feature
// is its zero fraction for every row. So a tree node's contribution to phi at t = 0, divided by delta, is a
// constant, and the sum over k begins with this constant.
//
// A repeated node has K constants u_k = z (1 - t_k) / a_k. For rows that are alive, g_k = o - delta u_k. For
// other rows, delta = 0 and g_k = r. The streams hold -u_k, so that with a base of r, 0 or 1
//   g_k = base + delta (-u_k).
//
// A walk for Owen values needs the values of one group's features only. Nodes on other features are silent:
// they add nothing to phi. So a subtree of silent nodes needs no C, and all its nodes, new or repeated, have
// the form of repeated nodes.
//
// simd/kernels-inl.h includes this file and says why everything has internal linkage.
#pragma once

#include "simd/held_constants-inl.h"
#include "simd/kernels.h"

namespace skshap {
namespace {

template <class S, int K, int kRows>
struct ScalarWalker {
  using T = typename S::T;
  using V = typename S::V;
  using M = typename S::M;
  static constexpr int W = S::kWidth;
  static constexpr size_t kFrame = (K + 2) * kRows, kValue = K * kRows;

  T* frame;           // C of the current subtree, then delta and the base of g of its root
  T* value;           // top of the stack of results
  const T* c;         // constants of the current op
  const uint64_t* m;  // decisions of the next node
  const T* t;
  T* phi;
  int first, n_vectors;

  template <int kCount, int kWorking>
  using Constants = HeldConstants<S, kCount, kWorking>;

  // The decisions of the next kNodes nodes. If S has registers for words, they are read before the loop over
  // the vectors.
  template <int kNodes>
  struct Decisions {
    typename S::Word words[2 * kNodes];
    int first;
    SKSHAP_INLINE Decisions(const uint64_t* m, int first) : first(first) {
      for (int i = 0; i < 2 * kNodes; ++i) words[i] = S::word(m + i);
    }
    SKSHAP_INLINE M alive(int node, int v) const { return S::mask(words[2 * node], first + v); }
    SKSHAP_INLINE M left(int node, int v) const { return S::mask(words[2 * node + 1], first + v); }
  };

  SKSHAP_INLINE T* delta(int v) const { return frame + K * kRows + v * W; }
  SKSHAP_INLINE T* base(int v) const { return frame + (K + 1) * kRows + v * W; }

  // Return C of the current subtree. The C of a right child is the part of its parent's C that the left child
  // has left.
  template <bool kRight>
  SKSHAP_INLINE V C(int k, int v) const {
    const T* const p = frame + k * kRows + v * W;
    if constexpr (kRight)
      return S::sub(S::load(p - kFrame), S::load(p));
    else
      return S::load(p);
  }

  SKSHAP_INLINE void add_phi(uint32_t slot, int v, V x, V y) const {
    T* const p = phi + static_cast<size_t>(slot) * kBlockRows + v * W;
    S::store(p, S::fma(x, y, S::load(p)));
  }

  static SKSHAP_INLINE V three_way(M alive, M alive_left, V dead, V off, V on) {
    return S::select(alive_left, S::select(alive, dead, off), on);
  }
  static SKSHAP_INLINE V three_way_or_zero(M alive, M alive_left, V off, V on) {
    return S::select(alive_left, S::select_or_zero(alive, off), on);
  }

  // Each operation begins with a copy of the walker. As the address of the copy is never taken, the compiler
  // keeps its members in registers, although vector stores may alias anything in memory.

  // --- Nodes in three parts ---

  // Split at a node. Constants: r, -r, 1 - r; if repeated, also -u[K].
  static constexpr int split_constants(bool repeated) { return repeated ? 3 + K : 3; }
  template <bool kRepeated, class Decided, class Stream>
  SKSHAP_INLINE V split(int v, const Decided& decided, const Stream& s, V& g_base) const {
    const M left = decided.left(0, v);
    if constexpr (kRepeated) {
      const M alive = decided.alive(0, v);
      g_base = S::select(left, S::select(alive, s[0], S::zero()), S::set1(T(1)));
      return three_way_or_zero(alive, left, s[1], s[2]);
    } else {
      g_base = s[0];
      return S::select(left, s[1], s[2]);
    }
  }

  // Go down to a node. If it is silent, it has the form of a repeated node without -u[K].
  template <bool kRepeated, bool kSilent = false>
  SKSHAP_INLINE void enter() {
    constexpr int kCount = split_constants(kRepeated && !kSilent);
    const ScalarWalker w = *this;
    const Decisions<1> decided(w.m, w.first);
    const Constants<kCount, 8> s(w.c);
    const Constants<kRepeated ? 0 : K, 12> nodes(w.t);
    T* const next = w.frame + kFrame;
    for (int v = 0; v < w.n_vectors; ++v) {
      V g_base;
      const V d = w.template split<kRepeated>(v, decided, s, g_base);
      S::store(w.delta(v), d);
      if constexpr (kRepeated) S::store(w.base(v), g_base);
      if constexpr (!kSilent) {
        SKSHAP_UNROLL
        for (int k = 0; k < K; ++k) {
          const V g = S::fma(d, kRepeated ? s.factor(3 + k) : nodes.factor(k), g_base);
          S::store(next + k * kRows + v * W, S::mul(w.template C<false>(k, v), g));
        }
      }
    }
    frame = next;
    c += kCount;
    m += 2;
  }

  // Go from the left to the right child.
  SKSHAP_INLINE void middle() {
    const ScalarWalker w = *this;
    for (int v = 0; v < w.n_vectors; ++v)
      for (int k = 0; k < K; ++k) S::store(w.frame + k * kRows + v * W, w.template C<true>(k, v));
  }

  // Leave a node. Constants: r if new, or -u[K], then, unless it is silent, G[K] if repeated; unless it is
  // silent, the sum's part from t = 0; and the value of the right child if it is a leaf.
  template <bool kRepeated, bool kRightLeaf, bool kSilent = false>
  SKSHAP_INLINE void exit(uint32_t slot = 0) {
    constexpr int kSum = kRepeated ? (kSilent ? 1 : 2) * K : 1, kLeaf = kSum + !kSilent,
                  kCount = kLeaf + kRightLeaf;
    frame -= kFrame;
    const ScalarWalker w = *this;
    const Constants<kCount, kSilent ? 6 : 8> s(w.c);
    const Constants<kRepeated ? 0 : K, kSilent ? 8 : 12> nodes(w.t);
    const T* const right = w.value - kValue;
    T* const left = w.value - (kRightLeaf ? 1 : 2) * kValue;
    for (int v = 0; v < w.n_vectors; ++v) {
      const V d = S::load(w.delta(v));
      const V g_base = kRepeated ? S::load(w.base(v)) : s[0];
      V sum = kSilent ? S::zero() : s[kSum];
      SKSHAP_UNROLL
      for (int k = 0; k < K; ++k) {
        const size_t i = k * kRows + v * W;
        const V b = kRightLeaf ? s[kLeaf] : S::load(right + i);
        const V difference = S::sub(S::load(left + i), b);
        if constexpr (!kSilent) {
          const V weight = w.template C<false>(k, v);
          sum = S::fma(kRepeated ? S::mul(weight, s.factor(K + k)) : weight, difference, sum);
        }
        const V g = S::fma(d, kRepeated ? s.factor(k) : nodes.factor(k), g_base);
        S::store(left + i, S::fma(g, difference, b));
      }
      if constexpr (!kSilent) w.add_phi(slot, v, d, sum);
    }
    value -= kRightLeaf ? 0 : kValue;
    c += kCount;
  }

  // --- Nodes in the same place of a merged tree ---

  // Add the B of the last of these nodes to the B of the one before.
  SKSHAP_INLINE void join() {
    value -= kValue;
    const ScalarWalker w = *this;
    for (int v = 0; v < w.n_vectors; ++v)
      for (int k = 0; k < K; ++k) {
        T* const sum = w.value - kValue + k * kRows + v * W;
        S::store(sum, S::add(S::load(sum), S::load(sum + kValue)));
      }
  }

  // Add the value of a leaf. This value is the only constant.
  SKSHAP_INLINE void add_leaf() {
    const ScalarWalker w = *this;
    const V leaf = S::set1(*w.c);
    for (int v = 0; v < w.n_vectors; ++v)
      for (int k = 0; k < K; ++k) {
        T* const sum = w.value - kValue + k * kRows + v * W;
        S::store(sum, S::add(S::load(sum), leaf));
      }
    c += 1;
  }

  // --- Fused subtrees ---

  // Walk a pair, the node with number `index` of the subtree. It takes C in x and leaves B in x. Constants:
  // the sum's part from t = 0; B at t = 0 if new, or B of rows that are not alive if repeated; the phi
  // factors of rows that go right and left; if repeated, also v_R, v_L, -u[K], G[K].
  static constexpr int pair_constants(bool repeated) { return repeated ? 6 + 2 * K : 4; }
  template <bool kRepeated, int kFrom, class Decided, class Stream, class Nodes>
  SKSHAP_INLINE void pair(int v, int index, uint32_t slot, const Decided& decided, const Stream& s,
                          const Nodes& nodes, V (&x)[K]) const {
    const M left = decided.left(index, v);
    if constexpr (kRepeated) {
      const M alive = decided.alive(index, v);
      V sum = s[kFrom];
      SKSHAP_UNROLL
      for (int k = 0; k < K; ++k) sum = S::fma(x[k], s.factor(kFrom + 6 + K + k), sum);
      const V slope = three_way_or_zero(alive, left, s[kFrom + 2], s[kFrom + 3]);
      const V b = three_way(alive, left, s[kFrom + 1], s[kFrom + 4], s[kFrom + 5]);
      add_phi(slot, v, slope, sum);
      SKSHAP_UNROLL
      for (int k = 0; k < K; ++k) x[k] = S::fma(slope, s.factor(kFrom + 6 + k), b);
    } else {
      V sum = s[kFrom];
      SKSHAP_UNROLL
      for (int k = 0; k < K; ++k) sum = S::add(sum, x[k]);
      const V slope = S::select(left, s[kFrom + 2], s[kFrom + 3]);
      add_phi(slot, v, slope, sum);
      SKSHAP_UNROLL
      for (int k = 0; k < K; ++k) x[k] = S::fma(slope, nodes.factor(k), s[kFrom + 1]);
    }
  }

  template <bool kRight, bool kRepeated>
  SKSHAP_INLINE void fused_pair(uint32_t slot) {
    const ScalarWalker w = *this;
    const Decisions<1> decided(w.m, w.first);
    const Constants<pair_constants(kRepeated), K + 6> s(w.c);
    const Constants<kRepeated ? 0 : K, K + 9> nodes(w.t);
    for (int v = 0; v < w.n_vectors; ++v) {
      V x[K];
      SKSHAP_UNROLL
      for (int k = 0; k < K; ++k) x[k] = w.template C<kRight>(k, v);
      w.template pair<kRepeated, 0>(v, 0, slot, decided, s, nodes, x);
      SKSHAP_UNROLL
      for (int k = 0; k < K; ++k) S::store(w.value + k * kRows + v * W, x[k]);
    }
    value += kValue;
    c += pair_constants(kRepeated);
    m += 2;
  }

  // Walk a node with a pair on the left and a leaf or another pair on the right. Constants: the constants of
  // the split; the sum's part from t = 0; if repeated, also G[K]; the constants of the left pair; and the
  // value of the leaf, or the constants of the right pair.
  template <bool kRight, bool kRoot, bool kFirst, bool kLeaf, bool kSecond>
  SKSHAP_INLINE void subtree(uint32_t slot, uint32_t slot1, uint32_t slot2) {
    constexpr int kEnd = split_constants(kRoot), kPair1 = kEnd + 1 + (kRoot ? K : 0);
    constexpr int kPair2 = kPair1 + pair_constants(kFirst);
    constexpr int kCount = kPair2 + (kLeaf ? 1 : pair_constants(kSecond));
    constexpr bool kNodes = !kRoot || !kFirst || (!kLeaf && !kSecond);
    const ScalarWalker w = *this;
    using Nodes = Constants<kNodes ? K : 0, 3 * K + 6>;
    const Decisions<kLeaf ? 2 : 3> decided(w.m, w.first);
    const Nodes nodes(w.t);
    const Constants<kCount, 3 * K + 6 + Nodes::kTaken> s(w.c);
    for (int v = 0; v < w.n_vectors; ++v) {
      V g[K], left[K], right[K];
      V g_base;
      const V d = w.template split<kRoot>(v, decided, s, g_base);
      SKSHAP_UNROLL
      for (int k = 0; k < K; ++k) {
        const V x = w.template C<kRight>(k, v);
        g[k] = S::fma(d, kRoot ? s.factor(3 + k) : nodes.factor(k), g_base);
        left[k] = S::mul(x, g[k]);
        right[k] = kLeaf ? s[kPair2] : S::sub(x, left[k]);
      }
      w.template pair<kFirst, kPair1>(v, 1, slot1, decided, s, nodes, left);
      if constexpr (!kLeaf) w.template pair<kSecond, kPair2>(v, 2, slot2, decided, s, nodes, right);
      V sum = s[kEnd];
      SKSHAP_UNROLL
      for (int k = 0; k < K; ++k) {
        const V difference = S::sub(left[k], right[k]);
        const V weight = w.template C<kRight>(k, v);
        sum = S::fma(kRoot ? S::mul(weight, s.factor(kEnd + 1 + k)) : weight, difference, sum);
        S::store(w.value + k * kRows + v * W, S::fma(g[k], difference, right[k]));
      }
      w.add_phi(slot, v, d, sum);
    }
    value += kValue;
    c += kCount;
    m += kLeaf ? 4 : 6;
  }

  // Walk a node with two pairs whose three features are new. The integrand is a polynomial of degree 2 in t.
  // So the walk needs only the moments M_j = sum_k C_k t_k^j of its C, and the polynomial is evaluated at the
  // nodes once. Constants: the constants of the split; the part of m0 from t = 0; the difference of the
  // pairs' B at t = 0; B at t = 0; and for each pair, the phi factors of rows that go right and left.
  template <bool kRight>
  SKSHAP_INLINE void new_quad(uint32_t slot, const uint32_t*& op) {
    const uint32_t slot1 = op[1], slot2 = op[2];
    const ScalarWalker w = *this;
    const Decisions<3> decided(w.m, w.first);
    const Constants<10, 9> s(w.c);
    const Constants<K, 19> nodes(w.t);
    for (int v = 0; v < w.n_vectors; ++v) {
      V m0 = s[3], m1 = S::zero();
      SKSHAP_UNROLL
      for (int k = 0; k < K; ++k) {
        const V x = w.template C<kRight>(k, v);
        m0 = S::add(m0, x);
        m1 = k ? S::fma(x, nodes.factor(k), m1) : S::mul(x, nodes.factor(k));
      }
      const V d = S::select(decided.left(0, v), s[1], s[2]);
      const V slope1 = S::select(decided.left(1, v), s[6], s[7]);
      const V slope2 = S::select(decided.left(2, v), s[8], s[9]);
      const V left0 = S::fma(d, m1, S::mul(m0, s.factor(0)));
      w.add_phi(slot1, v, slope1, left0);
      w.add_phi(slot2, v, slope2, S::sub(m0, left0));
      // The difference of the B of the two pairs is s[4] + slope t.
      const V slope = S::sub(slope1, slope2);
      w.add_phi(slot, v, d, S::fma(slope, m1, S::mul(m0, s.factor(4))));
      const V b1 = S::fma(d, s.factor(4), S::fma(slope, s.factor(0), slope2)), b2 = S::mul(d, slope);
      SKSHAP_UNROLL
      for (int k = 0; k < K; ++k)
        S::store(w.value + k * kRows + v * W, S::fma(S::fma(b2, nodes.factor(k), b1), nodes.factor(k), s[5]));
    }
    value += kValue;
    c += 10;
    m += 6;
    op += 2;
  }

  // --- Silent nodes ---

  // Leave B of a silent pair in x. Constants: B of rows that are not alive; the phi factors of rows that go
  // right and left; v_R, v_L, -u[K].
  static constexpr int kSilentPairConstants = 5 + K;
  template <int kFrom, class Decided, class Stream>
  SKSHAP_INLINE void silent_pair(int v, int index, const Decided& decided, const Stream& s, V (&x)[K]) const {
    const M left = decided.left(index, v), alive = decided.alive(index, v);
    const V slope = three_way_or_zero(alive, left, s[kFrom + 1], s[kFrom + 2]);
    const V b = three_way(alive, left, s[kFrom], s[kFrom + 3], s[kFrom + 4]);
    SKSHAP_UNROLL
    for (int k = 0; k < K; ++k) x[k] = S::fma(slope, s.factor(kFrom + 5 + k), b);
  }

  SKSHAP_INLINE void silent_pair() {
    const ScalarWalker w = *this;
    const Decisions<1> decided(w.m, w.first);
    const Constants<kSilentPairConstants, 6> s(w.c);
    for (int v = 0; v < w.n_vectors; ++v) {
      V x[K];
      w.template silent_pair<0>(v, 0, decided, s, x);
      SKSHAP_UNROLL
      for (int k = 0; k < K; ++k) S::store(w.value + k * kRows + v * W, x[k]);
    }
    value += kValue;
    c += kSilentPairConstants;
    m += 2;
  }

  // Walk a silent node with a pair on the left and a leaf or another pair on the right. Constants: r, -r, 1 -
  // r, -u[K]; the constants of the left pair; and the value of the leaf, or the constants of the right pair.
  template <bool kLeaf>
  SKSHAP_INLINE void silent_subtree() {
    constexpr int kPair1 = 3 + K, kPair2 = kPair1 + kSilentPairConstants;
    constexpr int kCount = kPair2 + (kLeaf ? 1 : kSilentPairConstants);
    const ScalarWalker w = *this;
    const Decisions<kLeaf ? 2 : 3> decided(w.m, w.first);
    const Constants<kCount, 2 * K + 6> s(w.c);
    for (int v = 0; v < w.n_vectors; ++v) {
      V left[K], right[K];
      V g_base;
      const V d = w.template split<true>(v, decided, s, g_base);
      w.template silent_pair<kPair1>(v, 1, decided, s, left);
      if constexpr (!kLeaf) w.template silent_pair<kPair2>(v, 2, decided, s, right);
      SKSHAP_UNROLL
      for (int k = 0; k < K; ++k) {
        const V b = kLeaf ? s[kPair2] : right[k];
        const V g = S::fma(d, s.factor(3 + k), g_base);
        S::store(w.value + k * kRows + v * W, S::fma(g, S::sub(left[k], b), b));
      }
    }
    value += kValue;
    c += kCount;
    m += kLeaf ? 4 : 6;
  }

  SKSHAP_INLINE void silent(uint8_t code) {
    switch (code) {
      case kSilentEnter: enter<true, true>(); break;
      case kSilentExitNew: exit<false, false, true>(); break;
      case kSilentExitRep: exit<true, false, true>(); break;
      case kSilentExitLeafNew: exit<false, true, true>(); break;
      case kSilentExitLeafRep: exit<true, true, true>(); break;
      case kSilentPair: silent_pair(); break;
      case kSilentTrio: silent_subtree<true>(); break;
      default: silent_subtree<false>(); break;
    }
  }

  template <bool kRight, bool kRoot, bool kPair>
  SKSHAP_INLINE void trio(uint32_t slot, const uint32_t*& op) {
    subtree<kRight, kRoot, kPair, true, false>(slot, op[1], 0);
    op += 1;
  }
  template <bool kRight, bool kRoot, bool kFirst, bool kSecond>
  SKSHAP_INLINE void quad(uint32_t slot, const uint32_t*& op) {
    subtree<kRight, kRoot, kFirst, false, kSecond>(slot, op[1], op[2]);
    op += 2;
  }

  void run(const uint32_t* op) {
    for (;; ++op) {
      const uint32_t slot = *op >> kSlotShift;
      const uint8_t code = static_cast<uint8_t>(*op);
      switch (code) {
        case kEnd: return;
        case kEnterNew: enter<false>(); break;
        case kEnterRep: enter<true>(); break;
        case kMiddle: middle(); break;
        case kExitNew: exit<false, false>(slot); break;
        case kExitRep: exit<true, false>(slot); break;
        case kExitLeafNew: exit<false, true>(slot); break;
        case kExitLeafRep: exit<true, true>(slot); break;
        case kPairNew: fused_pair<false, false>(slot); break;
        case kPairRep: fused_pair<false, true>(slot); break;
        case kTrio: trio<false, false, false>(slot, op); break;
        case kTrio + 1: trio<false, false, true>(slot, op); break;
        case kTrio + 2: trio<false, true, false>(slot, op); break;
        case kTrio + 3: trio<false, true, true>(slot, op); break;
        case kQuad: new_quad<false>(slot, op); break;
        case kQuad + 1: quad<false, false, false, true>(slot, op); break;
        case kQuad + 2: quad<false, false, true, false>(slot, op); break;
        case kQuad + 3: quad<false, false, true, true>(slot, op); break;
        case kQuad + 4: quad<false, true, false, false>(slot, op); break;
        case kQuad + 5: quad<false, true, false, true>(slot, op); break;
        case kQuad + 6: quad<false, true, true, false>(slot, op); break;
        case kQuad + 7: quad<false, true, true, true>(slot, op); break;
        case kJoin: join(); break;
        case kAddLeaf: add_leaf(); break;
        case kSilentEnter:
        case kSilentExitNew:
        case kSilentExitRep:
        case kSilentExitLeafNew:
        case kSilentExitLeafRep:
        case kSilentPair:
        case kSilentTrio:
        case kSilentQuad:
          if constexpr (has_silent_operations(sizeof(T) == 4, K)) silent(code);
          break;
        case kRightChild + kPairNew: fused_pair<true, false>(slot); break;
        case kRightChild + kPairRep: fused_pair<true, true>(slot); break;
        case kRightChild + kTrio: trio<true, false, false>(slot, op); break;
        case kRightChild + kTrio + 1: trio<true, false, true>(slot, op); break;
        case kRightChild + kTrio + 2: trio<true, true, false>(slot, op); break;
        case kRightChild + kTrio + 3: trio<true, true, true>(slot, op); break;
        case kRightChild + kQuad: new_quad<true>(slot, op); break;
        case kRightChild + kQuad + 1: quad<true, false, false, true>(slot, op); break;
        case kRightChild + kQuad + 2: quad<true, false, true, false>(slot, op); break;
        case kRightChild + kQuad + 3: quad<true, false, true, true>(slot, op); break;
        case kRightChild + kQuad + 4: quad<true, true, false, false>(slot, op); break;
        case kRightChild + kQuad + 5: quad<true, true, false, true>(slot, op); break;
        case kRightChild + kQuad + 6: quad<true, true, true, false>(slot, op); break;
        case kRightChild + kQuad + 7: quad<true, true, true, true>(slot, op); break;
      }
    }
  }
};

// Set C of the root to the weights. This function is compiled once, not for each K.
template <class S>
[[gnu::noinline]] void fill_nodes(const typename S::T* weights, typename S::T* to, size_t stride, int n_nodes,
                                  int n_vectors) {
  for (int k = 0; k < n_nodes; ++k, to += stride)
    for (int v = 0; v < n_vectors; ++v) S::store(to + v * S::kWidth, S::set1(weights[k]));
}

template <class S, int K, int kRows>
void walk_scalars(const WalkArgs<typename S::T>& args) {
  using Walker = ScalarWalker<S, K, kRows>;
  for (int first = 0; first < args.n_rows; first += kRows) {
    const int n_rows = args.n_rows - first < kRows ? args.n_rows - first : kRows;
    Walker walker{.frame = args.stack,
                  .value = args.stack + (static_cast<size_t>(args.height) + 1) * Walker::kFrame,
                  .c = args.constants,
                  .m = args.words + kFirstWord,
                  .t = args.nodes,
                  .phi = args.phi + first,
                  .first = first / S::kWidth,
                  .n_vectors = (n_rows + S::kWidth - 1) / S::kWidth};
    if (args.weights) fill_nodes<S>(args.weights, walker.frame, kRows, args.n_nodes, walker.n_vectors);
    walker.run(args.ops);
  }
}

}  // namespace
}  // namespace skshap
