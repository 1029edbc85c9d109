// The model of a plan whose trees are explained chunk by chunk: codes, the methods of its chunks, sums and
// margins.
#include "cuda/batch_model.cuh"
#include "cuda/codes_model.cuh"
#include "cuda/general_model.cuh"
#include "cuda/interval_model.cuh"
#include "cuda/leaf_model.cuh"
#include "cuda/margin_model.cuh"
#include "cuda/owen_model.cuh"
#include "cuda/pattern_model.cuh"
#include "cuda/sum_model.cuh"
#include "cuda/table_model.cuh"
#include "cuda/walk_model.cuh"

namespace skshap {
namespace {

template <class T>
class ChunkModel : public BatchModel {
 public:
  ChunkModel(const Plan& plan, const CudaProgram<T>& program, DeviceLimits device)
      : BatchModel(plan, kTile),
        codes_(plan, program.columns),
        margins_(plan, program.margins, kMarginTrees, program.intervals.margins),
        sums_(plan, program.slots, program.shares, !program.leaves.chunks.empty()) {
    codes_all = codes_.n_columns > 0 && plan.n_used_inputs == plan.n_inputs;
    const MethodContext<T> context{.plan = plan,
                                   .program = program,
                                   .device = device,
                                   .stream = arrays_.upload(program.stream),
                                   .chunks = arrays_.upload(program.chunks),
                                   .category_bits = codes_.category_bits(),
                                   .n_columns = codes_.n_columns,
                                   .n_slots = static_cast<uint32_t>(program.slots.size()),
                                   .n_sums = margins_.n_sums};
    if (!program.quadratures.empty()) add(std::make_unique<WalkModel<T>>(context));
    if (!program.leaves.chunks.empty()) add(std::make_unique<LeafModel<T>>(context));
    if (!list_chunks(program, -1).empty()) add(std::make_unique<GeneralModel<T>>(context));
    if (!program.tables.chunks.empty()) add(std::make_unique<TableModel<T>>(context));
    if (!program.pattern_leaves.leaves.empty())
      add(std::make_unique<PatternModel<T>>(program.pattern_leaves,
                                            plan.order > 1 ? PatternResults::kPairs : PatternResults::kValues,
                                            PatternMoments(plan.index), context.max_shared(), kTile,
                                            context.n_columns, context.n_slots, context.category_bits));
    if (!program.owen_leaves.chunks.empty()) add(std::make_unique<OwenModel<T>>(context));
    if (plan.intervals.any()) add(std::make_unique<IntervalModel<T>>(context));
  }

  size_t row_bytes(bool margins) const override {
    return codes_.row_bytes() + sums_.row_bytes() + (margins ? margins_.row_bytes() : 0);
  }

  void reserve(Flight& flight, int64_t n_rows, bool margins, const Result& out) const override {
    const size_t n = padded(n_rows);
    codes_.reserve(flight, n);
    sums_.reserve(flight, n, n_rows, out);
    flight.reserve(flight.frames, frame_bytes);
    flight.reserve(flight.counters, 4 * n_counters_);
    if (margins) margins_.reserve(flight, n);
  }

  void explain(const Flight& flight, const Batch& batch, cudaStream_t s) const override {
    const int32_t n = n_tiles(batch.rows.n_rows);
    codes_.run(flight, batch, n_counters_, n, s);
    CodedRows<T> rows{.codes = flight.codes.template as<int16_t>(),
                      .n_rows = batch.rows.n_rows,
                      .n_tiles = n,
                      .alpha = nullptr,
                      .partial = flight.partial.template as<T>(),
                      .margin_sums = batch.margins ? flight.margin_sums.template as<double>() : nullptr,
                      .frames = flight.frames.template as<void>(),
                      .counters = flight.counters.template as<int32_t>()};
    for (const std::unique_ptr<MethodModel<T>>& method : methods_) {
      method->run(rows, s);
      rows.counters += method->n_counters;
    }
    sums_.run(flight, batch, n, multiprocessors, s);
    if (!batch.margins) return;
    margins_.run(flight, batch, codes_.n_columns, codes_.category_bits(), n, s);
    margins_.find_gaps(flight, batch, multiprocessors, s);
  }

 private:
  static constexpr int kTile = cuda_tile_rows<T>();

  void add(std::unique_ptr<MethodModel<T>> method) {
    frame_bytes = std::max(frame_bytes, method->frame_bytes);
    n_counters_ += method->n_counters;
    methods_.push_back(std::move(method));
  }

  const CodesModel<kTile> codes_;
  const MarginModel<kTile> margins_;
  const SumModel<T, kTile> sums_;
  DeviceArrays arrays_;
  std::vector<std::unique_ptr<MethodModel<T>>> methods_;
  int n_counters_ = 0;
};

template <class T>
std::unique_ptr<BatchModel> make(const Plan& plan, CudaMethod method) {
  const DeviceLimits device = device_limits();
  const size_t stage_bytes = IntervalShared::stage_bytes(device.shared);
  if (plan.intervals.any() && stage_bytes < kLeastStageBytes)
    throw std::invalid_argument("tables by intervals do not fit the shared memory of this GPU");
  return std::make_unique<ChunkModel<T>>(plan, make_cuda_program<T>(plan, method, stage_bytes), device);
}

}  // namespace

std::unique_ptr<BatchModel> make_model(const Plan& plan, CudaMethod method) {
  return plan.precision == Precision::kSingle ? make<float>(plan, method) : make<double>(plan, method);
}

}  // namespace skshap
