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
               const uint32_t* category_bits)
      : chunks_(upload(from.chunks)),
        leaves_(upload(from.leaves)),
        tests_(upload(from.tests)),
        runs_(upload(from.runs)),
        slots_(upload(from.slots)),
        narrow_(upload(from.narrow)),
        wide_(upload(from.wide)),
        weights_(upload(from.weights)),
        terms_(upload(from.terms)),
        values_(upload(from.values)),
        moments_(upload(moments.values)),
        pair_moments_(upload(moments.pairs)) {
    CudaPatternArgs<T> args{};
    args.chunks = chunks_.template as<CudaPatternChunk>();
    args.leaves = leaves_.template as<CudaPatternLeaf>();
    args.tests = tests_.template as<CudaPathTest>();
    args.runs = runs_.template as<CudaPatternRun>();
    args.slots = slots_.template as<uint32_t>();
    args.narrow = narrow_.template as<uint32_t>();
    args.wide = wide_.template as<uint64_t>();
    args.weights = weights_.template as<double>();
    args.terms = terms_.template as<T>();
    args.values = values_.template as<double>();
    args.moments = moments_.template as<double>();
    args.pair_moments = pair_moments_.template as<double>();
    args.category_bits = category_bits;
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
    size_t shared = sizeof(T) * kPatternWarps * kWarp * args.max_slots;
    if (shared > max_shared / 2) shared = args.max_slots = 0;  // sum phi in the caches
    allow_shared(kernel, max_shared);
    const int n_blocks =
        blocks_at_a_time(kernel, kPatternWarps * kWarp, shared) * device_limits().multiprocessors;
    launches_.push_back({kernel, args, static_cast<int32_t>(n_chunks), n_blocks, shared});
  }

  DeviceBuffer chunks_, leaves_, tests_, runs_, slots_, narrow_, wide_, weights_, terms_, values_, moments_,
      pair_moments_;
  std::vector<PatternLaunch> launches_;
};

}  // namespace skshap
