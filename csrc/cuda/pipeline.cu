// The pipeline on one device: it takes rows batch by batch, and lets a model explain them.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>

#include "cuda/batch_model.cuh"
#include "cuda/cuda.h"
#include "cuda/host_rows.h"
#include "cuda/interval_model.cuh"
#include "cuda/page_locked.h"

namespace skshap {

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
    devices.push_back(
        {.index = i,
         .name = p.name,
         .major = p.major,
         .minor = p.minor,
         .multiprocessors = p.multiProcessorCount,
         .memory = p.totalGlobalMem,
         .holds_tables = IntervalShared::stage_bytes(p.sharedMemPerBlockOptin) >= kLeastStageBytes});
  }
  return devices;
}

int cuda_driver_version() {
  int version = 0;
  ignore(cudaDriverGetVersion(&version));
  return version;
}

int cuda_runtime_version() {
  int version = 0;
  ignore(cudaRuntimeGetVersion(&version));
  return version;
}

std::vector<std::pair<int, int>> cuda_compute_capabilities() {
  std::vector<std::pair<int, int>> capabilities;
  for (const int number : {__CUDA_ARCH_LIST__})  // such as 750, 900, 1200
    capabilities.emplace_back(number / 100, number / 10 % 10);
  return capabilities;
}

size_t cuda_allocated_bytes() { return cuda_allocated; }

class CudaPlan::Pipeline {
 public:
  // Make the pipeline of a device, which must be the current one.
  Pipeline(int device, std::unique_ptr<BatchModel> model)
      : device_(device), model_(std::move(model)), plan_(model_->plan) {}

  // No copy may be pending when page-locked memory is freed.
  ~Pipeline() {
    for (const Flight& flight : flights_) flight.done.wait();
  }

  const BatchModel& model() const { return *model_; }

  bool explain(const Rows& rows, const double* labels, const CudaResult& result, size_t memory_limit,
               const std::function<bool()>& interrupted) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const UseDevice use(device_);
    const std::array<size_t, kArrays> out_rows = row_bytes(plan_, result.values);
    const size_t io_row = std::accumulate(out_rows.begin(), out_rows.end(), input_row_bytes(rows));
    const bool margins = result.values.margin || result.gap, direct = is_direct(result, rows.n_rows);
    const int64_t several = std::max<int64_t>(rows.n_rows / kHostBatches, kHostBatchRows);
    const auto [batch, n_flights] = batches_of(rows.n_rows, several, kFlights, io_row, margins, memory_limit);
    for (const Flight& flight : flights_) flight.done.wait(kComputing);  // calls on the device return early
    reset_gap(result.gap, flights_[0].stream.stream);
    check(cudaStreamSynchronize(flights_[0].stream.stream), "clearing the gap");  // for all flights
    for (Flight& flight : flights_) flight.n_rows = 0;
    try {
      int l = 0;
      for (int64_t first = 0; first < rows.n_rows; first += batch, l = (l + 1) % n_flights) {
        if (interrupted()) {
          finish();
          return false;
        }
        Flight& flight = flights_[l];
        if (!direct) fetch_result(flight, result.values);
        flight.first_row = first;
        flight.n_rows = std::min(batch, rows.n_rows - first);
        model_->reserve(flight, flight.n_rows, margins, result.values);
        const cudaStream_t s = flight.stream.stream;
        const Result on_flight = reserve_result(flight, result.values, direct);
        const Rows on_device = send_rows(flight, rows, labels, s);
        model_->explain(flight,
                        {.rows = on_device,
                         .missing = kNoNumber,
                         .labels = labels_of(flight, labels),
                         .out = on_flight,
                         .margins = margins,
                         .gap = gap_of(result),
                         .check = nullptr},
                        s);
        send_result(flight, result.values, direct);
        send_margin(flight, result.values.margin, s);
        flight.done.record(s);
      }
      for (int i = 0; i < n_flights; ++i, l = (l + 1) % n_flights) {
        if (direct)
          flights_[l].done.wait(kComputing);
        else
          fetch_result(flights_[l], result.values);
      }
      read_gap(result.gap);
    } catch (...) {
      finish();
      throw;
    }
    return true;
  }

  // The steps of all batches are in one function, as an error in any of them must end all of them.
  bool explain_device(const Rows& rows, CudaInput& input, const double* labels, const CudaResult& result,
                      size_t memory_limit, cudaStream_t stream, const std::function<bool()>& interrupted) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const UseDevice use(device_);
    double* const margin = result.values.margin;
    const bool margins = margin || result.gap;
    const int64_t several = std::max<int64_t>(rows.n_rows / kDeviceFlights, kDeviceBatchRows);
    const auto [batch, most_flights] =
        batches_of(rows.n_rows, several, kDeviceFlights, 0, margins, memory_limit);
    // A single batch needs no stream of its own.
    const int n_flights = rows.n_rows > batch ? most_flights : 1;
    const auto stream_of = [&](const Flight& flight) {
      return n_flights > 1 ? flight.stream.stream : stream;
    };
    const bool refuses = input.refuses() && rows.n_rows && plan_.n_inputs;
    reset_gap(result.gap, stream);
    if (refuses) check_.start(input, stream);
    // Check numbers while they are coded, if every column is coded, and all rows at once.
    const bool beside = refuses && rows.n_rows <= batch && model_->codes_all;
    if (refuses && !beside) check_.queue(rows, plan_.n_inputs, model_->multiprocessors, stream);
    for (int l = 0; l < n_flights; ++l) {
      flights_[l].done.delay(stream_of(flights_[l]));
      flights_[l].n_rows = 0;
    }
    if (n_flights > 1) {  // begin once the rows are there
      begin_.record(stream);
      for (int l = 0; l < n_flights; ++l) begin_.delay(flights_[l].stream.stream);
    }
    try {
      int l = 0;
      for (int64_t first = 0; first < rows.n_rows; first += batch, l = (l + 1) % n_flights) {
        if (interrupted()) {
          finish_on(stream);
          return false;
        }
        Flight& flight = flights_[l];
        const cudaStream_t s = stream_of(flight);
        fetch_margin(flight, margin);
        flight.first_row = first;
        flight.n_rows = std::min(batch, rows.n_rows - first);
        model_->reserve(flight, flight.n_rows, margins, result.values);
        if (labels) send_labels(flight, labels, s);
        model_->explain(flight,
                        {.rows = part_of(rows, first, flight.n_rows),
                         .missing = input.missing,
                         .labels = labels_of(flight, labels),
                         .out = part_of(result.values, first),
                         .margins = margins,
                         .gap = gap_of(result),
                         .check = beside ? &check_ : nullptr},
                        s);
        send_margin(flight, margin, s);
        flight.done.record(s);
      }
      if (n_flights > 1)  // from now on, the caller's stream sees the values
        for (int i = 0; i < n_flights; ++i) flights_[i].done.delay(stream);
      if (refuses) input.refused = check_.finish(stream);
      for (int i = 0; i < n_flights; ++i) fetch_margin(flights_[i], margin);
      if (result.gap) {
        check(cudaStreamSynchronize(stream), kComputing);
        read_gap(result.gap);
      }
    } catch (...) {
      finish_on(stream);
      throw;
    }
    return true;
  }

 private:
  static constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
  static constexpr const char* kNoHostRoom = "page-locked host memory";

  size_t input_row_bytes(const Rows& rows) const {
    return (rows.is_float32 ? 4 : 8) * static_cast<size_t>(plan_.n_inputs);
  }

  // The division of a call: rows of a batch, and batches in flight.
  struct Batches {
    int64_t n_rows;
    int n_flights;
  };

  // Divide a call into batches of at most `most` rows. At most n_flights batches are in flight, and fewer if
  // there is not enough memory for that many batches of a useful size. All batches have about the same size,
  // because a small batch would not fill the GPU.
  Batches batches_of(int64_t n_rows, int64_t most, int n_flights, size_t io_row, bool margins,
                     size_t memory_limit) const {
    const int tile = model_->tile_rows;
    most = std::min(most, kBatchRows);
    size_t by_memory = 0;
    for (;; n_flights /= 2) {
      const size_t fixed = n_flights * model_->frame_bytes,
                   row = n_flights * (model_->row_bytes(margins) + io_row), least = fixed + row * tile;
      const size_t limit =
          memory_limit ? memory_limit : usual_limit(fixed + row * std::min(most, n_rows + tile), least);
      by_memory = limit > fixed ? (limit - fixed) / std::max<size_t>(row, 1) : 0;
      if (by_memory >= (n_flights > kDeviceFlights ? std::min<size_t>(most, kLeastRows) : tile)) break;
      if (n_flights == 1)
        throw CudaMemoryError("the GPU needs " + std::to_string(least) +
                              " bytes for the smallest batch, but may use " + std::to_string(limit) +
                              "; raise memory_limit or use device='cpu'");
    }
    most = std::min<int64_t>(by_memory, most) / tile * tile;
    const int64_t n_batches = (n_rows + most - 1) / most;
    const int64_t rows = (n_rows + n_batches - 1) / std::max<int64_t>(n_batches, 1);
    return {std::max<int64_t>((rows + tile - 1) / tile, 1) * tile, n_flights};
  }

  // Return how much memory a call without a limit may use, if it can use at most `most` and needs at least
  // `least`.
  size_t usual_limit(size_t most, size_t least) const {
    if (most <= kSmallBytes) return kSmallBytes;  // asking for free memory takes as long as a small job
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "reading free memory");
    return std::min(std::max(plan_.order < 3 ? kDefaultBytes : kTripleBytes, least), free / 2);
  }

  static Rows part_of(const Rows& rows, int64_t first, int64_t n) {
    Rows part = rows;
    part.data = static_cast<const char*>(rows.data) + first * rows.row_stride;
    part.n_rows = n;
    return part;
  }

  // Call visit(i, array, bytes of a row) for each array of a result that is requested.
  template <class Visit>
  void for_arrays(const Result& result, const Visit& visit) const {
    const Arrays out = arrays(result);
    const std::array<size_t, kArrays> out_rows = row_bytes(plan_, result);
    for (int i = 0; i < kArrays; ++i)
      if (out[i]) visit(i, static_cast<char*>(out[i]), out_rows[i]);
  }

  // Return the part of a result that begins at row `first`, without a margin.
  Result part_of(const Result& result, int64_t first) const {
    Arrays part{};
    for_arrays(result, [&](int i, char* array, size_t row) { part[i] = array + first * row; });
    return result_of(part, result.is_float32);
  }

  // Return whether the device can write the result directly to the caller's arrays.
  bool is_direct(const CudaResult& result, int64_t n_rows) const {
    bool direct = !result.values.margin;
    for_arrays(result.values, [&](int, const char* array, size_t row) {
      direct = direct && is_page_locked(array, n_rows * row);
    });
    return direct;
  }

  // Copy the rows and labels of a flight to the device, through page-locked memory. Return the rows on the
  // device.
  Rows send_rows(Flight& flight, const Rows& rows, const double* labels, cudaStream_t s) const {
    const size_t size = flight.n_rows * input_row_bytes(rows);
    flight.sent.wait("copying rows");
    flight.reserve(flight.X, size);
    flight.X_host.reserve(size, kNoHostRoom);
    Rows out = gather(rows, plan_.n_inputs, flight.first_row, flight.n_rows, flight.X_host.as<char>());
    out.data = flight.X.as<char>();
    check(cudaMemcpyAsync(flight.X.as<char>(), flight.X_host.as<char>(), size, cudaMemcpyHostToDevice, s),
          "copying rows");
    if (labels)
      send_labels(flight, labels, s);
    else
      flight.sent.record(s);
    return out;
  }

  void send_labels(Flight& flight, const double* labels, cudaStream_t s) const {
    const size_t size = sizeof(double) * flight.n_rows;
    flight.sent.wait("copying labels");
    flight.reserve(flight.labels, size);
    flight.labels_host.reserve(size, kNoHostRoom);
    std::memcpy(flight.labels_host.as<double>(), labels + flight.first_row, size);
    check(cudaMemcpyAsync(flight.labels.as<double>(), flight.labels_host.as<double>(), size,
                          cudaMemcpyHostToDevice, s),
          "copying labels");
    flight.sent.record(s);
  }
  static const double* labels_of(const Flight& flight, const double* labels) {
    return labels ? flight.labels.as<double>() : nullptr;
  }

  // Reserve the arrays of a flight for its part of a result. Return the arrays on the device.
  Result reserve_result(Flight& flight, const Result& result, bool direct) const {
    Arrays on_flight{};
    for_arrays(result, [&](int i, char*, size_t row) {
      flight.reserve(flight.results[i], flight.n_rows * row);
      if (!direct) flight.results_host[i].reserve(flight.n_rows * row, kNoHostRoom);
      on_flight[i] = flight.results[i].as<void>();
    });
    return result_of(on_flight, result.is_float32);
  }

  // Copy the result of a flight to page-locked memory, which is the caller's array if the result is `direct`.
  void send_result(Flight& flight, const Result& result, bool direct) const {
    for_arrays(result, [&](int i, char* array, size_t row) {
      char* const to = direct ? array + flight.first_row * row : flight.results_host[i].as<char>();
      check(cudaMemcpyAsync(to, flight.results[i].as<char>(), flight.n_rows * row, cudaMemcpyDeviceToHost,
                            flight.stream.stream),
            "copying SHAP values");
    });
  }

  // Copy the margins of a flight to page-locked memory, if the caller wants them.
  void send_margin(Flight& flight, const double* margin, cudaStream_t s) const {
    if (!margin) return;
    const size_t size = flight.n_rows * plan_.n_outputs * sizeof(double);
    flight.margin_host.reserve(size, kNoHostRoom);
    check(cudaMemcpyAsync(flight.margin_host.as<char>(), flight.margin.as<char>(), size,
                          cudaMemcpyDeviceToHost, s),
          "copying margins");
  }

  // Wait for the result of a flight, if there is one, and copy it to the caller's arrays.
  void fetch_result(Flight& flight, const Result& result) const {
    if (!flight.n_rows) return;
    flight.done.wait(kComputing);
    for_arrays(result, [&](int i, char* array, size_t row) {
      copy(array + flight.first_row * row, flight.results_host[i].as<char>(), flight.n_rows * row);
    });
    fetch_margin(flight, result.margin);
    flight.n_rows = 0;
  }

  // Wait for the margins of a flight, if there are any, and copy them to the caller's array.
  void fetch_margin(Flight& flight, double* margin) const {
    if (!margin || !flight.n_rows) return;
    flight.done.wait(kComputing);
    std::memcpy(margin + flight.first_row * plan_.n_outputs, flight.margin_host.as<double>(),
                flight.n_rows * plan_.n_outputs * sizeof(double));
    flight.n_rows = 0;
  }

  // Wait for all work, because no work may continue when the caller's memory is freed.
  void finish() {
    for (const Flight& flight : flights_) ignore(cudaStreamSynchronize(flight.stream.stream));
  }
  void finish_on(cudaStream_t stream) {
    finish();
    ignore(cudaStreamSynchronize(stream));
  }

  unsigned long long* gap_of(const CudaResult& result) const {
    return result.gap ? gap_.as<unsigned long long>() : nullptr;
  }
  void reset_gap(const double* gap, cudaStream_t stream) {
    if (!gap) return;
    gap_.reserve(8 * plan_.n_outputs, kNoRoom);
    check(cudaMemsetAsync(gap_.as<char>(), 0, 8 * plan_.n_outputs, stream), "clearing the gap");
  }
  void read_gap(double* gap) {
    if (gap)
      check(cudaMemcpy(gap, gap_.as<char>(), 8 * plan_.n_outputs, cudaMemcpyDeviceToHost), "reading the gap");
  }

  const int device_;
  std::mutex mutex_;
  const std::unique_ptr<const BatchModel> model_;
  const Plan& plan_;
  DeviceBuffer gap_;
  InputCheck check_;
  Event begin_;
  Flight flights_[kFlights];
};

namespace {

// Return the registered models. They are made at the first call, because models register themselves while the
// module is loaded.
std::map<std::string, MakeModel>& registered_models() {
  static std::map<std::string, MakeModel> models;
  return models;
}

std::unique_ptr<BatchModel> make_model(const Plan& plan, const std::string& method) {
  if (const auto at = registered_models().find(method); at != registered_models().end())
    return at->second(plan);
  if (method == "chunks") return make_model(plan, CudaMethod::kChunks);
  if (method == "small_chunks") return make_model(plan, CudaMethod::kSmallChunks);
  if (method != "leaves") throw std::invalid_argument("unknown method: " + method);
  if (!has_leaf_chunks(plan)) throw std::invalid_argument("the plan cannot be explained leaf by leaf");
  return make_model(plan, CudaMethod::kLeaves);
}

// Make the pipeline of a device. make() uploads a model to it.
template <class Make>
std::unique_ptr<CudaPlan::Pipeline> pipeline_on(int device, const Make& make) {
  const size_t n = cuda_devices().size();
  if (device < 0 || static_cast<size_t>(device) >= n)
    throw CudaError("there is no CUDA device " + std::to_string(device) + "; there are " + std::to_string(n));
  const UseDevice use(device);
  return std::make_unique<CudaPlan::Pipeline>(device, make());
}

// Reject arrays that the model does not compute.
void require_arrays(const BatchModel& model, const CudaResult& of_call) {
  const Plan& plan = model.plan;
  const Result& result = of_call.values;
  if (of_call.gap && !model.finds_gaps)
    throw std::invalid_argument("rescaled outputs have no gap: their values do not add up to the margin");
  if (!plan.interactions() && (result.matrices || result.pairs))
    throw std::invalid_argument("the plan was not compiled for interactions");
  if (plan.order < 3 && result.triples) throw std::invalid_argument("the plan was not compiled for triples");
  if (plan.order > 2 && (result.matrices || result.pairs))
    throw std::invalid_argument("on a GPU, pairs and matrices need a plan of order 2");
}

}  // namespace

RegisteredModel::RegisteredModel(const char* name, MakeModel make) { registered_models()[name] = make; }

CudaPlan::CudaPlan(const Plan& plan, int device, const std::string& method)
    : pipeline_(pipeline_on(device, [&] { return make_model(plan, method); })) {}

CudaPlan::CudaPlan(Plan&& plan, int device)
    : own_(std::make_unique<Plan>(std::move(plan))),
      pipeline_(pipeline_on(device, [&] { return make_model(*own_, CudaMethod::kChunks); })) {
  own_->tables.drop_contents();
}

CudaPlan::CudaPlan(const RescaledTables& tables, int device)
    : pipeline_(pipeline_on(device, [&] { return make_rescaled_model(tables); })) {}

CudaPlan::~CudaPlan() = default;

const Plan& CudaPlan::plan() const { return pipeline_->model().plan; }
bool CudaPlan::has_labels() const { return pipeline_->model().has_labels; }

bool CudaPlan::explain(const Rows& rows, const double* labels, const CudaResult& result, size_t memory_limit,
                       const std::function<bool()>& interrupted) {
  require_arrays(pipeline_->model(), result);
  return pipeline_->explain(rows, labels, result, memory_limit, interrupted);
}
bool CudaPlan::explain_device(const Rows& rows, CudaInput& input, const double* labels,
                              const CudaResult& result, size_t memory_limit, uintptr_t stream,
                              const std::function<bool()>& interrupted) {
  require_arrays(pipeline_->model(), result);
  return pipeline_->explain_device(rows, input, labels, result, memory_limit,
                                   reinterpret_cast<cudaStream_t>(stream), interrupted);
}

}  // namespace skshap
