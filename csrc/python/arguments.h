// Arguments of several bindings: names of options, and background rows.
#pragma once

#include <string>

#include "python/ensemble_view.h"

namespace skshap {

inline Index index_named(const std::string& name) {
  if (name == "SII") return Index::kShapley;
  if (name == "STII") return Index::kTaylor;
  if (name == "BII") return Index::kBanzhaf;
  throw py::value_error("index must be 'SII', 'STII' or 'BII', not '" + name + "'");
}

inline Precision precision_named(const std::string& name) {
  if (name == "single") return Precision::kSingle;
  if (name == "double") return Precision::kDouble;
  throw py::value_error("precision must be 'single' or 'double', not '" + name + "'");
}

struct BackgroundRows {
  Rows rows;
  const double* weights;
};

// Check the background rows and their weights, which must add up to 1.
inline BackgroundRows background_rows(const py::dict& ensemble, const py::array& background,
                                      const py::array& weights) {
  require_floats(background, "background");
  const py::ssize_t n_features = feature_count(ensemble);
  if (background.ndim() != 2 || background.shape(1) != n_features || background.shape(0) < 1)
    throw py::value_error("background must have shape (n_rows, " + std::to_string(n_features) +
                          ") with at least one row");
  return {rows_of(background), doubles_by_row(weights, "weights", background.shape(0))};
}

}  // namespace skshap
