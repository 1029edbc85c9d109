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
              const std::vector<int32_t>& others = {}) {
    std::vector<int64_t> roots;
    for (const CudaMarginTree& tree : from.trees) roots.push_back(tree.root);
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
    args_ = CudaMarginArgs{.groups = arrays_.upload(groups),
                           .tree_nodes = arrays_.upload(roots),
                           .nodes = arrays_.upload(from.nodes),
                           .leaf_values = arrays_.upload(plan.leaf_values),
                           .n_sums = n_sums};
    const DeviceLists<int32_t> lists = arrays_.upload_lists(parts);
    sum_args_ = CudaMarginSumArgs{.offsets = lists.offsets,
                                  .parts = lists.elements,
                                  .constant = arrays_.upload(plan.constant),
                                  .n_outputs = plan.n_outputs,
                                  .n_sums = n_sums};
    gap_args_ = CudaGapArgs{
        .base = arrays_.upload(plan.base_value), .n_outputs = plan.n_outputs, .n_features = plan.n_features};
  }

  size_t row_bytes() const { return 8 * (static_cast<size_t>(n_sums) + sum_args_.n_outputs); }
  void reserve(Flight& flight, size_t n_rows) const {
    flight.reserve(flight.margin_sums, 8 * n_rows * n_sums);
    flight.reserve(flight.margin, 8 * n_rows * sum_args_.n_outputs);
  }

  // Queue the margins of a coded batch.
  void run(const Flight& flight, const Batch& batch, int32_t n_columns, const uint32_t* category_bits,
           int32_t n_tiles, cudaStream_t s) const {
    double* const sums = flight.margin_sums.template as<double>();
    CudaMarginArgs a = args_;
    a.category_bits = category_bits;
    a.codes = flight.codes.template as<int16_t>();
    a.n_columns = n_columns;
    a.sums = sums;
    for (unsigned first = 0; first < n_groups_; first += kMostGridRows) {
      a.groups = args_.groups + first;
      const dim3 grid(n_tiles, std::min(n_groups_ - first, kMostGridRows));
      add_margins<kTile><<<grid, kTile, 0, s>>>(a);
      check_launch("finding margins");
    }
    CudaMarginSumArgs totals = sum_args_;
    totals.sums = sums;
    totals.n_rows = batch.rows.n_rows;
    totals.margin = flight.margin.template as<double>();
    const int64_t n = totals.n_rows * totals.n_outputs;
    finish_margins<kTile><<<static_cast<unsigned>((n + 255) / 256), 256, 0, s>>>(totals);
    check_launch("finding margins");
  }

  // Queue the search for the largest gaps of a batch, if it has a place for them.
  void find_gaps(const Flight& flight, const Batch& batch, int multiprocessors, cudaStream_t s) const {
    if (!batch.gap) return;
    CudaGapArgs a = gap_args_;
    a.values = batch.out.values;
    a.margin = flight.margin.template as<double>();
    a.n_rows = batch.rows.n_rows;
    a.gap = batch.gap;
    const int64_t n = a.n_rows * a.n_outputs;
    const unsigned blocks = static_cast<unsigned>(std::min<int64_t>((n + 7) / 8, 32 * multiprocessors));
    const auto find = batch.out.is_float32 ? skshap::find_gaps<float> : skshap::find_gaps<double>;
    find<<<blocks, 256, 0, s>>>(a);
    check_launch("checking additivity");
  }

  const double* leaf_values() const { return args_.leaf_values; }

  int32_t n_sums = 0;  // of a row

 private:
  static constexpr unsigned kMostGridRows = 65535;  // of a launch, which CUDA limits

  DeviceArrays arrays_;
  unsigned n_groups_ = 0;
  CudaMarginArgs args_{};
  CudaMarginSumArgs sum_args_{};
  CudaGapArgs gap_args_{};
};

}  // namespace skshap
