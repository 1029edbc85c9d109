// The kernels of one instruction set. Each of simd/kernels_*.cpp includes this file once, after its
// simd/simd_*.h. Everything in this file and in the files that it includes has internal linkage, because the
// linker must not merge functions compiled for different instruction sets.
#pragma once

#include "simd/interval_kernels-inl.h"
#include "simd/rescaled_kernel-inl.h"
#include "simd/result_kernels-inl.h"
#include "simd/row_kernels-inl.h"
#include "simd/table_kernels-inl.h"
#include "simd/walk_kernel-inl.h"

namespace skshap {
namespace {

// `set_deep` and `set_vector` set the walks that are defined in other translation units.
Kernels make_kernels(const char* name, void (*set_deep)(Kernels&), void (*set_vector)(Kernels&)) {
  Kernels k{};
  k.name = name;
  k.decide16 = &decide<uint16_t>;
  k.decide32 = &decide<uint32_t>;
  k.leaf_sums = &leaf_sums;
  k.find_leaves = &find_leaves;
  k.descend = &descend;
  k.append_bit = &append_bit;
  k.index = &index;
  k.count_rows = &count_rows;
  k.lookup_float = &lookup<FloatVector>;
  k.lookup_double = &lookup<DoubleVector>;
  k.entry_index = &entry_index;
  k.add_entries_float = &add_entries_of<FloatVector>;
  k.add_entries_double = &add_entries_of<DoubleVector>;
  k.add_margins = &add_margins;
  k.interleave_float = &interleave_of<FloatVector>;
  k.interleave_double = &interleave_of<DoubleVector>;
  k.write_rows_float = &write_rows_of<FloatVector>;
  k.write_rows_double = &write_rows_of<DoubleVector>;
  k.leaf_table = &leaf_table;
  k.subset_sums = &subset_sums;
  k.fill_leaves_float = &fill_leaves_of<FloatVector>;
  k.fill_leaves_double = &fill_leaves_of<DoubleVector>;
  k.add_leaves_float = &add_leaves_of<FloatVector>;
  k.add_leaves_double = &add_leaves_of<DoubleVector>;
  k.pair_leaf_float = &pair_leaf<FloatVector>;
  k.pair_leaf_double = &pair_leaf<DoubleVector>;
  k.add_scaled_float = &add_scaled<float>;
  k.add_scaled_double = &add_scaled<double>;
  k.rank_float = &rank<FloatVector>;
  k.rank_double = &rank<DoubleVector>;
  set_order<1, 0, kMaxFixedNodes>(k);
  set_order<2, 0, kMaxFixedNodes>(k);
  set_order<3, 0, kMaxFixedNodes>(k);
  set_deep(k);
  set_vector(k);
  return k;
}

}  // namespace
}  // namespace skshap
