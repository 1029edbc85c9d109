// Ensembles as Python passes them.
#pragma once

#include <algorithm>
#include <string>

#include "python/bindings.h"
#include "python/ensemble_check.h"

namespace skshap {

template <class T>
using Array = py::array_t<T, py::array::c_style>;

// Return an attribute of the ensemble, which must have exactly the documented dtype and number of dimensions.
// `n` is the length that it must have, or -1 for any length.
template <class T>
Array<T> attribute(const py::dict& ensemble, const char* name, py::ssize_t n, py::ssize_t n_dimensions = 1) {
  const py::object value = ensemble[name];
  if (!py::isinstance<Array<T>>(value) || !holds<T>(value))
    throw py::type_error(std::string(name) + " must be an aligned, C-contiguous array of " +
                         std::string(py::str(py::dtype::of<T>())));
  const auto array = py::reinterpret_borrow<Array<T>>(value);
  if (array.ndim() != n_dimensions || (n >= 0 && array.shape(0) != n))
    throw py::value_error(std::string(name) + " has a wrong shape");
  return array;
}

// Return an attribute that is empty or has this length.
template <class T>
Array<T> optional_attribute(const py::dict& ensemble, const char* name, py::ssize_t n) {
  const auto array = attribute<T>(ensemble, name, -1);
  return array.size() ? attribute<T>(ensemble, name, n) : array;
}

template <class T>
const T* or_null(const Array<T>& array) {
  return array.size() ? array.data() : nullptr;
}

// Return the number of features of an ensemble.
inline int32_t feature_count(const py::dict& ensemble) {
  const auto n = ensemble["n_features"].cast<py::ssize_t>();
  if (n < 0 || n > INT32_MAX) throw py::value_error("n_features must be from 0 to 2^31 - 1");
  return static_cast<int32_t>(n);
}

// The attributes of linear leaves, which are not part of a view.
struct LinearAttributes {
  Array<int64_t> offsets;
  Array<int32_t> feature;
  Array<double> coefficient, intercept;
};

inline LinearAttributes linear_attributes(const py::dict& ensemble) {
  const py::ssize_t n_nodes = attribute<int32_t>(ensemble, "left", -1).size();
  const auto feature = attribute<int32_t>(ensemble, "linear_feature", -1);
  LinearAttributes out{optional_attribute<int64_t>(ensemble, "linear_offsets", n_nodes + 1), feature,
                       attribute<double>(ensemble, "linear_coefficient", feature.size()),
                       optional_attribute<double>(ensemble, "linear_intercept", n_nodes)};
  const size_t n_offsets = out.offsets.size(), n_terms = feature.size();
  const bool valid = n_offsets
                         ? out.intercept.size() == n_nodes && ascend(out.offsets.data(), n_offsets, n_terms)
                         : n_terms == 0 && out.intercept.size() == 0;
  require_ensemble(valid && each_below(feature.data(), n_terms, feature_count(ensemble)),
                   "the attributes of linear leaves contradict each other");
  return out;
}

// Call `make` with a view of an ensemble, without the GIL, and return its result. Linear leaves are rejected
// unless the caller reads them itself.
template <class Make>
auto with_view(const py::dict& ensemble, const Make& make, bool reads_linear_leaves = false) {
  if (linear_attributes(ensemble).feature.size() && !reads_linear_leaves)
    throw py::value_error("the ensemble has linear leaves: only a LinearPlan explains it");
  const int32_t n_features = feature_count(ensemble);
  const auto left = attribute<int32_t>(ensemble, "left", -1);
  const py::ssize_t n = left.size();
  const auto tree_output = attribute<int32_t>(ensemble, "tree_output", -1);
  const py::ssize_t n_trees = tree_output.size();
  const auto tree_offsets = attribute<int64_t>(ensemble, "tree_offsets", n_trees + 1);
  const auto right = attribute<int32_t>(ensemble, "right", n);
  const auto feature = attribute<int32_t>(ensemble, "feature", n);
  const auto threshold = attribute<double>(ensemble, "threshold", n);
  const auto missing_left = attribute<bool>(ensemble, "missing_left", n);
  const auto cover = attribute<double>(ensemble, "cover", n);
  const auto value = attribute<double>(ensemble, "value", n, 2);
  const auto intercept = attribute<double>(ensemble, "intercept", -1);
  const auto player = optional_attribute<int32_t>(ensemble, "player", n_features);
  const auto zero_missing = optional_attribute<bool>(ensemble, "zero_missing", n_features);
  const auto category_set = optional_attribute<int32_t>(ensemble, "category_set", n);
  const auto category_listed_left = attribute<bool>(ensemble, "category_listed_left", -1);
  const py::ssize_t n_sets = category_listed_left.size();
  const auto category_offsets =
      attribute<int64_t>(ensemble, "category_offsets", category_set.size() ? n_sets + 1 : -1);
  const auto category_values = attribute<int32_t>(ensemble, "category_values", -1);

  const py::ssize_t n_outputs = intercept.size();
  require_ensemble(n_outputs >= 1 && n_outputs <= INT32_MAX,
                   "intercept must have an element for each output");
  require_ensemble(n_trees < INT32_MAX && ascend(tree_offsets.data(), n_trees + 1, n),
                   "tree_offsets must ascend from 0 to the number of nodes");
  const int32_t* const outputs = tree_output.data();
  const bool vector = n_trees && outputs[0] == -1;
  require_ensemble(vector ? std::count(outputs, outputs + n_trees, -1) == n_trees
                          : each_below(outputs, n_trees, static_cast<int32_t>(n_outputs)),
                   "tree_output must have an output of each tree, or -1 for each tree");
  require_ensemble(value.shape(1) == (vector ? n_outputs : 1), "value has a wrong shape");
  require_ensemble(each_below(player.data(), player.size(), n_features), "player must be below n_features");
  require_ensemble(!category_set.size() || (n_sets <= INT32_MAX && ascend(category_offsets.data(), n_sets + 1,
                                                                          category_values.size())),
                   "category_offsets must ascend from 0 to the number of category_values");

  EnsembleView view{};
  view.n_features = n_features;
  view.n_outputs = static_cast<int32_t>(n_outputs);
  view.n_trees = static_cast<int32_t>(n_trees);
  view.tree_offsets = tree_offsets.data();
  view.tree_output = tree_output.data();
  view.left = left.data();
  view.right = right.data();
  view.feature = feature.data();
  view.threshold = threshold.data();
  view.missing_left = reinterpret_cast<const uint8_t*>(missing_left.data());
  view.cover = cover.data();
  view.value = value.data();
  view.value_width = static_cast<int32_t>(value.shape(1));
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
  return compile_interruptibly([&] {
    EnsembleCheck(view, static_cast<int32_t>(n_sets)).run();
    return make(view);
  });
}

}  // namespace skshap
