// The trees that are explained by tables, on a device.
#pragma once

#include <algorithm>

#include "cuda/method_model.cuh"
#include "cuda/tables.cuh"

namespace skshap {

template <class T, class Lookup>
class TableModel : public MethodModel<T> {
 public:
  TableModel(const MethodContext<T>& context, const CudaTableTrees<T, Lookup>& from) {
    n_chunks_ = static_cast<int>(from.chunks.size());
    CudaTableArgs<T, Lookup>& a = args_;
    a = CudaTableArgs<T, Lookup>{.chunks = arrays_.upload(from.chunks),
                                 .trees = arrays_.upload(from.trees),
                                 .nodes = arrays_.upload(from.nodes),
                                 .lookups = arrays_.upload(from.lookups),
                                 .bits = arrays_.upload(from.bits),
                                 .targets = arrays_.upload(from.targets),
                                 .numbers = arrays_.upload(from.numbers),
                                 .category_bits = context.category_bits,
                                 .n_columns = context.n_columns,
                                 .n_slots = context.n_slots};
    for (const CudaTableChunk& chunk : from.chunks) a.max_slots = std::max(a.max_slots, chunk.n_slots);
    for (const CudaTableTree& tree : from.trees)
      a.max_words = std::max(a.max_words, static_cast<uint32_t>(kFirstWord + 2 * tree.n_nodes));
    size_t phi_bytes = 0, words_bytes = 0;
    const auto fits = [&](int n_warps) {
      n_warps_ = n_warps;
      phi_bytes = WarpSums<T>::bytes(n_warps, a.max_slots);
      words_bytes = TableShared<T>::word_bytes(n_warps, a.max_words);
      shared_ = words_bytes <= kMaxSharedWords ? words_bytes : 0;
      return shared_ + phi_bytes <= context.max_shared() / 2;  // two blocks at a time
    };
    int n_warps = kTableWarps;
    while (n_warps && !fits(n_warps)) n_warps /= 2;
    if (!n_warps) {  // sum phi in the caches
      a.max_slots = 0;
      fits(kTableWarps);
    }
    shared_ += phi_bytes;
    allow_shared(kernel(), context.max_shared());
    n_blocks_ = blocks_at_a_time(kernel(), n_warps_ * kWarp, shared_) * context.device.multiprocessors;
    if (words_bytes > kMaxSharedWords) this->frame_bytes = words_bytes * n_blocks_;
  }

  void run(const CodedRows<T>& rows, cudaStream_t s) const override {
    CudaTableArgs<T, Lookup> a = args_;
    a.n_tiles = rows.n_tiles;
    a.n_groups = (rows.n_tiles * (kTile / kWarp) + n_warps_ - 1) / n_warps_;
    a.n_tasks = a.n_groups * n_chunks_;
    a.codes = rows.codes;
    a.partial = rows.partial;
    a.words = this->frame_bytes ? static_cast<uint32_t*>(rows.frames) : nullptr;
    kernel()<<<std::min(n_blocks_, a.n_tasks), n_warps_ * kWarp, shared_, s>>>(a);
    check_launch("looking up values");
  }

 private:
  static constexpr int kTile = cuda_tile_rows<T>();
  static constexpr auto kernel() { return lookup_tables<T, Lookup>; }

  DeviceArrays arrays_;
  CudaTableArgs<T, Lookup> args_{};
  int n_chunks_ = 0, n_blocks_ = 0, n_warps_ = 0;  // warps of a block
  size_t shared_ = 0;
};

}  // namespace skshap
