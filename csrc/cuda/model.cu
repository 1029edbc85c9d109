// The model of a plan whose trees are explained chunk by chunk, and the list of its methods.
#include <algorithm>

#include "cuda/chunk_model.cuh"
#include "cuda/general_model.cuh"
#include "cuda/interval_model.cuh"
#include "cuda/leaf_model.cuh"
#include "cuda/owen_model.cuh"
#include "cuda/pattern_model.cuh"
#include "cuda/table_model.cuh"
#include "cuda/walk_model.cuh"

namespace skshap {

template <class T>
ChunkModel<T>::ChunkModel(const Plan& plan, const CudaProgram<T>& program)
    : BatchModel(plan, kTile),
      codes_(plan, program.columns),
      margins_(plan, program.margins, kMarginTrees, program.intervals.margins),
      sums_(plan, program.slots, program.shares, !program.leaves.chunks.empty()),
      stream_(arrays_.upload(program.stream)),
      chunks_(arrays_.upload(program.chunks)) {
  codes_all = codes_.n_columns > 0 && plan.n_used_inputs == plan.n_inputs;
}

template <class T>
MethodContext<T> ChunkModel<T>::context(const CudaProgram<T>& program) const {
  return {.plan = plan,
          .program = program,
          .device = device_limits(),
          .stream = stream_,
          .chunks = chunks_,
          .category_bits = codes_.category_bits(),
          .n_columns = codes_.n_columns,
          .n_slots = static_cast<uint32_t>(program.slots.size()),
          .n_sums = margins_.n_sums};
}

template <class T>
void ChunkModel<T>::add(std::unique_ptr<MethodModel<T>> method) {
  frame_bytes = std::max(frame_bytes, method->frame_bytes);
  n_counters_ += method->n_counters;
  methods_.push_back(std::move(method));
}

template <class T>
size_t ChunkModel<T>::row_bytes(bool margins) const {
  return codes_.row_bytes() + sums_.row_bytes() + (margins ? margins_.row_bytes() : 0);
}

template <class T>
void ChunkModel<T>::reserve(Flight& flight, int64_t n_rows, bool margins, const Result& out) const {
  const size_t n = padded(n_rows);
  codes_.reserve(flight, n);
  sums_.reserve(flight, n, n_rows, out);
  flight.reserve(flight.frames, frame_bytes);
  flight.reserve(flight.counters, 4 * n_counters_);
  if (margins) margins_.reserve(flight, n);
}

template <class T>
void ChunkModel<T>::explain(const Flight& flight, const Batch& batch, cudaStream_t s) const {
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

template class ChunkModel<float>;
template class ChunkModel<double>;

namespace {

// Add the methods that a program has chunks for.
template <class T>
void add_methods(const CudaProgram<T>& program, ChunkModel<T>& model) {
  const MethodContext<T> context = model.context(program);
  const Plan& plan = model.plan;
  if (!program.quadratures.empty()) model.add(std::make_unique<WalkModel<T>>(context));
  if (!program.leaves.chunks.empty()) model.add(std::make_unique<LeafModel<T>>(context));
  if (!list_chunks(program, -1).empty()) model.add(std::make_unique<GeneralModel<T>>(context));
  if (!program.tables.chunks.empty())
    model.add(std::make_unique<TableModel<T, CudaLookup>>(context, program.tables));
  if (!program.pattern_leaves.leaves.empty())
    model.add(std::make_unique<PatternModel<T>>(
        program.pattern_leaves, plan.order > 1 ? PatternResults::kPairs : PatternResults::kValues,
        PatternMoments(plan.index), context.max_shared(), model.tile_rows, context.n_columns, context.n_slots,
        context.category_bits));
  if (!program.owen_leaves.chunks.empty()) model.add(std::make_unique<OwenModel<T>>(context));
  if (plan.intervals.any()) model.add(std::make_unique<IntervalModel<T>>(context));
}

template <class T>
std::unique_ptr<BatchModel> make(const Plan& plan, CudaMethod method) {
  const size_t stage_bytes = IntervalShared::stage_bytes(device_limits().shared);
  if (plan.intervals.any() && stage_bytes < kLeastStageBytes)
    throw std::invalid_argument("tables by intervals do not fit the shared memory of this GPU");
  const CudaProgram<T> program = make_cuda_program<T>(plan, method, stage_bytes);
  auto model = std::make_unique<ChunkModel<T>>(plan, program);
  add_methods(program, *model);
  return model;
}

}  // namespace

std::unique_ptr<BatchModel> make_model(const Plan& plan, CudaMethod method) {
  if (!plan.tables.leaf_tables.empty())
    throw std::invalid_argument("a plan with a table for each leaf needs a method for such tables");
  return plan.precision == Precision::kSingle ? make<float>(plan, method) : make<double>(plan, method);
}

}  // namespace skshap
