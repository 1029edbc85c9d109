// The methods that explain coded rows. Each method is a class that uploads its part of a program when it is
// made, and adds up the slots of its chunks when it runs.
#pragma once

#include <algorithm>
#include <vector>

#include "cuda/device.h"
#include "cuda/program/program.h"
#include "cuda/program/tuning.h"

namespace skshap {

// Coded rows, and where a method leaves its sums.
template <class T>
struct CodedRows {
  const int16_t* codes;  // [tile][column][row of the tile]
  int64_t n_rows;
  int32_t n_tiles;
  const T* alpha;       // factors of terms, for rescaled outputs; or null
  T* partial;           // [tile][slot of all chunks][row of the tile]
  double* margin_sums;  // [tile][margin][row of the tile], or null
  void* frames;         // MethodModel::frame_bytes()
  int32_t* counters;    // MethodModel::n_counters, each of them 0
};

template <class T>
class MethodModel {
 public:
  virtual ~MethodModel() = default;

  // Queue the work for coded rows.
  virtual void run(const CodedRows<T>& rows, cudaStream_t s) const = 0;

  size_t frame_bytes = 0;  // memory of all warps that the method needs at a time
  int n_counters = 0;      // counters of tasks that are taken
};

// The model that a method is a part of.
template <class T>
struct MethodContext {
  const Plan& plan;
  const CudaProgram<T>& program;
  DeviceLimits device;
  // On the device: CudaProgram::stream and chunks, and Plan::category_bits.
  const typename CudaProgram<T>::Element* stream;
  const CudaChunk* chunks;
  const uint32_t* category_bits;
  int32_t n_columns;
  uint32_t n_slots;  // of all chunks
  int32_t n_sums;    // of the margins of a row

  // The most shared memory that a kernel may request.
  size_t max_shared() const { return device.shared - kStaticSharedBytes; }
};

// List the chunks with a quadrature; -1: the chunks in the general form. Long tasks come first, so that the
// device does not wait for a long task at the end.
template <class T>
std::vector<int32_t> list_chunks(const CudaProgram<T>& program, int32_t quadrature) {
  std::vector<int32_t> list;
  for (size_t i = 0; i < program.chunks.size(); ++i)
    if (program.chunks[i].quadrature == quadrature) list.push_back(static_cast<int32_t>(i));
  std::stable_sort(list.begin(), list.end(), [&](int32_t a, int32_t b) {
    return program.chunks[a].n_leaves > program.chunks[b].n_leaves;
  });
  return list;
}

}  // namespace skshap
