// Path-dependent SHAP values by adjoint quadrature. The lanes of a vector are rows.
//
// A leaf with value v and distinct path features P contributes to feature i
//   phi_i = v (o_i - z_i) * integral over t in [0, 1] of the product over j in P, j != i of
//           a_j(t) = z_j (1 - t) + o_j t,
// where z_j (zero fraction) is the product of the cover fractions of the path's splits on j, and o_j (one
// fraction) is 1 if the row satisfies all these splits, else 0. The integrand has degree |P| - 1, so
// Gauss-Legendre quadrature with K = ceil(|P| / 2) nodes t_k is exact. Summed over leaves, the integrand is
// the multilinear extension of the tree; it is evaluated bottom-up and differentiated top-down in one walk:
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
// fraction, and every factor is in [0, 1]. See docs/mathematics.md.
//
// Values of scalar leaves with a fixed K are computed by simd/scalar_walk_kernel-inl.h instead, by
// Gauss-Radau quadrature.
//
// From order 2, the walk also adds up the interactions of each node's feature i with every other feature j of
// the path above, whose factor is a_j and whose derivative is 1 - z_j or -z_j:
//   phi[i, j] += sum_k Q_k lambda_jk, Q_k = delta C_k G_k D_k,
//   lambda_jk = (1 - z_j) / (z_j (1 - t_k) + t_k) for rows that are alive, else -1 / (1 - t_k).
// This is twice the SHAP interaction value of i and j; for other indices lambda has a weight, pair_weight().
// Every unordered pair of features is met once for each pair of nodes on a path. In order 3, the walk also
// adds up sum_k Q_k lambda_jk lambda_lk for every pair of other features j and l.
//
// simd/kernels-inl.h includes this file and says why everything has internal linkage.
#pragma once

#include <utility>

#include "simd/kernels.h"
#include "simd/scalar_walk_kernel-inl.h"

namespace skshap {
namespace {

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

  // The K values of a node. They are in registers if K is fixed.
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

  // Return the number of words of a list of n pairs.
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

  // Each operation begins with a copy of the walker. As the address of the copy is never taken, the compiler
  // keeps its members in registers, although vector stores may alias anything in memory.

  // Constants: r, -r, 1 - r; if repeated, also g of alive rows that go right [K] and left [K]; from order 2,
  // also lambda of alive rows that go left [K].
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

  // Go from the left to the right child. The right child's C is the part of C that the left child did not
  // take. Constants from order 2: lambda of alive rows that go right [K].
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

// The walk for interactions and for any K. With kVector, each leaf holds all outputs.
template <class S, int K, int kRows, int kOrder, bool kVector>
struct GenericWalker : WalkState<S, K, kRows, kOrder> {
  using State = WalkState<S, K, kRows, kOrder>;
  using State::at;
  using State::c;
  using State::C;
  using State::frame;
  using State::frame_elements;
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

  SKSHAP_INLINE int n_leaf_outputs() const { return kVector ? this->n_outputs : 1; }

  // Constants: r if new, or G[K] if repeated; then, if the right child is a leaf, the leaf's value for each
  // output.
  template <bool kRepeated, bool kRightLeaf>
  SKSHAP_INLINE void exit(uint32_t slot, const uint32_t* list) {
    frame -= frame_elements();
    const GenericWalker w = *this;
    const int n_constants = kRepeated ? w.n_nodes() : 1;
    const size_t size = w.value_elements() * w.n_leaf_outputs();
    const T* right = w.value - size;
    T* left = w.value - (kRightLeaf ? 1 : 2) * size;
    for (int output = 0; output < w.n_leaf_outputs(); ++output) {
      for (int v = 0; v < w.n_vectors; ++v) {
        const V d = S::load(w.delta(v));
        V sum = S::zero();
        Weights q;
        q.memory = w.scratch;
        for (int k = 0; k < w.n_nodes(); ++k) {
          T* l = left + k * kRows + v * W;
          const V b = kRightLeaf ? w.at(n_constants + output) : S::load(right + k * kRows + v * W);
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
    value -= kRightLeaf ? 0 : size;
    c += n_constants + (kRightLeaf ? n_leaf_outputs() : 0);
  }

  // Walk a node with two leaves that is not fused, B = v_R + g (v_L - v_R). Constants: if repeated, G[K] and
  // g of alive rows that go right [K] and left [K]. Then follow, for each output: B of rows that are not
  // alive (for a new feature: B at t = 0); the phi factors of rows that go right and left; and, if repeated,
  // v_R, v_L - v_R.
  template <bool kRepeated>
  SKSHAP_INLINE void leaves(uint32_t slot, const uint32_t* list) {
    const GenericWalker w = *this;
    const int n = w.n_nodes(), n_shared = kRepeated ? 3 * n : 0, n_per_output = kRepeated ? 5 : 3;
    for (int v = 0; v < w.n_vectors; ++v) {
      const M alive = w.mask(0, v), left = w.mask(1, v);
      V sum = S::zero();
      for (int k = 0; k < n; ++k) sum = kRepeated ? S::fma(w.C(k, v), w.at(k), sum) : S::add(sum, w.C(k, v));
      T* out = w.value + v * W;
      const T* p = w.c + n_shared;
      for (int output = 0; output < w.n_leaf_outputs(); ++output) {
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
        p += n_per_output;
        out += w.value_elements();
      }
    }
    value += value_elements() * n_leaf_outputs();
    c += n_shared + n_per_output * n_leaf_outputs();
    m += 2;
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
        case kPairNew: leaves<false>(slot, op + 1); break;
        default: leaves<true>(slot, op + 1); break;
      }
      if constexpr (kPairs) op += this->list_size(op[1]);
    }
  }
};

// Return the state at the beginning of a walk, for the rows of a block from row `first`.
template <class S, int K, int kRows, int kOrder>
WalkState<S, K, kRows, kOrder> walk_state(const WalkArgs<typename S::T>& args, int first) {
  constexpr bool kPairs = kOrder >= 2;
  using T = typename S::T;
  T* values = args.stack + (static_cast<size_t>(args.height) + 1) * frame_size(args.n_nodes, kPairs) * kRows;
  const size_t n_values = (static_cast<size_t>(args.height) + 2) * args.n_nodes * args.n_outputs;
  const int n_rows = args.n_rows - first < kRows ? args.n_rows - first : kRows;
  return {.frame = args.stack,
          .value = values,
          .c = args.constants,
          .m = args.words + kFirstWord,
          .t = args.nodes,
          .phi = args.phi + first,
          .output_stride = args.output_stride,
          .any_nodes = args.n_nodes,
          .n_outputs = args.n_outputs,
          .first = first / S::kWidth,
          .n_vectors = (n_rows + S::kWidth - 1) / S::kWidth,
          .words = args.words + kFirstWord,
          .dead = args.dead,
          .lambdas = args.stack + (2 * static_cast<size_t>(args.n_nodes) + 1) * kRows,
          .pair_phi = kPairs ? args.pair_phi + first : nullptr,
          .triple_phi = kOrder >= 3 ? args.triple_phi + first : nullptr,
          .scratch = values + n_values * kRows,
          .pair_stride = args.pair_stride,
          .triple_stride = args.triple_stride};
}

template <class S, int K, int kRows, int kOrder, bool kVector>
void walk(const WalkArgs<typename S::T>& args) {
  for (int first = 0; first < args.n_rows; first += kRows) {
    GenericWalker<S, K, kRows, kOrder, kVector> walker{walk_state<S, K, kRows, kOrder>(args, first)};
    walker.run(args.ops, args.weights);
  }
}

// Return the walk with K nodes for trees whose leaves hold one number.
template <class S, int K, int kOrder>
typename KernelsOf<typename S::T>::Walk fixed_walk() {
  constexpr int kRows = walk_rows<typename S::T>(kOrder >= 2);
  if constexpr (K > 0 && kOrder == 1)
    return &walk_scalars<S, K, kRows>;
  else
    return &walk<S, K, kRows, kOrder, false>;
}

template <class S, int kOrder, int kFirst, int kStep, int... i>
void set_walks(KernelsOf<typename S::T>& k, std::integer_sequence<int, i...>) {
  ((k.walks[kOrder - 1][kFirst + kStep * i] = fixed_walk<S, kFirst + kStep * i, kOrder>()), ...);
}

// Set the walks of an order, for each kStep-th K from kFirst to kLast.
template <int kOrder, int kFirst, int kLast, int kStep = 1>
void set_order(Kernels& k) {
  constexpr std::make_integer_sequence<int, (kLast - kFirst) / kStep + 1> all{};
  set_walks<FloatVector, kOrder, kFirst, kStep>(std::get<0>(k.by_precision), all);
  set_walks<DoubleVector, kOrder, kFirst, kStep>(std::get<1>(k.by_precision), all);
}

}  // namespace
}  // namespace skshap
