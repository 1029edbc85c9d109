// Building blocks of the walks: values of several rows per lane, and reads whose result all lanes share.
#pragma once

#include <cstdint>
#include <cstring>

namespace skshap {

constexpr int kWarp = 32;

// The number of rows of a lane in the walks, and of a tile.
template <class T>
constexpr int cuda_lane_rows() {
  return sizeof(T) == 4 ? 2 : 1;
}
template <class T>
constexpr int cuda_tile_rows() {
  return cuda_lane_rows<T>() * kWarp;
}

template <class T>
struct RowValues {
  T x[cuda_lane_rows<T>()];
};

__device__ __forceinline__ RowValues<float> load_row_values(const float* p) {
  const float2 v = *reinterpret_cast<const float2*>(p);
  return {v.x, v.y};
}
__device__ __forceinline__ RowValues<double> load_row_values(const double* p) { return {*p}; }

__device__ __forceinline__ void store_row_values(float* p, const RowValues<float>& x) {
  *reinterpret_cast<float2*>(p) = make_float2(x.x[0], x.x[1]);
}
__device__ __forceinline__ void store_row_values(double* p, const RowValues<double>& x) { *p = x.x[0]; }

__device__ __forceinline__ float as_value(uint32_t x, float) { return __uint_as_float(x); }
__device__ __forceinline__ double as_value(uint64_t x, double) { return __longlong_as_double(x); }
__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }

// Functions without a body, whose results are the types of adjacent elements that a lane reads at once.
template <class X>
X vector_of(const X (&)[1]);
uint2 vector_of(const uint32_t (&)[2]);
uint4 vector_of(const uint32_t (&)[4]);
ulonglong2 vector_of(const uint64_t (&)[2]);
float2 vector_of(const float (&)[2]);
float4 vector_of(const float (&)[4]);
double2 vector_of(const double (&)[2]);

// Read adjacent elements at once.
template <class X, int kN>
__device__ __forceinline__ void read_vector(const void* p, X (&out)[kN]) {
  const auto v = *static_cast<const decltype(vector_of(out))*>(p);
  memcpy(out, &v, sizeof(out));
}
// Read elements of global memory that do not change.
template <class X, int kN>
__device__ __forceinline__ void read_constants(const void* p, X (&out)[kN]) {
  const auto v = __ldg(static_cast<const decltype(vector_of(out))*>(p));
  memcpy(out, &v, sizeof(out));
}

// Read kN elements of a segment, the same elements for all lanes. kN is a multiple of 4.
template <int kN>
__device__ __forceinline__ void fetch(const uint32_t* p, uint32_t (&out)[kN]) {
#pragma unroll
  for (int i = 0; i < kN; i += 4) {
    const uint4 v = *reinterpret_cast<const uint4*>(p + i);
    out[i] = v.x, out[i + 1] = v.y, out[i + 2] = v.z, out[i + 3] = v.w;
  }
}
template <int kN>
__device__ __forceinline__ void fetch(const uint64_t* p, uint64_t (&out)[kN]) {
#pragma unroll
  for (int i = 0; i < kN; i += 2) {
    const ulonglong2 v = *reinterpret_cast<const ulonglong2*>(p + i);
    out[i] = v.x, out[i + 1] = v.y;
  }
}

}  // namespace skshap
