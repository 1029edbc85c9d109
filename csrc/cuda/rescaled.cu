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
        link_(tables.link),
        scale_(tables.scale),
        columns_(own_plan),
        codes_(own_plan, columns_.list()),
        margins_(own_plan, make_margins(own_plan, columns_), kRescaledMarginTrees),
        max_shared_(device_limits().shared - kRescaledStaticBytes) {
    has_labels = skshap::has_labels(link_);
    finds_gaps = false;
    RescaledProgram<T> program(tables, columns_, max_shared_);
    upload_decisions(program);
    upload_tables(program);
    program.data = {};  // it may be as large as all other memory
    std::vector<uint32_t> places = program.places;
    upload_pattern_leaves(tables, program, places);
    std::vector<CudaSlot> slots;
    const int32_t n_used = static_cast<int32_t>(plan.features.size());
    for (const uint32_t place : places) {
      const int32_t number = static_cast<int32_t>(place);
      slots.push_back({.output = number / n_used, .place = number % n_used});
    }
    n_slots_ = static_cast<uint32_t>(slots.size());
    sums_ = std::make_unique<SumModel<T, kTile>>(plan, slots, std::vector<CudaShare>(), false);
  }

  size_t row_bytes(bool) const override {
    return codes_.row_bytes() + sums_->row_bytes() + margins_.row_bytes() +
           sizeof(uint16_t) * static_cast<size_t>(n_lookups_) + sizeof(T) * static_cast<size_t>(n_alpha_) +
           (has_labels ? sizeof(double) : 0);
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
    trees_ = upload(from.trees);
    nodes_ = upload(from.nodes);
    lookups_ = upload(from.lookups);
    bits_ = upload(plan.tables.bits);
    n_trees_ = static_cast<int32_t>(from.trees.size());
    n_lookups_ = static_cast<int32_t>(from.lookups.size());
    max_words_ = from.max_words;
    const size_t warp_bytes = sizeof(uint32_t) * max_words_;
    index_warps_ = static_cast<int>(std::clamp<size_t>(kIndexBytes / warp_bytes, 1, kIndexWarps));
  }

  void upload_tables(const RescaledProgram<T>& from) {
    slopes_ = upload(from.slopes);
    slope_nodes_ = upload(from.slope_nodes);
    factors_ = upload(from.factors);
    n_terms_ = from.n_terms;
    n_alpha_ = from.n_alpha;
    chunks_ = upload(from.chunks);
    stages_ = upload(from.stages);
    targets_ = upload(from.targets);
    data_ = upload(from.data);
    n_chunks_ = from.chunks.size();
    shared_phi_ = from.shared_phi;
    buffer_ = from.buffer;
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
    const CudaTest test = [&](const DecideNode& node) { return columns_.margin_node(node); };
    CudaPatternLeaves<T> leaves = make_pattern_leaves<T>(tables.plan, test, &panels);
    if (leaves.leaves.empty()) return;
    for (CudaPatternChunk& chunk : leaves.chunks) chunk.first_slot += static_cast<uint32_t>(places.size());
    places.insert(places.end(), leaves.places.begin(), leaves.places.end());
    pattern_leaves_ = std::make_unique<PatternModel<T>>(
        leaves, PatternResults::kTerms, PatternMoments(plan.index), max_shared_, kTile, codes_.n_columns,
        static_cast<uint32_t>(places.size()), codes_.category_bits());
  }

  void find_factors(const Flight& flight, const Batch& batch, cudaStream_t s) const {
    constexpr int kTerms = 16, kFactorThreads = 128;
    const RescaledFactorArgs a{.slopes = slopes_.template as<RescaledSlope>(),
                               .nodes = slope_nodes_.template as<double>(),
                               .factors = factors_.template as<double>(),
                               .link = link_,
                               .scale = scale_,
                               .margin = flight.margin.template as<double>(),
                               .labels = batch.labels,
                               .n_rows = batch.rows.n_rows,
                               .n_padded = static_cast<int64_t>(padded(batch.rows.n_rows)),
                               .n_outputs = plan.n_outputs,
                               .alpha = flight.own[kAlpha].template as<void>()};
    const dim3 grid(static_cast<unsigned>((a.n_padded + kFactorThreads - 1) / kFactorThreads),
                    plan.n_outputs);
    find_rescaled_factors<T, kTerms><<<grid, kFactorThreads, 0, s>>>(a);
    check_launch("finding slopes");
  }

  void find_indices(const Flight& flight, int64_t n_rows, cudaStream_t s) const {
    const RescaledIndexArgs a{.trees = trees_.template as<RescaledTree>(),
                              .nodes = nodes_.template as<CudaTableNode>(),
                              .lookups = lookups_.template as<RescaledIndex>(),
                              .bits = bits_.template as<uint32_t>(),
                              .category_bits = codes_.category_bits(),
                              .codes = flight.codes.template as<int16_t>(),
                              .n_trees = n_trees_,
                              .n_columns = codes_.n_columns,
                              .max_words = max_words_,
                              .n_rows = static_cast<int64_t>(padded(n_rows)),
                              .indices = flight.own[kIndices].template as<uint16_t>()};
    const int threads = index_warps_ * kWarp;
    const dim3 grid(static_cast<unsigned>((a.n_rows + threads - 1) / threads),
                    static_cast<unsigned>(std::min(n_trees_, 64)));
    allow_shared(find_rescaled_indices, max_shared_);
    find_rescaled_indices<<<grid, threads, sizeof(uint32_t) * max_words_ * index_warps_, s>>>(a);
    check_launch("deciding");
  }

  template <int kTerms>
  void look_up(const Flight& flight, int64_t n_rows, cudaStream_t s) const {
    RescaledLookupArgs<T> a{.chunks = chunks_.template as<RescaledChunk>(),
                            .stages = stages_.template as<RescaledStage>(),
                            .targets = targets_.template as<uint32_t>(),
                            .data = data_.template as<uint4>(),
                            .indices = flight.own[kIndices].template as<uint16_t>(),
                            .alpha = flight.own[kAlpha].template as<T>(),
                            .n_rows = static_cast<int64_t>(padded(n_rows)),
                            .n_slots = n_slots_,
                            .shared_phi = shared_phi_,
                            .buffer = buffer_,
                            .partial = flight.partial.template as<T>()};
    a.n_blocks = static_cast<int32_t>((a.n_rows + kThreads - 1) / kThreads);
    const auto kernel = look_up_rescaled<T, kTerms>;
    allow_shared(kernel, max_shared_);
    const size_t shared = size_t{32} * buffer_ + sizeof(T) * kThreads * shared_phi_;
    kernel<<<static_cast<unsigned>(a.n_blocks * n_chunks_), kThreads, shared, s>>>(a);
    check_launch("looking up values");
  }

  const Link link_;
  const double scale_;
  const CudaColumns columns_;
  const CodesModel<kTile> codes_;
  const MarginModel<kTile> margins_;
  const size_t max_shared_;
  DeviceBuffer trees_, nodes_, lookups_, bits_, slopes_, slope_nodes_, factors_, chunks_, stages_, targets_,
      data_;
  size_t n_chunks_ = 0;
  int n_terms_ = 0, index_warps_ = 0;
  int32_t n_alpha_ = 0, n_trees_ = 0, n_lookups_ = 0;
  uint32_t max_words_ = 0, shared_phi_ = 0, buffer_ = 0, n_slots_ = 0;
  std::unique_ptr<PatternModel<T>> pattern_leaves_;
  std::unique_ptr<SumModel<T, kTile>> sums_;
};

}  // namespace

std::unique_ptr<BatchModel> make_rescaled_model(const RescaledTables& tables) {
  if (tables.plan.precision == Precision::kSingle) return std::make_unique<RescaledModel<float>>(tables);
  return std::make_unique<RescaledModel<double>>(tables);
}

}  // namespace skshap
