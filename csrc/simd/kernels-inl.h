// The kernels of one instruction set. simd/kernels.cpp.in includes this file once, after simd/simd_*.h.
// Everything in this file and in the files that it includes has internal linkage, because the linker must not
// merge functions compiled for different instruction sets.
#pragma once

#include <initializer_list>

#include "simd/interval_kernels-inl.h"
#include "simd/lane_kernels-inl.h"
#include "simd/rescaled_kernel-inl.h"
#include "simd/result_kernels-inl.h"
#include "simd/row_kernels-inl.h"
#include "simd/table_kernels-inl.h"
#include "simd/walk_kernel-inl.h"

namespace skshap {
namespace {

template <class S>
void set_kernels(KernelsOf<typename S::T>& k) {
  k.rank = &rank<S>;
  k.lookup = &lookup<S>;
  k.add_entries = &add_entries<S>;
  k.interleave = &interleave<S>;
  k.write_rows = &write_rows<S>;
  k.pair_leaf = &pair_leaf<S>;
  k.add_scaled = &add_scaled<typename S::T>;
  set_lanes<S>(k, std::make_index_sequence<kMaxLaneNodes>());
}

// `setters` set the kernels that are defined in other translation units.
Kernels make_kernels(const char* name, std::initializer_list<void (*)(Kernels&)> setters) {
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
  k.entry_index = &entry_index;
  k.add_margins = &add_margins;
  k.leaf_table = &leaf_table;
  k.subset_sums = &subset_sums;
  set_kernels<FloatVector>(std::get<0>(k.by_precision));
  set_kernels<DoubleVector>(std::get<1>(k.by_precision));
  set_order<1, 0, kMaxFixedNodes>(k);
  set_order<2, 0, kMaxFixedNodes>(k);
  set_order<3, 0, kMaxFixedNodes>(k);
  for (const auto set : setters) set(k);
  return k;
}

}  // namespace
}  // namespace skshap
