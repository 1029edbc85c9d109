// A plan on a device, as the pipeline sees it.
#pragma once

#include <memory>
#include <string>

#include "cuda/batch.cuh"
#include "cuda/device.h"
#include "cuda/program/program.h"

namespace skshap {

struct RescaledTables;

// Explains batches of rows. It keeps what is the same in all calls.
class BatchModel {
 public:
  BatchModel(const Plan& plan, int tile_rows)
      : plan(plan), tile_rows(tile_rows), multiprocessors(device_limits().multiprocessors) {}
  virtual ~BatchModel() = default;

  // Return the bytes of a flight for each row, except for the input and the result.
  virtual size_t row_bytes(bool margins) const = 0;
  // Reserve the buffers of a flight for n_rows rows, except for the input and the result.
  virtual void reserve(Flight& flight, int64_t n_rows, bool margins, const Result& out) const = 0;
  // Queue the work for a batch, with the buffers of a flight.
  virtual void explain(const Flight& flight, const Batch& batch, cudaStream_t s) const = 0;

  const Plan& plan;
  const int tile_rows;  // of the tiles of codes and sums
  const int multiprocessors;
  size_t frame_bytes = 0;   // of a flight, for any number of rows
  bool codes_all = false;   // whether every column of X is coded in each call
  bool has_labels = false;  // whether a row has a label
  bool finds_gaps = true;   // whether values and margin can be compared

  int32_t n_tiles(int64_t n_rows) const { return static_cast<int32_t>((n_rows + tile_rows - 1) / tile_rows); }
  size_t padded(int64_t n_rows) const { return static_cast<size_t>(n_tiles(n_rows)) * tile_rows; }
};

// Upload a plan, or the tables of rescaled outputs, to the current device.
std::unique_ptr<BatchModel> make_model(const Plan& plan, CudaMethod method);
std::unique_ptr<BatchModel> make_rescaled_model(const RescaledTables& tables);

// A method that explains a plan in its own way. It registers itself under a name.
using MakeModel = std::unique_ptr<BatchModel> (*)(const Plan& plan);
struct RegisteredModel {
  RegisteredModel(const char* name, MakeModel make);
};

}  // namespace skshap
