// The pipeline on one device: takes rows batch by batch and launches the kernels of a model.
#include "cuda/cuda.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>

#include "cuda/model.cuh"

namespace skshap {
namespace {

// Device memory that a call uses if it has no memory limit: with more, nothing gets faster.
constexpr size_t kDefaultBytes = size_t{1} << 30;
// Memory that a call uses without asking how much is free.
constexpr size_t kSmallBytes = size_t{1} << 27;
// Rows of a batch if memory allows: enough work for the largest devices, few enough for batches to overlap.
constexpr int64_t kBatchRows = 1 << 17;
// The longest path, root included, that GPUTreeShap runs in single precision.
constexpr uint32_t kMaxSinglePath = 17;
// The copies and kernels of one batch overlap with those of the other.
constexpr int kLanes = 2;

// Copy between host arrays by several threads: the pages of a new result are allocated when they are first
// written, which takes one thread longer than the GPU computes.
void copy(char* to, const char* from, size_t size) {
  constexpr size_t kPart = size_t{16} << 20, kMaxThreads = 16;
  const size_t n =
      std::min({size / kPart + 1, kMaxThreads, std::max<size_t>(std::thread::hardware_concurrency(), 1)});
  const size_t part = (size + n - 1) / n;
  std::vector<std::thread> threads;
  threads.reserve(n);
  size_t begin = 0;
  try {
    for (; n > 1 && begin + part < size; begin += part)
      threads.emplace_back([=] { std::memcpy(to + begin, from + begin, part); });
  } catch (const std::system_error&) {
    // The system has no more threads: this one copies the rest.
  }
  std::memcpy(to + begin, from + begin, size - begin);
  for (std::thread& thread : threads) thread.join();
}

// Arrays of a result: values, matrices, pairs.
constexpr int kArrays = 3;
using Arrays = std::array<void*, kArrays>;

Arrays arrays(const Result& result) { return {result.values, result.matrices, result.pairs}; }

// Stream and buffers of a batch in flight.
struct Lane {
  Stream stream;
  Event done;  // its latest use
  DeviceBuffer X, codes, partial, margin_sums, margin, frames, counters, path_codes, phi, sums;
  DeviceBuffer results[kArrays];
  HostBuffer X_host, results_host[kArrays], margin_host;
};

}  // namespace

std::vector<CudaDevice> cuda_devices() {
  int n = 0;
  const cudaError_t error = cudaGetDeviceCount(&n);
  cudaGetLastError();
  if (error == cudaErrorInsufficientDriver) {
    const int driver = cuda_driver_version(), built = cuda_runtime_version();
    if (!driver) throw CudaError("no NVIDIA driver is installed");
    throw CudaError("the NVIDIA driver is too old: it supports CUDA " + std::to_string(driver / 1000) + "." +
                    std::to_string(driver % 1000 / 10) + ", needed is " + std::to_string(built / 1000) + "." +
                    std::to_string(built % 1000 / 10));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && n == 0))
    throw CudaError("there is no CUDA device");
  check(error, "cannot list the devices");
  std::vector<CudaDevice> devices;
  for (int i = 0; i < n; ++i) {
    cudaDeviceProp p;
    check(cudaGetDeviceProperties(&p, i), "cannot read a device's properties");
    devices.push_back({i, p.name, p.major, p.minor, p.multiProcessorCount, p.totalGlobalMem});
  }
  return devices;
}

int cuda_driver_version() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) cudaGetLastError();
  return version;
}

int cuda_runtime_version() {
  int version = 0;
  if (cudaRuntimeGetVersion(&version) != cudaSuccess) cudaGetLastError();
  return version;
}

size_t cuda_allocated_bytes() { return cuda_allocated; }

class CudaPlan::Impl {
 public:
  virtual ~Impl() = default;
  virtual bool explain(const Rows& rows, const CudaResult& result, size_t memory_limit,
                       const std::function<bool()>& interrupted) = 0;
  virtual bool explain_device(const Rows& rows, CudaInput& input, const CudaResult& result,
                              size_t memory_limit, cudaStream_t stream,
                              const std::function<bool()>& interrupted) = 0;
};

namespace {

template <class T>
class Pipeline : public CudaPlan::Impl {
 public:
  static constexpr int kTile = cuda_tile_rows<T>();

  // Make the pipeline of a device, which must be the current one.
  Pipeline(const Plan& plan, int device, bool gputreeshap)
      : plan_(plan), device_(device), model_(plan, gputreeshap) {}

  bool explain(const Rows& rows, const CudaResult& result, size_t memory_limit,
               const std::function<bool()>& interrupted) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const UseDevice use(device_);
    const size_t x_row = (rows.is_float32 ? 4 : 8) * static_cast<size_t>(plan_.n_inputs);
    const Arrays out = arrays(result.values);
    const std::array<size_t, kArrays> out_rows = row_bytes(result.values);
    const size_t out_row = out_rows[0] + out_rows[1] + out_rows[2];
    const bool margins = result.values.margin || result.gap;
    // A large job has several batches, so that copies overlap with kernels.
    const int64_t several = std::max<int64_t>(rows.n_rows / 8, 1 << 14);
    const int64_t batch = batch_rows(rows.n_rows, several, x_row + out_row, margins, memory_limit);
    for (const Lane& lane : lanes_) lane.done.wait(kComputing);  // calls on the device return early
    reset_gap(result.gap, lanes_[0].stream.stream);
    check(cudaStreamSynchronize(lanes_[0].stream.stream), "clearing the gap");  // for both lanes
    struct Flight {
      int64_t first = 0, n = 0;
    } flights[kLanes];
    const auto land = [&](int l) {
      Flight& f = flights[l];
      if (!f.n) return;
      Lane& lane = lanes_[l];
      lane.done.wait(kComputing);
      for (int i = 0; i < kArrays; ++i)
        if (out[i])
          copy(static_cast<char*>(out[i]) + f.first * out_rows[i], lane.results_host[i].template as<char>(),
               f.n * out_rows[i]);
      if (result.values.margin)
        std::memcpy(result.values.margin + f.first * plan_.n_outputs, lane.margin_host.template as<double>(),
                    f.n * plan_.n_outputs * sizeof(double));
      f.n = 0;
    };
    try {
      int l = 0;
      for (int64_t first = 0; first < rows.n_rows; first += batch, l = (l + 1) % kLanes) {
        if (interrupted()) {
          finish();
          return false;
        }
        land(l);
        Lane& lane = lanes_[l];
        const int64_t n = std::min(batch, rows.n_rows - first);
        prepare(lane, n, margins, result.values);
        lane.X.reserve(n * x_row, kNoRoom);
        lane.X_host.reserve(n * x_row, "page-locked host memory");
        Result on_lane{nullptr, result.values.is_float32, nullptr};
        void** const places[kArrays] = {&on_lane.values, &on_lane.matrices, &on_lane.pairs};
        for (int i = 0; i < kArrays; ++i) {
          if (!out[i]) continue;
          lane.results[i].reserve(n * out_rows[i], kNoRoom);
          lane.results_host[i].reserve(n * out_rows[i], "page-locked host memory");
          *places[i] = lane.results[i].template as<void>();
        }
        Rows on_device = gather(rows, first, n, lane.X_host.template as<char>());
        on_device.data = lane.X.template as<char>();
        const cudaStream_t s = lane.stream.stream;
        check(cudaMemcpyAsync(lane.X.template as<char>(), lane.X_host.template as<char>(), n * x_row,
                              cudaMemcpyHostToDevice, s),
              "copying rows");
        launch(lane, on_device, kNoNumber, nullptr, on_lane, margins, result.gap != nullptr, s);
        for (int i = 0; i < kArrays; ++i)
          if (out[i])
            check(
                cudaMemcpyAsync(lane.results_host[i].template as<char>(), lane.results[i].template as<char>(),
                                n * out_rows[i], cudaMemcpyDeviceToHost, s),
                "copying SHAP values");
        if (result.values.margin) {
          const size_t size = n * plan_.n_outputs * sizeof(double);
          lane.margin_host.reserve(size, "page-locked host memory");
          check(cudaMemcpyAsync(lane.margin_host.template as<char>(), lane.margin.template as<char>(), size,
                                cudaMemcpyDeviceToHost, s),
                "copying margins");
        }
        lane.done.record(s);
        flights[l] = {first, n};
      }
      for (int i = 0; i < kLanes; ++i, l = (l + 1) % kLanes) land(l);
      read_gap(result.gap);
    } catch (...) {
      finish();
      throw;
    }
    return true;
  }

  bool explain_device(const Rows& rows, CudaInput& input, const CudaResult& result, size_t memory_limit,
                      cudaStream_t stream, const std::function<bool()>& interrupted) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const UseDevice use(device_);
    const Arrays given = arrays(result.values);
    const std::array<size_t, kArrays> out_rows = row_bytes(result.values);
    const bool margins = result.gap;
    // Two batches, so that the second fills the GPU when the first one comes to its end.
    const int64_t several = std::max<int64_t>(rows.n_rows / 2, 1 << 15);
    const int64_t batch = batch_rows(rows.n_rows, several, 0, margins, memory_limit);
    // A single batch needs no stream of its own.
    const int n_lanes = rows.n_rows > batch ? kLanes : 1;
    const auto stream_of = [&](const Lane& lane) { return n_lanes > 1 ? lane.stream.stream : stream; };
    const bool refuses = input.refuses() && rows.n_rows && plan_.n_inputs;
    reset_gap(result.gap, stream);
    CudaCheck numbers{};
    if (refuses) numbers = start_check(input, stream);
    // Check numbers while they are coded, if every column is.
    const bool beside = refuses && n_lanes == 1 && model_.codes_all;
    if (refuses && !beside) check_all(rows, numbers, stream);
    for (int l = 0; l < n_lanes; ++l) lanes_[l].done.delay(stream_of(lanes_[l]));
    if (n_lanes > 1) {  // begin once the rows are there
      begin_.record(stream);
      for (const Lane& lane : lanes_) begin_.delay(lane.stream.stream);
    }
    try {
      int l = 0;
      for (int64_t first = 0; first < rows.n_rows; first += batch, l = (l + 1) % n_lanes) {
        if (interrupted()) {
          finish_on(stream);
          return false;
        }
        Lane& lane = lanes_[l];
        const int64_t n = std::min(batch, rows.n_rows - first);
        prepare(lane, n, margins, result.values);
        const Rows part{static_cast<const char*>(rows.data) + first * rows.row_stride, rows.is_float32, n,
                        rows.row_stride, rows.column_stride};
        Arrays out = given;
        for (int i = 0; i < kArrays; ++i)
          if (out[i]) out[i] = static_cast<char*>(out[i]) + first * out_rows[i];
        launch(lane, part, input.missing, beside ? &numbers : nullptr,
               {out[0], result.values.is_float32, nullptr, out[1], out[2]}, margins, result.gap != nullptr,
               stream_of(lane));
      }
      for (int l = 0; l < n_lanes; ++l) {  // the caller's stream sees the values from here on
        lanes_[l].done.record(stream_of(lanes_[l]));
        if (n_lanes > 1) lanes_[l].done.delay(stream);
      }
      if (refuses) input.refused = finish_check(stream);
    } catch (...) {
      finish_on(stream);
      throw;
    }
    if (result.gap) {
      check(cudaStreamSynchronize(stream), "computing SHAP values");
      read_gap(result.gap);
    }
    return true;
  }

 private:
  static constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
  static constexpr const char* kNoRoom = "the rows of a batch do not fit the device's memory";
  static constexpr const char* kComputing = "computing SHAP values";

  size_t row_width() const { return static_cast<size_t>(plan_.n_outputs) * plan_.n_features; }
  size_t n_places() const { return plan_.features.size() + plan_.pairs.size(); }

  // Return the bytes of a row of each array, 0 for those that are not requested.
  std::array<size_t, kArrays> row_bytes(const Result& result) const {
    const size_t item = result.is_float32 ? 4 : 8;
    return {item * row_width(), result.matrices ? item * row_width() * plan_.n_features : 0,
            result.pairs ? item * plan_.n_outputs * plan_.pairs.size() : 0};
  }

  // Return the bytes of a lane for each row, without the input and the result on the device.
  size_t lane_row_bytes(bool margins) const {
    return sizeof(T) * model_.n_slots + 2 * static_cast<size_t>(model_.n_columns) +
           (model_.paths.used ? 4 * plan_.columns.size() + 8 * plan_.n_outputs * plan_.features.size() : 0) +
           (margins ? 8 * (static_cast<size_t>(model_.n_sums) + plan_.n_outputs) : 0) +
           (plan_.interactions() ? 8 * plan_.n_outputs * n_places() : 0);
  }

  // Return the rows of a batch: at most `most`, and as many as memory allows. Batches have the same size,
  // because a small one does not fill the GPU.
  int64_t batch_rows(int64_t n_rows, int64_t most, size_t io_row, bool margins, size_t memory_limit) const {
    const size_t fixed = kLanes * model_.frame_bytes, row = kLanes * (lane_row_bytes(margins) + io_row);
    size_t limit = memory_limit;
    most = std::min(most, kBatchRows);
    if (!limit && fixed + row * std::min(most, n_rows + kTile) <= kSmallBytes) {
      limit = kSmallBytes;  // asking for free memory takes as long as a small job
    } else if (!limit) {
      size_t free = 0, total = 0;
      check(cudaMemGetInfo(&free, &total), "reading free memory");
      limit = std::min(std::max(kDefaultBytes, fixed + row * kTile), free / 2);
    }
    const int64_t by_memory =
        limit > fixed ? static_cast<int64_t>((limit - fixed) / std::max<size_t>(row, 1)) : 0;
    if (by_memory < kTile)
      throw CudaMemoryError("the GPU needs " + std::to_string(fixed + row * kTile) +
                            " bytes for the smallest batch, but may use " + std::to_string(limit) +
                            "; raise memory_limit or use device='cpu'");
    most = std::min(by_memory, most) / kTile * kTile;
    const int64_t n_batches = (n_rows + most - 1) / most;
    const int64_t rows = (n_rows + n_batches - 1) / std::max<int64_t>(n_batches, 1);
    return std::max<int64_t>((rows + kTile - 1) / kTile, 1) * kTile;
  }

  bool fused_matrices(const Result& out) const { return out.matrices && !out.pairs && model_.small_matrices; }

  void prepare(Lane& lane, int64_t n_rows, bool margins, const Result& out) {
    const size_t n = (n_rows + kTile - 1) / kTile * kTile;
    const auto reserve = [&](DeviceBuffer& buffer, size_t size) {
      if (buffer.holds(size)) return;
      lane.done.wait(kComputing);  // the old one may be in use
      buffer.reserve(size, kNoRoom);
    };
    reserve(lane.codes, 2 * n * model_.n_columns);
    reserve(lane.partial, sizeof(T) * n * model_.n_slots);
    reserve(lane.frames, model_.frame_bytes);
    if (plan_.interactions() && !fused_matrices(out))
      reserve(lane.sums, 8 * n_rows * plan_.n_outputs * n_places());
    reserve(lane.counters, 4 * n_counters());
    if (model_.paths.used) {
      reserve(lane.path_codes, 4 * cuda_path_code_elements(n_rows, plan_.columns.size()));
      reserve(lane.phi, 8 * n_rows * plan_.n_outputs * plan_.features.size());
    }
    if (!margins) return;
    reserve(lane.margin_sums, 8 * n * model_.n_sums);
    reserve(lane.margin, 8 * n * plan_.n_outputs);
  }

  // Return the number of counters: the tasks taken by each launch of the walk, and by the general one.
  size_t n_counters() const { return model_.launches.size() + 1; }

  // Prepare the place where rejected numbers are recorded; finish_check reads it.
  CudaCheck start_check(const CudaInput& input, cudaStream_t stream) {
    if (!none_found_) {
      refused_.reserve(8, kNoRoom);
      found_.reserve(sizeof(int), "page-locked host memory");
      check(cudaMemsetAsync(refused_.template as<char>(), 0xff, 8, stream), "checking rows");
    }
    none_found_ = false;
    auto* const found = found_.template as<volatile int>();
    *found = 0;
    return {input.allow_nan, input.limit, input.missing, refused_.template as<unsigned long long>(), found};
  }

  void check_all(const Rows& rows, const CudaCheck& numbers, cudaStream_t stream) {
    CudaCodeArgs a{};
    a.X = rows.data;
    a.x_single = rows.is_float32;
    a.n_rows = rows.n_rows;
    a.row_stride = rows.row_stride;
    a.column_stride = rows.column_stride;
    a.n_inputs = plan_.n_inputs;
    a.check = numbers;
    find_refused<<<8 * model_.multiprocessors, 256, 0, stream>>>(a);
    check_launch("checking rows");
    checked_.record(stream);
  }

  int64_t finish_check(cudaStream_t stream) {
    checked_.wait("checking rows");
    none_found_ = !*found_.template as<volatile int>();
    if (none_found_) return -1;
    int64_t first = -1;
    check(cudaMemcpyAsync(&first, refused_.template as<char>(), 8, cudaMemcpyDeviceToHost, stream),
          "checking rows");
    check(cudaStreamSynchronize(stream), "checking rows");
    return first;
  }

  // Copy rows to page-locked memory: column by column if they are stored so, otherwise row by row. Return
  // their layout there.
  Rows gather(const Rows& rows, int64_t first, int64_t n, char* out) const {
    const char* from = static_cast<const char*>(rows.data) + first * rows.row_stride;
    const int64_t item = rows.is_float32 ? 4 : 8, row = item * plan_.n_inputs;
    if (rows.row_stride == item && rows.column_stride != item) {
      for (int32_t f = 0; f < plan_.n_inputs; ++f)
        std::memcpy(out + f * n * item, from + f * rows.column_stride, n * item);
      return {nullptr, rows.is_float32, n, item, n * item};
    }
    if (rows.column_stride == item && rows.row_stride == row) {
      copy(out, from, n * row);
    } else if (rows.column_stride == item) {
      for (int64_t i = 0; i < n; ++i) std::memcpy(out + i * row, from + i * rows.row_stride, row);
    } else {
      for (int64_t i = 0; i < n; ++i)
        for (int32_t f = 0; f < plan_.n_inputs; ++f)
          std::memcpy(out + i * row + f * item, from + i * rows.row_stride + f * rows.column_stride, item);
    }
    return {nullptr, rows.is_float32, n, row, item};
  }

  void launch(Lane& lane, const Rows& rows, double missing, const CudaCheck* numbers, const Result& out,
              bool margins, bool gap, cudaStream_t s) {
    const int32_t n_tiles = static_cast<int32_t>((rows.n_rows + kTile - 1) / kTile);
    CudaCodeArgs coding{rows.data,
                        rows.is_float32,
                        rows.n_rows,
                        rows.row_stride,
                        rows.column_stride,
                        model_.columns.template as<CudaCodeColumn>(),
                        model_.n_columns,
                        plan_.strict,
                        missing,
                        model_.thresholds.template as<void>(),
                        model_.categories.template as<int32_t>(),
                        lane.codes.template as<int16_t>(),
                        lane.counters.template as<int32_t>(),
                        static_cast<int32_t>(n_counters()),
                        numbers != nullptr,
                        plan_.n_inputs,
                        numbers ? *numbers : CudaCheck{}};
    if (model_.n_columns && (margins || !model_.paths.used)) {
      const int parts = std::min<int>((model_.n_columns + 3) / 4, n_tiles < 4096 ? 64 : 4);
      const dim3 grid(n_tiles, std::max(parts, 1));
      if (plan_.x_float32)
        code_rows<float, kTile><<<grid, 256, 0, s>>>(coding);
      else
        code_rows<double, kTile><<<grid, 256, 0, s>>>(coding);
      check_launch("coding rows");
      if (numbers) checked_.record(s);
    }
    if (model_.paths.used) launch_paths(lane, coding, out, s);
    for (size_t i = 0; i < model_.launches.size(); ++i) {
      const auto& launch = model_.launches[i];
      CudaWalkArgs<T> a = launch.args;
      a.n_tiles = n_tiles;
      const int n_warps = launch.kernel.n_threads / kWarp;
      a.n_groups = (n_tiles + n_warps - 1) / n_warps;
      a.n_tasks = a.n_groups * launch.n_chunks;
      a.codes = lane.codes.template as<int16_t>();
      a.partial = lane.partial.template as<T>();
      a.frames = lane.frames.template as<T>();
      a.next_task = lane.counters.template as<int32_t>() + i;
      launch.kernel
          .kernel<<<std::min(launch.n_blocks, a.n_tasks), launch.kernel.n_threads, launch.shared, s>>>(a);
      check_launch("walking the trees");
    }
    if (model_.general.n_chunks) {
      CudaGeneralArgs<T> a = model_.general.args;
      a.n_tiles = n_tiles;
      a.n_tasks = n_tiles * model_.general.n_chunks;
      a.codes = lane.codes.template as<int16_t>();
      a.partial = lane.partial.template as<T>();
      a.memory = lane.frames.template as<T>();
      a.next_task = lane.counters.template as<int32_t>() + model_.launches.size();
      walk_general<T, cuda_lane_rows<T>()>
          <<<std::min(model_.general.n_blocks, (a.n_tasks + 1) / 2), 64, 0, s>>>(a);
      check_launch("walking the trees");
    }
    if (model_.tables.n_chunks) {
      CudaTableArgs<T> a = model_.tables.args;
      a.n_tiles = n_tiles;
      a.n_groups = (n_tiles * (kTile / kWarp) + kTableWarps - 1) / kTableWarps;
      a.n_tasks = a.n_groups * model_.tables.n_chunks;
      a.codes = lane.codes.template as<int16_t>();
      a.partial = lane.partial.template as<T>();
      a.words = model_.tables.words_bytes ? lane.frames.template as<uint32_t>() : nullptr;
      lookup_tables<T, kTile>
          <<<std::min(model_.tables.n_blocks, a.n_tasks), kTableWarps * kWarp, model_.tables.shared, s>>>(a);
      check_launch("looking up values");
    }
    const bool pairs = plan_.interactions();
    CudaSumArgs sums{};
    sums.part_offsets = model_.offsets.template as<int64_t>();
    sums.parts = model_.parts.template as<int32_t>();
    sums.features = pairs ? nullptr : model_.features.template as<int32_t>();
    sums.n_used = static_cast<int32_t>(plan_.features.size());
    sums.n_places = static_cast<int32_t>(n_places());
    sums.n_outputs = plan_.n_outputs;
    sums.n_features = plan_.n_features;
    sums.n_slots = model_.n_slots;
    sums.n_sums = model_.n_sums;
    sums.scale = plan_.leaf_scale;
    sums.constant = model_.constant.template as<double>();
    sums.partial = lane.partial.template as<void>();
    sums.margin_sums = lane.margin_sums.template as<double>();
    sums.n_rows = rows.n_rows;
    sums.values = pairs ? lane.sums.template as<void>() : out.values;
    sums.margin = lane.margin.template as<double>();
    const size_t out_bytes = (out.is_float32 ? 4 : 8) * row_width() * rows.n_rows;
    const bool fused = fused_matrices(out);
    if (fused) launch_fused(sums, out, n_tiles, s);
    if (!fused && sums.n_used < plan_.n_features && out_bytes && !model_.paths.used)
      check(cudaMemsetAsync(out.values, 0, out_bytes, s), "clearing the result");
    if (!fused && sums.n_used && !model_.paths.used) {
      const int64_t groups = (static_cast<int64_t>(sums.n_outputs) * sums.n_places + 31) / 32;
      const dim3 grid(n_tiles, static_cast<unsigned>(std::min<int64_t>(groups, 1024)));
      if (out.is_float32 && !pairs)
        add_chunks<T, float, kTile><<<grid, 256, 0, s>>>(sums);
      else
        add_chunks<T, double, kTile><<<grid, 256, 0, s>>>(sums);
      check_launch("adding up chunks");
    }
    if (pairs && !fused) launch_matrices(lane, out, rows.n_rows, s);
    if (!margins) return;
    if (model_.n_groups) {
      const CudaMarginArgs a{model_.groups.template as<CudaMarginGroup>(),
                             model_.tree_nodes.template as<int64_t>(),
                             model_.nodes.template as<CudaNode>(),
                             model_.leaf_values.template as<double>(),
                             model_.category_bits.template as<uint32_t>(),
                             lane.codes.template as<int16_t>(),
                             model_.n_columns,
                             model_.n_sums,
                             lane.margin_sums.template as<double>()};
      add_margins<kTile><<<dim3(n_tiles, model_.n_groups), kTile, 0, s>>>(a);
      check_launch("finding margins");
    }
    const int64_t n = rows.n_rows * plan_.n_outputs;
    finish_margins<kTile><<<static_cast<unsigned>((n + 255) / 256), 256, 0, s>>>(sums);
    check_launch("finding margins");
    if (!gap) return;
    const CudaGapArgs g{out.values,      sums.margin,      model_.base.template as<double>(),     rows.n_rows,
                        plan_.n_outputs, plan_.n_features, gap_.template as<unsigned long long>()};
    const unsigned blocks =
        static_cast<unsigned>(std::min<int64_t>((n + 7) / 8, 32 * model_.multiprocessors));
    if (out.is_float32)
      find_gaps<float><<<blocks, 256, 0, s>>>(g);
    else
      find_gaps<double><<<blocks, 256, 0, s>>>(g);
    check_launch("checking additivity");
  }

  CudaMatrixArgs matrix_args(const double* sums, const Result& out, int64_t n_rows) const {
    return {sums,
            model_.partner_offsets.template as<int64_t>(),
            model_.partners.template as<CudaPartner>(),
            model_.features.template as<int32_t>(),
            static_cast<int32_t>(plan_.features.size()),
            static_cast<int32_t>(n_places()),
            plan_.n_features,
            n_rows * plan_.n_outputs,
            plan_.index != Index::kBanzhaf,
            out.values,
            out.matrices,
            out.pairs,
            model_.place_of.template as<int32_t>()};
  }

  void launch_fused(const CudaSumArgs& sums, const Result& out, int32_t n_tiles, cudaStream_t s) {
    const CudaMatrixArgs a = matrix_args(nullptr, out, sums.n_rows);
    const dim3 grid(n_tiles * (kTile / kMatrixRows), plan_.n_outputs);
    const size_t shared = matrix_bytes(n_places(), plan_.features.size());
    if (out.is_float32)
      add_matrices<T, float, kTile><<<grid, 256, shared, s>>>(sums, a);
    else
      add_matrices<T, double, kTile><<<grid, 256, shared, s>>>(sums, a);
    check_launch("writing interactions");
  }

  void launch_matrices(const Lane& lane, const Result& out, int64_t n_rows, cudaStream_t s) {
    const size_t n_used = plan_.features.size(), n_features = plan_.n_features, n_pairs = plan_.pairs.size();
    const CudaMatrixArgs a = matrix_args(lane.sums.template as<double>(), out, n_rows);
    const bool complete = n_used == n_features && 2 * n_pairs == n_features * (n_features - 1);
    if (out.matrices && !complete)
      check(cudaMemsetAsync(out.matrices, 0, row_bytes(out)[1] * n_rows, s), "clearing the result");
    if (!n_used) return;
    const unsigned blocks = 16 * model_.multiprocessors;
    if (out.is_float32)
      write_matrices<float><<<blocks, 256, 0, s>>>(a);
    else
      write_matrices<double><<<blocks, 256, 0, s>>>(a);
    check_launch("writing interactions");
    if (!out.pairs || !n_pairs) return;
    if (out.is_float32)
      write_pairs<float><<<blocks, 256, 0, s>>>(a);
    else
      write_pairs<double><<<blocks, 256, 0, s>>>(a);
    check_launch("writing interactions");
  }

  void launch_paths(Lane& lane, const CudaCodeArgs& coding, const Result& out, cudaStream_t s) {
    CudaPathArgs a{};
    a.elements = model_.paths.elements.template as<PathElement>();
    a.bins = model_.paths.bins.template as<int64_t>();
    a.paths = model_.paths.paths.template as<Path>();
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
    a.codes = lane.path_codes.template as<uint32_t>();
    a.phi = lane.phi.template as<double>();
    a.values = out.values;
    // The recurrences of GPUTreeShap lose digits with every feature on a path: float32 is good for about 16.
    const bool single = sizeof(T) == 4 && model_.paths.longest <= kMaxSinglePath;
    check(single ? (out.is_float32 ? launch_gputreeshap<float, float>(a, s)
                                   : launch_gputreeshap<float, double>(a, s))
                 : (out.is_float32 ? launch_gputreeshap<double, float>(a, s)
                                   : launch_gputreeshap<double, double>(a, s)),
          "running GPUTreeShap");
  }

  // Wait for all work: none may continue when the caller's memory is freed.
  void finish() {
    for (const Lane& lane : lanes_) cudaStreamSynchronize(lane.stream.stream);
  }
  void finish_on(cudaStream_t stream) {
    finish();
    cudaStreamSynchronize(stream);
  }

  void reset_gap(const double* gap, cudaStream_t stream) {
    if (!gap) return;
    gap_.reserve(8 * plan_.n_outputs, kNoRoom);
    check(cudaMemsetAsync(gap_.template as<char>(), 0, 8 * plan_.n_outputs, stream), "clearing the gap");
  }
  void read_gap(double* gap) {
    if (gap)
      check(cudaMemcpy(gap, gap_.template as<char>(), 8 * plan_.n_outputs, cudaMemcpyDeviceToHost),
            "reading the gap");
  }

  const Plan& plan_;
  const int device_;
  std::mutex mutex_;
  const CudaModel<T> model_;
  DeviceBuffer gap_, refused_;
  HostBuffer found_;
  bool none_found_ = false;  // by the last check, whose buffers can then be reused as they are
  Event begin_, checked_;
  Lane lanes_[kLanes];
};

}  // namespace

CudaPlan::CudaPlan(const Plan& plan, int device, bool gputreeshap) : plan_(plan) {
  const size_t n = cuda_devices().size();
  if (device < 0 || static_cast<size_t>(device) >= n)
    throw CudaError("there is no CUDA device " + std::to_string(device) + "; there are " + std::to_string(n));
  if (plan.order > 2) throw std::invalid_argument("triples are computed on the CPU only");
  if (!plan.tables.leaves.empty())
    throw std::invalid_argument("paths that are too long for tables are explained on the CPU only");
  if (gputreeshap && (plan.interactions() || plan.index == Index::kBanzhaf || plan.tables.any()))
    throw std::invalid_argument("gputreeshap computes SHAP values only");
  const UseDevice use(device);
  if (plan.precision == Precision::kSingle)
    impl_ = std::make_unique<Pipeline<float>>(plan, device, gputreeshap);
  else
    impl_ = std::make_unique<Pipeline<double>>(plan, device, gputreeshap);
}
CudaPlan::~CudaPlan() = default;

bool CudaPlan::explain(const Rows& rows, const CudaResult& result, size_t memory_limit,
                       const std::function<bool()>& interrupted) {
  return impl_->explain(rows, result, memory_limit, interrupted);
}
bool CudaPlan::explain_device(const Rows& rows, CudaInput& input, const CudaResult& result,
                              size_t memory_limit, uintptr_t stream,
                              const std::function<bool()>& interrupted) {
  return impl_->explain_device(rows, input, result, memory_limit, reinterpret_cast<cudaStream_t>(stream),
                               interrupted);
}

}  // namespace skshap
