// Rescaled values on one device: takes rows batch by batch, and launches the kernels.
#include "cuda/rescaled.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>

#include "cuda/host_rows.h"
#include "cuda/input_check.cuh"
#include "cuda/rescaled_model.cuh"

namespace skshap {

class CudaRescaledPlan::Impl {
 public:
  virtual ~Impl() = default;
  virtual bool explain(const Rows& rows, const double* labels, const Result& result, size_t memory_limit,
                       const std::function<bool()>& interrupted) = 0;
  virtual bool explain_device(const Rows& rows, CudaInput& input, const double* labels, const Result& result,
                              size_t memory_limit, cudaStream_t stream,
                              const std::function<bool()>& interrupted) = 0;
  virtual const Plan& plan() const = 0;
  virtual Link link() const = 0;
  virtual size_t table_bytes() const = 0;
};

namespace {

// The device memory that a call without a memory limit uses, and the most rows of a batch. More would not
// make the call faster.
constexpr size_t kDefaultBytes = size_t{1} << 30;
constexpr int64_t kBatchRows = 1 << 17;
constexpr const char* kNoRoom = "the rows of a batch do not fit the device's memory";
constexpr const char* kNoHostRoom = "page-locked host memory";
constexpr const char* kComputing = "computing rescaled SHAP values";

template <class T>
class RescaledPipeline : public CudaRescaledPlan::Impl {
 public:
  RescaledPipeline(const RescaledTables& tables, int device) : device_(device), model_(tables) {}

  bool explain(const Rows& rows, const double* labels, const Result& result, size_t memory_limit,
               const std::function<bool()>& interrupted) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const UseDevice use(device_);
    const size_t out_row = out_row_bytes(result);
    const int64_t batch = batch_rows(rows.n_rows, in_row_bytes(rows) + out_row, memory_limit);
    return run_batches(rows.n_rows, batch, interrupted, [&](int64_t first, int64_t n) {
      const Rows part = send_rows(rows, first, n);
      values_.reserve(n * out_row, kNoRoom);
      values_host_.reserve(n * out_row, kNoHostRoom);
      Result on_device = result;
      on_device.values = values_.as<void>();
      run(part, std::numeric_limits<double>::quiet_NaN(), labels ? labels + first : nullptr, on_device);
      check(cudaMemcpyAsync(values_host_.as<char>(), values_.as<char>(), n * out_row, cudaMemcpyDeviceToHost,
                            stream_.stream),
            "copying SHAP values");
      fetch_margins(first, n, result);
      copy(static_cast<char*>(result.values) + first * out_row, values_host_.as<char>(), n * out_row);
    });
  }

  bool explain_device(const Rows& rows, CudaInput& input, const double* labels, const Result& result,
                      size_t memory_limit, cudaStream_t stream,
                      const std::function<bool()>& interrupted) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const UseDevice use(device_);
    const bool refuses = input.refuses() && rows.n_rows && model_.plan.n_inputs;
    if (refuses)
      check_.queue(rows, model_.plan.n_inputs, check_.start(input, stream), model_.multiprocessors, stream);
    begin_.record(stream);
    begin_.delay(stream_.stream);
    const int64_t batch = batch_rows(rows.n_rows, 0, memory_limit);
    const bool complete = run_batches(rows.n_rows, batch, interrupted, [&](int64_t first, int64_t n) {
      Rows part = rows;
      part.data = static_cast<const char*>(rows.data) + first * rows.row_stride;
      part.n_rows = n;
      Result out = result;
      out.values = static_cast<char*>(result.values) + first * out_row_bytes(result);
      run(part, input.missing, labels ? labels + first : nullptr, out);
      fetch_margins(first, n, result);
    });
    if (refuses) input.refused = check_.finish(stream);
    return complete;
  }

  const Plan& plan() const override { return model_.plan; }
  Link link() const override { return model_.link; }
  size_t table_bytes() const override { return model_.table_bytes; }

 private:
  static constexpr int kTile = kRescaledTile;

  size_t in_row_bytes(const Rows& rows) const {
    return (rows.is_float32 ? 4 : 8) * static_cast<size_t>(model_.plan.n_inputs);
  }
  size_t out_row_bytes(const Result& result) const {
    return (result.is_float32 ? 4 : 8) * static_cast<size_t>(model_.plan.n_outputs) * model_.plan.n_features;
  }

  // Return the number of rows of a batch: as many as memory allows, and about the same number in all batches.
  // The sums of a row do not depend on it.
  int64_t batch_rows(int64_t n_rows, size_t io_row, size_t memory_limit) const {
    const size_t row = io_row + 2 * static_cast<size_t>(model_.n_columns) +
                       2 * static_cast<size_t>(model_.n_lookups) +
                       sizeof(T) * (static_cast<size_t>(model_.n_alpha) + model_.n_slots) +
                       8 * (static_cast<size_t>(model_.n_sums) + model_.plan.n_outputs + 1);
    size_t limit = memory_limit;
    if (!limit) {
      size_t free = 0, total = 0;
      check(cudaMemGetInfo(&free, &total), "reading free memory");
      limit = std::min(std::max(kDefaultBytes, row * kTile), free / 2);
    }
    const int64_t by_memory = static_cast<int64_t>(limit / row);
    if (by_memory < kTile)
      throw CudaMemoryError("the GPU needs " + std::to_string(row * kTile) +
                            " bytes for the smallest batch, but may use " + std::to_string(limit) +
                            "; raise memory_limit or use device='cpu'");
    const int64_t most = std::min(by_memory, kBatchRows) / kTile * kTile;
    const int64_t n_batches = std::max<int64_t>((n_rows + most - 1) / most, 1);
    return std::max<int64_t>(padded((n_rows + n_batches - 1) / n_batches), kTile);
  }
  static int64_t padded(int64_t n) { return (n + kTile - 1) / kTile * kTile; }

  // Call work(first, n) for each batch. Return whether all batches were done.
  template <class Work>
  bool run_batches(int64_t n_rows, int64_t batch, const std::function<bool()>& interrupted,
                   const Work& work) {
    for (int64_t first = 0; first < n_rows; first += batch) {
      if (interrupted()) return false;
      try {
        work(first, std::min(batch, n_rows - first));
      } catch (...) {
        // No work may continue when the caller's memory is freed.
        ignore(cudaStreamSynchronize(stream_.stream));
        throw;
      }
    }
    return true;
  }

  // Queue the work for rows on the device, with the values on the device. `missing` is a number that, like
  // NaN, means missing.
  void run(const Rows& rows, double missing, const double* labels, const Result& out) {
    const int64_t n = rows.n_rows;
    reserve(n);
    if (labels) send_labels(labels, n);
    const int32_t n_tiles = static_cast<int32_t>(padded(n) / kTile);
    code(rows, missing, n_tiles);
    find_margins(n, n_tiles);
    if (model_.n_chunks || model_.pattern_leaves.any()) find_factors(n, labels != nullptr);
    if (model_.n_chunks) {
      find_indices(n);
      switch (model_.n_terms) {
        case 2: look_up<2>(n); break;
        case 4: look_up<4>(n); break;
        case 6: look_up<6>(n); break;
        case 8: look_up<8>(n); break;
        case 10: look_up<10>(n); break;
        case 12: look_up<12>(n); break;
        case 14: look_up<14>(n); break;
        default: look_up<16>(n);
      }
    }
    model_.pattern_leaves.run(codes_.as<int16_t>(), alpha_.as<T>(), n_tiles, partial_.as<T>(),
                              stream_.stream);
    add_up(n, n_tiles, out);
  }

  void reserve(int64_t n_rows) {
    const size_t n = padded(n_rows);
    codes_.reserve(2 * n * model_.n_columns, kNoRoom);
    indices_.reserve(2 * n * model_.n_lookups, kNoRoom);
    alpha_.reserve(sizeof(T) * n * model_.n_alpha, kNoRoom);
    partial_.reserve(sizeof(T) * n * model_.n_slots, kNoRoom);
    margin_sums_.reserve(8 * n * model_.n_sums, kNoRoom);
    margin_.reserve(8 * n * model_.plan.n_outputs, kNoRoom);
  }

  // Copy rows to the device, through page-locked memory. Return the rows on the device.
  Rows send_rows(const Rows& rows, int64_t first, int64_t n) {
    const size_t size = n * in_row_bytes(rows);
    X_.reserve(size, kNoRoom);
    X_host_.reserve(size, kNoHostRoom);
    Rows out = gather(rows, model_.plan.n_inputs, first, n, X_host_.as<char>());
    out.data = X_.as<char>();
    check(cudaMemcpyAsync(X_.as<char>(), X_host_.as<char>(), size, cudaMemcpyHostToDevice, stream_.stream),
          "copying rows");
    return out;
  }

  void send_labels(const double* labels, int64_t n) {
    labels_.reserve(8 * n, kNoRoom);
    labels_host_.reserve(8 * n, kNoHostRoom);
    std::memcpy(labels_host_.as<double>(), labels, 8 * n);
    check(cudaMemcpyAsync(labels_.as<double>(), labels_host_.as<double>(), 8 * n, cudaMemcpyHostToDevice,
                          stream_.stream),
          "copying labels");
  }

  // Copy the margins of a batch to the result, if the result has margins. Wait for all work.
  void fetch_margins(int64_t first, int64_t n, const Result& result) {
    const size_t width = model_.plan.n_outputs;
    if (result.margin) {
      margin_host_.reserve(8 * n * width, kNoHostRoom);
      check(cudaMemcpyAsync(margin_host_.as<char>(), margin_.as<char>(), 8 * n * width,
                            cudaMemcpyDeviceToHost, stream_.stream),
            "copying margins");
    }
    check(cudaStreamSynchronize(stream_.stream), kComputing);
    if (result.margin) std::memcpy(result.margin + first * width, margin_host_.as<double>(), 8 * n * width);
  }

  void code(const Rows& rows, double missing, int32_t n_tiles) {
    if (!model_.n_columns) return;
    CudaCodeArgs a{};
    a.X = rows.data;
    a.x_single = rows.is_float32;
    a.n_rows = rows.n_rows;
    a.row_stride = rows.row_stride;
    a.column_stride = rows.column_stride;
    a.columns = model_.columns.template as<CudaCodeColumn>();
    a.n_columns = model_.n_columns;
    a.strict = model_.plan.strict;
    a.missing = missing;
    a.thresholds = model_.thresholds.template as<void>();
    a.categories = model_.categories.template as<int32_t>();
    a.codes = codes_.as<int16_t>();
    const int parts = std::min<int>((model_.n_columns + 3) / 4, n_tiles < 4096 ? 64 : 4);
    const dim3 grid(n_tiles, std::max(parts, 1));
    if (model_.plan.x_float32)
      code_rows<float, kTile><<<grid, 256, 0, stream_.stream>>>(a);
    else
      code_rows<double, kTile><<<grid, 256, 0, stream_.stream>>>(a);
    check_launch("coding rows");
  }

  CudaSumArgs sum_args(int64_t n) const {
    CudaSumArgs a{};
    a.part_offsets = model_.offsets.template as<int64_t>();
    a.parts = model_.parts.template as<int32_t>();
    a.features = model_.features.template as<int32_t>();
    a.n_undoubled = a.n_places = static_cast<int32_t>(model_.plan.features.size());
    a.n_outputs = model_.plan.n_outputs;
    a.n_features = model_.plan.n_features;
    a.n_slots = model_.n_slots;
    a.n_sums = model_.n_sums;
    a.scale = model_.plan.leaf_scale;
    a.constant = model_.constant.template as<double>();
    a.partial = partial_.as<void>();
    a.margin_sums = margin_sums_.as<double>();
    a.n_rows = n;
    a.margin = margin_.as<double>();
    return a;
  }

  void find_margins(int64_t n, int32_t n_tiles) {
    if (model_.n_groups) {
      const CudaMarginArgs a{.groups = model_.groups.template as<CudaMarginGroup>(),
                             .tree_nodes = model_.tree_nodes.template as<int64_t>(),
                             .nodes = model_.margin_nodes.template as<CudaNode>(),
                             .leaf_values = model_.leaf_values.template as<double>(),
                             .category_bits = model_.category_bits.template as<uint32_t>(),
                             .codes = codes_.as<int16_t>(),
                             .n_columns = model_.n_columns,
                             .n_sums = model_.n_sums,
                             .sums = margin_sums_.as<double>()};
      add_margins<kTile><<<dim3(n_tiles, model_.n_groups), kTile, 0, stream_.stream>>>(a);
      check_launch("finding margins");
    }
    const int64_t n_margins = n * model_.plan.n_outputs;
    finish_margins<kTile>
        <<<static_cast<unsigned>((n_margins + 255) / 256), 256, 0, stream_.stream>>>(sum_args(n));
    check_launch("finding margins");
  }

  void find_indices(int64_t n) {
    RescaledIndexArgs a{};
    a.trees = model_.trees.template as<RescaledTree>();
    a.nodes = model_.nodes.template as<CudaTableNode>();
    a.lookups = model_.lookups.template as<RescaledIndex>();
    a.bits = model_.bits.template as<uint32_t>();
    a.category_bits = model_.category_bits.template as<uint32_t>();
    a.codes = codes_.as<int16_t>();
    a.n_trees = model_.n_trees;
    a.n_columns = model_.n_columns;
    a.max_words = model_.max_words;
    a.n_rows = padded(n);
    a.indices = indices_.as<uint16_t>();
    const int threads = model_.index_warps * kWarp;
    const dim3 grid(static_cast<unsigned>((a.n_rows + threads - 1) / threads),
                    static_cast<unsigned>(std::min(model_.n_trees, 64)));
    allow_shared(find_rescaled_indices);
    find_rescaled_indices<<<grid, threads, model_.index_shared(), stream_.stream>>>(a);
    check_launch("deciding");
  }

  void find_factors(int64_t n, bool has_labels) {
    constexpr int kTerms = 16, kThreads = 128;
    RescaledFactorArgs a{};
    a.slopes = model_.slopes.template as<RescaledSlope>();
    a.nodes = model_.slope_nodes.template as<double>();
    a.factors = model_.factors.template as<double>();
    a.link = model_.link;
    a.scale = model_.scale;
    a.margin = margin_.as<double>();
    a.labels = has_labels ? labels_.as<double>() : nullptr;
    a.n_rows = n;
    a.n_padded = padded(n);
    a.n_outputs = model_.plan.n_outputs;
    a.alpha = alpha_.as<void>();
    const dim3 grid(static_cast<unsigned>((a.n_padded + kThreads - 1) / kThreads), model_.plan.n_outputs);
    find_rescaled_factors<T, kTerms><<<grid, kThreads, 0, stream_.stream>>>(a);
    check_launch("finding slopes");
  }

  template <int kTerms>
  void look_up(int64_t n) {
    RescaledLookupArgs<T> a{};
    a.chunks = model_.chunks.template as<RescaledChunk>();
    a.stages = model_.stages.template as<RescaledStage>();
    a.targets = model_.targets.template as<uint32_t>();
    a.data = model_.data.template as<uint4>();
    a.indices = indices_.as<uint16_t>();
    a.alpha = alpha_.as<T>();
    a.n_rows = padded(n);
    a.n_blocks = static_cast<int32_t>((a.n_rows + model_.kThreads - 1) / model_.kThreads);
    a.n_slots = model_.n_slots;
    a.shared_phi = model_.shared_phi;
    a.buffer = model_.buffer;
    a.partial = partial_.as<T>();
    const auto kernel = look_up_rescaled<T, kTerms>;
    allow_shared(kernel);
    const unsigned grid = static_cast<unsigned>(a.n_blocks * model_.n_chunks);
    kernel<<<grid, model_.kThreads, model_.lookup_shared(), stream_.stream>>>(a);
    check_launch("looking up values");
  }

  void add_up(int64_t n, int32_t n_tiles, const Result& result) {
    CudaSumArgs sums = sum_args(n);
    sums.values = result.values;
    const cudaStream_t s = stream_.stream;
    if (sums.n_undoubled < model_.plan.n_features)
      check(cudaMemsetAsync(sums.values, 0, n * out_row_bytes(result), s), "clearing the result");
    if (!sums.n_undoubled) return;
    const int64_t groups = (static_cast<int64_t>(sums.n_outputs) * sums.n_places + 31) / 32;
    const dim3 grid(n_tiles, static_cast<unsigned>(std::min<int64_t>(groups, 1024)));
    if (result.is_float32)
      add_chunks<T, float, kTile><<<grid, 256, 0, s>>>(sums);
    else
      add_chunks<T, double, kTile><<<grid, 256, 0, s>>>(sums);
    check_launch("adding up chunks");
  }

  template <class Kernel>
  void allow_shared(Kernel kernel) const {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(model_.max_shared)),
          "this device cannot run the kernels");
  }

  const int device_;
  std::mutex mutex_;
  const RescaledModel<T> model_;
  Stream stream_;
  Event begin_;
  InputCheck check_;
  DeviceBuffer X_, codes_, indices_, alpha_, partial_, margin_sums_, margin_, labels_, values_;
  HostBuffer X_host_, values_host_, margin_host_, labels_host_;
};

}  // namespace

CudaRescaledPlan::CudaRescaledPlan(const RescaledTables& tables, int device) {
  const size_t n = cuda_devices().size();
  if (device < 0 || static_cast<size_t>(device) >= n)
    throw CudaError("there is no CUDA device " + std::to_string(device) + "; there are " + std::to_string(n));
  const UseDevice use(device);
  if (tables.plan.precision == Precision::kSingle)
    impl_ = std::make_unique<RescaledPipeline<float>>(tables, device);
  else
    impl_ = std::make_unique<RescaledPipeline<double>>(tables, device);
}
CudaRescaledPlan::~CudaRescaledPlan() = default;

bool CudaRescaledPlan::explain(const Rows& rows, const double* labels, const Result& result,
                               size_t memory_limit, const std::function<bool()>& interrupted) {
  return impl_->explain(rows, labels, result, memory_limit, interrupted);
}
bool CudaRescaledPlan::explain_device(const Rows& rows, CudaInput& input, const double* labels,
                                      const Result& result, size_t memory_limit, uintptr_t stream,
                                      const std::function<bool()>& interrupted) {
  return impl_->explain_device(rows, input, labels, result, memory_limit,
                               reinterpret_cast<cudaStream_t>(stream), interrupted);
}
const Plan& CudaRescaledPlan::plan() const { return impl_->plan(); }
bool CudaRescaledPlan::has_labels() const { return skshap::has_labels(impl_->link()); }
size_t CudaRescaledPlan::table_bytes() const { return impl_->table_bytes(); }

}  // namespace skshap
