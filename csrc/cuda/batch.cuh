// A batch of rows on its way through the device: its buffers, its rows, and where its results go.
#pragma once

#include <array>

#include "cuda/input_check.cuh"
#include "cuda/memory.h"

namespace skshap {

constexpr const char* kNoRoom = "the rows of a batch do not fit the device's memory";
constexpr const char* kComputing = "computing SHAP values";

// Arrays of a result: values, matrices, pairs, triples.
constexpr int kArrays = 4;
using Arrays = std::array<void*, kArrays>;

inline Arrays arrays(const Result& result) {
  return {result.values, result.matrices, result.pairs, result.triples};
}
// Return a result that consists of arrays, without a margin.
inline Result result_of(const Arrays& arrays, bool is_float32) {
  return {.values = arrays[0],
          .is_float32 = is_float32,
          .margin = nullptr,
          .matrices = arrays[1],
          .pairs = arrays[2],
          .triples = arrays[3]};
}
// Return the bytes per row of each array. They are 0 for arrays that are not requested.
inline std::array<size_t, kArrays> row_bytes(const Plan& plan, const Result& result) {
  const size_t output = (result.is_float32 ? 4 : 8) * static_cast<size_t>(plan.n_outputs);
  const size_t n_features = plan.n_features;
  return {output * n_features, result.matrices ? output * n_features * n_features : 0,
          result.pairs ? output * plan.pairs.size() : 0, result.triples ? output * plan.triples.size() : 0};
}

// Stream and buffers of a batch in flight.
struct Flight {
  Stream stream;
  Event sent, done;  // the latest copy of its rows to the device, and the latest use of the flight
  DeviceBuffer X, labels, codes, partial, margin_sums, margin, frames, counters, sums;
  DeviceBuffer own[2];  // of a model that needs more
  DeviceBuffer results[kArrays];
  HostBuffer X_host, labels_host, results_host[kArrays], margin_host;
  int64_t first_row = 0, n_rows = 0;  // of the caller's rows, until their result is fetched

  void reserve(DeviceBuffer& buffer, size_t size) const {
    if (buffer.holds(size)) return;
    done.wait(kComputing);  // the old one may be in use
    buffer.reserve(size, kNoRoom);
  }
};

// Rows on the device, and where to write their result.
struct Batch {
  Rows rows;
  double missing;        // a number that means missing, besides NaN
  const double* labels;  // on the device, or null
  Result out;
  bool margins;
  unsigned long long* gap;  // by output: bits of the largest gap; or null
  InputCheck* check;        // of the numbers of the rows while they are coded, or null
};

}  // namespace skshap
