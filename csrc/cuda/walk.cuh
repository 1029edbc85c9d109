// The walk of simd/walk_kernel-inl.h on a GPU. Each lane of a warp has R rows.
//
// All lanes of a warp run the same operations on the same constants, so nothing diverges and nothing is
// summed across lanes. The frames of the recursion nearest to the leaves, where nearly all visits are, stay
// in registers. Each of these frames has its own operations.
//
// With u_k = z (1 - t_k) / a_k, the left factor is g_k = base - delta u_k in every case:
//   feature new on the path:  z = 1, so u_k = 1 - t_k; base = o, delta = o - r;
//   repeated, row alive:      base = o, delta = o - r;
//   repeated, row not alive:  base = r, delta = 0;
// and G_k = u_k (1 - u_k) / (t_k (1 - t_k)). So a repeated node needs only K constants.
#pragma once

#include "cuda/walk_fused.cuh"

namespace skshap {

// Return the number of elements of a frame, each of which has R values per lane: C[K], B of the left child
// [K], base, delta.
constexpr size_t cuda_frame_elements(int n_nodes) { return 2 * static_cast<size_t>(n_nodes) + 2; }

// The walk of a warp. With an order of 2, it computes pairs, too, and with an order of 3 triples instead of
// pairs.
template <class T, int K, int kOrder>
struct CudaWalker : FusedWalk<T, K, kOrder> {
  using State = FusedWalk<T, K, kOrder>;
  using E = typename State::E;
  using V = typename State::V;
  using State::a;
  using State::add_phi;
  using State::alive_bits;
  using State::B;
  using State::C;
  using State::factor;
  using State::fetch_head;
  using State::fused;
  using State::head;
  using State::kPairs;
  using State::memory;
  using State::next;
  using State::phi;
  using State::Q;
  using State::Q_delta;
  using State::R;
  using State::slot;
  using State::take;
  using State::value;

  static constexpr int kFrames = kCudaRegisterFrames;
  V frame_C[kFrames][K], frame_B[kFrames][K], frame_base[kFrames], frame_delta[kFrames];

  explicit __device__ CudaWalker(const CudaWalkArgs<T>& args) : State(args) {}

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
    take(e);
    this->template split<kRepeated>(e[1], e[2], value(e[3]), f.base, f.delta);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      f.C[k] = C[k];
#pragma unroll
      for (int r = 0; r < R; ++r)
        C[k].x[r] *= factor(f.base, f.delta, this->template u<kRepeated>(e + 4, k), r);
    }
  }

  template <bool kRepeated>
  __device__ __forceinline__ void middle(Frame f) {
    E e[padded(4 + (kRepeated ? K : 0))];
    take(e);
    this->template mark_right<kRepeated>(e[2]);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      f.B[k] = B[k];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const T g = factor(f.base, f.delta, this->template u<kRepeated>(e + 4, k), r);
        C[k].x[r] = multiply_add(-g, f.C[k].x[r], f.C[k].x[r]);
      }
    }
  }

  template <bool kRepeated, bool kRightLeaf>
  __device__ __forceinline__ void exit(Frame f) {
    E e[padded(4 + (kRepeated ? K : 0))];
    take(e);
    V sum{};
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const T left = kRightLeaf ? B[k].x[r] : f.B[k].x[r], right = kRightLeaf ? value(e[3]) : B[k].x[r];
        const T difference = left - right, weight = f.C[k].x[r] * this->template G<kRepeated>(e + 4, k);
        sum.x[r] = multiply_add(weight, difference, sum.x[r]);
        if constexpr (kPairs) Q[k].x[r] = weight * difference;
        B[k].x[r] = multiply_add(factor(f.base, f.delta, this->template u<kRepeated>(e + 4, k), r),
                                 difference, right);
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
    for (int k = 0; k < K; ++k) store_row_values(p + k * kWarp * R, c[k]);
    store_row_values(p + 2 * K * kWarp * R, base);
    store_row_values(p + (2 * K + 1) * kWarp * R, delta);
  }
  template <bool kRepeated>
  __device__ __forceinline__ void memory_middle() {
    T* p = memory_frame();
    V base = load_row_values(p + 2 * K * kWarp * R), delta = load_row_values(p + (2 * K + 1) * kWarp * R);
    V c[K], b[K];
#pragma unroll
    for (int k = 0; k < K; ++k) c[k] = load_row_values(p + k * kWarp * R);
    middle<kRepeated>({base, delta, c, b});
#pragma unroll
    for (int k = 0; k < K; ++k) store_row_values(p + (K + k) * kWarp * R, b[k]);
  }
  template <bool kRepeated, bool kRightLeaf>
  __device__ __forceinline__ void memory_exit() {
    T* p = memory_frame();
    V base = load_row_values(p + 2 * K * kWarp * R), delta = load_row_values(p + (2 * K + 1) * kWarp * R);
    V c[K], b[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      c[k] = load_row_values(p + k * kWarp * R);
      if (!kRightLeaf) b[k] = load_row_values(p + (K + k) * kWarp * R);
    }
    exit<kRepeated, kRightLeaf>({base, delta, c, b});
  }

  // --- Places of several nodes, in merged trees ---

  __device__ __forceinline__ void join_enter() {
    T* p = memory_frame();
    E e[4];
    take(e);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      store_row_values(p + k * kWarp * R, C[k]);
      store_row_values(p + (K + k) * kWarp * R, V{});
    }
  }
  __device__ __forceinline__ void join_middle() {
    T* p = memory_frame();
    join_exit();
#pragma unroll
    for (int k = 0; k < K; ++k) {
      store_row_values(p + (K + k) * kWarp * R, B[k]);
      C[k] = load_row_values(p + k * kWarp * R);
    }
  }
  __device__ __forceinline__ void join_exit() {
    const T* p = memory_frame() + K * kWarp * R;
    E e[4];
    take(e);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const V sum = load_row_values(p + k * kWarp * R);
#pragma unroll
      for (int r = 0; r < R; ++r) B[k].x[r] += sum.x[r];
    }
  }
  __device__ __forceinline__ void join_leaf() {
    E e[4];
    take(e);
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int r = 0; r < R; ++r) B[k].x[r] += value(e[3]);
  }

  // --- Interactions ---

  // Add interactions of the latest node's feature with other features above it, two at a time. For this, the
  // node's contribution to its feature, of which `weight` is a factor, is differentiated. lambda_k is one
  // constant for rows that are alive beyond the edge below the other feature, and another constant for all
  // other rows.
  __device__ __forceinline__ void add_steps(const E* p, uint32_t n_steps, const V (&weight)[K]) {
    constexpr int kStep = cuda_pair_step(K);
    V off{};
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int r = 0; r < R; ++r) off.x[r] = multiply_add(weight[k].x[r], a.dead[k], off.x[r]);
    for (; n_steps; --n_steps, p += kStep) {
      E e[kStep];
      fetch(p, e);
      T* const place[2] = {slot(e[0] & kPairSlot), slot(e[1] & kPairSlot)};
      V sum[2] = {load_row_values(place[0]), load_row_values(place[1])};
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int r = 0; r < R; ++r) {
          T on = 0;
#pragma unroll
          for (int k = 0; k < K; ++k) on = multiply_add(weight[k].x[r], value(e[2 + i * K + k]), on);
          const bool is_alive = alive_bits[r] >> (static_cast<uint32_t>(e[i]) >> kPairBitShift) & 1;
          sum[i].x[r] = multiply_add(Q_delta.x[r], is_alive ? on : off.x[r], sum[i].x[r]);
        }
      store_row_values(place[0], sum[0]);
      store_row_values(place[1], sum[1]);
    }
  }

  __device__ __forceinline__ void add_pairs() {
    const E* p = shared_segments<E>() + next + 4;
    const uint32_t n_steps = static_cast<uint32_t>(head[0]) >> 8;
    next += 4 + n_steps * cuda_pair_step(K);
    add_steps(p, n_steps, Q);
    fetch_head();
  }

  // Add the triples of the latest node's feature with two other features above it. All steps of a record
  // share one of these features, whose lambda_k is needed only once.
  __device__ __forceinline__ void add_triples() {
    constexpr int kRecord = cuda_triple_record(K);
    uint32_t n_records = static_cast<uint32_t>(head[0]) >> 8;
    next += 4;
    for (; n_records; --n_records) {
      E e[kRecord];
      fetch(shared_segments<E>() + next, e);
      next += kRecord;
      const uint32_t word = static_cast<uint32_t>(e[0]), n_steps = word >> kTripleStepShift;
      V weight[K];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const bool is_alive = alive_bits[r] >> (word & kTestBit) & 1;
#pragma unroll
        for (int k = 0; k < K; ++k) weight[k].x[r] = Q[k].x[r] * (is_alive ? value(e[1 + k]) : a.dead[k]);
      }
      add_steps(shared_segments<E>() + next, n_steps, weight);
      next += n_steps * cuda_pair_step(K);
    }
    fetch_head();
  }

  __device__ __forceinline__ void next_tree() {
    E e[4];
    take(e);
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int r = 0; r < R; ++r) C[k].x[r] = a.weight[k];
  }

  // --- The program ---

  __device__ __forceinline__ uint32_t code() const { return static_cast<uint32_t>(head[0]) & 255; }

  // Return whether an operation belongs to a joined place. Only operations on frames in memory, which are
  // visited seldom, ask this.
  template <bool kRepeated>
  static __device__ __forceinline__ bool joins(uint32_t number) {
    return !kPairs && !kRepeated && number == kCudaJoin;
  }

  // Run one instance for each frame in registers, and one instance for all frames in memory.
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
    with_frame(
        number, [&](Frame f) { enter<kRepeated>(f); },
        [&] { joins<kRepeated>(number) ? join_enter() : memory_enter<kRepeated>(); });
  }
  template <bool kRepeated>
  __device__ __forceinline__ void middle_frame(uint32_t number) {
    with_frame(
        number, [&](Frame f) { middle<kRepeated>(f); },
        [&] { joins<kRepeated>(number) ? join_middle() : memory_middle<kRepeated>(); });
  }
  template <bool kRepeated, bool kRightLeaf>
  __device__ __forceinline__ void exit_frame(uint32_t number) {
    with_frame(
        number, [&](Frame f) { exit<kRepeated, kRightLeaf>(f); },
        [&] {
          if (!joins<kRepeated>(number))
            memory_exit<kRepeated, kRightLeaf>();
          else if (kRightLeaf)
            join_leaf();
          else
            join_exit();
        });
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
          if constexpr (State::kTriples) {
            if (op == kCudaTriples) {
              add_triples();
              continue;
            }
          } else if constexpr (kPairs) {
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

// Take tasks in each block of up to kThreads threads. A task is a chunk of trees, with as many tiles of 32 R
// rows as the block has warps. Each warp leaves phi in its part of `partial`. With kShared, phi is summed in
// shared memory, otherwise in `partial`. For triples, only the first slots are in shared memory: few models
// have so few triples that all of them fit.
template <class T, int K, int kOrder, bool kShared, int kThreads>
__global__ void __launch_bounds__(kThreads, 1) walk(const __grid_constant__ CudaWalkArgs<T> args) {
  using E = typename CudaProgram<T>::Element;
  constexpr int R = cuda_lane_rows<T>();
  constexpr bool kTriples = kOrder > 2;
  __shared__ int32_t shared_task;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, n_warps = blockDim.x / kWarp;
  const size_t warp_index = static_cast<size_t>(blockIdx.x) * n_warps + warp;
  const auto chunk_of = [&](int32_t task) -> const CudaChunk& {
    return args.chunks[args.chunk_list[task / args.n_groups]];
  };
  const auto tile_of = [&](int32_t task) { return task % args.n_groups * n_warps + warp; };
  const auto partial_of = [&](int32_t task) {
    const size_t slot = static_cast<size_t>(tile_of(task)) * args.n_slots + chunk_of(task).first_slot;
    return args.partial + (slot * kWarp + lane) * R;
  };
  T* const shared_phi =
      shared_memory<WalkShared<T>>()->sums(warp, kTriples ? args.shared_slots : args.max_slots) + lane * R;
  for (;;) {
    if (threadIdx.x == 0) shared_task = atomicAdd(args.next_task, 1);
    __syncthreads();
    const int32_t task = shared_task;
    if (task >= args.n_tasks) return;
    const CudaChunk& chunk = chunk_of(task);
    CudaWalker<T, K, kOrder> walker(args);
    if (tile_of(task) < args.n_tiles) {
      walker.phi = kShared && !kTriples ? shared_phi : partial_of(task);
      if constexpr (kTriples) walker.shared_phi = shared_phi;
      for (uint32_t slot = 0; slot < chunk.n_slots; ++slot)
        store_row_values(walker.slot(slot), RowValues<T>{});
      walker.codes = args.codes + (static_cast<size_t>(tile_of(task)) * args.n_columns * kWarp + lane) * R;
      walker.memory = args.frames + warp_index * args.warp_frames + lane * R;
      walker.category_sets = args.category_sets + chunk.category_base;
#pragma unroll
      for (int r = 0; r < R; ++r) walker.alive_bits[r] = 1u << kAlwaysAlive;
      walker.start(args.stream + chunk.begin, chunk.n_segments);
      walker.run();
      if constexpr (kShared) {
        // Read the number of the task again instead of keeping it: the walk makes better use of the
        // registers.
        const int32_t same = *static_cast<volatile int32_t*>(&shared_task);
        const uint32_t n_slots =
            kTriples ? min(chunk_of(same).n_slots, args.shared_slots) : chunk_of(same).n_slots;
        T* const partial = partial_of(same);
        for (uint32_t slot = 0; slot < n_slots; ++slot)
          store_row_values(partial + slot * (kWarp * R), load_row_values(shared_phi + slot * (kWarp * R)));
      }
    } else {
      keep_up(args.stream + chunk.begin, chunk.n_segments);
    }
    __syncthreads();  // before the segments and the task are overwritten
  }
}

// The walk for one K. Each warp of a block has a tile. If there are enough rows, all warps of a
// multiprocessor are in one block, with as many threads as registers allow. So the warps stay at the same
// operations, and thus at the same code.
template <class T>
struct WalkKernel {
  void (*kernel)(CudaWalkArgs<T>);
  int n_threads;  // the most of a block
};

// Return the kernel for plans of an order. `shared` says whether phi is in shared memory.
template <class T, int kOrder>
WalkKernel<T> walk_kernel(int n_nodes, bool shared);

}  // namespace skshap
