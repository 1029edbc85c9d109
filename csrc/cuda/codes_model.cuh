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
  CodesModel(const Plan& plan, const std::vector<CudaColumn>& list) : plan_(plan) {
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
    columns_ = upload(columns);
    thresholds_ = plan.x_float32 ? upload(floats) : upload(doubles);
    categories_ = upload(categories);
    category_bits_ = upload(plan.category_bits);
  }

  size_t row_bytes() const { return sizeof(int16_t) * static_cast<size_t>(n_columns); }
  void reserve(Flight& flight, size_t n_rows) const { flight.reserve(flight.codes, n_rows * row_bytes()); }

  // Return the categories that the tests of nodes name.
  const uint32_t* category_bits() const { return category_bits_.template as<uint32_t>(); }

  CudaCodeArgs args(const Batch& batch) const {
    return {.X = batch.rows.data,
            .x_single = batch.rows.is_float32,
            .n_rows = batch.rows.n_rows,
            .row_stride = batch.rows.row_stride,
            .column_stride = batch.rows.column_stride,
            .columns = columns_.template as<CudaCodeColumn>(),
            .n_columns = n_columns,
            .strict = plan_.strict,
            .missing = batch.missing,
            .thresholds = thresholds_.template as<void>(),
            .categories = categories_.template as<int32_t>(),
            .checks = batch.check != nullptr,
            .n_inputs = plan_.n_inputs,
            .check = batch.check ? batch.check->rules() : CudaCheck{}};
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
    if (plan_.x_float32)
      code_rows<float, kTile><<<grid, 256, 0, s>>>(a);
    else
      code_rows<double, kTile><<<grid, 256, 0, s>>>(a);
    check_launch("coding rows");
    if (batch.check) batch.check->mark(s);
  }

  int32_t n_columns;

 private:
  const Plan& plan_;
  DeviceBuffer columns_, thresholds_, categories_, category_bits_;
};

}  // namespace skshap
