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
// unless the caller reads them itself. One function reads all attributes, as the size of one is checked
// against another's.
template <class Make>
auto with_view(const py::dict& ensemble, const Make& make, bool reads_linear_leaves = false) {
  if (linear_attributes(ensemble).feature.size() && !reads_linear_leaves)
    throw py::value_error("the ensemble has linear leaves: only a LinearPlan explains it");
  // Nobody else changes this copy, so it keeps the arrays alive.
  const py::dict arrays = ensemble.attr("copy")();
  EnsembleView view{};
  view.n_features = feature_count(arrays);
  const auto left = attribute<int32_t>(arrays, "left", -1);
  const py::ssize_t n = left.size();
  const auto tree_output = attribute<int32_t>(arrays, "tree_output", -1);
  const py::ssize_t n_trees = tree_output.size();
  const auto value = attribute<double>(arrays, "value", n, 2);
  const auto intercept = attribute<double>(arrays, "intercept", -1);
  const py::ssize_t n_outputs = intercept.size();
  const auto category_listed_left = attribute<bool>(arrays, "category_listed_left", -1);
  const py::ssize_t n_sets = category_listed_left.size();
  const auto category_values = attribute<int32_t>(arrays, "category_values", -1);

  view.tree_offsets = attribute<int64_t>(arrays, "tree_offsets", n_trees + 1).data();
  view.tree_output = tree_output.data();
  view.left = left.data();
  view.right = attribute<int32_t>(arrays, "right", n).data();
  view.feature = attribute<int32_t>(arrays, "feature", n).data();
  view.threshold = attribute<double>(arrays, "threshold", n).data();
  view.missing_left = reinterpret_cast<const uint8_t*>(attribute<bool>(arrays, "missing_left", n).data());
  view.cover = attribute<double>(arrays, "cover", n).data();
  view.value = value.data();
  view.intercept = intercept.data();
  view.x_float32 = arrays["x_dtype"].cast<std::string>() == "float32";
  view.strict = arrays["strict"].cast<bool>();
  view.player = or_null(optional_attribute<int32_t>(arrays, "player", view.n_features));
  view.zero_missing = reinterpret_cast<const uint8_t*>(
      or_null(optional_attribute<bool>(arrays, "zero_missing", view.n_features)));
  view.category_set = or_null(optional_attribute<int32_t>(arrays, "category_set", n));
  view.category_offsets =
      attribute<int64_t>(arrays, "category_offsets", view.category_set ? n_sets + 1 : -1).data();
  view.category_values = category_values.data();
  view.category_listed_left = reinterpret_cast<const uint8_t*>(category_listed_left.data());

  require_ensemble(n_outputs >= 1 && n_outputs <= INT32_MAX,
                   "intercept must have an element for each output");
  require_ensemble(n_trees < INT32_MAX && ascend(view.tree_offsets, n_trees + 1, n),
                   "tree_offsets must ascend from 0 to the number of nodes");
  view.n_outputs = static_cast<int32_t>(n_outputs);
  view.n_trees = static_cast<int32_t>(n_trees);
  const bool vector = n_trees && view.tree_output[0] == -1;
  require_ensemble(vector ? std::count(view.tree_output, view.tree_output + n_trees, -1) == n_trees
                          : each_below(view.tree_output, n_trees, view.n_outputs),
                   "tree_output must have an output of each tree, or -1 for each tree");
  view.value_width = vector ? view.n_outputs : 1;
  require_ensemble(value.shape(1) == view.value_width, "value has a wrong shape");
  view.n_players = view.n_features;
  if (view.player) {
    require_ensemble(each_below(view.player, view.n_features, view.n_features),
                     "player must be below n_features");
    view.n_players = *std::max_element(view.player, view.player + view.n_features) + 1;
  }
  require_ensemble(!view.category_set || (n_sets <= INT32_MAX &&
                                          ascend(view.category_offsets, n_sets + 1, category_values.size())),
                   "category_offsets must ascend from 0 to the number of category_values");
  return compile_interruptibly([&] {
    EnsembleCheck(view, static_cast<int32_t>(n_sets)).run();
    return make(view);
  });
}

}  // namespace skshap
