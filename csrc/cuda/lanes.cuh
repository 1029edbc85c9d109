// Building blocks of the walks: values of several rows per lane, and reads whose result all lanes share.
#pragma once

#include <cstdint>

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

template <class T, int R>
struct RowValues {
  T x[R];
};

template <class T, int R>
__device__ __forceinline__ RowValues<T, R> load_row_values(const T* p) {
  RowValues<T, R> out;
  if constexpr (R == 2 && sizeof(T) == 4) {
    const float2 v = *reinterpret_cast<const float2*>(p);
    out.x[0] = v.x, out.x[1] = v.y;
  } else {
    for (int r = 0; r < R; ++r) out.x[r] = p[r];
  }
  return out;
}

template <class T, int R>
__device__ __forceinline__ void store_row_values(T* p, const RowValues<T, R>& x) {
  if constexpr (R == 2 && sizeof(T) == 4) {
    *reinterpret_cast<float2*>(p) = make_float2(x.x[0], x.x[1]);
  } else {
    for (int r = 0; r < R; ++r) p[r] = x.x[r];
  }
}

__device__ __forceinline__ float as_value(uint32_t x, float) { return __uint_as_float(x); }
__device__ __forceinline__ double as_value(uint64_t x, double) { return __longlong_as_double(x); }
__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }

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
