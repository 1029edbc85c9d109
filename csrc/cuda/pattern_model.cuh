// Leaves without a table on a device: the data that are the same in all calls, and the launches.
#pragma once

#include <algorithm>

#include "cuda/memory.h"
#include "cuda/pattern_leaves.cuh"

namespace skshap {

template <class T>
class PatternModel {
 public:
  // Upload the leaves to the current device, whose blocks have at most `max_shared` bytes of shared memory.
  // `tile_rows`, `n_columns` and `n_slots` are the numbers for all kernels, and `first_slot` is the number of
  // slots before the slots of the leaves.
  void upload(const CudaPatternLeaves<T>& from, PatternResults results, Index index, size_t max_shared,
              int32_t tile_rows, int32_t n_columns, uint32_t n_slots, const DeviceBuffer& category_bits) {
    if (from.leaves.empty()) return;
    const PatternMoments moments(index);
    chunks_ = skshap::upload(from.chunks);
    leaves_ = skshap::upload(from.leaves);
    tests_ = skshap::upload(from.tests);
    runs_ = skshap::upload(from.runs);
    slots_ = skshap::upload(from.slots);
    narrow_ = skshap::upload(from.narrow);
    wide_ = skshap::upload(from.wide);
    weights_ = skshap::upload(from.weights);
    terms_ = skshap::upload(from.terms);
    values_ = skshap::upload(from.values);
    moments_ = skshap::upload(moments.values);
    pair_moments_ = skshap::upload(moments.pairs);
    bytes_ = sizeof(uint32_t) * from.narrow.size() + sizeof(uint64_t) * from.wide.size() +
             sizeof(double) * from.weights.size() + sizeof(T) * from.terms.size();
    CudaPatternArgs<T> args{};
    args.chunks = chunks_.as<CudaPatternChunk>();
    args.leaves = leaves_.as<CudaPatternLeaf>();
    args.tests = tests_.as<CudaPathTest>();
    args.runs = runs_.as<CudaPatternRun>();
    args.slots = slots_.as<uint32_t>();
    args.narrow = narrow_.as<uint32_t>();
    args.wide = wide_.as<uint64_t>();
    args.weights = weights_.as<double>();
    args.terms = terms_.as<T>();
    args.values = values_.as<double>();
    args.moments = moments_.as<double>();
    args.pair_moments = pair_moments_.as<double>();
    args.category_bits = category_bits.as<uint32_t>();
    args.tile_rows = tile_rows;
    args.n_columns = n_columns;
    args.n_slots = n_slots;
    const CudaPatternChunk* chunk = from.chunks.data();
    for (size_t form = 0; form < kNumberOfPatternForms; ++form) {
      if (!from.n_chunks[form]) continue;
      plan_launch(pattern_kernel<T>(form, results), args, chunk, from.n_chunks[form], max_shared);
      args.chunks += from.n_chunks[form];
      chunk += from.n_chunks[form];
    }
  }

  bool any() const { return !launches_.empty(); }
  size_t bytes() const { return bytes_; }  // of patterns and weights

  // Queue the work for coded rows. `alpha` has the factors of terms, or is null.
  void run(const int16_t* codes, const T* alpha, int32_t n_tiles, T* partial, cudaStream_t stream) const {
    for (const PatternLaunch& launch : launches_) {
      CudaPatternArgs<T> a = launch.args;
      a.n_tiles = n_tiles;
      a.n_groups = (n_tiles * (a.tile_rows / kWarp) + kPatternWarps - 1) / kPatternWarps;
      a.codes = codes;
      a.alpha = alpha;
      a.partial = partial;
      // Long jobs are divided, so that the number of tasks fits its type.
      const int32_t at_once = std::max(1, INT32_MAX / a.n_groups);
      for (int32_t first = 0; first < launch.n_chunks; first += at_once) {
        a.chunks = launch.args.chunks + first;
        a.n_tasks = a.n_groups * std::min(at_once, launch.n_chunks - first);
        launch.kernel<<<std::min(launch.n_blocks, a.n_tasks), kPatternWarps * kWarp, launch.shared, stream>>>(
            a);
        check_launch("going through background patterns");
      }
    }
  }

 private:
  // All chunks of a form.
  struct PatternLaunch {
    PatternKernel<T> kernel;
    CudaPatternArgs<T> args;
    int32_t n_chunks;
    int n_blocks;
    size_t shared;
  };

  void plan_launch(PatternKernel<T> kernel, CudaPatternArgs<T> args, const CudaPatternChunk* chunks,
                   size_t n_chunks, size_t max_shared) {
    for (size_t i = 0; i < n_chunks; ++i) args.max_slots = std::max(args.max_slots, chunks[i].n_slots);
    size_t shared = sizeof(T) * kPatternWarps * kWarp * args.max_slots;
    if (shared > max_shared / 2) shared = args.max_slots = 0;  // sum phi in the caches
    constexpr const char* kCannot = "this device cannot run the kernels";
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(max_shared)),
          kCannot);
    int device = 0, multiprocessors = 0, blocks = 0;
    check(cudaGetDevice(&device), "no current device");
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
          "device attribute");
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kPatternWarps * kWarp, shared),
          kCannot);
    launches_.push_back(
        {kernel, args, static_cast<int32_t>(n_chunks), std::max(blocks, 1) * multiprocessors, shared});
  }

  DeviceBuffer chunks_, leaves_, tests_, runs_, slots_, narrow_, wide_, weights_, terms_, values_, moments_,
      pair_moments_;
  std::vector<PatternLaunch> launches_;
  size_t bytes_ = 0;
};

}  // namespace skshap
