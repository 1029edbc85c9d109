// The walk of simd/walk_kernel-inl.h on a GPU: rows in the lanes of a warp, R of them in each lane.
//
// All lanes of a warp run the same operations on the same constants, so nothing diverges and nothing is
// summed across lanes. The frames of the recursion nearest to the leaves, where nearly all visits are, stay
// in registers: each has operations of its own.
//
// With u_k = z (1 - t_k) / a_k, the left factor is g_k = base - delta u_k in every case:
//   feature new on the path:  z = 1, so u_k = 1 - t_k; base = o, delta = o - r;
//   repeated, row alive:      base = o, delta = o - r;
//   repeated, row not alive:  base = r, delta = 0;
// and G_k = u_k (1 - u_k) / (t_k (1 - t_k)). A repeated node thus needs only K constants.
#pragma once

#include "cuda/lanes.cuh"
#include "cuda/segments.cuh"

namespace skshap {

template <class T>
struct CudaWalkArgs {
  const typename CudaProgram<T>::Element* stream;
  const CudaChunk* chunks;
  const int32_t* chunk_list;  // the chunks of this launch
  int32_t n_tasks;            // chunks of the list x groups of as many tiles as a block has warps
  int32_t n_groups, n_tiles;
  int32_t n_columns;
  uint32_t n_slots;      // of all chunks
  uint32_t max_slots;    // of a chunk of this launch
  const int16_t* codes;  // [tile][column][lane][R]
  const uint32_t* category_bits;
  const uint32_t* category_sets;
  T* partial;          // [tile][slot of all chunks][lane][R]
  T* frames;           // [warp][frame beyond the registers][element][lane][R]
  size_t warp_frames;  // elements of a warp in `frames`
  int32_t* next_task;
  T t[kMaxFixedNodes], weight[kMaxFixedNodes], tau[kMaxFixedNodes];  // t_k, w_k, 1 / (t_k (1 - t_k))
  T dead[kMaxFixedNodes];  // lambda_k of rows that left the path of a feature
};

// Return the elements of a frame, each of R values per lane: C[K], B of the left child [K], base, delta.
constexpr size_t cuda_frame_elements(int n_nodes) { return 2 * static_cast<size_t>(n_nodes) + 2; }

template <class T, int K, int R, int kFrames, bool kPairs>
struct CudaWalker : Segments<typename CudaProgram<T>::Element> {
  using E = typename CudaProgram<T>::Element;
  using Segments<E>::next;
  using V = Lanes<T, R>;

  const CudaWalkArgs<T>& a;
  E head[4];             // first elements of the current operation, then of the next
  const int16_t* codes;  // of this lane
  T* phi;                // of this lane
  T* memory;             // frames of this lane beyond the registers
  const uint32_t* category_sets;
  uint32_t alive_bits[R];
  V C[K], B[K];
  V frame_C[kFrames][K], frame_B[kFrames][K], frame_base[kFrames], frame_delta[kFrames];
  V Q[K], Q_delta;  // the latest node's contribution to its feature: delta sum_k Q_k

  explicit __device__ CudaWalker(const CudaWalkArgs<T>& args) : a(args) {}

  __device__ __forceinline__ T value(E x) const { return as_value(x, T()); }

  // Read the kN elements of the operation and the first ones of the next.
  template <int kN>
  __device__ __forceinline__ void take(E (&e)[padded(kN)]) {
    constexpr int kSize = padded(kN);
#pragma unroll
    for (int i = 0; i < 4; ++i) e[i] = head[i];
    if constexpr (kSize > 4) {
      E rest[kSize - 4];
      fetch(shared_segments<E>() + next + 4, rest);
#pragma unroll
      for (int i = 4; i < kSize; ++i) e[i] = rest[i - 4];
    }
    next += kSize;
    fetch_head();
  }
  __device__ __forceinline__ void fetch_head() { fetch(shared_segments<E>() + next, head); }

  __device__ __forceinline__ T* slot(uint32_t number) const { return phi + number * (kWarp * R); }

  __device__ __forceinline__ void add_phi(uint32_t node, const V& x, const V& y) {
    T* p = slot(node >> 16);
    V sum = load_lanes<T, R>(p);
#pragma unroll
    for (int r = 0; r < R; ++r) sum.x[r] = multiply_add(x.x[r], y.x[r], sum.x[r]);
    store_lanes<T, R>(p, sum);
  }

  // Find out whether each row goes left, alive or not.
  __device__ __forceinline__ void decide(uint32_t node, uint32_t test, bool (&left)[R]) {
    const int16_t* p = codes + (node & 0xffff) * (kWarp * R);
    int code[R];
    if constexpr (R == 2) {
      const short2 v = __ldg(reinterpret_cast<const short2*>(p));
      code[0] = v.x, code[1] = v.y;
    } else {
      code[0] = __ldg(p);
    }
    const bool flip = test & kTestFlip;
    if (test & kTestCategorical) {
      const uint32_t* bits = a.category_bits + __ldg(category_sets + (test & kTestOperand));
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const uint32_t c = static_cast<uint16_t>(code[r]);
        left[r] = static_cast<bool>(__ldg(bits + (c >> 5)) >> (c & 31) & 1) != flip;
      }
    } else {
      const uint32_t bias = test & kTestBias ? 1 : 0, operand = test & kTestOperand;
#pragma unroll
      for (int r = 0; r < R; ++r) left[r] = (static_cast<uint32_t>(code[r]) + bias <= operand) != flip;
    }
  }

  __device__ __forceinline__ bool alive(uint32_t test, int r) const {
    return alive_bits[r] >> (test >> kTestPreviousShift & kTestBit) & 1;
  }

  static __device__ __forceinline__ uint32_t own_bit(uint32_t test) {
    return test & kTestTracked ? 1u << (test >> kTestOwnShift & kTestBit) : 0;
  }

  // Mark the rows that are alive in the left subtree.
  __device__ __forceinline__ void mark_left(uint32_t test, const bool (&left)[R]) {
    const uint32_t bit = own_bit(test);
#pragma unroll
    for (int r = 0; r < R; ++r) alive_bits[r] = left[r] ? alive_bits[r] | bit : alive_bits[r] & ~bit;
  }

  // Change these marks to the rows alive in the right subtree: those that are alive here, but not on the
  // left.
  template <bool kRepeated>
  __device__ __forceinline__ void mark_right(uint32_t test) {
    const uint32_t bit = own_bit(test);
#pragma unroll
    for (int r = 0; r < R; ++r) alive_bits[r] ^= kRepeated && !alive(test, r) ? 0 : bit;
  }

  // Decide a node; `left` becomes the rows that are alive and go left.
  template <bool kRepeated>
  __device__ __forceinline__ void split(uint32_t node, uint32_t test, T share, V& base, V& delta) {
    bool left[R];
    decide(node, test, left);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      base.x[r] = left[r] ? T(1) : T(0);
      if constexpr (kRepeated) {
        const bool is_alive = alive(test, r);
        if (!is_alive) base.x[r] = share;
        left[r] = left[r] && is_alive;
      }
      delta.x[r] = base.x[r] - share;
    }
    mark_left(test, left);
  }

  // Compute u_k and G_k of a node; `u` are its constants, if it is repeated.
  template <bool kRepeated>
  __device__ __forceinline__ T u(const E* constants, int k) const {
    return kRepeated ? value(constants[k]) : T(1) - a.t[k];
  }
  template <bool kRepeated>
  __device__ __forceinline__ T G(const E* constants, int k) const {
    if constexpr (!kRepeated) return T(1);
    const T u = value(constants[k]);
    return multiply_add(-u, u, u) * a.tau[k];
  }

  static __device__ __forceinline__ T factor(const V& base, const V& delta, T u, int r) {
    return multiply_add(-delta.x[r], u, base.x[r]);
  }

  // --- Inner nodes; frames in registers and in memory ---

  struct Frame {
    V &base, &delta;
    V (&C)[K];
    V (&B)[K];
  };
  template <int kFrame>
  __device__ __forceinline__ Frame frame() {
    return {frame_base[kFrame], frame_delta[kFrame], frame_C[kFrame], frame_B[kFrame]};
  }

  template <bool kRepeated>
  __device__ __forceinline__ void enter(Frame f) {
    E e[padded(4 + (kRepeated ? K : 0))];
    take<4 + (kRepeated ? K : 0)>(e);
    split<kRepeated>(e[1], e[2], value(e[3]), f.base, f.delta);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      f.C[k] = C[k];
#pragma unroll
      for (int r = 0; r < R; ++r) C[k].x[r] *= factor(f.base, f.delta, u<kRepeated>(e + 4, k), r);
    }
  }

  template <bool kRepeated>
  __device__ __forceinline__ void middle(Frame f) {
    E e[padded(4 + (kRepeated ? K : 0))];
    take<4 + (kRepeated ? K : 0)>(e);
    mark_right<kRepeated>(e[2]);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      f.B[k] = B[k];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const T g = factor(f.base, f.delta, u<kRepeated>(e + 4, k), r);
        C[k].x[r] = multiply_add(-g, f.C[k].x[r], f.C[k].x[r]);
      }
    }
  }

  template <bool kRepeated, bool kRightLeaf>
  __device__ __forceinline__ void exit(Frame f) {
    E e[padded(4 + (kRepeated ? K : 0))];
    take<4 + (kRepeated ? K : 0)>(e);
    V sum{};
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const T left = kRightLeaf ? B[k].x[r] : f.B[k].x[r], right = kRightLeaf ? value(e[3]) : B[k].x[r];
        const T difference = left - right, weight = f.C[k].x[r] * G<kRepeated>(e + 4, k);
        sum.x[r] = multiply_add(weight, difference, sum.x[r]);
        if constexpr (kPairs) Q[k].x[r] = weight * difference;
        B[k].x[r] = multiply_add(factor(f.base, f.delta, u<kRepeated>(e + 4, k), r), difference, right);
      }
    }
    add_phi(e[1], f.delta, sum);
    if constexpr (kPairs) Q_delta = f.delta;
  }

  __device__ __forceinline__ T* memory_frame() const {
    return memory + (static_cast<uint32_t>(head[0]) / 256 - kFrames) * (cuda_frame_elements(K) * kWarp * R);
  }

  template <bool kRepeated>
  __device__ __forceinline__ void memory_enter() {
    T* p = memory_frame();
    V base, delta, c[K], b[K];
    enter<kRepeated>({base, delta, c, b});
#pragma unroll
    for (int k = 0; k < K; ++k) store_lanes<T, R>(p + k * kWarp * R, c[k]);
    store_lanes<T, R>(p + 2 * K * kWarp * R, base);
    store_lanes<T, R>(p + (2 * K + 1) * kWarp * R, delta);
  }
  template <bool kRepeated>
  __device__ __forceinline__ void memory_middle() {
    T* p = memory_frame();
    V base = load_lanes<T, R>(p + 2 * K * kWarp * R), delta = load_lanes<T, R>(p + (2 * K + 1) * kWarp * R);
    V c[K], b[K];
#pragma unroll
    for (int k = 0; k < K; ++k) c[k] = load_lanes<T, R>(p + k * kWarp * R);
    middle<kRepeated>({base, delta, c, b});
#pragma unroll
    for (int k = 0; k < K; ++k) store_lanes<T, R>(p + (K + k) * kWarp * R, b[k]);
  }
  template <bool kRepeated, bool kRightLeaf>
  __device__ __forceinline__ void memory_exit() {
    T* p = memory_frame();
    V base = load_lanes<T, R>(p + 2 * K * kWarp * R), delta = load_lanes<T, R>(p + (2 * K + 1) * kWarp * R);
    V c[K], b[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      c[k] = load_lanes<T, R>(p + k * kWarp * R);
      if (!kRightLeaf) b[k] = load_lanes<T, R>(p + (K + k) * kWarp * R);
    }
    exit<kRepeated, kRightLeaf>({base, delta, c, b});
  }

  // --- Fused subtrees ---

  // Walk the pair with elements p: takes C in x, leaves B there.
  template <bool kRepeated>
  __device__ __forceinline__ void pair(const E* p, const E* constants, V (&x)[K]) {
    const uint32_t node = p[0], test = p[1];
    bool left[R];
    decide(node, test, left);
    V slope, start, sum;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      slope.x[r] = left[r] ? value(p[4]) : value(p[3]);
      start.x[r] = value(p[2]);
      if constexpr (kRepeated) {
        if (alive(test, r))
          start.x[r] = left[r] ? value(p[6]) : value(p[5]);
        else
          slope.x[r] = 0;
      }
      sum.x[r] = x[0].x[r] * G<kRepeated>(constants, 0);
#pragma unroll
      for (int k = 1; k < K; ++k)
        sum.x[r] =
            kRepeated ? multiply_add(x[k].x[r], G<true>(constants, k), sum.x[r]) : sum.x[r] + x[k].x[r];
    }
    add_phi(node, slope, sum);
    if constexpr (kPairs) {
      Q_delta = slope;
#pragma unroll
      for (int k = 0; k < K; ++k)
#pragma unroll
        for (int r = 0; r < R; ++r) Q[k].x[r] = x[k].x[r] * G<kRepeated>(constants, k);
    }
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int r = 0; r < R; ++r)
        x[k].x[r] = kRepeated ? multiply_add(-slope.x[r], value(constants[k]), start.x[r])
                              : multiply_add(slope.x[r], a.t[k], start.x[r]);
  }
  static constexpr int pair_elements(bool repeated) { return repeated ? 7 : 5; }

  template <bool kRepeated>
  __device__ __forceinline__ void lone_pair() {
    constexpr int kN = 1 + pair_elements(kRepeated) + (kRepeated ? K : 0);
    E e[padded(kN)];
    take<kN>(e);
#pragma unroll
    for (int k = 0; k < K; ++k) B[k] = C[k];
    pair<kRepeated>(e + 1, e + 1 + pair_elements(kRepeated), B);
  }

  template <bool kRepeated>
  __device__ __forceinline__ void join(uint32_t node, const E* constants, const V& base, const V& delta,
                                       const V (&left)[K]) {
    // The results of the right side are in B.
    V sum{};
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const T difference = left[k].x[r] - B[k].x[r], weight = C[k].x[r] * G<kRepeated>(constants, k);
        sum.x[r] = multiply_add(weight, difference, sum.x[r]);
        B[k].x[r] = multiply_add(factor(base, delta, u<kRepeated>(constants, k), r), difference, B[k].x[r]);
      }
    add_phi(node, delta, sum);
  }

  template <bool kRoot, bool kPair>
  __device__ __forceinline__ void trio() {
    constexpr int kPairAt = 4, kLeafAt = kPairAt + pair_elements(kPair), kRootAt = kLeafAt + 1,
                  kPairU = kRootAt + (kRoot ? K : 0), kN = kPairU + (kPair ? K : 0);
    E e[padded(kN)];
    take<kN>(e);
    V base, delta, left[K];
    split<kRoot>(e[1], e[2], value(e[3]), base, delta);
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int r = 0; r < R; ++r) {
        left[k].x[r] = C[k].x[r] * factor(base, delta, u<kRoot>(e + kRootAt, k), r);
        B[k].x[r] = value(e[kLeafAt]);
      }
    pair<kPair>(e + kPairAt, e + kPairU, left);
    join<kRoot>(e[1], e + kRootAt, base, delta, left);
  }

  template <bool kRoot, bool kFirst, bool kSecond>
  __device__ __forceinline__ void quad() {
    constexpr int kFirstAt = 4, kSecondAt = kFirstAt + pair_elements(kFirst),
                  kRootAt = kSecondAt + pair_elements(kSecond), kFirstU = kRootAt + (kRoot ? K : 0),
                  kSecondU = kFirstU + (kFirst ? K : 0), kN = kSecondU + (kSecond ? K : 0);
    E e[padded(kN)];
    take<kN>(e);
    if constexpr (!kRoot && !kFirst && !kSecond) {
      new_quad(e);
    } else {
      V base, delta, left[K];
      split<kRoot>(e[1], e[2], value(e[3]), base, delta);
#pragma unroll
      for (int k = 0; k < K; ++k)
#pragma unroll
        for (int r = 0; r < R; ++r) {
          left[k].x[r] = C[k].x[r] * factor(base, delta, u<kRoot>(e + kRootAt, k), r);
          B[k].x[r] = C[k].x[r] - left[k].x[r];
        }
      pair<kFirst>(e + kFirstAt, e + kFirstU, left);
      mark_right<kRoot>(e[2]);
      pair<kSecond>(e + kSecondAt, e + kSecondU, B);
      join<kRoot>(e[1], e + kRootAt, base, delta, left);
    }
  }

  // Walk three new features: a polynomial of degree 2 in t, which needs only the moments of C.
  __device__ __forceinline__ void new_quad(const E* e) {
    bool go[R], go1[R], go2[R];
    decide(e[1], e[2], go);
    decide(e[4], e[5], go1);
    decide(e[9], e[10], go2);
    const T share = value(e[3]), constant1 = value(e[6]), constant2 = value(e[11]);
    V delta, slope1, slope2, left0, right0, root;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      T m0 = C[0].x[r], m1 = m0 * a.t[0];
#pragma unroll
      for (int k = 1; k < K; ++k) {
        m0 += C[k].x[r];
        m1 = multiply_add(C[k].x[r], a.t[k], m1);
      }
      delta.x[r] = go[r] ? T(1) - share : -share;
      slope1.x[r] = go1[r] ? value(e[8]) : value(e[7]);
      slope2.x[r] = go2[r] ? value(e[13]) : value(e[12]);
      left0.x[r] = multiply_add(delta.x[r], m1, m0 * share);
      right0.x[r] = m0 - left0.x[r];
      const T constant = constant1 - constant2, slope = slope1.x[r] - slope2.x[r];
      root.x[r] = multiply_add(slope, m1, constant * m0);
      const T b0 = multiply_add(constant, share, constant2);
      const T b1 = multiply_add(delta.x[r], constant, multiply_add(slope, share, slope2.x[r]));
      const T b2 = delta.x[r] * slope;
#pragma unroll
      for (int k = 0; k < K; ++k) B[k].x[r] = multiply_add(multiply_add(b2, a.t[k], b1), a.t[k], b0);
    }
    add_phi(e[4], slope1, left0);
    add_phi(e[9], slope2, right0);
    add_phi(e[1], delta, root);
  }

  // --- Interactions ---

  // Add the pairs of the latest node's feature with others above it, two at a time. lambda_k is one constant
  // for rows that are alive beyond the edge below the other feature, and another for all other rows.
  __device__ __forceinline__ void add_pairs() {
    constexpr int kStep = cuda_pair_step(K);
    const E* p = shared_segments<E>() + next + 4;
    uint32_t n_steps = static_cast<uint32_t>(head[0]) >> 8;
    next += 4 + n_steps * kStep;
    V off{};
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int r = 0; r < R; ++r) off.x[r] = multiply_add(Q[k].x[r], a.dead[k], off.x[r]);
    for (; n_steps; --n_steps, p += kStep) {
      E e[kStep];
      fetch(p, e);
      T* const place[2] = {slot(e[0] & kPairSlot), slot(e[1] & kPairSlot)};
      V sum[2] = {load_lanes<T, R>(place[0]), load_lanes<T, R>(place[1])};
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int r = 0; r < R; ++r) {
          T on = 0;
#pragma unroll
          for (int k = 0; k < K; ++k) on = multiply_add(Q[k].x[r], value(e[2 + i * K + k]), on);
          const bool is_alive = alive_bits[r] >> (static_cast<uint32_t>(e[i]) >> kPairBitShift) & 1;
          sum[i].x[r] = multiply_add(Q_delta.x[r], is_alive ? on : off.x[r], sum[i].x[r]);
        }
      store_lanes<T, R>(place[0], sum[0]);
      store_lanes<T, R>(place[1], sum[1]);
    }
    fetch_head();
  }

  __device__ __forceinline__ void next_tree() {
    E e[4];
    take<4>(e);
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int r = 0; r < R; ++r) C[k].x[r] = a.weight[k];
  }

  // --- The program ---

  __device__ __forceinline__ uint32_t code() const { return static_cast<uint32_t>(head[0]) & 255; }

  // Run one instance for each frame in registers, and one for those in memory.
  template <int kFrame = 0, class InRegisters, class InMemory>
  __device__ __forceinline__ void with_frame(uint32_t number, InRegisters in_registers, InMemory in_memory) {
    if constexpr (kFrame == kFrames)
      in_memory();
    else if (number == kFrame)
      in_registers(frame<kFrame>());
    else
      with_frame<kFrame + 1>(number, in_registers, in_memory);
  }
  template <bool kRepeated>
  __device__ __forceinline__ void enter_frame(uint32_t number) {
    with_frame(number, [&](Frame f) { enter<kRepeated>(f); }, [&] { memory_enter<kRepeated>(); });
  }
  template <bool kRepeated>
  __device__ __forceinline__ void middle_frame(uint32_t number) {
    with_frame(number, [&](Frame f) { middle<kRepeated>(f); }, [&] { memory_middle<kRepeated>(); });
  }
  template <bool kRepeated, bool kRightLeaf>
  __device__ __forceinline__ void exit_frame(uint32_t number) {
    with_frame(
        number, [&](Frame f) { exit<kRepeated, kRightLeaf>(f); },
        [&] { memory_exit<kRepeated, kRightLeaf>(); });
  }

  template <bool kRoot, bool kFirst>
  __device__ __forceinline__ void quad_second(uint32_t code) {
    if (code & 1)
      quad<kRoot, kFirst, true>();
    else
      quad<kRoot, kFirst, false>();
  }
  template <bool kRoot>
  __device__ __forceinline__ void quad_first(uint32_t code) {
    if (code & 2)
      quad_second<kRoot, true>(code);
    else
      quad_second<kRoot, false>(code);
  }
  __device__ __forceinline__ void fused(uint32_t code) {
    if constexpr (kPairs) {
      if (code == kCudaPair)
        lone_pair<false>();
      else
        lone_pair<true>();
      return;
    }
    if (code < kCudaTrio) {
      if (code & 4)
        quad_first<true>(code);
      else
        quad_first<false>(code);
      return;
    }
    switch (code) {
      case kCudaTrio: trio<false, false>(); break;
      case kCudaTrio + 1: trio<false, true>(); break;
      case kCudaTrio + 2: trio<true, false>(); break;
      case kCudaTrio + 3: trio<true, true>(); break;
      case kCudaPair: lone_pair<false>(); break;
      default: lone_pair<true>(); break;
    }
  }

  __device__ __forceinline__ void next_segment() {
    this->advance();
    fetch_head();
  }

  __device__ __forceinline__ void run() {
    fetch_head();
    next_tree();
    for (;;) {
      uint32_t op = code();
      for (; op < kCudaQuad || op == kCudaEndSegment; op = code()) {  // down
        if (op == kCudaEndSegment)
          next_segment();
        else if (op & 1)
          enter_frame<true>(op >> 3);
        else
          enter_frame<false>(op >> 3);
      }
      fused(op);
      for (op = code();; op = code()) {  // up
        if (op >= kCudaNextTree) {
          if (op == kCudaEnd) return;
          if constexpr (kPairs) {
            if (op == kCudaPairs) {
              add_pairs();
              continue;
            }
          }
          if (op == kCudaEndSegment) {
            next_segment();
            continue;
          }
          next_tree();
          break;
        }
        const uint32_t kind = op >> 1 & 3, number = op >> 3;
        if (kind == kCudaMiddle) {
          if (op & 1)
            middle_frame<true>(number);
          else
            middle_frame<false>(number);
          break;
        }
        if (kind == kCudaExit) {
          if (op & 1)
            exit_frame<true, false>(number);
          else
            exit_frame<false, false>(number);
        } else {
          if (op & 1)
            exit_frame<true, true>(number);
          else
            exit_frame<false, true>(number);
        }
      }
    }
  }
};

// Take tasks in each block: a chunk of trees, and as many tiles of 32 R rows as the block has warps. Each
// warp leaves phi in its part of `partial`. With kShared, phi is summed in shared memory, otherwise there.
template <class T, int K, int R, int kFrames, bool kPairs, bool kShared, int kThreads>
__global__ void __launch_bounds__(kThreads, 1) walk(const __grid_constant__ CudaWalkArgs<T> args) {
  using E = typename CudaProgram<T>::Element;
  __shared__ int32_t shared_task;
  constexpr int kWarps = kThreads / kWarp;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const size_t warp_index = static_cast<size_t>(blockIdx.x) * kWarps + warp;
  const auto chunk_of = [&](int32_t task) -> const CudaChunk& {
    return args.chunks[args.chunk_list[task / args.n_groups]];
  };
  const auto tile_of = [&](int32_t task) { return task % args.n_groups * kWarps + warp; };
  const auto partial_of = [&](int32_t task) {
    const size_t slot = static_cast<size_t>(tile_of(task)) * args.n_slots + chunk_of(task).first_slot;
    return args.partial + (slot * kWarp + lane) * R;
  };
  T* const shared_phi = reinterpret_cast<T*>(shared_segments<E>() + 2 * kCudaSegment) +
                        (warp * args.max_slots * kWarp + lane) * R;
  for (;;) {
    if (threadIdx.x == 0) shared_task = atomicAdd(args.next_task, 1);
    __syncthreads();
    const int32_t task = shared_task;
    if (task >= args.n_tasks) return;
    const CudaChunk& chunk = chunk_of(task);
    CudaWalker<T, K, R, kFrames, kPairs> walker(args);
    if (tile_of(task) < args.n_tiles) {
      walker.phi = kShared ? shared_phi : partial_of(task);
      for (uint32_t slot = 0; slot < chunk.n_slots; ++slot)
        store_lanes<T, R>(walker.phi + slot * (kWarp * R), Lanes<T, R>{});
      walker.codes = args.codes + (static_cast<size_t>(tile_of(task)) * args.n_columns * kWarp + lane) * R;
      walker.memory = args.frames + warp_index * args.warp_frames + lane * R;
      walker.category_sets = args.category_sets + chunk.category_base;
#pragma unroll
      for (int r = 0; r < R; ++r) walker.alive_bits[r] = kPairs ? 1u << kAlwaysAlive : 0;
      walker.start(args.stream + chunk.begin, chunk.n_segments);
      walker.run();
      if constexpr (kShared) {
        // Read it again, because the walk makes better use of the registers.
        const int32_t same = *static_cast<volatile int32_t*>(&shared_task);
        const uint32_t n_slots = chunk_of(same).n_slots;
        T* const partial = partial_of(same);
        for (uint32_t slot = 0; slot < n_slots; ++slot)
          store_lanes<T, R>(partial + slot * (kWarp * R), load_lanes<T, R>(shared_phi + slot * (kWarp * R)));
      }
    } else {
      keep_up(args.stream + chunk.begin, chunk.n_segments);
    }
    __syncthreads();  // before the segments and the task are overwritten
  }
}

}  // namespace skshap
