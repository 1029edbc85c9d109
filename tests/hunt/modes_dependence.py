"""Partial dependence, compared with predictions of rows in which a column has each value of a grid."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from skshapgpu import partial_dependence

from . import containers, margins, truth, wrappers
from .case import Case
from .margins import library_of
from .modes_links import is_softmax, link_scale
from .readers import as_lightgbm_reads
from .report import NotDrawnError, Report
from .trees import is_encodable

#: The most points of a grid at which the library predicts: each takes a call.
MOST_POINTS = 1000

#: Objectives and losses whose prediction is the exponential of the margin.
WITH_LOG_LINK = ("counts", "positive", "cox", "times")


def dependence(case: Case, report: Report) -> None:
    """Check the curves of one feature or two, by name or position, against the definition."""
    draw = case.draw
    rng = np.random.default_rng([draw.seed, 7])
    subject = _Subject(case, rng)
    options = _options(case, subject, rng)
    try:
        found = partial_dependence(case.fitted.top, case.X, subject.asked, **options)
    except (ValueError, TypeError, OverflowError) as error:
        reason = _may_refuse(case, subject, options, error)
        if reason is None:
            raise
        report.refusals.append(reason)
        return
    grid = [np.asarray(values) for values in found.grid_values]
    weights = options.get("sample_weight")
    sizes = [len(values) for values in grid]
    places = np.arange(np.prod(sizes))
    if len(places) > MOST_POINTS:
        places = np.sort(rng.choice(places, MOST_POINTS, replace=False))
    predictions = subject.outputs(grid, places)  # (n_points, n_rows, n_outputs)
    right = np.moveaxis(predictions, -1, 0).swapaxes(1, 2)  # (n_outputs, n_rows, n_points)
    mean = np.zeros(len(right))
    if options["centered"]:
        mean = np.average(subject.link(case.margins), axis=0, weights=weights)
    allowed = _allowed(case, subject, predictions)
    kind = options["kind"]
    if kind != "individual":
        average = np.average(right, axis=1, weights=weights) - mean[:, None]
        got = np.asarray(found.average).reshape(len(right), -1)[:, places]
        report.equal("shape of the average", found.average.shape, (len(right), *sizes))
        report.close(f"average curve: {subject.kind}", got.T, average.T, allowed)
    if kind != "average":
        shape = (len(right), containers.n_rows(case.X), *sizes)
        report.equal("shape of the curves", found.individual.shape, shape)
        individual = np.asarray(found.individual).reshape(len(right), right.shape[1], -1)[..., places]
        curves = right - mean[:, None, None]
        check = f"curves of rows: {subject.kind}"
        report.close(check, np.moveaxis(individual, 0, -1), np.moveaxis(curves, 0, -1), allowed)
    _grids(case, report, subject, options, grid)


class _Subject:
    """The features of a curve: columns of the model, or columns of X in front of all steps."""

    def __init__(self, case: Case, rng: np.random.Generator) -> None:
        draw, self.case = case.draw, case
        by, given = draw.asked["curve by"], draw.asked["feature"]
        self.by_input = by == "input" and bool(case.fitted.steps)
        # A position is that of a column of X, a name that of a column that the model receives.
        self.of_x = bool(case.fitted.steps) and (self.by_input or "position" in given)
        if self.of_x and "name" in given and not self.by_input:
            given = "pair of positions"
        names = [str(name) for name in case.data.train.columns] if self.of_x else case.names_for(case.X)
        # Without names in training, columns of X have none of their own.
        frames = isinstance(case.X, pd.DataFrame) and isinstance(case.train, pd.DataFrame)
        self.has_names = not self.of_x or (frames and self.by_input)
        if not self.has_names:
            given = (
                given.replace("names", "positions")
                .replace("name and ", "pair of ")
                .replace("name", "position")
            )
        n = 2 if ("pair" in given or "and" in given) and len(names) > 1 else 1
        self.columns: list[Any] = rng.permutation(len(names))[:n].tolist()
        self.group: dict[str, list[Any]] = {}
        ways = {"name and position": [True, False]}.get(given, ["name" in given] * 2)
        self.asked: Any = [names[j] if by_name else j for j, by_name in zip(self.columns, ways)]
        if n == 1:
            self.asked = self.asked[0]
        elif draw.asked["grid"] == "few":
            self.asked = np.array(self.asked, dtype=object) if "and" in given else np.array(self.asked)
        self.kind = "columns of X" if self.of_x else "columns"
        if by == "group" and case.n_columns > 1:
            self._make_group(rng)
        self.names = names
        # Numbers are positions of columns of X, so that after steps only names say which of the model's.
        self.by_position = self.of_x or not case.fitted.steps
        self.model_output = self._model_output()

    def _make_group(self, rng: np.random.Generator) -> None:
        names = self.case.names_for(self.case.X)
        self.of_x, self.kind = False, "a group"
        members = rng.permutation(len(names))[: int(rng.integers(2, 4))].tolist()
        positions = not self.case.fitted.steps and self.case.draw.asked["feature"] != "name"
        self.group = {"some of them": members if positions else [names[j] for j in members]}
        self.asked, self.columns = "some of them", [members]

    def _model_output(self) -> str:
        draw, asked = self.case.draw, self.case.draw.asked["curve of"]
        classes = draw.task in ("binary", "rare binary", "classes", "rare class")
        if asked == "probability" and not classes:
            return "raw"
        if asked == "response" and draw.task not in WITH_LOG_LINK:
            return "raw"
        return str(asked)

    def link(self, values: np.ndarray) -> np.ndarray:
        """Return what is averaged, of margins (..., n_outputs)."""
        if self.model_output == "raw" or margins.is_probability(self.case.fitted.last):
            return values
        if self.model_output == "response":
            return np.exp(values)
        if is_softmax(self.case):
            return truth.softmax(values)
        return truth.logistic(link_scale(self.case))[0](values, np.zeros(1))

    def outputs(self, grid: list[np.ndarray], places: np.ndarray) -> np.ndarray:
        """Predict all rows at some points of the grid: (n_points, n_rows, n_outputs)."""
        case = self.case
        if self.of_x:
            rows: Any = case.seen
            predict: Callable[[Any], np.ndarray] = case.margin
        else:
            rows = case._encodable(case.transformed, case.converted)
            predict = partial(margins.margin_of, case.fitted.last)
        if not is_encodable(rows):
            rows = case.converted.plain
        if self.of_x and isinstance(rows, np.ndarray) and rows.dtype.kind in "iu" and _is_lightgbm(case):
            raise NotDrawnError("a curve: integers, which LightGBM rounds, with values that are none")
        if isinstance(rows, np.ndarray) and _is_lightgbm(case) and not self.of_x:
            dtype, rows = rows.dtype, as_lightgbm_reads(case.fitted.last, rows)
            if rows.dtype == np.float32 and dtype != np.float32:
                grid = [_rounded(values, dtype) for values in grid]
        points = list(product(*grid))
        # Jumps are at numbers of which float16 holds few; steps that compute with columns have none, and
        # categories are numbers of X, which LightGBM may round because of their type.
        asked = case.draw.asked
        keeps_dtype = self.of_x and (asked["grid"] != "exact" or asked["categorical"] != "by itself")
        found = []
        for place in places.tolist():
            changed, point = rows, points[place]
            for columns, value in zip(self.columns, point):
                members = columns if isinstance(columns, list) else [columns]
                parts = value if isinstance(columns, list) else (value,)
                for j, part in zip(members, parts):
                    changed = _with_value(changed, j, part, keeps_dtype=keeps_dtype)
            found.append(self.link(case.library("predict", predict, changed)))
        return np.stack(found)


def _is_lightgbm(case: Case) -> bool:
    return library_of(case.fitted.last) == "lightgbm"


def _rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Round numbers, or combinations of them, to float32 if an array of ``dtype`` holds them all."""
    if values.dtype == object:  # they occur in X
        rounded = np.empty(len(values), object)
        for i, value in enumerate(values):
            of_row = np.array(value, np.float32).tolist()
            rounded[i] = tuple(of_row) if isinstance(value, tuple) else of_row
        return rounded
    with np.errstate(over="ignore", invalid="ignore"):
        held = values.astype(dtype).astype(np.float64)
    return values.astype(np.float32) if np.array_equal(held, values, equal_nan=True) else values


def _with_value(X: Any, j: int, value: Any, *, keeps_dtype: bool) -> Any:
    """Return X with a value in all rows of a column, and the other columns as they are.

    With ``keeps_dtype``, an array of floats keeps its dtype, so that steps transform it as they do X.
    """
    if isinstance(X, pd.DataFrame):
        column = X.iloc[:, j]
        if isinstance(column.dtype, pd.CategoricalDtype):
            missing = value is None or value != value
            code = -1 if missing else column.cat.categories.get_loc(value)
            new: Any = pd.Categorical.from_codes(np.full(len(X), code), dtype=column.dtype)
        else:
            new = np.full(len(X), value)
            if column.dtype == object:
                new = new.astype(object)
            elif isinstance(column.dtype, pd.SparseDtype):  # scalers do not center sparse columns
                new = pd.array(new.astype(np.float64), dtype=column.dtype)
            elif column.dtype == np.float32 and new.dtype.kind == "f":
                new = new.astype(np.float32)
        return pd.concat(
            [X.iloc[:, :j], pd.Series(new, index=X.index, name=column.name), X.iloc[:, j + 1 :]], axis=1
        )
    if sp.issparse(X):
        raise NotDrawnError("a curve: sparse X, in which a value may be absent")
    X = np.asarray(X)
    changed = X.astype(X.dtype if X.dtype.kind in ("fO" if keeps_dtype else "O") else np.float64, copy=True)
    changed[:, j] = value
    return changed


def _options(case: Case, subject: _Subject, rng: np.random.Generator) -> dict[str, Any]:
    asked = case.draw.asked
    found: dict[str, Any] = {
        "kind": asked["curve"],
        "centered": asked["centered"] == "yes",
        "model_output": subject.model_output,
        "grid_resolution": 7,
    }
    if subject.by_input:
        found["feature_groups"] = "input"
    elif subject.group:
        found |= {"feature_groups": subject.group, "grid_resolution": "exact"}
        return found
    if asked["weights of curves"] == "some":
        found["sample_weight"] = rng.uniform(0.0, 2.0, containers.n_rows(case.X))
    if asked["grid"] == "few":
        found["grid_resolution"] = 3
    elif asked["grid"] == "exact":
        found["grid_resolution"] = "exact"
    elif asked["grid"] == "percentiles":
        found["percentiles"] = (0.0, 1.0)
    elif asked["grid"].startswith("custom"):
        found["custom_values"] = _custom_values(case, subject, rng)
    if asked["categorical"] != "by itself":
        chosen = subject.columns
        if not subject.by_position:
            return found | {"categorical_features": [subject.names[j] for j in chosen]}
        positions = {"mask": np.isin(np.arange(len(subject.names)), chosen), "positions": chosen}
        names = [subject.names[j] for j in chosen] if subject.has_names else chosen
        found["categorical_features"] = positions.get(asked["categorical"], names)
    return found


def _custom_values(case: Case, subject: _Subject, rng: np.random.Generator) -> dict[Any, list[Any]]:
    """Return values for the last of the features, some of them between those of X."""
    j = subject.columns[-1]
    plain = case.converted.plain
    plain = plain.toarray() if sp.issparse(plain) else plain
    frame = plain if isinstance(plain, pd.DataFrame) else pd.DataFrame(np.asarray(plain, float))
    if subject.of_x or not case.fitted.steps:
        known = frame.iloc[:, j].dropna().unique().tolist()[:4] or [0.0]
    else:
        known = [-1.0, 0.0, 0.5, 2.0]
    by_name = (case.draw.asked["grid"] == "custom by name" and subject.has_names) or not subject.by_position
    return {subject.names[j] if by_name else j: known}


def _allowed(case: Case, subject: _Subject, of_rows: np.ndarray) -> np.ndarray:
    """Return the permitted deviation, per output: curves are computed in double precision."""
    scale = np.abs(of_rows).reshape(-1, of_rows.shape[-1]).max(axis=0)
    on_margins = case.allowed(np.zeros((1, case.n_outputs)), whole=True)
    if subject.model_output == "raw":
        return 2 * on_margins + 1e-12 * scale
    steepest = np.maximum(scale, 1.0) if subject.model_output == "response" else 1.0
    return 4 * steepest * link_scale(case) * on_margins + 1e-12 * scale


def _may_refuse(case: Case, subject: _Subject, options: dict[str, Any], error: Exception) -> str | None:
    """Return the kind of a refusal that is documented."""
    text, draw = str(error), case.draw
    if subject.by_input:
        known = draw.steps in wrappers.KNOWN_ORIGINS and draw.outer != "self-training"
        if not known and ("single" in text or "not known" in text):
            return "origins of columns are not known"
        if options["grid_resolution"] == "exact" and "exact" in text:
            return "jumps of columns of X"
    if subject.of_x and not subject.by_input and "position of a column of X" in text and "name" in text:
        return "positions behind steps"
    if "can be put only into an array" in text and not isinstance(case.X, (np.ndarray, pd.DataFrame)):
        return "new values of columns of X in other containers"
    if "occurs in no row of X" in text:
        return "values of a category that no row has"
    if "too close to each other" in text:
        return "percentiles that are too close"
    overflows = "infinite" in draw.columns or draw.container == "float16"
    if "percentiles of column" in text and "not finite" in text and overflows:
        return "percentiles that are not finite"
    if "which the steps drop" in text and draw.names == "positions":
        return "a name that a column of an array also has"
    if "is missing in all rows" in text and {"missing", "all missing but few"} & set(draw.columns):
        return "a column without values"
    if "model_output='probability' needs" in text:
        if draw.params.get("objective") in ("binary:hinge", "binary:logitraw"):
            return "a classifier of XGBoost whose prediction is no probability"
    if "CTR" in text and draw.family == "catboost":
        return "a column that CatBoost combines"
    if "linear" in text and "linear_tree" in draw.params:
        return "linear leaves"
    return None


def _grids(
    case: Case, report: Report, subject: _Subject, options: dict[str, Any], grid: list[np.ndarray]
) -> None:
    """Check the grids of numbers whose values are known here."""
    frame = case.converted.plain
    if subject.group or not (subject.of_x or not case.fitted.steps) or "custom_values" in options:
        return
    if options["grid_resolution"] == "exact" or "categorical_features" in options:
        return
    for j, values in zip(subject.columns, grid):
        column = frame.iloc[:, j] if isinstance(frame, pd.DataFrame) else None
        if column is None or column.dtype != np.float64 or column.isna().any():
            continue
        if not np.isfinite(column).all() or case.draw.family == "catboost":
            continue
        report.close("grid", np.sort(values.astype(float)), _grid(column.to_numpy(), options), 1e-12)


def _grid(column: np.ndarray, options: dict[str, Any]) -> np.ndarray:
    """Return the grid of numbers as scikit-learn's documentation states it."""
    distinct = np.unique(column)
    if len(distinct) < options["grid_resolution"]:
        return distinct
    from scipy.stats.mstats import mquantiles

    low, high = mquantiles(column, prob=options.get("percentiles", (0.05, 0.95)))
    return np.linspace(low, high, options["grid_resolution"])


DEPENDENCE: dict[str, Callable[[Case, Report], None]] = {"partial dependence": dependence}
