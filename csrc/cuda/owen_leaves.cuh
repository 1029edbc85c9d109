// Owen values leaf by leaf. Each warp descends the trees for the rows of a tile. It looks up the contribution
// of a leaf in tables, which the block computes in shared memory.
//
// Let o_i be the one fraction and z_i the zero fraction of n players. A table has an entry for the set of
// players that a row fails. For each player i, the entry has the integral over t of the product of z_j (1 -
// t) + o_j t over all other players j. In the table of a leaf's groups, this integral is multiplied by the
// leaf's value. For a group with one feature on the path, it is also multiplied by o_i - z_i, and the result
// is the contribution of the leaf to the feature's value. For a group with several features, the contribution
// is the product of this integral, the integral from a table of these features, and o_i - z_i, since the
// double integral of Owen values is a product.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "cuda/codes.cuh"
#include "cuda/program/program.h"
#include "cuda/shared_memory.cuh"

namespace skshap {

// The most warps of a block, which has as many threads as registers allow.
template <class T>
constexpr int owen_warps() {
  return sizeof(T) == 4 ? 24 : 20;
}
constexpr int kMostOwenNodes = owen_nodes(kMostOwenGroups);

template <class T>
struct CudaOwenArgs {
  const CudaOwenChunk* chunks;
  const uint32_t* stream;
  const uint32_t* stages;
  const uint32_t* category_bits;
  int32_t n_tasks, n_groups;  // chunks x groups of the tiles that a block takes
  int32_t n_tiles, block_tiles, n_columns;
  uint32_t n_slots;      // of all kernels
  uint32_t max_slots;    // of a chunk
  uint32_t n_postponed;  // words that a row keeps for subtrees
  const int16_t* codes;  // [tile][column][row of the tile]
  T* partial;            // [tile][slot of all kernels][row of the tile]
  T t[kMostOwenNodes + 1][kMostOwenNodes], weight[kMostOwenNodes + 1][kMostOwenNodes];  // by number of nodes
};

// The shared memory of a block: the words of stages, the tables of two of them, and then, for each warp, the
// sums of a chunk, the words of postponed subtrees, and codes, each as [slot, word or column][lane][R].
template <class T>
struct OwenShared {
  uint32_t stages[kOwenStreams][kOwenStageWords];
  char tables[2][kOwenTableBytes];

  struct OwenWarp {
    uint32_t n_slots, n_postponed, n_columns;  // of the parts above
    constexpr size_t bytes() const {
      return cuda_tile_rows<T>() *
             (sizeof(T) * n_slots + sizeof(uint32_t) * n_postponed + sizeof(int16_t) * n_columns);
    }
  };
  static constexpr size_t bytes(int n_warps, const OwenWarp& warp) {
    return sizeof(OwenShared) + n_warps * warp.bytes();
  }
  __device__ __forceinline__ T* sums(int number, const OwenWarp& warp) {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(this + 1) + number * warp.bytes());
  }
};

// `shared` says whether codes and sums are in shared memory. If not, they are in the caches.
template <class T>
constexpr typename OwenShared<T>::OwenWarp owen_warp(const CudaOwenArgs<T>& a, bool shared) {
  return {shared ? a.max_slots : 0, a.n_postponed, shared ? static_cast<uint32_t>(a.n_columns) : 0};
}

// Load a stage to shared memory. Do not wait for the end of the load.
template <class T>
__device__ __forceinline__ void load_owen_stage(const CudaOwenArgs<T>& a, uint32_t stage, uint32_t buffer) {
  const uint32_t begin = a.stages[stage], end = a.stages[stage + 1];
  char* const to = reinterpret_cast<char*>(shared_memory<OwenShared<T>>()->stages[buffer]);
  const char* const from = reinterpret_cast<const char*>(a.stream);
  for (uint32_t i = threadIdx.x; i < end - begin; i += blockDim.x)
    __pipeline_memcpy_async(to + i * kOwenPiece, from + (static_cast<size_t>(begin) + i) * kOwenPiece,
                            kOwenPiece);
}

// Compute the entry of a table for the players that a row fails. `head` is the head of the table's
// description, and `numbers` follow it.
template <class T>
__device__ __forceinline__ void fill_owen_entry(const CudaOwenArgs<T>& a, const uint4& head, const T* numbers,
                                                uint32_t fails, char* tables) {
  constexpr int kN = kMostOwenPlayers, kNumbers = owen_piece<T>();
  const int n = head.x & 0xff, n_nodes = head.x >> kOwenNodesShift & 0xff;
  if (fails >> n) return;  // fewer than four entries
  T z[kN], sum[kN];
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    z[i] = i < n ? numbers[1 + i] : T(1);
    sum[i] = 0;
  }
  for (int k = 0; k < n_nodes; ++k) {
    const T t = a.t[n_nodes][k];
    T factor[kN], before[kN], product = a.weight[n_nodes][k] * numbers[0];
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      if (i >= n) break;
      factor[i] = multiply_add(z[i], T(1) - t, fails >> i & 1 ? T(0) : t);
      before[i] = product;
      product *= factor[i];
    }
    T after = 1;
#pragma unroll
    for (int i = kN; i-- > 0;) {
      if (i >= n) continue;
      sum[i] = multiply_add(before[i], after, sum[i]);
      after *= factor[i];
    }
  }
  const uint32_t size = max(4u, 1u << n);
  T* const pieces = reinterpret_cast<T*>(tables + (head.y & 0xffff) * kOwenPiece);
  T* const lists = reinterpret_cast<T*>(tables + (head.y >> kOwenListsShift) * kOwenPiece) + fails;
  const uint32_t n_numbers = head.x >> kOwenNumbersShift, n_in_full_pieces = n_numbers / kNumbers * kNumbers;
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    if (i >= n) break;
    const uint32_t place = head.z >> 4 * i & 15, in_piece = place % kNumbers, first = place - in_piece;
    const uint32_t width =
        first < n_in_full_pieces ? kNumbers : owen_last_width(n_numbers - n_in_full_pieces);
    if (place < kOwenList)
      pieces[first * size + fails * width + in_piece] = sum[i] * ((fails >> i & 1 ? T(0) : T(1)) - z[i]);
    else
      lists[(place - kOwenList) * size] = sum[i];
  }
}

// Write the numbers of one group, of a path of many groups.
template <class T>
__device__ __forceinline__ void fill_owen_group(const CudaOwenArgs<T>& a, const uint4& head, const T* numbers,
                                                uint32_t group, char* tables) {
  constexpr int kNumbers = owen_piece<T>();
  // If a row fails a group whose zero fraction is 0, there is no factor by which a product could be divided.
  constexpr T kLeast = sizeof(T) == 4 ? T(1e-20) : T(1e-200);
  const uint32_t n = head.x & 0xff, n_nodes = head.x >> kOwenNodesShift & 0xff;
  if (group >= n) return;
  const uint32_t length = (n_nodes + kNumbers - 1) / kNumbers * kNumbers;
  T* const lists = reinterpret_cast<T*>(tables + head.y * kOwenPiece);
  T* const own = lists + (1 + kOwenLongLists * group) * length;
  const T z = numbers[1 + group];
  const bool is_single = head.z >> group & 1;
  for (uint32_t k = 0; k < length; ++k) {
    const bool used = k < n_nodes;
    const T t = used ? a.t[n_nodes][k] : T(0.5), off = max(z * (T(1) - t), kLeast), on = z * (T(1) - t) + t;
    if (group == 0) lists[k] = used ? a.weight[n_nodes][k] * numbers[0] : T(0);
    own[k] = on;
    own[k + length] = off;
    own[k + 2 * length] = (is_single ? T(1) - z : T(1)) / on;
    own[k + 3 * length] = is_single ? T(-1) / (T(1) - t) : T(1) / off;
  }
}

// Compute the tables of a stage. A thread takes one entry at a time.
template <class T>
__device__ __forceinline__ void fill_owen_tables(const CudaOwenArgs<T>& a, const uint32_t* stage,
                                                 char* tables) {
  const uint16_t* const list = reinterpret_cast<const uint16_t*>(stage + stage[2]);
  const uint32_t n_entries = stage[0] * 4;
  for (uint32_t entry = threadIdx.x; entry < n_entries; entry += blockDim.x) {
    const uint32_t* const table = stage + list[entry / 4];
    const uint4 head = *reinterpret_cast<const uint4*>(table);
    const T* const numbers = reinterpret_cast<const T*>(table + kOwenTableHeader);
    if (head.x & kOwenLong)
      fill_owen_group(a, head, numbers, entry - head.w * 4, tables);
    else
      fill_owen_entry(a, head, numbers, entry - head.w * 4, tables);
  }
}

// A lane's rows in the descent.
template <class T>
struct OwenRows {
  static constexpr int R = cuda_lane_rows<T>(), kTile = cuda_tile_rows<T>();
  const int16_t* codes;
  uint32_t* postponed;  // the words of postponed subtrees
  char* phi;

  // Add the numbers of each row's entry, times a factor, to the slots that are listed at `op`. Return the end
  // of the list.
  __device__ __forceinline__ const uint32_t* add_pieces(const uint32_t* op, const char* pieces, uint32_t size,
                                                        const uint32_t (&entry)[R], int n,
                                                        const T (&factor)[R]) const {
    for (; n >= kNumbers; n -= kNumbers, op += 4, pieces += size * kOwenPiece)
      add_piece<kNumbers>(op, pieces, entry, factor);
    if (!n) return op;
    if (n == 1)
      add_piece<1>(op, pieces, entry, factor);
    else if (n == 2)
      add_piece<2>(op, pieces, entry, factor);
    else
      add_piece<3>(op, pieces, entry, factor);
    return op + 4;
  }

  // Add a number of each row to a slot.
  __device__ __forceinline__ void add(uint32_t slot, const T (&x)[R]) const {
    T* const to = reinterpret_cast<T*>(phi + slot);
    RowValues<T> sum = load_row_values(to);
#pragma unroll
    for (int r = 0; r < R; ++r) sum.x[r] += x[r];
    store_row_values(to, sum);
  }

 private:
  static constexpr int kNumbers = owen_piece<T>();

  // Add the numbers of a piece.
  template <int kN>
  __device__ __forceinline__ void add_piece(const uint32_t* op, const char* piece, const uint32_t (&entry)[R],
                                            const T (&factor)[R]) const {
    constexpr int kUsed = kN < kNumbers ? kN : kNumbers, kWidth = owen_last_width(kUsed);
    T x[R][kWidth];
#pragma unroll
    for (int r = 0; r < R; ++r) read_vector(piece + entry[r] * (kWidth * sizeof(T)), x[r]);
    const uint4 slots = *reinterpret_cast<const uint4*>(op);
    const uint32_t slot[4] = {slots.x, slots.y, slots.z, slots.w};
    // The slots differ, so all sums are loaded before any sum is stored.
    RowValues<T> sum[kUsed];
#pragma unroll
    for (int i = 0; i < kUsed; ++i) sum[i] = load_row_values(reinterpret_cast<const T*>(phi + slot[i]));
#pragma unroll
    for (int i = 0; i < kUsed; ++i) {
#pragma unroll
      for (int r = 0; r < R; ++r) sum[i].x[r] = multiply_add(factor[r], x[r][i], sum[i].x[r]);
      store_row_values(reinterpret_cast<T*>(phi + slot[i]), sum[i]);
    }
  }
};

// Find which rows pass a test, without applying the test's flip.
template <int R>
__device__ __forceinline__ void find_passing(const int16_t* codes, int stride, uint32_t op, uint32_t operand,
                                             const uint32_t* category_bits, bool (&passes)[R]) {
  const int16_t* const p = codes + static_cast<size_t>(op >> kOwenColumnShift) * stride;
  const uint32_t flags = op >> kOwenFlagShift;
  if (flags & kNodeCategorical) {
#pragma unroll
    for (int r = 0; r < R; ++r)
      passes[r] = goes_left(p + r, stride, flags & (kNodeCategorical | kNodeWide), operand, category_bits);
    return;
  }
  uint32_t code[R];
  if constexpr (R == 2) {
    const uint32_t both = *reinterpret_cast<const uint32_t*>(p);
    code[0] = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(both & 0xffff)));
    code[1] = static_cast<uint32_t>(static_cast<int32_t>(both) >> 16);
  } else {
    code[0] = static_cast<uint32_t>(static_cast<int32_t>(*p));
  }
#pragma unroll
  for (int r = 0; r < R; ++r) passes[r] = code[r] + (flags & kNodeBias) <= operand;
}

// Add the values of the features of a group, given its four words, and the factor of each row. Return the end
// of the slots.
template <class T>
__device__ __forceinline__ const uint32_t* add_owen_group(const uint4& group, const uint32_t* slots,
                                                          const char* tables, const OwenRows<T>& rows,
                                                          const uint32_t (&word)[OwenRows<T>::R],
                                                          const T (&factor)[OwenRows<T>::R]) {
  uint32_t entry[OwenRows<T>::R];
#pragma unroll
  for (int r = 0; r < OwenRows<T>::R; ++r) entry[r] = word[r] >> (group.x & 0xffff) & group.w;
  return rows.add_pieces(slots, tables + group.y, group.z, entry,
                         static_cast<int>(group.x >> kOwenFeaturesShift), factor);
}

// Add the values of a leaf whose groups have a table.
template <class T>
__device__ __forceinline__ void add_owen_leaf(const uint4& head, const uint32_t* op, const char* tables,
                                              const OwenRows<T>& rows,
                                              const uint32_t (&word)[OwenRows<T>::R]) {
  constexpr int R = OwenRows<T>::R;
  const int n_single = head.x >> kOwenSingleShift & kOwenCount,
            n_many = head.x >> kOwenManyShift & kOwenCount;
  uint32_t entry[R];
  T factor[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    entry[r] = word[r] & (head.w - 1);
    factor[r] = 1;
  }
  op = rows.add_pieces(op, tables + head.y, head.w, entry, n_single, factor);
  const T* list = reinterpret_cast<const T*>(tables + head.z);
  for (int i = 0; i < n_many; ++i, list += head.w) {
#pragma unroll
    for (int r = 0; r < R; ++r) factor[r] = list[entry[r]];
    op = add_owen_group(*reinterpret_cast<const uint4*>(op), op + 4, tables, rows, word, factor);
  }
}

// Add the values of a leaf whose path has many groups. All products are computed for each row.
template <class T>
__device__ __forceinline__ void add_long_owen_leaf(const uint4& head, const uint32_t* op, const char* tables,
                                                   const OwenRows<T>& rows,
                                                   const uint32_t (&word)[OwenRows<T>::R]) {
  constexpr int R = OwenRows<T>::R, kNumbers = owen_piece<T>(), kPieces = kMostOwenNodes / kNumbers;
  const int n = head.x >> kOwenSingleShift & kOwenCount, n_pieces = (head.z + kNumbers - 1) / kNumbers;
  const char* const lists = tables + head.y;
  const uint32_t step = n_pieces * kOwenPiece;
  T product[R][kPieces][kNumbers];
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    if (p >= n_pieces) break;
#pragma unroll
    for (int r = 0; r < R; ++r) read_vector(lists + p * kOwenPiece, product[r][p]);
  }
  const char* own = lists + step;
  for (int i = 0; i < n; ++i, own += kOwenLongLists * step) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if (p >= n_pieces) break;
      T on[kNumbers], off[kNumbers];
      read_vector(own + p * kOwenPiece, on);
      read_vector(own + step + p * kOwenPiece, off);
#pragma unroll
      for (int k = 0; k < kNumbers; ++k)
#pragma unroll
        for (int r = 0; r < R; ++r) product[r][p][k] *= word[r] >> i & 1 ? off[k] : on[k];
    }
  }
  own = lists + 3 * step;
  for (int i = 0; i < n; ++i, own += kOwenLongLists * step) {
    T sum[R] = {};
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if (p >= n_pieces) break;
      T on[kNumbers], off[kNumbers];
      read_vector(own + p * kOwenPiece, on);
      read_vector(own + step + p * kOwenPiece, off);
#pragma unroll
      for (int k = 0; k < kNumbers; ++k)
#pragma unroll
        for (int r = 0; r < R; ++r)
          sum[r] = multiply_add(product[r][p][k], word[r] >> i & 1 ? off[k] : on[k], sum[r]);
    }
    const uint4 group = *reinterpret_cast<const uint4*>(op);
    op += 4;
    if (group.x >> kOwenFeaturesShift == 1)
      rows.add(group.y, sum);
    else
      op = add_owen_group(group, op, tables, rows, word, sum);
  }
}

// Run the operations of a stage. `word` has the bits that the rows fail at the current node. `left` is the
// end of the words of the postponed subtrees.
template <class T>
__device__ __forceinline__ void run_owen_stage(const CudaOwenArgs<T>& a, const uint32_t* stage,
                                               const char* tables, const OwenRows<T>& rows,
                                               uint32_t (&word)[OwenRows<T>::R], uint32_t*& postponed) {
  constexpr int R = OwenRows<T>::R, kTile = OwenRows<T>::kTile;
  const uint32_t* next = stage + stage[1];
  uint4 next_head = *reinterpret_cast<const uint4*>(next);
  for (;;) {
    const uint4 head = next_head;
    const uint32_t kind = head.x & kOwenKind;
    if (kind == kOwenEnd) return;
    const uint32_t* op = next + 4;
    const bool is_leaf = kind >= kOwenLeaf;
    next = is_leaf ? next + (head.x >> kOwenLengthShift) : op;
    next_head = *reinterpret_cast<const uint4*>(next);
    if (!is_leaf) {
      bool passes[R];
      find_passing<R>(rows.codes, kTile, head.x, head.y, a.category_bits, passes);
      if (kind == kOwenNode) {
#pragma unroll
        for (int r = 0; r < R; ++r) postponed[r] = word[r] | (passes[r] ? head.w : head.z);
        postponed += kTile;
      }
#pragma unroll
      for (int r = 0; r < R; ++r) word[r] |= passes[r] ? head.z : head.w;
      continue;
    }
    if (kind == kOwenLeaf)
      add_owen_leaf(head, op, tables, rows, word);
    else
      add_long_owen_leaf(head, op, tables, rows, word);
    const bool any_postponed = postponed != rows.postponed;
    if (any_postponed) postponed -= kTile;
#pragma unroll
    for (int r = 0; r < R; ++r) word[r] = any_postponed ? postponed[r] : 0;
  }
}

// Take the rows of a warp through the stages of a chunk, of which the first two are being loaded. All warps
// of a block compute the tables of a stage, even those without rows.
template <class T>
__device__ __forceinline__ void run_owen_stages(const CudaOwenArgs<T>& a, const CudaOwenChunk& chunk,
                                                bool has_rows, const OwenRows<T>& rows) {
  OwenShared<T>* const shared = shared_memory<OwenShared<T>>();
  const auto stream_of = [&](uint32_t stage) -> const uint32_t* {
    return shared->stages[stage % kOwenStreams];
  };
  const auto tables_of = [&](uint32_t stage) { return shared->tables[stage % 2]; };
  uint32_t word[OwenRows<T>::R] = {}, *postponed = rows.postponed;
  __pipeline_wait_prior(0);
  __syncthreads();
  fill_owen_tables(a, stream_of(0), tables_of(0));
  for (uint32_t stage = 0; stage < chunk.n_stages; ++stage) {
    // The tables of the stage and the words of the next stage are complete, and no thread reads the
    // previous ones.
    __pipeline_wait_prior(0);
    __syncthreads();
    if (stage + 2 < chunk.n_stages) load_owen_stage(a, chunk.stages + stage + 2, (stage + 2) % kOwenStreams);
    __pipeline_commit();
    if (has_rows) run_owen_stage(a, stream_of(stage), tables_of(stage), rows, word, postponed);
    if (stage + 1 < chunk.n_stages) fill_owen_tables(a, stream_of(stage + 1), tables_of(stage + 1));
  }
}

template <class T, bool kShared>
__global__ void __launch_bounds__(owen_warps<T>() * kWarp, 1)
    explain_owen_leaves(const __grid_constant__ CudaOwenArgs<T> a) {
  constexpr int R = OwenRows<T>::R, kTile = OwenRows<T>::kTile;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  OwenShared<T>* const shared = shared_memory<OwenShared<T>>();
  const typename OwenShared<T>::OwenWarp sizes = owen_warp(a, kShared);
  T* const own_phi = shared->sums(warp, sizes);
  uint32_t* const own_postponed = reinterpret_cast<uint32_t*>(own_phi + sizes.n_slots * kTile);
  int16_t* const own_codes = reinterpret_cast<int16_t*>(own_postponed + sizes.n_postponed * kTile);

  for (int32_t task = blockIdx.x; task < a.n_tasks; task += gridDim.x) {
    const CudaOwenChunk chunk = a.chunks[task / a.n_groups];
    const int32_t tile = task % a.n_groups * a.block_tiles + warp;
    const bool has_rows = warp < a.block_tiles && tile < a.n_tiles;
    for (uint32_t stage = 0; stage < 2 && stage < chunk.n_stages; ++stage)
      load_owen_stage(a, chunk.stages + stage, stage);
    __pipeline_commit();
    const int16_t* const codes = a.codes + static_cast<size_t>(tile) * a.n_columns * kTile + lane * R;
    T* const partial =
        a.partial + (static_cast<size_t>(tile) * a.n_slots + chunk.first_slot) * kTile + lane * R;
    OwenRows<T> rows;
    rows.postponed = own_postponed + lane * R;
    if constexpr (kShared) {
      rows.codes = own_codes + lane * R;
      rows.phi = reinterpret_cast<char*>(own_phi + lane * R);
    } else {
      rows.codes = codes;
      rows.phi = reinterpret_cast<char*>(partial);
    }
    if (has_rows) {
      if constexpr (kShared)
        for (int32_t c = 0; c < a.n_columns; ++c)
#pragma unroll
          for (int r = 0; r < R; ++r) own_codes[c * kTile + lane * R + r] = codes[c * kTile + r];
      for (uint32_t slot = 0; slot < chunk.n_slots; ++slot)
        store_row_values(reinterpret_cast<T*>(rows.phi) + slot * kTile, RowValues<T>{});
    }
    run_owen_stages(a, chunk, has_rows, rows);
    if (kShared && has_rows)
      for (uint32_t slot = 0; slot < chunk.n_slots; ++slot)
        store_row_values(partial + slot * kTile,
                         load_row_values(reinterpret_cast<const T*>(rows.phi) + slot * kTile));
    __syncthreads();  // before the next chunk's stages replace these
  }
}

template <class T>
using OwenKernel = void (*)(CudaOwenArgs<T>);

template <class T>
OwenKernel<T> owen_kernel(bool shared);

}  // namespace skshap
