// Results that the bindings of several classes of plans share. bindings.cpp defines the functions.
#pragma once

#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <optional>

#include "python/table_bindings.h"
#include "rows/gaps.h"
#include "tables/tree_costs.h"

namespace skshap {

using BaseValue = std::optional<std::vector<double>>;

// Return the receiver of the additivity gaps, or null if there are no base values. There is one base value
// for each output.
inline std::unique_ptr<Gaps> gaps_of(const Plan& plan, const BaseValue& base_value) {
  if (!base_value) return nullptr;
  if (base_value->size() != static_cast<size_t>(plan.n_outputs))
    throw py::value_error("base_value must have one element for each output");
  return std::make_unique<Gaps>(*base_value);
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
