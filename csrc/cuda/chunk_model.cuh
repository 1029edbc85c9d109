// A plan on a device whose trees are explained chunk by chunk: codes, the methods of the chunks, sums and
// margins. cuda/model.cu defines it, so that other sources do not compile its kernels again.
#pragma once

#include <memory>
#include <vector>

#include "cuda/batch_model.cuh"
#include "cuda/codes_model.cuh"
#include "cuda/margin_model.cuh"
#include "cuda/method_model.cuh"
#include "cuda/sum_model.cuh"

namespace skshap {

template <class T>
class ChunkModel : public BatchModel {
 public:
  // Upload what all methods read. There are no methods yet.
  ChunkModel(const Plan& plan, const CudaProgram<T>& program);

  // Return what a method is made from, given the program of the constructor.
  MethodContext<T> context(const CudaProgram<T>& program) const;
  void add(std::unique_ptr<MethodModel<T>> method);

  size_t row_bytes(bool margins) const override;
  void reserve(Flight& flight, int64_t n_rows, bool margins, const Result& out) const override;
  void explain(const Flight& flight, const Batch& batch, cudaStream_t s) const override;

 private:
  static constexpr int kTile = cuda_tile_rows<T>();

  const CodesModel<kTile> codes_;
  const MarginModel<kTile> margins_;
  const SumModel<T, kTile> sums_;
  DeviceArrays arrays_;
  const typename CudaProgram<T>::Element* const stream_;
  const CudaChunk* const chunks_;
  std::vector<std::unique_ptr<MethodModel<T>>> methods_;
  int n_counters_ = 0;
};
extern template class ChunkModel<float>;
extern template class ChunkModel<double>;

}  // namespace skshap
