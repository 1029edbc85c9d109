// Partial dependence; skshapgpu/_core.pyi documents it.
#include <pybind11/stl.h>

#include "dependence/dependence.h"
#include "python/ensemble_view.h"
#include "python/table_bindings.h"
#include "rows/coded_tiles.h"

namespace skshap {
namespace {

using Axes = std::vector<std::pair<std::vector<int32_t>, py::array>>;

DependentTrees compile(const py::dict& ensemble, const Axes& axes, int n_threads) {
  require_threads(n_threads);
  if (axes.size() > kMostAxes) throw py::value_error("a grid has at most two axes");
  const py::ssize_t n_features = feature_count(ensemble);
  std::vector<GridAxis> grid_axes;
  for (const auto& [inputs, points] : axes) {
    require_floats(points, "points");
    if (points.ndim() != 2 || points.shape(1) != n_features || points.shape(0) < 1 ||
        points.shape(0) > INT32_MAX / 2)
      throw py::value_error("points must have shape (n_points, " + std::to_string(n_features) +
                            ") with at least one point");
    grid_axes.push_back({inputs, rows_of(points)});
  }
  for (size_t i = 0; i < grid_axes.size(); ++i)
    for (const int32_t input : grid_axes[i].inputs)
      if (i && std::find(grid_axes[0].inputs.begin(), grid_axes[0].inputs.end(), input) !=
                   grid_axes[0].inputs.end())
        throw py::value_error("the axes of a grid must have different columns");
  return with_view(
      ensemble, [&](const EnsembleView& view) { return make_dependent_trees(view, grid_axes, n_threads); });
}

double* weights_at(const DependentTrees& trees, const py::object& weight_at) {
  return checked_doubles(weight_at, "weight_at", {static_cast<py::ssize_t>(trees.n_leaves())});
}

void add_weights(const DependentTrees& trees, const py::array& X, const py::object& weights,
                 const py::object& weight_at, int n_threads) {
  require_threads(n_threads);
  const Rows rows = host_rows(trees.coded, X);
  const double* const weight_data =
      weights.is_none() ? nullptr : doubles_by_row(weights, "weights", rows.n_rows);
  double* const out = weights_at(trees, weight_at);
  run_interruptibly([&](const auto& interrupted) {
    return add_dependent_weights(trees, rows, weight_data, n_threads, interrupted, out);
  });
}

// Return an output's shape: the number of points of each axis.
std::vector<py::ssize_t> shape_of(const DependentTrees& trees, std::vector<py::ssize_t> shape) {
  for (const Cells& cells : trees.axes)
    shape.push_back(static_cast<py::ssize_t>(cells.cell_of_point().size()));
  return shape;
}

py::array_t<double> average(const DependentTrees& trees, const py::object& weight_at, double total) {
  const double* const weights = weights_at(trees, weight_at);
  py::array_t<double> out(shape_of(trees, {trees.n_outputs()}));
  double* const data = out.mutable_data();
  {
    const WithoutGil release;
    write_average(trees, weights, total, data);
  }
  return out;
}

py::array_t<double> individual(const DependentTrees& trees, const py::array& X, int n_threads) {
  require_threads(n_threads);
  const Rows rows = host_rows(trees.coded, X);
  py::array_t<double> out(shape_of(trees, {trees.n_outputs(), rows.n_rows}));
  double* const data = out.mutable_data();
  run_interruptibly(
      [&](const auto& interrupted) { return write_individual(trees, rows, n_threads, interrupted, data); });
  return out;
}

// Return the cell of each point of an axis, counted from 0.
py::array_t<int64_t> cells(const DependentTrees& trees, size_t axis) {
  if (axis >= trees.axes.size()) throw py::index_error("the grid has no such axis");
  const std::vector<uint32_t>& cell_of_point = trees.axes[axis].cell_of_point();
  py::array_t<int64_t> out(static_cast<py::ssize_t>(cell_of_point.size()));
  std::copy(cell_of_point.begin(), cell_of_point.end(), out.mutable_data());
  return out;
}

py::dict info(const DependentTrees& trees) {
  py::dict out;
  out["n_leaves"] = trees.n_leaves();
  out["bytes"] = trees.bytes();
  out["code_bytes_per_row"] = coded_row_bytes(trees.coded);
  out["scratch_bytes_per_thread"] = scratch_bytes(trees);
  return out;
}

}  // namespace

void bind_dependence(py::module_& module) {
  bind_class<DependentTrees>(module, "DependentTrees")
      .def(py::init(&compile), py::arg("ensemble"), py::arg("axes"), py::arg("n_threads") = 1)
      .def("add_weights", &add_weights, py::arg("X"), py::arg("weights").none(true), py::arg("weight_at"),
           py::arg("n_threads") = 1)
      .def("average", &average, py::arg("weight_at"), py::arg("total"))
      .def("individual", &individual, py::arg("X"), py::arg("n_threads") = 1)
      .def("cells", &cells, py::arg("axis"))
      .def_property_readonly("leaf_magnitude",
                             [](const DependentTrees& trees) { return copy_of(trees.leaf_magnitude); })
      .def("info", &info);
}

}  // namespace skshap
