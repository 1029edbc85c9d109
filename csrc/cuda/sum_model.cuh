// The sums over all chunks on a device, and the results that are written from them.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/batch.cuh"
#include "cuda/matrices.cuh"
#include "cuda/program/program.h"
#include "cuda/tuning.h"

namespace skshap {

template <class T, int kTile>
class SumModel {
 public:
  // Upload where the sums of slots and shares of slots go. With few rows in each call, the slots are many.
  SumModel(const Plan& plan, const std::vector<CudaSlot>& slots, const std::vector<CudaShare>& shares,
           bool few_rows)
      : plan_(plan), n_slots_(static_cast<uint32_t>(slots.size())), few_rows_(few_rows) {
    const size_t n_places = cuda_places(plan);
    std::vector<std::vector<int32_t>> parts(n_places * plan.n_outputs);
    for (size_t slot = 0; slot < slots.size(); ++slot)
      if (const auto [output, place] = slots[slot]; place != kNoPlace)
        parts[output * n_places + place].push_back(static_cast<int32_t>(slot));
    if (!shares.empty()) {
      std::vector<std::vector<double>> weights;
      for (const std::vector<int32_t>& list : parts) weights.emplace_back(list.size(), 1.0);
      for (const CudaShare& share : shares) {
        const size_t column = share.to.output * n_places + share.to.place;
        parts[column].push_back(share.slot);
        weights[column].push_back(share.weight);
      }
      part_weights_ = upload_lists(weights).second;
    }
    std::tie(offsets_, parts_) = upload_lists(parts);
    features_ = upload(plan.features);
    if (plan.order == 2) list_partners();
  }

  // Return the bytes per row of the slots, and of the sums if they are in memory.
  size_t row_bytes() const {
    return sizeof(T) * n_slots_ + (plan_.interactions() ? 8 * plan_.n_outputs * cuda_places(plan_) : 0);
  }
  void reserve(Flight& flight, size_t n_padded, int64_t n_rows, const Result& out) const {
    flight.reserve(flight.partial, sizeof(T) * n_padded * n_slots_);
    if (plan_.interactions() && !is_fused(out))
      flight.reserve(flight.sums, 8 * n_rows * plan_.n_outputs * cuda_places(plan_));
  }

  // Queue the additions, and the writing of the result of a batch.
  void run(const Flight& flight, const Batch& batch, int32_t n_tiles, int multiprocessors,
           cudaStream_t s) const {
    const CudaSumArgs sums = args(flight, batch);
    if (is_fused(batch.out)) return add_up_matrices(sums, batch.out, n_tiles, s);
    add_up_chunks(sums, batch.out, n_tiles, s);
    if (plan_.interactions()) write_interactions(sums, batch.out, multiprocessors, s);
  }

 private:
  // Return whether the sums go into matrices without passing through memory.
  bool is_fused(const Result& out) const { return out.matrices && !out.pairs && small_matrices_; }

  CudaSumArgs args(const Flight& flight, const Batch& batch) const {
    const bool pairs = plan_.interactions();
    const size_t n_places = cuda_places(plan_);
    return {.part_offsets = offsets_.template as<int64_t>(),
            .parts = parts_.template as<int32_t>(),
            .part_weights = part_weights_.template as<double>(),
            .features = pairs ? nullptr : features_.template as<int32_t>(),
            .n_undoubled = static_cast<int32_t>(plan_.order == 2 ? plan_.features.size() : n_places),
            .n_places = static_cast<int32_t>(n_places),
            .n_outputs = plan_.n_outputs,
            .n_features = plan_.n_features,
            .n_slots = n_slots_,
            .scale = plan_.leaf_scale,
            .partial = flight.partial.template as<void>(),
            .n_rows = batch.rows.n_rows,
            .values = pairs ? flight.sums.template as<void>() : batch.out.values};
  }

  CudaMatrixArgs matrix_args(const CudaSumArgs& sums, const Result& out) const {
    return {.sums = static_cast<const double*>(sums.values),
            .partner_offsets = partner_offsets_.template as<int64_t>(),
            .partners = partners_.template as<CudaPartner>(),
            .features = features_.template as<int32_t>(),
            .n_used = static_cast<int32_t>(plan_.features.size()),
            .n_places = sums.n_places,
            .n_features = plan_.n_features,
            .n = sums.n_rows * plan_.n_outputs,
            .subtract = plan_.index != Index::kBanzhaf,
            .values = out.values,
            .matrices = out.matrices,
            .sets = plan_.order < 3 ? out.pairs : out.triples,
            .place_of = place_of_.template as<int32_t>()};
  }

  void add_up_matrices(const CudaSumArgs& sums, const Result& out, int32_t n_tiles, cudaStream_t s) const {
    const CudaMatrixArgs a = matrix_args(sums, out);
    const dim3 grid(n_tiles * (kTile / kMatrixRows), plan_.n_outputs);
    const size_t shared = matrix_bytes(sums.n_places, plan_.features.size());
    if (out.is_float32)
      add_matrices<T, float, kTile><<<grid, 256, shared, s>>>(sums, a);
    else
      add_matrices<T, double, kTile><<<grid, 256, shared, s>>>(sums, a);
    check_launch("writing interactions");
  }

  void add_up_chunks(const CudaSumArgs& sums, const Result& out, int32_t n_tiles, cudaStream_t s) const {
    const size_t n_used = plan_.features.size(), out_bytes = row_bytes_of_values(out) * sums.n_rows;
    if (n_used < static_cast<size_t>(plan_.n_features) && out_bytes)
      check(cudaMemsetAsync(out.values, 0, out_bytes, s), "clearing the result");
    if (!n_used) return;
    if (few_rows_) return add_up_few_rows(sums, out.is_float32, s);
    const int64_t groups = (static_cast<int64_t>(sums.n_outputs) * sums.n_places + 31) / 32;
    const dim3 grid(n_tiles, static_cast<unsigned>(std::min<int64_t>(groups, 1024)));
    if (out.is_float32 && !plan_.interactions())
      add_chunks<T, float, kTile><<<grid, 256, 0, s>>>(sums);
    else
      add_chunks<T, double, kTile><<<grid, 256, 0, s>>>(sums);
    check_launch("adding up chunks");
  }

  void add_up_few_rows(const CudaSumArgs& sums, bool is_float32, cudaStream_t s) const {
    const int64_t n_sums = sums.n_rows * sums.n_outputs * sums.n_places;
    const unsigned n_blocks = static_cast<unsigned>((n_sums + 7) / 8);  // of 8 warps
    if (is_float32)
      add_chunks_of_few_rows<T, float, kTile><<<n_blocks, 256, 0, s>>>(sums);
    else
      add_chunks_of_few_rows<T, double, kTile><<<n_blocks, 256, 0, s>>>(sums);
    check_launch("adding up chunks");
  }

  void write_interactions(const CudaSumArgs& sums, const Result& out, int multiprocessors,
                          cudaStream_t s) const {
    const size_t n_used = plan_.features.size(), n_features = plan_.n_features,
                 n_sets = sums.n_places - n_used;
    const CudaMatrixArgs a = matrix_args(sums, out);
    const bool complete = n_used == n_features && 2 * n_sets == n_features * (n_features - 1);
    if (out.matrices && !complete)
      check(cudaMemsetAsync(out.matrices, 0, n_features * row_bytes_of_values(out) * sums.n_rows, s),
            "clearing the result");
    if (!n_used) return;
    const unsigned blocks = 16 * multiprocessors;
    if (out.is_float32)
      write_matrices<float><<<blocks, 256, 0, s>>>(a);
    else
      write_matrices<double><<<blocks, 256, 0, s>>>(a);
    check_launch("writing interactions");
    if (!a.sets || !n_sets) return;
    if (out.is_float32)
      write_sets<float><<<blocks, 256, 0, s>>>(a);
    else
      write_sets<double><<<blocks, 256, 0, s>>>(a);
    check_launch("writing interactions");
  }

  size_t row_bytes_of_values(const Result& out) const { return skshap::row_bytes(plan_, out)[0]; }

  // List the pairs of each feature, by the other feature.
  void list_partners() {
    std::vector<std::vector<CudaPartner>> partners(plan_.features.size());
    for (size_t i = 0; i < plan_.pairs.size(); ++i) {
      const FeaturePair pair = plan_.pairs[i];
      const int32_t place = static_cast<int32_t>(plan_.features.size() + i);
      partners[pair.first].push_back({plan_.features[pair.second], place});
      partners[pair.second].push_back({plan_.features[pair.first], place});
    }
    std::tie(partner_offsets_, partners_) = upload_lists(partners);
    small_matrices_ = matrix_bytes(cuda_places(plan_), plan_.features.size()) <= kSharedBytes &&
                      plan_.n_features <= kMaxSmallMatrix;
    if (small_matrices_) list_places();
  }

  void list_places() {
    const size_t n = plan_.n_features, n_used = plan_.features.size(), n_places = cuda_places(plan_);
    std::vector<int32_t> places(n * n, -1);
    for (size_t i = 0; i < n_used; ++i)
      places[plan_.features[i] * (n + 1)] = static_cast<int32_t>(n_places + i);
    for (size_t i = 0; i < plan_.pairs.size(); ++i) {
      const size_t first = plan_.features[plan_.pairs[i].first],
                   second = plan_.features[plan_.pairs[i].second];
      places[first * n + second] = places[second * n + first] = static_cast<int32_t>(n_used + i);
    }
    place_of_ = upload(places);
  }

  const Plan& plan_;
  const uint32_t n_slots_;
  const bool few_rows_;
  bool small_matrices_ = false;
  DeviceBuffer offsets_, parts_, part_weights_, features_, partner_offsets_, partners_, place_of_;
};

}  // namespace skshap
