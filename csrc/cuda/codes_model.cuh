// The coded columns of a plan on a device.
#pragma once

#include <algorithm>
#include <vector>

#include "cuda/batch.cuh"

namespace skshap {

template <int kTile>
class CodesModel {
 public:
  // Upload columns to the current device.
  CodesModel(const Plan& plan, const std::vector<CudaColumn>& list) : reads_floats_(plan.x_float32) {
    std::vector<CudaCodeColumn> columns;
    std::vector<float> floats;
    std::vector<double> doubles;
    std::vector<int32_t> categories;
    std::vector<int64_t> begins;
    for (const Column& column : plan.columns) {
      begins.push_back(column.categorical ? categories.size()
                       : plan.x_float32   ? floats.size()
                                          : doubles.size());
      floats.insert(floats.end(), column.thresholds_float.begin(), column.thresholds_float.end());
      doubles.insert(doubles.end(), column.thresholds_double.begin(), column.thresholds_double.end());
      categories.insert(categories.end(), column.categories.begin(), column.categories.end());
    }
    for (const CudaColumn& c : list) {
      const Column& column = plan.columns[c.column];
      const size_t n = column.categorical ? column.categories.size()
                                          : column.thresholds_float.size() + column.thresholds_double.size();
      columns.push_back({.input = column.input,
                         .n = static_cast<uint32_t>(n),
                         .origin = c.origin,
                         .categorical = column.categorical,
                         .zero_missing = column.zero_missing,
                         .values = begins[c.column]});
    }
    n_columns = static_cast<int32_t>(columns.size());
    category_bits_ = arrays_.upload(plan.category_bits);
    args_ = CudaCodeArgs{.columns = arrays_.upload(columns),
                         .n_columns = n_columns,
                         .strict = plan.strict,
                         .categories = arrays_.upload(categories),
                         .n_inputs = plan.n_inputs};
    if (plan.x_float32)
      args_.thresholds = arrays_.upload(floats);
    else
      args_.thresholds = arrays_.upload(doubles);
  }

  size_t row_bytes() const { return sizeof(int16_t) * static_cast<size_t>(n_columns); }
  void reserve(Flight& flight, size_t n_rows) const { flight.reserve(flight.codes, n_rows * row_bytes()); }

  // Return the categories that the tests of nodes name.
  const uint32_t* category_bits() const { return category_bits_; }

  CudaCodeArgs args(const Batch& batch) const {
    CudaCodeArgs a = args_;
    a.read(batch.rows);
    a.missing = batch.missing;
    a.checks = batch.check != nullptr;
    if (a.checks) a.check = batch.check->rules();
    return a;
  }

  // Queue the coding of a batch, which also sets counters to 0.
  void run(const Flight& flight, const Batch& batch, int n_counters, int32_t n_tiles, cudaStream_t s) const {
    if (!n_columns) return;
    CudaCodeArgs a = args(batch);
    a.codes = flight.codes.template as<int16_t>();
    a.counters = flight.counters.template as<int32_t>();
    a.n_counters = n_counters;
    const int parts = std::min<int>((n_columns + 3) / 4, n_tiles < 4096 ? 64 : 4);
    const dim3 grid(n_tiles, std::max(parts, 1));
    const auto code = reads_floats_ ? code_rows<float, kTile> : code_rows<double, kTile>;
    code<<<grid, 256, 0, s>>>(a);
    check_launch("coding rows");
    if (batch.check) batch.check->mark(s);
  }

  int32_t n_columns;

 private:
  const bool reads_floats_;  // precision of the model's comparisons
  DeviceArrays arrays_;
  const uint32_t* category_bits_;
  CudaCodeArgs args_{};
};

}  // namespace skshap
