// The model of rescaled outputs: tables whose terms are multiplied by factors, which depend on the margin and
// the label of a row.
#include <algorithm>
#include <memory>
#include <vector>

#include "cuda/batch_model.cuh"
#include "cuda/codes_model.cuh"
#include "cuda/margin_model.cuh"
#include "cuda/pattern_model.cuh"
#include "cuda/rescaled_program.cuh"
#include "cuda/sum_model.cuh"

namespace skshap {
namespace {

// The plan of a model, without the contents of tables and patterns.
struct PlanOfModel {
  explicit PlanOfModel(const Plan& from) : own_plan(from) { own_plan.tables.drop_contents(); }
  Plan own_plan;
};

template <class T>
class RescaledModel : PlanOfModel, public BatchModel {
 public:
  // Upload the tables to the current device.
  explicit RescaledModel(const RescaledTables& tables)
      : PlanOfModel(tables.plan),
        BatchModel(own_plan, kTile),
        columns_(own_plan),
        codes_(own_plan, columns_.list()),
        margins_(own_plan, make_margins(own_plan, columns_), kRescaledMarginTrees),
        max_shared_(device_limits().shared - kRescaledStaticBytes) {
    has_labels = skshap::has_labels(tables.link);
    finds_gaps = false;
    RescaledProgram<T> program(tables, columns_, max_shared_);
    upload_decisions(program);
    upload_tables(tables, program);
    program.data = {};  // it may be as large as all other memory
    std::vector<uint32_t> places = program.places;
    upload_pattern_leaves(tables, program, places);
    std::vector<CudaSlot> slots;
    for (const uint32_t place : places) slots.push_back(slot_of_place(plan, place));
    lookup_args_.n_slots = static_cast<uint32_t>(slots.size());
    sums_ = std::make_unique<SumModel<T, kTile>>(plan, slots, std::vector<CudaShare>(), false);
  }

  size_t row_bytes(bool) const override {
    return codes_.row_bytes() + sums_->row_bytes() + margins_.row_bytes() + sizeof(uint16_t) * n_lookups_ +
           sizeof(T) * static_cast<size_t>(n_alpha_) + (has_labels ? sizeof(double) : 0);
  }

  void reserve(Flight& flight, int64_t n_rows, bool, const Result& out) const override {
    const size_t n = padded(n_rows);
    codes_.reserve(flight, n);
    sums_->reserve(flight, n, n_rows, out);
    margins_.reserve(flight, n);
    flight.reserve(flight.own[kIndices], sizeof(uint16_t) * n * n_lookups_);
    flight.reserve(flight.own[kAlpha], sizeof(T) * n * n_alpha_);
  }

  void explain(const Flight& flight, const Batch& batch, cudaStream_t s) const override {
    const int64_t n_rows = batch.rows.n_rows;
    const int32_t n = n_tiles(n_rows);
    codes_.run(flight, batch, 0, n, s);
    margins_.run(flight, batch, codes_.n_columns, codes_.category_bits(), n, s);
    if (n_chunks_ || pattern_leaves_) find_factors(flight, batch, s);
    if (n_chunks_) {
      find_indices(flight, n_rows, s);
      switch (n_terms_) {
        case 2: look_up<2>(flight, n_rows, s); break;
        case 4: look_up<4>(flight, n_rows, s); break;
        case 6: look_up<6>(flight, n_rows, s); break;
        case 8: look_up<8>(flight, n_rows, s); break;
        case 10: look_up<10>(flight, n_rows, s); break;
        case 12: look_up<12>(flight, n_rows, s); break;
        case 14: look_up<14>(flight, n_rows, s); break;
        default: look_up<16>(flight, n_rows, s);
      }
    }
    if (pattern_leaves_)
      pattern_leaves_->run({.codes = flight.codes.template as<int16_t>(),
                            .n_rows = n_rows,
                            .n_tiles = n,
                            .alpha = flight.own[kAlpha].template as<T>(),
                            .partial = flight.partial.template as<T>()},
                           s);
    sums_->run(flight, batch, n, multiprocessors, s);
  }

 private:
  static constexpr int kTile = kRescaledTile, kThreads = rescaled_threads<T>();
  enum { kIndices, kAlpha };  // a flight's own buffers

  void upload_decisions(const RescaledProgram<T>& from) {
    index_args_ = RescaledIndexArgs{.trees = arrays_.upload(from.trees),
                                    .nodes = arrays_.upload(from.nodes),
                                    .lookups = arrays_.upload(from.lookups),
                                    .bits = arrays_.upload(plan.tables.bits),
                                    .category_bits = codes_.category_bits(),
                                    .n_trees = static_cast<int32_t>(from.trees.size()),
                                    .n_columns = codes_.n_columns,
                                    .max_words = from.max_words};
    n_lookups_ = from.lookups.size();
    const size_t warp_bytes = IndexShared::bytes(1, from.max_words);
    index_warps_ = static_cast<int>(std::clamp<size_t>(kIndexBytes / warp_bytes, 1, kIndexWarps));
  }

  void upload_tables(const RescaledTables& tables, const RescaledProgram<T>& from) {
    factor_args_ = RescaledFactorArgs{.slopes = arrays_.upload(from.slopes),
                                      .nodes = arrays_.upload(from.slope_nodes),
                                      .factors = arrays_.upload(from.factors),
                                      .link = tables.link,
                                      .scale = tables.scale,
                                      .n_outputs = plan.n_outputs};
    n_terms_ = from.n_terms;
    n_alpha_ = from.n_alpha;
    n_chunks_ = from.chunks.size();
    lookup_args_ = RescaledLookupArgs<T>{.chunks = arrays_.upload(from.chunks),
                                         .stages = arrays_.upload(from.stages),
                                         .targets = arrays_.upload(from.targets),
                                         .data = reinterpret_cast<const uint4*>(arrays_.upload(from.data)),
                                         .shared_phi = from.shared_phi,
                                         .buffer = from.buffer};
  }

  // Upload the leaves that have no table. Add the places of their slots.
  void upload_pattern_leaves(const RescaledTables& tables, const RescaledProgram<T>& program,
                             std::vector<uint32_t>& places) {
    std::vector<PatternPanel> panels;
    for (size_t output = 0; output < program.slopes.size(); ++output) {
      const RescaledSlope& slope = program.slopes[output];
      for (int32_t first = 0; first < slope.n_terms; first += n_terms_) {
        PatternPanel panel{output, static_cast<uint32_t>(slope.first_row + first), {}};
        for (int32_t k = first; k < std::min(first + n_terms_, slope.n_terms); ++k)
          panel.weights.push_back(tables.weights[output][k].data());
        panels.push_back(std::move(panel));
      }
    }
    CudaPatternLeaves<T> leaves = make_pattern_leaves<T>(tables.plan, columns_, &panels);
    if (leaves.leaves.empty()) return;
    for (CudaPatternChunk& chunk : leaves.chunks) chunk.first_slot += static_cast<uint32_t>(places.size());
    places.insert(places.end(), leaves.places.begin(), leaves.places.end());
    pattern_leaves_ = std::make_unique<PatternModel<T>>(
        leaves, PatternResults::kTerms, PatternMoments(plan.index), max_shared_, kTile, codes_.n_columns,
        static_cast<uint32_t>(places.size()), codes_.category_bits());
  }

  void find_factors(const Flight& flight, const Batch& batch, cudaStream_t s) const {
    RescaledFactorArgs a = factor_args_;
    a.margin = flight.margin.template as<double>();
    a.labels = batch.labels;
    a.n_rows = batch.rows.n_rows;
    a.n_padded = static_cast<int64_t>(padded(batch.rows.n_rows));
    a.alpha = flight.own[kAlpha].template as<void>();
    const dim3 grid(static_cast<unsigned>((a.n_padded + kFactorThreads - 1) / kFactorThreads),
                    plan.n_outputs);
    find_rescaled_factors<T, kMostTerms><<<grid, kFactorThreads, 0, s>>>(a);
    check_launch("finding slopes");
  }

  void find_indices(const Flight& flight, int64_t n_rows, cudaStream_t s) const {
    RescaledIndexArgs a = index_args_;
    a.codes = flight.codes.template as<int16_t>();
    a.n_rows = static_cast<int64_t>(padded(n_rows));
    a.indices = flight.own[kIndices].template as<uint16_t>();
    const int threads = index_warps_ * kWarp;
    const dim3 grid(static_cast<unsigned>((a.n_rows + threads - 1) / threads),
                    static_cast<unsigned>(std::min(a.n_trees, 64)));
    allow_shared(find_rescaled_indices, max_shared_);
    find_rescaled_indices<<<grid, threads, IndexShared::bytes(index_warps_, a.max_words), s>>>(a);
    check_launch("deciding");
  }

  template <int kTerms>
  void look_up(const Flight& flight, int64_t n_rows, cudaStream_t s) const {
    RescaledLookupArgs<T> a = lookup_args_;
    a.indices = flight.own[kIndices].template as<uint16_t>();
    a.alpha = flight.own[kAlpha].template as<T>();
    a.n_rows = static_cast<int64_t>(padded(n_rows));
    a.partial = flight.partial.template as<T>();
    a.n_blocks = static_cast<int32_t>((a.n_rows + kThreads - 1) / kThreads);
    const auto kernel = look_up_rescaled<T, kTerms>;
    allow_shared(kernel, max_shared_);
    kernel<<<static_cast<unsigned>(a.n_blocks * n_chunks_), kThreads,
             RescaledShared<T>::bytes(a.buffer, a.shared_phi), s>>>(a);
    check_launch("looking up values");
  }

  const CudaColumns columns_;
  const CodesModel<kTile> codes_;
  const MarginModel<kTile> margins_;
  const size_t max_shared_;
  DeviceArrays arrays_;
  RescaledIndexArgs index_args_{};
  RescaledFactorArgs factor_args_{};
  RescaledLookupArgs<T> lookup_args_{};
  size_t n_chunks_ = 0, n_lookups_ = 0;
  int n_terms_ = 0, index_warps_ = 0;
  int32_t n_alpha_ = 0;
  std::unique_ptr<PatternModel<T>> pattern_leaves_;
  std::unique_ptr<SumModel<T, kTile>> sums_;
};

}  // namespace

std::unique_ptr<BatchModel> make_rescaled_model(const RescaledTables& tables) {
  if (tables.plan.precision == Precision::kSingle) return std::make_unique<RescaledModel<float>>(tables);
  return std::make_unique<RescaledModel<double>>(tables);
}

}  // namespace skshap
