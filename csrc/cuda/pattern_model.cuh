// Leaves without a table on a device: the data that are the same in all calls, and the launches.
#pragma once

#include <algorithm>

#include "cuda/method_model.cuh"
#include "cuda/pattern_leaves.cuh"

namespace skshap {

template <class T>
class PatternModel : public MethodModel<T> {
 public:
  // Upload the leaves to the current device, whose blocks have at most `max_shared` bytes of shared memory.
  // `tile_rows`, `n_columns` and `n_slots` are the numbers of the model.
  PatternModel(const CudaPatternLeaves<T>& from, PatternResults results, const PatternMoments& moments,
               size_t max_shared, int32_t tile_rows, int32_t n_columns, uint32_t n_slots,
               const uint32_t* category_bits) {
    CudaPatternArgs<T> args{.chunks = arrays_.upload(from.chunks),
                            .leaves = arrays_.upload(from.leaves),
                            .tests = arrays_.upload(from.tests),
                            .runs = arrays_.upload(from.runs),
                            .slots = arrays_.upload(from.slots),
                            .narrow = arrays_.upload(from.narrow),
                            .wide = arrays_.upload(from.wide),
                            .weights = arrays_.upload(from.weights),
                            .terms = arrays_.upload(from.terms),
                            .values = arrays_.upload(from.values),
                            .moments = arrays_.upload(moments.values),
                            .pair_moments = arrays_.upload(moments.pairs),
                            .category_bits = category_bits,
                            .tile_rows = tile_rows,
                            .n_columns = n_columns,
                            .n_slots = n_slots};
    const CudaPatternChunk* chunk = from.chunks.data();
    for (size_t form = 0; form < kNumberOfPatternForms; ++form) {
      if (!from.n_chunks[form]) continue;
      plan_launch(pattern_kernel<T>(form, results), args, chunk, from.n_chunks[form], max_shared);
      args.chunks += from.n_chunks[form];
      chunk += from.n_chunks[form];
    }
  }

  void run(const CodedRows<T>& rows, cudaStream_t stream) const override {
    for (const PatternLaunch& launch : launches_) {
      CudaPatternArgs<T> a = launch.args;
      a.n_tiles = rows.n_tiles;
      a.n_groups = (rows.n_tiles * (a.tile_rows / kWarp) + kPatternWarps - 1) / kPatternWarps;
      a.codes = rows.codes;
      a.alpha = rows.alpha;
      a.partial = rows.partial;
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
    size_t shared = WarpSums<T>::bytes(kPatternWarps, args.max_slots);
    if (shared > max_shared / 2) shared = args.max_slots = 0;  // sum phi in the caches
    allow_shared(kernel, max_shared);
    const int n_blocks =
        blocks_at_a_time(kernel, kPatternWarps * kWarp, shared) * device_limits().multiprocessors;
    launches_.push_back({kernel, args, static_cast<int32_t>(n_chunks), n_blocks, shared});
  }

  DeviceArrays arrays_;
  std::vector<PatternLaunch> launches_;
};

}  // namespace skshap
