// Ensembles as Python passes them.
#pragma once

#include <algorithm>
#include <string>

#include "python/bindings.h"

namespace skshap {

template <class T>
using Array = py::array_t<T, py::array::c_style>;

// Return an attribute of the ensemble, which must have exactly the documented dtype. `n` is the length that
// it must have, or -1 for any length.
template <class T>
Array<T> attribute(const py::dict& ensemble, const char* name, py::ssize_t n) {
  const py::object value = ensemble[name];
  if (!py::isinstance<Array<T>>(value))
    throw py::type_error(std::string(name) + " must be a C-contiguous array of " +
                         std::string(py::str(py::dtype::of<T>())));
  const auto array = py::reinterpret_borrow<Array<T>>(value);
  if (n >= 0 && array.size() != n) throw py::value_error(std::string(name) + " has a wrong length");
  return array;
}

template <class T>
const T* or_null(const Array<T>& array) {
  return array.size() ? array.data() : nullptr;
}

// The attributes of linear leaves, which are not part of a view.
struct LinearAttributes {
  Array<int64_t> offsets;
  Array<int32_t> feature;
  Array<double> coefficient, intercept;
};

inline LinearAttributes linear_attributes(const py::dict& ensemble) {
  const auto feature = attribute<int32_t>(ensemble, "linear_feature", -1);
  LinearAttributes out{attribute<int64_t>(ensemble, "linear_offsets", -1), feature,
                       attribute<double>(ensemble, "linear_coefficient", feature.size()),
                       attribute<double>(ensemble, "linear_intercept", -1)};
  const py::ssize_t n_nodes = ensemble["left"].cast<py::array>().size(), n_offsets = out.offsets.size();
  if (n_offsets ? n_offsets != n_nodes + 1 || out.offsets.at(n_nodes) != feature.size() ||
                      out.intercept.size() != n_nodes
                : feature.size() > 0)
    throw py::value_error("the attributes of linear leaves have wrong lengths");
  return out;
}

// Call `make` with a view of an ensemble, without the GIL, and return its result. Ensemble
// (skshapgpu/adapters/ensemble.py) has validated all values, so only types and lengths are checked here.
// Linear leaves are rejected unless the caller reads them itself.
template <class Make>
auto with_view(const py::dict& ensemble, const Make& make, bool reads_linear_leaves = false) {
  if (linear_attributes(ensemble).feature.size() && !reads_linear_leaves)
    throw py::value_error("the ensemble has linear leaves: only a LinearPlan explains it");
  const auto tree_output = attribute<int32_t>(ensemble, "tree_output", -1);
  const auto tree_offsets = attribute<int64_t>(ensemble, "tree_offsets", tree_output.size() + 1);
  const auto left = attribute<int32_t>(ensemble, "left", tree_offsets.at(tree_output.size()));
  const py::ssize_t n = left.size();
  const auto right = attribute<int32_t>(ensemble, "right", n);
  const auto feature = attribute<int32_t>(ensemble, "feature", n);
  const auto threshold = attribute<double>(ensemble, "threshold", n);
  const auto missing_left = attribute<bool>(ensemble, "missing_left", n);
  const auto cover = attribute<double>(ensemble, "cover", n);
  const auto value = attribute<double>(ensemble, "value", -1);
  const auto intercept = attribute<double>(ensemble, "intercept", -1);
  const auto player = attribute<int32_t>(ensemble, "player", -1);
  const auto zero_missing = attribute<bool>(ensemble, "zero_missing", -1);
  const auto category_set = attribute<int32_t>(ensemble, "category_set", -1);
  const auto category_offsets = attribute<int64_t>(ensemble, "category_offsets", -1);
  const auto category_values = attribute<int32_t>(ensemble, "category_values", -1);
  const auto category_listed_left = attribute<bool>(ensemble, "category_listed_left", -1);

  EnsembleView view{};
  view.n_features = ensemble["n_features"].cast<int32_t>();
  view.n_outputs = static_cast<int32_t>(intercept.size());
  view.n_trees = static_cast<int32_t>(tree_output.size());
  view.tree_offsets = tree_offsets.data();
  view.tree_output = tree_output.data();
  view.left = left.data();
  view.right = right.data();
  view.feature = feature.data();
  view.threshold = threshold.data();
  view.missing_left = reinterpret_cast<const uint8_t*>(missing_left.data());
  view.cover = cover.data();
  view.value = value.data();
  view.value_width = static_cast<int32_t>(value.ndim() == 2 ? value.shape(1) : 1);
  view.intercept = intercept.data();
  view.x_float32 = ensemble["x_dtype"].cast<std::string>() == "float32";
  view.strict = ensemble["strict"].cast<bool>();
  view.player = or_null(player);
  view.n_players = view.n_features;
  if (view.player) view.n_players = *std::max_element(view.player, view.player + view.n_features) + 1;
  view.zero_missing = reinterpret_cast<const uint8_t*>(or_null(zero_missing));
  view.category_set = or_null(category_set);
  view.category_offsets = category_offsets.data();
  view.category_values = category_values.data();
  view.category_listed_left = reinterpret_cast<const uint8_t*>(category_listed_left.data());
  return compile_interruptibly([&] { return make(view); });
}

}  // namespace skshap
