// The contents of a plan's tables as NumPy arrays.
#pragma once

#include <algorithm>
#include <memory>

#include "python/bindings.h"
#include "tables/stored_tables.h"

namespace skshap {

// Return one of the arrays of stored tables, or an empty array. The returned contents keep the array alive.
template <class T>
Contents<T> stored_array(const py::dict& stored, const char* name) {
  using Array = py::array_t<T, py::array::c_style>;
  Contents<T> out;
  if (!stored.contains(name)) return out;
  const py::object value = stored[name];
  if (!holds<T>(value) || !py::isinstance<Array>(value) || py::reinterpret_borrow<Array>(value).ndim() != 1)
    throw py::value_error(std::string("the stored tables have ") + name + " of another type");
  const auto array = py::reinterpret_borrow<Array>(value);
  const auto drop = [](const py::object* owner) {
    with_gil([](void* p) { delete static_cast<const py::object*>(p); }, const_cast<py::object*>(owner));
  };
  out.borrow(array.data(), static_cast<size_t>(array.size()),
             std::shared_ptr<const py::object>(new py::object(array), drop));
  return out;
}

// Return the stored tables, given the result of contents(). `layout` consists of the digest, level_limit and
// leaf_bits.
inline std::unique_ptr<StoredTables> stored_tables_of(const py::object& contents) {
  if (contents.is_none()) return nullptr;
  const auto dict = contents.cast<py::dict>();
  auto stored = std::make_unique<StoredTables>();
  const Contents<uint64_t> layout = stored_array<uint64_t>(dict, "layout");
  if (layout.size() != 3) throw py::value_error("the stored tables have no layout");
  stored->layout = layout[0];
  stored->level_limit = layout[1];
  stored->leaf_bits = static_cast<uint32_t>(std::min<uint64_t>(layout[2], UINT32_MAX));
  stored->floats = stored_array<float>(dict, "floats");
  stored->doubles = stored_array<double>(dict, "doubles");
  stored->patterns = stored_array<uint64_t>(dict, "patterns");
  stored->counts = stored_array<uint64_t>(dict, "counts");
  stored->weights = stored_array<double>(dict, "weights");
  stored->base_value = stored_array<double>(dict, "base_value");
  return stored;
}

// Return a view of some numbers of a plan. The array keeps the plan alive.
template <class T>
py::array_t<T> view_of(const Contents<T>& contents, const py::object& plan) {
  py::array_t<T> out(static_cast<py::ssize_t>(contents.size()), contents.data(), plan);
  out.attr("setflags")(py::arg("write") = false);
  return out;
}

template <class T>
py::array_t<T> copy_of(const std::vector<T>& list) {
  return py::array_t<T>(static_cast<py::ssize_t>(list.size()), list.data());
}

inline py::dict contents(const py::object& self) {
  const Plan& plan = self.cast<const Plan&>();
  const Tables& tables = plan.tables;
  py::dict out;
  if (!tables.any()) return out;
  out["layout"] = copy_of<uint64_t>({layout_digest(plan), tables.level_limit, tables.leaf_bits});
  if (plan.precision == Precision::kSingle)
    out["floats"] = view_of(tables.floats, self);
  else
    out["doubles"] = view_of(tables.doubles, self);
  if (!tables.against_background) return out;
  out["counts"] = copy_of(pattern_counts(plan));
  out["patterns"] = view_of(tables.patterns, self);
  out["weights"] = view_of(tables.weights, self);
  out["base_value"] = copy_of(plan.base_value);
  return out;
}

}  // namespace skshap
