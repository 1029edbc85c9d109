// The kernels that explain a batch of rows. They are launched one after another in a stream.
#pragma once

#include <algorithm>
#include <array>

#include "cuda/model.cuh"

namespace skshap {

constexpr const char* kNoRoom = "the rows of a batch do not fit the device's memory";
constexpr const char* kComputing = "computing SHAP values";
// The longest path, root included, that GPUTreeShap runs in single precision.
constexpr uint32_t kMaxSinglePath = 17;

// Arrays of a result: values, matrices, pairs, triples.
constexpr int kArrays = 4;
using Arrays = std::array<void*, kArrays>;

inline Arrays arrays(const Result& result) {
  return {result.values, result.matrices, result.pairs, result.triples};
}
// Return a result that consists of arrays, without a margin.
inline Result result_of(const Arrays& arrays, bool is_float32) {
  return {.values = arrays[0],
          .is_float32 = is_float32,
          .margin = nullptr,
          .matrices = arrays[1],
          .pairs = arrays[2],
          .triples = arrays[3]};
}

// Stream and buffers of a batch in flight.
struct Flight {
  Stream stream;
  Event sent, done;  // the latest copy of its rows to the device, and the latest use of the flight
  DeviceBuffer X, codes, partial, margin_sums, margin, frames, counters, path_codes, phi, sums;
  DeviceBuffer results[kArrays];
  HostBuffer X_host, results_host[kArrays], margin_host;
  int64_t first_row = 0, n_rows = 0;  // of the caller's rows, until their result is fetched
};

// Rows on the device, and where to write their result.
struct Batch {
  Rows rows;
  double missing;  // a number that means missing, besides NaN
  Result out;
  bool margins;
  unsigned long long* gap;  // by output: bits of the largest gap; or null
};

// The launches for the model of a plan.
template <class T>
class Launches {
 public:
  static constexpr int kTile = cuda_tile_rows<T>();

  Launches(const Plan& plan, const CudaModel<T>& model) : plan_(plan), model_(model) {}

  // Return the bytes per row of each array. They are 0 for arrays that are not requested.
  std::array<size_t, kArrays> row_bytes(const Result& result) const {
    const size_t item = result.is_float32 ? 4 : 8;
    return {item * row_width(), result.matrices ? item * row_width() * plan_.n_features : 0,
            result.pairs ? item * plan_.n_outputs * plan_.pairs.size() : 0,
            result.triples ? item * plan_.n_outputs * plan_.triples.size() : 0};
  }

  // Return the bytes of a flight for each row, except for the input and the result on the device.
  size_t flight_row_bytes(bool margins) const {
    return sizeof(T) * model_.n_slots + 2 * static_cast<size_t>(model_.n_columns) +
           (model_.paths.used ? 4 * plan_.columns.size() + 8 * plan_.n_outputs * plan_.features.size() : 0) +
           (margins ? 8 * (static_cast<size_t>(model_.n_sums) + plan_.n_outputs) : 0) +
           (plan_.interactions() ? 8 * plan_.n_outputs * n_places() : 0);
  }

  // Reserve the buffers of a flight, except for the input and the result.
  void reserve(Flight& flight, int64_t n_rows, bool margins, const Result& out) const {
    const size_t n = (n_rows + kTile - 1) / kTile * kTile;
    const auto reserve = [&](DeviceBuffer& buffer, size_t size) {
      if (buffer.holds(size)) return;
      flight.done.wait(kComputing);  // the old one may be in use
      buffer.reserve(size, kNoRoom);
    };
    reserve(flight.codes, 2 * n * model_.n_columns);
    reserve(flight.partial, sizeof(T) * n * model_.n_slots);
    reserve(flight.frames, model_.frame_bytes);
    if (plan_.interactions() && !fused_matrices(out))
      reserve(flight.sums, 8 * n_rows * plan_.n_outputs * n_places());
    reserve(flight.counters, 4 * n_counters());
    if (model_.paths.used) {
      reserve(flight.path_codes, 4 * cuda_path_code_elements(n_rows, plan_.columns.size()));
      reserve(flight.phi, 8 * n_rows * plan_.n_outputs * plan_.features.size());
    }
    if (!margins) return;
    reserve(flight.margin_sums, 8 * n * model_.n_sums);
    reserve(flight.margin, 8 * n * plan_.n_outputs);
  }

  // Explain the rows of a batch with the buffers of a flight. If there are rules for numbers, check the
  // numbers of the rows while coding them. Call `coded` after that.
  template <class Coded>
  void explain(Flight& flight, const Batch& batch, const CudaCheck* rules, cudaStream_t s,
               const Coded& coded) const {
    const int32_t n_tiles = static_cast<int32_t>((batch.rows.n_rows + kTile - 1) / kTile);
    const CudaCodeArgs coding = code_args(flight, batch, rules);
    if (model_.n_columns && (batch.margins || !model_.paths.used)) {
      code(coding, n_tiles, s);
      coded();
    }
    if (model_.paths.used) run_gputreeshap(flight, coding, batch.out, s);
    walk_trees(flight, n_tiles, s);
    explain_leaves(flight, batch.rows.n_rows, s);
    if (model_.general.n_chunks) walk_general_trees(flight, n_tiles, s);
    if (model_.tables.n_chunks) run_lookups(flight, n_tiles, s);
    model_.pattern_leaves.run(flight.codes.template as<int16_t>(), nullptr, n_tiles,
                              flight.partial.template as<T>(), s);
    model_.owen_leaves.run(flight.codes.template as<int16_t>(), n_tiles, flight.partial.template as<T>(), s);
    if (plan_.intervals.any()) look_up_intervals(flight, n_tiles, batch.margins, s);
    const CudaSumArgs sums = sum_args(flight, batch);
    if (fused_matrices(batch.out)) {
      add_up_matrices(sums, batch.out, n_tiles, s);
    } else {
      if (!model_.paths.used) add_up_chunks(sums, batch, n_tiles, s);
      if (plan_.interactions()) write_interactions(flight, batch.out, batch.rows.n_rows, s);
    }
    if (!batch.margins) return;
    find_margins(flight, sums, n_tiles, s);
    if (batch.gap) find_largest_gaps(sums, batch, s);
  }

 private:
  size_t row_width() const { return static_cast<size_t>(plan_.n_outputs) * plan_.n_features; }
  size_t n_places() const { return cuda_places(plan_); }
  bool fused_matrices(const Result& out) const { return out.matrices && !out.pairs && model_.small_matrices; }

  // Return the number of counters of tasks that are taken: one for each launch of the walk, and one for the
  // general walk.
  size_t n_counters() const { return model_.launches.size() + 1; }

  CudaCodeArgs code_args(const Flight& flight, const Batch& batch, const CudaCheck* rules) const {
    return {.X = batch.rows.data,
            .x_single = batch.rows.is_float32,
            .n_rows = batch.rows.n_rows,
            .row_stride = batch.rows.row_stride,
            .column_stride = batch.rows.column_stride,
            .columns = model_.columns.template as<CudaCodeColumn>(),
            .n_columns = model_.n_columns,
            .strict = plan_.strict,
            .missing = batch.missing,
            .thresholds = model_.thresholds.template as<void>(),
            .categories = model_.categories.template as<int32_t>(),
            .codes = flight.codes.template as<int16_t>(),
            .counters = flight.counters.template as<int32_t>(),
            .n_counters = static_cast<int32_t>(n_counters()),
            .checks = rules != nullptr,
            .n_inputs = plan_.n_inputs,
            .check = rules ? *rules : CudaCheck{}};
  }

  void code(const CudaCodeArgs& a, int32_t n_tiles, cudaStream_t s) const {
    const int parts = std::min<int>((model_.n_columns + 3) / 4, n_tiles < 4096 ? 64 : 4);
    const dim3 grid(n_tiles, std::max(parts, 1));
    if (plan_.x_float32)
      code_rows<float, kTile><<<grid, 256, 0, s>>>(a);
    else
      code_rows<double, kTile><<<grid, 256, 0, s>>>(a);
    check_launch("coding rows");
  }

  void run_gputreeshap(const Flight& flight, const CudaCodeArgs& coding, const Result& out,
                       cudaStream_t s) const {
    CudaPathArgs a{};
    a.elements = model_.paths.elements.template as<PathElement>();
    a.bins = model_.paths.bins.template as<int64_t>();
    a.paths = model_.paths.paths.template as<LeafPath>();
    a.category_bits = model_.paths.category_bits.template as<uint32_t>();
    a.n_bins = model_.paths.n_bins;
    a.leaf_values = model_.leaf_values.template as<double>();
    a.features = model_.features.template as<int32_t>();
    a.n_used = static_cast<int32_t>(plan_.features.size());
    a.n_outputs = plan_.n_outputs;
    a.n_features = plan_.n_features;
    a.x_float32 = plan_.x_float32;
    a.code = coding;
    a.code.columns = model_.full_columns.template as<CudaCodeColumn>();
    a.code.n_columns = static_cast<int32_t>(plan_.columns.size());
    a.codes = flight.path_codes.template as<uint32_t>();
    a.phi = flight.phi.template as<double>();
    a.values = out.values;
    // The recurrences of GPUTreeShap lose accuracy with every feature on a path. float32 suffices for about
    // 16 features.
    const bool single = sizeof(T) == 4 && model_.paths.longest <= kMaxSinglePath;
    check(single ? (out.is_float32 ? launch_gputreeshap<float, float>(a, s)
                                   : launch_gputreeshap<float, double>(a, s))
                 : (out.is_float32 ? launch_gputreeshap<double, float>(a, s)
                                   : launch_gputreeshap<double, double>(a, s)),
          "running GPUTreeShap");
  }

  void walk_trees(const Flight& flight, int32_t n_tiles, cudaStream_t s) const {
    for (size_t i = 0; i < model_.launches.size(); ++i) {
      const auto& launch = model_.launches[i];
      CudaWalkArgs<T> a = launch.args;
      a.n_tiles = n_tiles;
      const int n_warps = launch.n_warps(n_tiles, model_.multiprocessors);
      a.n_groups = (n_tiles + n_warps - 1) / n_warps;
      a.n_tasks = a.n_groups * launch.n_chunks;
      a.codes = flight.codes.template as<int16_t>();
      a.partial = flight.partial.template as<T>();
      a.frames = flight.frames.template as<T>();
      a.next_task = flight.counters.template as<int32_t>() + i;
      const int n_blocks = std::min(launch.n_blocks[n_warps - 1], a.n_tasks);
      launch.kernel.kernel<<<n_blocks, n_warps * kWarp, launch.shared(n_warps), s>>>(a);
      check_launch("walking the trees");
    }
  }

  void explain_leaves(const Flight& flight, int64_t n_rows, cudaStream_t s) const {
    constexpr int64_t kMostRows = 1 << 15;  // of a launch
    CudaLeafArgs<T> a = model_.leaves.args;
    for (const auto& launch : model_.leaves.launches) {
      a.chunks = model_.leaves.args.chunks + launch.first_chunk;
      std::copy(std::begin(launch.t), std::end(launch.t), a.t);
      std::copy(std::begin(launch.weight), std::end(launch.weight), a.weight);
      for (int64_t first = 0; first < n_rows; first += kMostRows) {
        const int64_t tile = first / kTile;
        a.codes = flight.codes.template as<int16_t>() + tile * model_.n_columns * kTile;
        a.partial = flight.partial.template as<T>() + tile * model_.n_slots * kTile;
        const dim3 grid(launch.n_chunks, static_cast<unsigned>(std::min(kMostRows, n_rows - first)));
        leaf_kernel<T>(launch.n_nodes)<<<grid, kChunkOfLeaves, launch.shared, s>>>(a);
        check_launch("explaining the leaves");
      }
    }
  }

  void walk_general_trees(const Flight& flight, int32_t n_tiles, cudaStream_t s) const {
    CudaGeneralArgs<T> a = model_.general.args;
    a.n_tiles = n_tiles;
    a.n_tasks = n_tiles * model_.general.n_chunks;
    a.codes = flight.codes.template as<int16_t>();
    a.partial = flight.partial.template as<T>();
    a.memory = flight.frames.template as<T>();
    a.next_task = flight.counters.template as<int32_t>() + model_.launches.size();
    const auto kernel = plan_.order < 3 ? walk_general<T, cuda_lane_rows<T>(), false>
                                        : walk_general<T, cuda_lane_rows<T>(), true>;
    kernel<<<std::min(model_.general.n_blocks, (a.n_tasks + 1) / 2), 64, 0, s>>>(a);
    check_launch("walking the trees");
  }

  void run_lookups(const Flight& flight, int32_t n_tiles, cudaStream_t s) const {
    CudaTableArgs<T> a = model_.tables.args;
    a.n_tiles = n_tiles;
    const int n_warps = model_.tables.n_warps;
    a.n_groups = (n_tiles * (kTile / kWarp) + n_warps - 1) / n_warps;
    a.n_tasks = a.n_groups * model_.tables.n_chunks;
    a.codes = flight.codes.template as<int16_t>();
    a.partial = flight.partial.template as<T>();
    a.words = model_.tables.words_bytes ? flight.frames.template as<uint32_t>() : nullptr;
    lookup_tables<T, kTile>
        <<<std::min(model_.tables.n_blocks, a.n_tasks), n_warps * kWarp, model_.tables.shared, s>>>(a);
    check_launch("looking up values");
  }

  void look_up_intervals(const Flight& flight, int32_t n_tiles, bool margins, cudaStream_t s) const {
    CudaIntervalArgs<T> a = model_.intervals.args;
    a.n_rows = static_cast<int64_t>(n_tiles) * kTile;
    a.codes = flight.codes.template as<int16_t>();
    a.partial = flight.partial.template as<T>();
    a.margins = margins ? flight.margin_sums.template as<double>() : nullptr;
    for (size_t form = 0; form < std::size(kIntervalForms); ++form) {
      const IntervalKernel<T> kernel = interval_kernel<T>(kIntervalForms[form], margins);
      const dim3 grid(static_cast<unsigned>((a.n_rows + kernel.n_rows - 1) / kernel.n_rows),
                      static_cast<unsigned>(model_.intervals.n_parts[form]));
      if (!grid.y) continue;
      kernel.kernel<<<grid, kernel.n_threads, model_.intervals.shared, s>>>(a);
      check_launch("looking up values");
      a.parts += grid.y;
    }
  }

  CudaSumArgs sum_args(const Flight& flight, const Batch& batch) const {
    const bool pairs = plan_.interactions();
    CudaSumArgs sums{};
    sums.part_offsets = model_.offsets.template as<int64_t>();
    sums.parts = model_.parts.template as<int32_t>();
    sums.part_weights = model_.part_weights.template as<double>();
    sums.features = pairs ? nullptr : model_.features.template as<int32_t>();
    sums.n_undoubled = static_cast<int32_t>(plan_.order == 2 ? plan_.features.size() : n_places());
    sums.n_places = static_cast<int32_t>(n_places());
    sums.n_outputs = plan_.n_outputs;
    sums.n_features = plan_.n_features;
    sums.n_slots = model_.n_slots;
    sums.n_sums = model_.n_sums;
    sums.scale = plan_.leaf_scale;
    sums.constant = model_.constant.template as<double>();
    sums.partial = flight.partial.template as<void>();
    sums.margin_sums = flight.margin_sums.template as<double>();
    sums.n_rows = batch.rows.n_rows;
    sums.values = pairs ? flight.sums.template as<void>() : batch.out.values;
    sums.margin = flight.margin.template as<double>();
    return sums;
  }

  CudaMatrixArgs matrix_args(const double* sums, const Result& out, int64_t n_rows) const {
    return {.sums = sums,
            .partner_offsets = model_.partner_offsets.template as<int64_t>(),
            .partners = model_.partners.template as<CudaPartner>(),
            .features = model_.features.template as<int32_t>(),
            .n_used = static_cast<int32_t>(plan_.features.size()),
            .n_places = static_cast<int32_t>(n_places()),
            .n_features = plan_.n_features,
            .n = n_rows * plan_.n_outputs,
            .subtract = plan_.index != Index::kBanzhaf,
            .values = out.values,
            .matrices = out.matrices,
            .sets = plan_.order < 3 ? out.pairs : out.triples,
            .place_of = model_.place_of.template as<int32_t>()};
  }

  void add_up_matrices(const CudaSumArgs& sums, const Result& out, int32_t n_tiles, cudaStream_t s) const {
    const CudaMatrixArgs a = matrix_args(nullptr, out, sums.n_rows);
    const dim3 grid(n_tiles * (kTile / kMatrixRows), plan_.n_outputs);
    const size_t shared = matrix_bytes(n_places(), plan_.features.size());
    if (out.is_float32)
      add_matrices<T, float, kTile><<<grid, 256, shared, s>>>(sums, a);
    else
      add_matrices<T, double, kTile><<<grid, 256, shared, s>>>(sums, a);
    check_launch("writing interactions");
  }

  void add_up_chunks(const CudaSumArgs& sums, const Batch& batch, int32_t n_tiles, cudaStream_t s) const {
    const bool is_float32 = batch.out.is_float32;
    const size_t out_bytes = (is_float32 ? 4 : 8) * row_width() * sums.n_rows;
    const size_t n_used = plan_.features.size(), n_features = plan_.n_features;
    if (n_used < n_features && out_bytes)
      check(cudaMemsetAsync(batch.out.values, 0, out_bytes, s), "clearing the result");
    if (!n_used) return;
    if (!model_.leaves.launches.empty()) return add_up_few_rows(sums, is_float32, s);
    const int64_t groups = (static_cast<int64_t>(sums.n_outputs) * sums.n_places + 31) / 32;
    const dim3 grid(n_tiles, static_cast<unsigned>(std::min<int64_t>(groups, 1024)));
    if (is_float32 && !plan_.interactions())
      add_chunks<T, float, kTile><<<grid, 256, 0, s>>>(sums);
    else
      add_chunks<T, double, kTile><<<grid, 256, 0, s>>>(sums);
    check_launch("adding up chunks");
  }

  void add_up_few_rows(const CudaSumArgs& sums, bool is_float32, cudaStream_t s) const {
    const int64_t n_sums = sums.n_rows * sums.n_outputs * sums.n_places;
    const unsigned n_blocks = static_cast<unsigned>((n_sums + 7) / 8);  // of 8 warps
    if (is_float32)
      add_chunks_of_few_rows<T, float, kTile><<<n_blocks, 256, 0, s>>>(sums);
    else
      add_chunks_of_few_rows<T, double, kTile><<<n_blocks, 256, 0, s>>>(sums);
    check_launch("adding up chunks");
  }

  void write_interactions(const Flight& flight, const Result& out, int64_t n_rows, cudaStream_t s) const {
    const size_t n_used = plan_.features.size(), n_features = plan_.n_features, n_sets = n_places() - n_used;
    const CudaMatrixArgs a = matrix_args(flight.sums.template as<double>(), out, n_rows);
    const bool complete = n_used == n_features && 2 * n_sets == n_features * (n_features - 1);
    if (out.matrices && !complete)
      check(cudaMemsetAsync(out.matrices, 0, row_bytes(out)[1] * n_rows, s), "clearing the result");
    if (!n_used) return;
    const unsigned blocks = 16 * model_.multiprocessors;
    if (out.is_float32)
      write_matrices<float><<<blocks, 256, 0, s>>>(a);
    else
      write_matrices<double><<<blocks, 256, 0, s>>>(a);
    check_launch("writing interactions");
    if (!a.sets || !n_sets) return;
    if (out.is_float32)
      write_sets<float><<<blocks, 256, 0, s>>>(a);
    else
      write_sets<double><<<blocks, 256, 0, s>>>(a);
    check_launch("writing interactions");
  }

  void find_margins(const Flight& flight, const CudaSumArgs& sums, int32_t n_tiles, cudaStream_t s) const {
    if (model_.n_groups) {
      const CudaMarginArgs a{.groups = model_.groups.template as<CudaMarginGroup>(),
                             .tree_nodes = model_.tree_nodes.template as<int64_t>(),
                             .nodes = model_.nodes.template as<CudaNode>(),
                             .leaf_values = model_.leaf_values.template as<double>(),
                             .category_bits = model_.category_bits.template as<uint32_t>(),
                             .codes = flight.codes.template as<int16_t>(),
                             .n_columns = model_.n_columns,
                             .n_sums = model_.n_sums,
                             .sums = flight.margin_sums.template as<double>()};
      add_margins<kTile><<<dim3(n_tiles, model_.n_groups), kTile, 0, s>>>(a);
      check_launch("finding margins");
    }
    const int64_t n = sums.n_rows * plan_.n_outputs;
    finish_margins<kTile><<<static_cast<unsigned>((n + 255) / 256), 256, 0, s>>>(sums);
    check_launch("finding margins");
  }

  void find_largest_gaps(const CudaSumArgs& sums, const Batch& batch, cudaStream_t s) const {
    const CudaGapArgs a{.values = batch.out.values,
                        .margin = sums.margin,
                        .base = model_.base.template as<double>(),
                        .n_rows = sums.n_rows,
                        .n_outputs = plan_.n_outputs,
                        .n_features = plan_.n_features,
                        .gap = batch.gap};
    const int64_t n = sums.n_rows * plan_.n_outputs;
    const unsigned blocks =
        static_cast<unsigned>(std::min<int64_t>((n + 7) / 8, 32 * model_.multiprocessors));
    if (batch.out.is_float32)
      find_gaps<float><<<blocks, 256, 0, s>>>(a);
    else
      find_gaps<double><<<blocks, 256, 0, s>>>(a);
    check_launch("checking additivity");
  }

  const Plan& plan_;
  const CudaModel<T>& model_;
};

}  // namespace skshap
