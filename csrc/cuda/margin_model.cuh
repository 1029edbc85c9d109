// The trees on a device, as margins of rows need them.
#pragma once

#include <algorithm>
#include <vector>

#include "cuda/batch.cuh"
#include "cuda/margins.cuh"

namespace skshap {

template <int kTile>
class MarginModel {
 public:
  // Upload the trees to the current device. A thread adds up the margins of at most `most_trees`. Another
  // method computes sums of the outputs `others`, which follow the sums of the trees.
  MarginModel(const Plan& plan, const CudaMargins& from, size_t most_trees,
              const std::vector<int32_t>& others = {})
      : plan_(plan),
        nodes_(upload(from.nodes)),
        leaf_values_(upload(plan.leaf_values)),
        constant_(upload(plan.constant)),
        base_(upload(plan.base_value)) {
    std::vector<int64_t> roots;
    for (const CudaMarginTree& tree : from.trees) roots.push_back(tree.root);
    roots_ = upload(roots);
    std::vector<CudaMarginGroup> groups;
    std::vector<std::vector<int32_t>> parts(plan.n_outputs);
    for (size_t first = 0; first < from.trees.size();) {
      const auto [root, output, merged] = from.trees[first];
      const int32_t width = output < 0 ? plan.n_outputs : 1;
      size_t end = first;
      while (end < from.trees.size() && end < first + most_trees && from.trees[end].output == output &&
             from.trees[end].merged == merged)
        ++end;
      groups.push_back({static_cast<int32_t>(first), static_cast<int32_t>(end), n_sums, width, merged});
      for (int32_t o = 0; o < width; ++o) parts[std::max(output, 0) + o].push_back(n_sums + o);
      n_sums += width;
      first = end;
    }
    for (const int32_t output : others) parts[output].push_back(n_sums++);
    n_groups_ = static_cast<unsigned>(groups.size());
    groups_ = upload(groups);
    std::tie(offsets_, parts_) = upload_lists(parts);
  }

  size_t row_bytes() const { return 8 * (static_cast<size_t>(n_sums) + plan_.n_outputs); }
  void reserve(Flight& flight, size_t n_rows) const {
    flight.reserve(flight.margin_sums, 8 * n_rows * n_sums);
    flight.reserve(flight.margin, 8 * n_rows * plan_.n_outputs);
  }

  // Queue the margins of a coded batch.
  void run(const Flight& flight, const Batch& batch, int32_t n_columns, const uint32_t* category_bits,
           int32_t n_tiles, cudaStream_t s) const {
    for (unsigned first = 0; first < n_groups_; first += kMostGridRows) {
      const CudaMarginArgs a{.groups = groups_.template as<CudaMarginGroup>() + first,
                             .tree_nodes = roots_.template as<int64_t>(),
                             .nodes = nodes_.template as<CudaNode>(),
                             .leaf_values = leaf_values(),
                             .category_bits = category_bits,
                             .codes = flight.codes.template as<int16_t>(),
                             .n_columns = n_columns,
                             .n_sums = n_sums,
                             .sums = flight.margin_sums.template as<double>()};
      const dim3 grid(n_tiles, std::min(n_groups_ - first, kMostGridRows));
      add_margins<kTile><<<grid, kTile, 0, s>>>(a);
      check_launch("finding margins");
    }
    const CudaMarginSumArgs a{.offsets = offsets_.template as<int64_t>(),
                              .parts = parts_.template as<int32_t>(),
                              .constant = constant_.template as<double>(),
                              .sums = flight.margin_sums.template as<double>(),
                              .n_rows = batch.rows.n_rows,
                              .n_outputs = plan_.n_outputs,
                              .n_sums = n_sums,
                              .margin = flight.margin.template as<double>()};
    const int64_t n = a.n_rows * a.n_outputs;
    finish_margins<kTile><<<static_cast<unsigned>((n + 255) / 256), 256, 0, s>>>(a);
    check_launch("finding margins");
  }

  // Queue the search for the largest gaps of a batch, if it has a place for them.
  void find_gaps(const Flight& flight, const Batch& batch, int multiprocessors, cudaStream_t s) const {
    if (!batch.gap) return;
    const CudaGapArgs a{.values = batch.out.values,
                        .margin = flight.margin.template as<double>(),
                        .base = base_.template as<double>(),
                        .n_rows = batch.rows.n_rows,
                        .n_outputs = plan_.n_outputs,
                        .n_features = plan_.n_features,
                        .gap = batch.gap};
    const int64_t n = a.n_rows * a.n_outputs;
    const unsigned blocks = static_cast<unsigned>(std::min<int64_t>((n + 7) / 8, 32 * multiprocessors));
    if (batch.out.is_float32)
      skshap::find_gaps<float><<<blocks, 256, 0, s>>>(a);
    else
      skshap::find_gaps<double><<<blocks, 256, 0, s>>>(a);
    check_launch("checking additivity");
  }

  const double* leaf_values() const { return leaf_values_.template as<double>(); }

  int32_t n_sums = 0;  // of a row

 private:
  static constexpr unsigned kMostGridRows = 65535;  // of a launch, which CUDA limits

  const Plan& plan_;
  unsigned n_groups_ = 0;
  DeviceBuffer nodes_, leaf_values_, constant_, base_, roots_, groups_, offsets_, parts_;
};

}  // namespace skshap
