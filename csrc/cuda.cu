// The pipeline on one device: uploads a plan, takes rows batch by batch, launches the kernels.
#include "cuda.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>

#include "cuda_general.cuh"
#include "cuda_gputreeshap.cuh"
#include "cuda_kernels.h"
#include "cuda_memory.h"
#include "cuda_rows.cuh"

namespace skshap {
namespace {

// Device memory that a call may use by itself: beyond it nothing gets faster.
constexpr size_t kDefaultBytes = size_t{1} << 30;
// Rows of a batch when memory allows: enough work for the largest devices, short enough to overlap.
constexpr int64_t kBatchRows = 1 << 17;
// Memory of the general walk, which bounds how many warps run it.
constexpr size_t kGeneralBytes = size_t{1} << 28;
// Trees of a margin group: enough groups for a job of few rows.
constexpr size_t kMarginTrees = 32;
// Shared memory of a block, at most: what every device gives without asking. Without room for phi, phi is
// summed in the caches.
constexpr size_t kMaxSharedBytes = 48 << 10;
// Longest path, root included, that GPUTreeShap runs in single precision.
constexpr uint32_t kMaxSinglePath = 17;
// Copies and kernels of one batch run beside those of the other.
constexpr int kLanes = 2;

// Copies between host arrays by several threads: the pages of a fresh result are made at its first
// writing, which takes one thread longer than the GPU.
void copy(char* to, const char* from, size_t size) {
  constexpr size_t kPart = size_t{16} << 20, kMaxThreads = 8;
  const size_t n =
      std::min({size / kPart + 1, kMaxThreads, std::max<size_t>(std::thread::hardware_concurrency(), 1)});
  const size_t part = (size + n - 1) / n;
  std::vector<std::thread> threads;
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

// What a batch in flight needs.
struct Lane {
  Stream stream;
  DeviceBuffer X, codes, partial, margin_sums, values, margin, frames, counters, path_codes, phi;
  HostBuffer X_host, values_host, margin_host;
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
  virtual bool explain_device(const Rows& rows, double missing, const CudaResult& result, size_t memory_limit,
                              cudaStream_t stream, const std::function<bool()>& interrupted) = 0;
  virtual int64_t find_refused(const Rows& rows, double missing, bool allow_nan, double limit,
                               cudaStream_t stream) = 0;
  int device = 0;
  size_t bytes = 0;
};

namespace {

template <class T>
class Pipeline : public CudaPlan::Impl {
 public:
  static constexpr int kTile = cuda_tile_rows<T>();

  Pipeline(const Plan& plan, int index, bool gputreeshap) : plan_(plan) {
    device = index;
    const UseDevice use(index);
    for (auto& lane : lanes_) lane = std::make_unique<Lane>();  // its streams belong to the device in use
    const CudaProgram<T> program = make_cuda_program<T>(plan);
    check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, index),
          "device attribute");
    n_columns_ = static_cast<int32_t>(program.columns.size());
    n_slots_ = gputreeshap ? 0 : static_cast<uint32_t>(program.slots.size());
    upload_columns(program);
    category_bits_ = upload(plan.category_bits, bytes);
    nodes_ = upload(program.nodes, bytes);
    tree_nodes_ = upload(program.tree_nodes, bytes);
    leaf_values_ = upload(plan.leaf_values, bytes);
    constant_ = upload(plan.constant, bytes);
    base_ = upload(plan.base_value, bytes);
    plan_sums(program, gputreeshap);
    if (gputreeshap) {
      upload_paths();
      return;
    }
    stream_ = upload(program.stream, bytes);
    chunks_ = upload(program.chunks, bytes);
    category_sets_ = upload(program.category_sets, bytes);
    plan_launches(program);
  }

  bool explain(const Rows& rows, const CudaResult& result, size_t memory_limit,
               const std::function<bool()>& interrupted) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const UseDevice use(device);
    const size_t x_item = rows.is_float32 ? 4 : 8, out_item = result.values.is_float32 ? 4 : 8;
    const size_t x_row = x_item * plan_.n_features, width = row_width(), out_row = out_item * width;
    const bool margins = result.values.margin || result.gap;
    const int64_t batch = batch_rows(rows.n_rows, x_row + out_row, margins, memory_limit);
    reset_gap(result.gap);
    struct Flight {
      int64_t first = 0, n = 0;
    } flights[kLanes];
    const auto land = [&](int l) {
      Flight& f = flights[l];
      if (!f.n) return;
      Lane& lane = *lanes_[l];
      check(cudaEventSynchronize(lane.stream.done), "computing SHAP values");
      copy(static_cast<char*>(result.values.values) + f.first * out_row, lane.values_host.template as<char>(),
           f.n * out_row);
      if (result.values.margin)
        std::memcpy(result.values.margin + f.first * plan_.n_outputs, lane.margin_host.template as<double>(),
                    f.n * plan_.n_outputs * sizeof(double));
      f.n = 0;
    };
    const auto finish = [&] {  // nothing may run on when the caller's memory goes away
      for (const auto& lane : lanes_) cudaStreamSynchronize(lane->stream.stream);
    };
    try {
      int l = 0;
      for (int64_t first = 0; first < rows.n_rows; first += batch, l = (l + 1) % kLanes) {
        if (interrupted()) {
          finish();
          return false;
        }
        land(l);
        Lane& lane = *lanes_[l];
        const int64_t n = std::min(batch, rows.n_rows - first);
        prepare(lane, n, margins);
        lane.X.reserve(n * x_row, kNoRoom);
        lane.values.reserve(n * out_row, kNoRoom);
        lane.X_host.reserve(n * x_row, "page-locked host memory");
        lane.values_host.reserve(n * out_row, "page-locked host memory");
        Rows on_device = gather(rows, first, n, lane.X_host.template as<char>());
        on_device.data = lane.X.template as<char>();
        const cudaStream_t s = lane.stream.stream;
        check(cudaMemcpyAsync(lane.X.template as<char>(), lane.X_host.template as<char>(), n * x_row,
                              cudaMemcpyHostToDevice, s),
              "copying rows");
        launch(lane, on_device, kNoNumber,
               {lane.values.template as<char>(), result.values.is_float32, nullptr}, margins,
               result.gap != nullptr, s);
        check(cudaMemcpyAsync(lane.values_host.template as<char>(), lane.values.template as<char>(),
                              n * out_row, cudaMemcpyDeviceToHost, s),
              "copying SHAP values");
        if (result.values.margin) {
          const size_t size = n * plan_.n_outputs * sizeof(double);
          lane.margin_host.reserve(size, "page-locked host memory");
          check(cudaMemcpyAsync(lane.margin_host.template as<char>(), lane.margin.template as<char>(), size,
                                cudaMemcpyDeviceToHost, s),
                "copying margins");
        }
        check(cudaEventRecord(lane.stream.done, s), "recording an event");
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

  bool explain_device(const Rows& rows, double missing, const CudaResult& result, size_t memory_limit,
                      cudaStream_t stream, const std::function<bool()>& interrupted) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const UseDevice use(device);
    const size_t out_row = (result.values.is_float32 ? 4 : 8) * row_width();
    const bool margins = result.values.margin || result.gap;
    const int64_t batch = batch_rows(rows.n_rows, 0, margins, memory_limit);
    reset_gap(result.gap);
    Lane& lane = *lanes_[0];
    // Buffers of the last call may still be in use on its stream.
    check(cudaEventSynchronize(lane.stream.done), "computing SHAP values");
    for (int64_t first = 0; first < rows.n_rows; first += batch) {
      if (interrupted()) {
        cudaStreamSynchronize(stream);
        return false;
      }
      const int64_t n = std::min(batch, rows.n_rows - first);
      prepare(lane, n, margins);
      const Rows part{static_cast<const char*>(rows.data) + first * rows.row_stride, rows.is_float32, n,
                      rows.row_stride, rows.column_stride};
      const Result out{static_cast<char*>(result.values.values) + first * out_row, result.values.is_float32,
                       result.values.margin ? result.values.margin + first * plan_.n_outputs : nullptr};
      launch(lane, part, missing, out, margins, result.gap != nullptr, stream);
    }
    check(cudaEventRecord(lane.stream.done, stream), "recording an event");
    if (result.gap) {
      check(cudaStreamSynchronize(stream), "computing SHAP values");
      read_gap(result.gap);
    }
    return true;
  }

  int64_t find_refused(const Rows& rows, double missing, bool allow_nan, double limit,
                       cudaStream_t stream) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const UseDevice use(device);
    if (!rows.n_rows || !plan_.n_features) return -1;
    refused_.reserve(8, kNoRoom);
    auto* const first = refused_.template as<unsigned long long>();
    check(cudaMemsetAsync(first, 0xff, 8, stream), "checking rows");
    ::skshap::find_refused<<<8 * multiprocessors_, 256, 0, stream>>>(
        {rows.data, rows.is_float32, rows.n_rows, rows.row_stride, rows.column_stride, plan_.n_features,
         allow_nan, limit, missing, first});
    check_launch("checking rows");
    int64_t found = -1;
    check(cudaMemcpyAsync(&found, first, 8, cudaMemcpyDeviceToHost, stream), "checking rows");
    check(cudaStreamSynchronize(stream), "checking rows");
    return found;
  }

 private:
  static constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
  static constexpr const char* kNoRoom = "the rows of a batch do not fit the device's memory";

  // One kernel for all chunks of the same K.
  struct Launch {
    CudaWalkArgs<T> args;
    WalkKernel<T> kernel;
    int n_chunks, n_blocks;
    size_t shared;
    DeviceBuffer list;
  };
  struct General {
    CudaGeneralArgs<T> args{};
    int n_chunks = 0, n_blocks = 0;
    DeviceBuffer list;
  };

  // The model as GPUTreeShap has it; replaces codes, walk and sums.
  struct Paths {
    bool used = false;
    DeviceBuffer elements, bins, paths, category_bits;
    int64_t n_bins = 0;
    uint32_t longest = 0;
  };

  size_t row_width() const { return static_cast<size_t>(plan_.n_outputs) * plan_.n_features; }

  void upload_columns(const CudaProgram<T>& program) {
    std::vector<CudaCodeColumn> columns, full_columns;
    std::vector<float> floats;
    std::vector<double> doubles;
    std::vector<int32_t> categories;
    std::vector<int64_t> begins;
    for (const Column& column : plan_.columns) {
      begins.push_back(column.categorical ? categories.size()
                       : plan_.x_float32  ? floats.size()
                                          : doubles.size());
      floats.insert(floats.end(), column.thresholds_float.begin(), column.thresholds_float.end());
      doubles.insert(doubles.end(), column.thresholds_double.begin(), column.thresholds_double.end());
      categories.insert(categories.end(), column.categories.begin(), column.categories.end());
    }
    for (const CudaColumn& c : program.columns) {
      const Column& column = plan_.columns[c.column];
      const size_t n = column.categorical ? column.categories.size()
                                          : column.thresholds_float.size() + column.thresholds_double.size();
      columns.push_back({column.feature, static_cast<uint32_t>(n), c.origin, column.categorical,
                         column.zero_missing, begins[c.column]});
    }
    for (const CudaCodeColumn& column : columns)
      if (column.origin == 0) full_columns.push_back(column);
    columns_ = upload(columns, bytes);
    full_columns_ = upload(full_columns, bytes);
    thresholds_ = plan_.x_float32 ? upload(floats, bytes) : upload(doubles, bytes);
    categories_ = upload(categories, bytes);
  }

  void upload_paths() {
    const PathSet set = make_paths(plan_, Packing::kBestFitDecreasing);
    Paths& p = paths_;
    p.elements = upload(set.elements, bytes);
    p.bins = upload(set.bins, bytes);
    p.paths = upload(set.paths, bytes);
    p.category_bits = upload(set.category_bits, bytes);
    p.n_bins = static_cast<int64_t>(set.n_bins);
    for (const Path& path : set.paths) p.longest = std::max(p.longest, path.length);
    p.used = true;
  }

  // Chunks of one launch; long tasks first, so that no device waits for one at the end.
  static std::vector<int32_t> list_chunks(const CudaProgram<T>& program, int n_nodes, bool general) {
    std::vector<int32_t> list;
    for (size_t i = 0; i < program.chunks.size(); ++i)
      if (program.chunks[i].general == general && (general || program.chunks[i].n_nodes == n_nodes))
        list.push_back(static_cast<int32_t>(i));
    std::stable_sort(list.begin(), list.end(), [&](int32_t a, int32_t b) {
      return program.chunks[a].n_leaves > program.chunks[b].n_leaves;
    });
    return list;
  }

  void plan_launches(const CudaProgram<T>& program) {
    for (int n_nodes = 1; n_nodes <= kMaxFixedNodes; ++n_nodes) {
      const std::vector<int32_t> list = list_chunks(program, n_nodes, false);
      if (!list.empty()) launches_.push_back(plan_launch(program, n_nodes, list));
    }
    const std::vector<int32_t> list = list_chunks(program, 0, true);
    if (!list.empty()) plan_general(program, list);
  }

  Launch plan_launch(const CudaProgram<T>& program, int n_nodes, const std::vector<int32_t>& list) {
    uint32_t max_slots = 0, max_frames = 0;
    for (const int32_t i : list) {
      max_slots = std::max(max_slots, program.chunks[i].n_slots);
      max_frames = std::max(max_frames, program.chunks[i].n_frames);
    }
    Launch launch;
    const WalkKernel<T> shared = walk_kernel<T>(n_nodes, true);
    const size_t phi_size = sizeof(T) * max_slots * kTile * kBlockTiles;
    launch.shared = 2 * kCudaSegment * sizeof(T);
    const bool fits = launch.shared + phi_size <= kMaxSharedBytes;
    launch.kernel = fits ? shared : walk_kernel<T>(n_nodes, false);
    if (fits) launch.shared += phi_size;
    int blocks = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, launch.kernel.kernel, kBlockThreads,
                                                        launch.shared),
          "this device cannot run the kernels");
    launch.n_blocks = std::max(blocks, 1) * multiprocessors_;
    launch.n_chunks = static_cast<int>(list.size());
    launch.list = upload(list, bytes);
    CudaWalkArgs<T>& a = launch.args;
    a = {};
    a.stream = stream_.as<typename CudaProgram<T>::Element>();
    a.chunks = chunks_.as<CudaChunk>();
    a.chunk_list = launch.list.template as<int32_t>();
    a.n_columns = n_columns_;
    a.n_slots = n_slots_;
    a.max_slots = max_slots;
    a.category_bits = category_bits_.as<uint32_t>();
    a.category_sets = category_sets_.as<uint32_t>();
    const int in_memory = std::max(0, static_cast<int>(max_frames) - launch.kernel.n_frames);
    a.warp_frames = in_memory * cuda_frame_elements(n_nodes) * kTile;
    frame_bytes_ = std::max(frame_bytes_, sizeof(T) * a.warp_frames * launch.n_blocks * (kBlockTiles));
    std::vector<double> t, weights;
    gauss_legendre(n_nodes, t, weights);
    for (int k = 0; k < n_nodes; ++k) {
      a.t[k] = static_cast<T>(t[k]);
      a.weight[k] = static_cast<T>(weights[k]);
      a.tau[k] = static_cast<T>(1 / (t[k] * (1 - t[k])));
    }
    return launch;
  }

  void plan_general(const CudaProgram<T>& program, const std::vector<int32_t>& list) {
    CudaGeneralArgs<T>& a = general_.args;
    for (const int32_t i : list) {
      const CudaChunk& chunk = program.chunks[i];
      const size_t outputs = chunk.output < 0 ? plan_.n_outputs : 1,
                   height = static_cast<size_t>(program.stream[chunk.begin + 2]);
      a.warp_memory = std::max(a.warp_memory, kWarp * general_elements(chunk.n_nodes, outputs, height));
    }
    const size_t block_bytes = 2 * sizeof(T) * a.warp_memory;
    general_.n_blocks = static_cast<int>(
        std::clamp<size_t>(kGeneralBytes / block_bytes, 1, static_cast<size_t>(16) * multiprocessors_));
    general_.n_chunks = static_cast<int>(list.size());
    general_.list = upload(list, bytes);
    frame_bytes_ = std::max(frame_bytes_, block_bytes * general_.n_blocks);
    a.stream = stream_.as<typename CudaProgram<T>::Element>();
    a.chunks = chunks_.as<CudaChunk>();
    a.chunk_list = general_.list.template as<int32_t>();
    a.n_columns = n_columns_;
    a.n_slots = n_slots_;
    a.category_bits = category_bits_.as<uint32_t>();
  }

  void plan_sums(const CudaProgram<T>& program, bool gputreeshap) {
    const size_t n_used = plan_.features.size(), n_outputs = plan_.n_outputs;
    std::vector<std::vector<int32_t>> parts((n_used + 1) * n_outputs);
    for (size_t slot = 0; slot < program.slots.size() && !gputreeshap; ++slot)
      parts[program.slots[slot].output * n_used + program.slots[slot].feature].push_back(
          static_cast<int32_t>(slot));
    std::vector<CudaMarginGroup> groups;
    n_sums_ = 0;
    for (size_t tree = 0; tree < program.tree_output.size();) {
      const int32_t output = program.tree_output[tree], width = output < 0 ? plan_.n_outputs : 1;
      size_t end = tree;
      while (end < program.tree_output.size() && end < tree + kMarginTrees &&
             program.tree_output[end] == output)
        ++end;
      groups.push_back({static_cast<int32_t>(tree), static_cast<int32_t>(end), n_sums_, width});
      for (int32_t o = 0; o < width; ++o)
        parts[n_outputs * n_used + std::max(output, 0) + o].push_back(n_sums_ + o);
      n_sums_ += width;
      tree = end;
    }
    std::vector<int64_t> offsets{0};
    std::vector<int32_t> flat;
    for (const std::vector<int32_t>& p : parts) {
      flat.insert(flat.end(), p.begin(), p.end());
      offsets.push_back(static_cast<int64_t>(flat.size()));
    }
    n_groups_ = static_cast<int>(groups.size());
    groups_ = upload(groups, bytes);
    offsets_ = upload(offsets, bytes);
    parts_ = upload(flat, bytes);
    features_ = upload(plan_.features, bytes);
  }

  // Bytes of a lane for each row, inputs and result on the device aside.
  size_t lane_row_bytes(bool margins) const {
    return sizeof(T) * n_slots_ + 2 * static_cast<size_t>(n_columns_) +
           (paths_.used ? 4 * plan_.columns.size() + 8 * plan_.n_outputs * plan_.features.size() : 0) +
           (margins ? 8 * (static_cast<size_t>(n_sums_) + plan_.n_outputs) : 0);
  }

  int64_t batch_rows(int64_t n_rows, size_t io_row, bool margins, size_t memory_limit) const {
    size_t limit = memory_limit;
    if (!limit) {
      size_t free = 0, total = 0;
      check(cudaMemGetInfo(&free, &total), "reading free memory");
      limit = std::min(kDefaultBytes, free / 2);
    }
    const size_t fixed = kLanes * frame_bytes_, row = kLanes * (lane_row_bytes(margins) + io_row);
    const int64_t by_memory =
        limit > fixed ? static_cast<int64_t>((limit - fixed) / std::max<size_t>(row, 1)) : 0;
    if (by_memory < kTile)
      throw CudaMemoryError("the GPU needs " + std::to_string(fixed + row * kTile) +
                            " bytes for the smallest batch, but may use " + std::to_string(limit) +
                            "; raise memory_limit or use device='cpu'");
    // Several batches for a large job, so that copies overlap with kernels.
    const int64_t by_overlap = std::max<int64_t>(n_rows / 8, 1 << 14);
    const int64_t rows = std::min({by_memory, kBatchRows, by_overlap});
    return std::max<int64_t>(rows / kTile, 1) * kTile;
  }

  void prepare(Lane& lane, int64_t n_rows, bool margins) {
    const size_t group = static_cast<size_t>(kTile) * kBlockTiles, n = (n_rows + group - 1) / group * group;
    lane.codes.reserve(2 * n * n_columns_, kNoRoom);
    lane.partial.reserve(sizeof(T) * n * n_slots_, kNoRoom);
    lane.frames.reserve(frame_bytes_, kNoRoom);
    lane.counters.reserve(4 * (launches_.size() + 1), kNoRoom);
    if (paths_.used) {
      lane.path_codes.reserve(4 * cuda_path_code_elements(n_rows, plan_.columns.size()), kNoRoom);
      lane.phi.reserve(8 * n_rows * plan_.n_outputs * plan_.features.size(), kNoRoom);
    }
    if (!margins) return;
    lane.margin_sums.reserve(8 * n * n_sums_, kNoRoom);
    lane.margin.reserve(8 * n * plan_.n_outputs, kNoRoom);
  }

  // Copies rows to page-locked memory: column by column if they lie so, else row by row. Returns
  // how they lie there.
  Rows gather(const Rows& rows, int64_t first, int64_t n, char* out) const {
    const char* from = static_cast<const char*>(rows.data) + first * rows.row_stride;
    const int64_t item = rows.is_float32 ? 4 : 8, row = item * plan_.n_features;
    if (rows.row_stride == item && rows.column_stride != item) {
      for (int32_t f = 0; f < plan_.n_features; ++f)
        std::memcpy(out + f * n * item, from + f * rows.column_stride, n * item);
      return {nullptr, rows.is_float32, n, item, n * item};
    }
    if (rows.column_stride == item && rows.row_stride == row) {
      copy(out, from, n * row);
    } else if (rows.column_stride == item) {
      for (int64_t i = 0; i < n; ++i) std::memcpy(out + i * row, from + i * rows.row_stride, row);
    } else {
      for (int64_t i = 0; i < n; ++i)
        for (int32_t f = 0; f < plan_.n_features; ++f)
          std::memcpy(out + i * row + f * item, from + i * rows.row_stride + f * rows.column_stride, item);
    }
    return {nullptr, rows.is_float32, n, row, item};
  }

  void launch(Lane& lane, const Rows& rows, double missing, const Result& out, bool margins, bool gap,
              cudaStream_t s) {
    const int32_t n_tiles = static_cast<int32_t>((rows.n_rows + kTile - 1) / kTile);
    CudaCodeArgs coding{rows.data,
                        rows.is_float32,
                        rows.n_rows,
                        rows.row_stride,
                        rows.column_stride,
                        columns_.as<CudaCodeColumn>(),
                        n_columns_,
                        plan_.strict,
                        missing,
                        thresholds_.as<void>(),
                        categories_.as<int32_t>(),
                        lane.codes.template as<int16_t>()};
    if (n_columns_ && (margins || !paths_.used)) {
      const int parts = std::min<int>((n_columns_ + 3) / 4, n_tiles < 4096 ? 64 : 4);
      const dim3 grid(n_tiles, std::max(parts, 1));
      if (plan_.x_float32)
        code_rows<float, kTile><<<grid, 256, 0, s>>>(coding);
      else
        code_rows<double, kTile><<<grid, 256, 0, s>>>(coding);
      check_launch("coding rows");
    }
    if (paths_.used) launch_paths(lane, coding, out, s);
    check(cudaMemsetAsync(lane.counters.template as<char>(), 0, 4 * (launches_.size() + 1), s),
          "clearing counters");
    for (size_t i = 0; i < launches_.size(); ++i) {
      const Launch& launch = launches_[i];
      CudaWalkArgs<T> a = launch.args;
      a.n_tiles = n_tiles;
      a.n_groups = (n_tiles + kBlockTiles - 1) / kBlockTiles;
      a.n_tasks = a.n_groups * launch.n_chunks;
      a.codes = lane.codes.template as<int16_t>();
      a.partial = lane.partial.template as<T>();
      a.frames = lane.frames.template as<T>();
      a.next_task = lane.counters.template as<int32_t>() + i;
      launch.kernel.kernel<<<std::min(launch.n_blocks, a.n_tasks), kBlockThreads, launch.shared, s>>>(a);
      check_launch("walking the trees");
    }
    if (general_.n_chunks) {
      CudaGeneralArgs<T> a = general_.args;
      a.n_tiles = n_tiles;
      a.n_tasks = n_tiles * general_.n_chunks;
      a.codes = lane.codes.template as<int16_t>();
      a.partial = lane.partial.template as<T>();
      a.memory = lane.frames.template as<T>();
      a.next_task = lane.counters.template as<int32_t>() + launches_.size();
      walk_general<T, cuda_lane_rows<T>()><<<std::min(general_.n_blocks, (a.n_tasks + 1) / 2), 64, 0, s>>>(a);
      check_launch("walking the trees");
    }
    CudaSumArgs sums{};
    sums.part_offsets = offsets_.as<int64_t>();
    sums.parts = parts_.as<int32_t>();
    sums.features = features_.as<int32_t>();
    sums.n_used = static_cast<int32_t>(plan_.features.size());
    sums.n_outputs = plan_.n_outputs;
    sums.n_features = plan_.n_features;
    sums.n_slots = n_slots_;
    sums.n_sums = n_sums_;
    sums.scale = plan_.leaf_scale;
    sums.constant = constant_.as<double>();
    sums.partial = lane.partial.template as<void>();
    sums.margin_sums = lane.margin_sums.template as<double>();
    sums.n_rows = rows.n_rows;
    sums.values = out.values;
    sums.margin = out.margin ? out.margin : lane.margin.template as<double>();
    const size_t out_bytes = (out.is_float32 ? 4 : 8) * row_width() * rows.n_rows;
    if (sums.n_used < plan_.n_features && out_bytes && !paths_.used)
      check(cudaMemsetAsync(out.values, 0, out_bytes, s), "clearing the result");
    if (sums.n_used && !paths_.used) {
      const int64_t groups = (static_cast<int64_t>(sums.n_outputs) * sums.n_used + 31) / 32;
      const dim3 grid(n_tiles, static_cast<unsigned>(std::min<int64_t>(groups, 1024)));
      if (out.is_float32)
        add_chunks<T, float, kTile><<<grid, 256, 0, s>>>(sums);
      else
        add_chunks<T, double, kTile><<<grid, 256, 0, s>>>(sums);
      check_launch("adding up chunks");
    }
    if (!margins) return;
    if (n_groups_) {
      const CudaMarginArgs a{groups_.as<CudaMarginGroup>(),
                             tree_nodes_.as<int64_t>(),
                             nodes_.as<CudaNode>(),
                             leaf_values_.as<double>(),
                             category_bits_.as<uint32_t>(),
                             lane.codes.template as<int16_t>(),
                             n_columns_,
                             n_sums_,
                             lane.margin_sums.template as<double>()};
      add_margins<kTile><<<dim3(n_tiles, n_groups_), kTile, 0, s>>>(a);
      check_launch("finding margins");
    }
    const int64_t n = rows.n_rows * plan_.n_outputs;
    finish_margins<kTile><<<static_cast<unsigned>((n + 255) / 256), 256, 0, s>>>(sums);
    check_launch("finding margins");
    if (!gap) return;
    const CudaGapArgs g{out.values,
                        sums.margin,
                        base_.as<double>(),
                        rows.n_rows,
                        plan_.n_outputs,
                        plan_.n_features,
                        gap_.template as<unsigned long long>()};
    const unsigned blocks = static_cast<unsigned>(std::min<int64_t>((n + 7) / 8, 32 * multiprocessors_));
    if (out.is_float32)
      find_gaps<float><<<blocks, 256, 0, s>>>(g);
    else
      find_gaps<double><<<blocks, 256, 0, s>>>(g);
    check_launch("checking additivity");
  }

  void launch_paths(Lane& lane, const CudaCodeArgs& coding, const Result& out, cudaStream_t s) {
    CudaPathArgs a{};
    a.elements = paths_.elements.template as<PathElement>();
    a.bins = paths_.bins.template as<int64_t>();
    a.paths = paths_.paths.template as<Path>();
    a.category_bits = paths_.category_bits.template as<uint32_t>();
    a.n_bins = paths_.n_bins;
    a.leaf_values = leaf_values_.as<double>();
    a.features = features_.as<int32_t>();
    a.n_used = static_cast<int32_t>(plan_.features.size());
    a.n_outputs = plan_.n_outputs;
    a.n_features = plan_.n_features;
    a.x_float32 = plan_.x_float32;
    a.code = coding;
    a.code.columns = full_columns_.as<CudaCodeColumn>();
    a.code.n_columns = static_cast<int32_t>(plan_.columns.size());
    a.codes = lane.path_codes.template as<uint32_t>();
    a.phi = lane.phi.template as<double>();
    a.values = out.values;
    // Its recurrences lose digits with every feature on a path: float32 is good for about 16.
    const bool single = sizeof(T) == 4 && paths_.longest <= kMaxSinglePath;
    check(single ? (out.is_float32 ? launch_gputreeshap<float, float>(a, s)
                                   : launch_gputreeshap<float, double>(a, s))
                 : (out.is_float32 ? launch_gputreeshap<double, float>(a, s)
                                   : launch_gputreeshap<double, double>(a, s)),
          "running GPUTreeShap");
  }

  void reset_gap(const double* gap) {
    if (!gap) return;
    gap_.reserve(8 * plan_.n_outputs, kNoRoom);
    check(cudaMemset(gap_.template as<char>(), 0, 8 * plan_.n_outputs), "clearing the gap");
    check(cudaStreamSynchronize(nullptr), "clearing the gap");  // the other streams do not wait for it
  }
  void read_gap(double* gap) {
    if (gap)
      check(cudaMemcpy(gap, gap_.template as<char>(), 8 * plan_.n_outputs, cudaMemcpyDeviceToHost),
            "reading the gap");
  }

  const Plan& plan_;
  std::mutex mutex_;
  int multiprocessors_ = 0, n_groups_ = 0;
  int32_t n_columns_ = 0, n_sums_ = 0;
  uint32_t n_slots_ = 0;
  size_t frame_bytes_ = 0;
  DeviceBuffer stream_, chunks_, category_bits_, category_sets_, nodes_, tree_nodes_, leaf_values_, constant_,
      base_, columns_, full_columns_, thresholds_, categories_, groups_, offsets_, parts_, features_, gap_,
      refused_;
  std::vector<Launch> launches_;
  General general_;
  Paths paths_;
  std::unique_ptr<Lane> lanes_[kLanes];
};

}  // namespace

CudaPlan::CudaPlan(const Plan& plan, int device, bool gputreeshap) {
  const size_t n = cuda_devices().size();
  if (device < 0 || static_cast<size_t>(device) >= n)
    throw CudaError("there is no CUDA device " + std::to_string(device) + "; there are " + std::to_string(n));
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
bool CudaPlan::explain_device(const Rows& rows, double missing, const CudaResult& result, size_t memory_limit,
                              uintptr_t stream, const std::function<bool()>& interrupted) {
  return impl_->explain_device(rows, missing, result, memory_limit, reinterpret_cast<cudaStream_t>(stream),
                               interrupted);
}
int64_t CudaPlan::find_refused(const Rows& rows, double missing, bool allow_nan, double limit,
                               uintptr_t stream) {
  return impl_->find_refused(rows, missing, allow_nan, limit, reinterpret_cast<cudaStream_t>(stream));
}
int CudaPlan::device() const { return impl_->device; }
size_t CudaPlan::bytes() const { return impl_->bytes; }

}  // namespace skshap
