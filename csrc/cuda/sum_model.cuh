// The sums over all chunks on a device, and the results that are written from them.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/batch.cuh"
#include "cuda/matrices.cuh"
#include "cuda/program/program.h"
#include "cuda/program/tuning.h"

namespace skshap {

template <class T, int kTile>
class SumModel {
 public:
  // Upload where the sums of slots and shares of slots go. With few rows in each call, the slots are many.
  SumModel(const Plan& plan, const std::vector<CudaSlot>& slots, const std::vector<CudaShare>& shares,
           bool few_rows)
      : plan_(plan), few_rows_(few_rows) {
    const size_t n_places = cuda_places(plan), n_used = plan.features.size();
    std::vector<std::vector<int32_t>> parts(n_places * plan.n_outputs);
    for (size_t slot = 0; slot < slots.size(); ++slot)
      if (const auto [output, place] = slots[slot]; place != kNoPlace)
        parts[output * n_places + place].push_back(static_cast<int32_t>(slot));
    const double* part_weights = nullptr;
    if (!shares.empty()) {
      std::vector<std::vector<double>> weights;
      for (const std::vector<int32_t>& list : parts) weights.emplace_back(list.size(), 1.0);
      for (const CudaShare& share : shares) {
        const size_t column = share.to.output * n_places + share.to.place;
        parts[column].push_back(share.slot);
        weights[column].push_back(share.weight);
      }
      part_weights = arrays_.upload_lists(weights).elements;
    }
    const DeviceLists<int32_t> lists = arrays_.upload_lists(parts);
    const int32_t* const features = arrays_.upload(plan.features);
    sum_args_ = CudaSumArgs{.part_offsets = lists.offsets,
                            .parts = lists.elements,
                            .part_weights = part_weights,
                            .features = plan.interactions() ? nullptr : features,
                            .n_undoubled = static_cast<int32_t>(plan.order == 2 ? n_used : n_places),
                            .n_places = static_cast<int32_t>(n_places),
                            .n_outputs = plan.n_outputs,
                            .n_features = plan.n_features,
                            .n_slots = static_cast<uint32_t>(slots.size()),
                            .scale = plan.leaf_scale};
    matrix_args_ = CudaMatrixArgs{.features = features,
                                  .n_used = static_cast<int32_t>(n_used),
                                  .n_places = static_cast<int32_t>(n_places),
                                  .n_features = plan.n_features,
                                  .subtract = plan.index != Index::kBanzhaf};
    if (plan.order == 2) list_partners();
  }

  // Return the bytes per row of the slots, and of the sums if they are in memory.
  size_t row_bytes() const {
    return sizeof(T) * sum_args_.n_slots +
           (plan_.interactions() ? 8 * plan_.n_outputs * cuda_places(plan_) : 0);
  }
  void reserve(Flight& flight, size_t n_padded, int64_t n_rows, const Result& out) const {
    flight.reserve(flight.partial, sizeof(T) * n_padded * sum_args_.n_slots);
    if (plan_.interactions() && !is_fused(out))
      flight.reserve(flight.sums, 8 * n_rows * plan_.n_outputs * cuda_places(plan_));
  }

  // Queue the additions, and the writing of the result of a batch.
  void run(const Flight& flight, const Batch& batch, int32_t n_tiles, int multiprocessors,
           cudaStream_t s) const {
    CudaSumArgs sums = sum_args_;
    sums.partial = flight.partial.template as<void>();
    sums.n_rows = batch.rows.n_rows;
    sums.values = plan_.interactions() ? flight.sums.template as<void>() : batch.out.values;
    CudaMatrixArgs a = matrix_args_;
    a.sums = static_cast<const double*>(sums.values);
    a.n = sums.n_rows * plan_.n_outputs;
    a.values = batch.out.values;
    a.matrices = batch.out.matrices;
    a.sets = plan_.order < 3 ? batch.out.pairs : batch.out.triples;
    if (is_fused(batch.out)) return add_up_matrices(sums, a, batch.out.is_float32, n_tiles, s);
    add_up_chunks(sums, batch.out, n_tiles, s);
    if (plan_.interactions()) write_interactions(a, batch, multiprocessors, s);
  }

 private:
  // Return whether the sums go into matrices without passing through memory.
  bool is_fused(const Result& out) const { return out.matrices && !out.pairs && matrix_args_.place_of; }

  void add_up_matrices(const CudaSumArgs& sums, const CudaMatrixArgs& a, bool is_float32, int32_t n_tiles,
                       cudaStream_t s) const {
    const dim3 grid(n_tiles * (kTile / kMatrixRows), plan_.n_outputs);
    const auto add = is_float32 ? add_matrices<T, float, kTile> : add_matrices<T, double, kTile>;
    add<<<grid, 256, MatrixShared::bytes(a.n_places, a.n_used), s>>>(sums, a);
    check_launch("writing interactions");
  }

  void add_up_chunks(const CudaSumArgs& sums, const Result& out, int32_t n_tiles, cudaStream_t s) const {
    const size_t n_used = plan_.features.size(), out_bytes = skshap::row_bytes(plan_, out)[0] * sums.n_rows;
    if (n_used < static_cast<size_t>(plan_.n_features) && out_bytes)
      check(cudaMemsetAsync(out.values, 0, out_bytes, s), "clearing the result");
    if (!n_used) return;
    const bool is_float32 = out.is_float32 && !plan_.interactions();
    if (few_rows_) {
      const int64_t n_sums = sums.n_rows * sums.n_outputs * sums.n_places;
      const auto add =
          is_float32 ? add_chunks_of_few_rows<T, float, kTile> : add_chunks_of_few_rows<T, double, kTile>;
      add<<<static_cast<unsigned>((n_sums + 7) / 8), 256, 0, s>>>(sums);  // blocks of 8 warps
    } else {
      const int64_t groups = (static_cast<int64_t>(sums.n_outputs) * sums.n_places + 31) / 32;
      const dim3 grid(n_tiles, static_cast<unsigned>(std::min<int64_t>(groups, 1024)));
      const auto add = is_float32 ? add_chunks<T, float, kTile> : add_chunks<T, double, kTile>;
      add<<<grid, 256, 0, s>>>(sums);
    }
    check_launch("adding up chunks");
  }

  void write_interactions(const CudaMatrixArgs& a, const Batch& batch, int multiprocessors,
                          cudaStream_t s) const {
    const size_t n_used = plan_.features.size(), n_features = plan_.n_features, n_sets = a.n_places - n_used;
    const bool complete = n_used == n_features && 2 * n_sets == n_features * (n_features - 1);
    if (a.matrices && !complete)
      check(cudaMemsetAsync(a.matrices, 0, skshap::row_bytes(plan_, batch.out)[1] * batch.rows.n_rows, s),
            "clearing the result");
    if (!n_used) return;
    const unsigned blocks = 16 * multiprocessors;
    const auto write = batch.out.is_float32 ? write_matrices<float> : write_matrices<double>;
    write<<<blocks, 256, 0, s>>>(a);
    check_launch("writing interactions");
    if (!a.sets || !n_sets) return;
    const auto write_all = batch.out.is_float32 ? write_sets<float> : write_sets<double>;
    write_all<<<blocks, 256, 0, s>>>(a);
    check_launch("writing interactions");
  }

  // List the pairs of each feature, by the other feature.
  void list_partners() {
    std::vector<std::vector<CudaPartner>> partners(plan_.features.size());
    for (size_t i = 0; i < plan_.pairs.size(); ++i) {
      const auto [first, second] = plan_.pairs[i];
      const int32_t place = static_cast<int32_t>(plan_.features.size() + i);
      partners[first].push_back({plan_.features[second], place});
      partners[second].push_back({plan_.features[first], place});
    }
    const DeviceLists<CudaPartner> lists = arrays_.upload_lists(partners);
    matrix_args_.partner_offsets = lists.offsets;
    matrix_args_.partners = lists.elements;
    if (MatrixShared::bytes(cuda_places(plan_), plan_.features.size()) <= kSharedBytes &&
        plan_.n_features <= kMaxSmallMatrix)
      list_places();
  }

  void list_places() {
    const size_t n = plan_.n_features, n_used = plan_.features.size(), n_places = cuda_places(plan_);
    std::vector<int32_t> places(n * n, -1);
    for (size_t i = 0; i < n_used; ++i)
      places[plan_.features[i] * (n + 1)] = static_cast<int32_t>(n_places + i);
    for (size_t i = 0; i < plan_.pairs.size(); ++i) {
      const size_t first = plan_.features[plan_.pairs[i][0]], second = plan_.features[plan_.pairs[i][1]];
      places[first * n + second] = places[second * n + first] = static_cast<int32_t>(n_used + i);
    }
    matrix_args_.place_of = arrays_.upload(places);
  }

  const Plan& plan_;
  const bool few_rows_;
  DeviceArrays arrays_;
  CudaSumArgs sum_args_{};
  CudaMatrixArgs matrix_args_{};
};

}  // namespace skshap
