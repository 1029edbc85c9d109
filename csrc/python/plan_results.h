// Results that the bindings of several classes of plans share. bindings.cpp defines the functions.
#pragma once

#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <utility>

#include "python/table_bindings.h"
#include "rows/gaps.h"
#include "tables/tree_costs.h"

namespace skshap {

// Return the receiver of the additivity gaps, or null if `base_value` is None. It is an array of one base
// value for each output.
inline std::unique_ptr<Gaps> gaps_of(const Plan& plan, const py::object& base_value) {
  if (base_value.is_none()) return nullptr;
  if (!is_float64(base_value)) throw py::type_error("base_value must be a float64 array");
  const auto array = py::reinterpret_borrow<py::array>(base_value);
  if (array.ndim() != 1 || array.shape(0) != plan.n_outputs)
    throw py::value_error("base_value must have one element for each output");
  std::vector<double> values;
  for (py::ssize_t o = 0; o < array.shape(0); ++o)
    values.push_back(*static_cast<const double*>(array.data(o)));
  return std::make_unique<Gaps>(std::move(values));
}

inline py::object largest_of(const std::unique_ptr<Gaps>& gaps) {
  if (!gaps) return py::none();
  return copy_of(gaps->largest());
}

// Return the features of a plan's pairs or triples.
template <size_t kSize>
py::array_t<int32_t> features_of(const Plan& plan, const std::vector<std::array<int32_t, kSize>>& list) {
  py::array_t<int32_t> out({list.size(), kSize});
  int32_t* p = out.mutable_data();
  for (const auto& interaction : list)
    for (const int32_t feature : interaction) *p++ = plan.features[feature];
  return out;
}

// Return the number of trees, the bytes and other information about groups of trees, and about a plan.
py::list list_of(const std::vector<TreeGroup>& groups);
py::dict info(const Plan& plan);

// Return the information about a plan that contains another plan.
template <class OuterPlan>
py::dict outer_info(const OuterPlan& plan) {
  py::dict out = info(plan.plan);
  out["scratch_bytes_per_thread"] = scratch_bytes(plan);
  out["shared_bytes_per_thread"] = 0;
  out["bytes"] = plan.bytes();
  return out;
}

}  // namespace skshap
