// Arrays on a device, for the boundary between Python and the GPU half.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace skshap {

// An array on the device; skshapgpu/_rows/gpu_arrays.py has checked it.
struct DeviceArray {
  uintptr_t data;
  bool is_float32;
  int64_t n_rows, row_stride, column_stride;  // strides in bytes

  Rows rows() const {
    return {.data = reinterpret_cast<const void*>(data),
            .is_float32 = is_float32,
            .n_rows = n_rows,
            .row_stride = row_stride,
            .column_stride = column_stride};
  }
};

}  // namespace skshap
