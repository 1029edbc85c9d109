"""One case of a draw: data, the fitted model, X in its container, and the reference values."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from skshapgpu import TreeExplainer

from . import containers, data, gpu, models, readers, sums, thresholds, tolerance, truth, wrappers
from .draws import Draw
from .margins import library_of, margin_of
from .report import NotDrawnError
from .trees import Tree, coalition_values, counted, is_encodable, used_columns

#: Number of rows to explain; the definition is evaluated for the first ``N_DEFINED`` rows.
N_EXPLAIN, N_DEFINED = 14, 6


class Case:
    """Fitted model with rows to explain.

    Attributes
    ----------
    fitted : wrappers.Fitted
    converted : containers.Converted
    X : container
        Rows that the package gets.
    seen : container
        The same rows as the libraries get them: X itself if the libraries accept it, else
        ``converted.plain``.
    """

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.rng = np.random.default_rng([draw.seed, 1])
        self.data = data.make(
            draw.columns,
            draw.names,
            draw.n_train,
            N_EXPLAIN,
            np.random.default_rng([draw.seed, 2]),
            unseen=draw.unseen,
        )
        self.y = data.target(
            draw.task, draw.style, draw.offset * draw.scale, draw.scale, self.data.signal, self.rng
        )
        self.train = containers.training(draw.trained_on, self.data.train)
        self.fitted = self._fit()
        self.converted = self._convert(self._hardened(self.data.explain))
        self.X = self.converted.X
        self.seen = self._seen()
        self.transformed = self.library("transform", self.fitted.transform, self.seen)
        if not np.isfinite(self.margins).all():
            raise NotDrawnError("predict: numbers that are not finite")
        self.n_columns = containers.n_columns(self.transformed)

    def nest(self, outer: str) -> wrappers.Nest:
        """Build the unfitted estimator and wrap it in ``outer``."""
        draw, categorical = self.draw, self.data.categorical
        p = len(draw.columns)
        numeric = [i for i in range(p) if i not in categorical]
        own: list[int] = []
        if categorical and draw.steps not in wrappers.WITH_CATEGORIES:
            origins = wrappers.STEPS[draw.steps](p, numeric, categorical, list)[1]([])
            own = [j for j, i in enumerate(origins) if i in categorical]
        if draw.family == "catboost" and own:  # as a parameter of the model it could not be cloned
            self.fit_params["cat_features"] = own
        if draw.family == "lightgbm" and "codes" in draw.params:
            self.fit_params["categorical_feature"] = draw.params["codes"]
        params = self._params()
        if draw.early and draw.family == "xgboost":
            params["early_stopping_rounds"] = 2
        model = models.FAMILIES[draw.family].build(draw.task, params, own)
        return wrappers.nest(draw.steps, outer, model, self.train, categorical)

    def _params(self) -> dict[str, Any]:
        names = {"histograms": ("codes",), "xgboost": ("codes", "types"), "lightgbm": ("codes",)}
        parameters_with_codes = names.get(self.draw.family, ())
        return {
            n: v
            for n, v in self.draw.params.items()
            if n not in ("codes", "types") or n in parameters_with_codes
        }

    @cached_property
    def fit_params(self) -> dict[str, Any]:
        params: dict[str, Any] = {}
        if self.draw.task == "ranking":
            sizes = np.full(len(self.y) // 10, 10)
            params["group"] = np.append(sizes, len(self.y) - sizes.sum()) if len(self.y) % 10 else sizes
        elif self.draw.weights:
            params["sample_weight"] = self.data.weights
        if self.draw.early:
            params |= self._early_stopping()
        return params

    def _early_stopping(self) -> dict[str, Any]:
        """Stop early on rows with random labels, so that few rounds are kept."""
        # Every class must occur twice, or XGBoost and LightGBM reject the labels.
        pairs = [(self.train, self.rng.permutation(self.y))]
        if self.draw.family == "lightgbm":
            import lightgbm

            return {"eval_set": pairs, "callbacks": [lightgbm.early_stopping(2, verbose=False)]}
        more = {"early_stopping_rounds": 2} if self.draw.family == "catboost" else {}
        return {"eval_set": pairs, "verbose": False, **more}

    def params_of(self, nested: wrappers.Nest, rows: np.ndarray) -> dict[str, Any]:
        """Select the parameters of ``fit`` for some of the rows."""
        params = nested.routed(self.fit_params).items()
        return {name: value[rows] if len(value) == len(self.y) else value for name, value in params}

    def _fit(self) -> wrappers.Fitted:
        params = self.draw.params
        if self.draw.task == "rare binary" and params.get("linear_tree") and params["boosting_type"] == "rf":
            raise NotDrawnError("fit: LightGBM crashes on linear trees of a forest if there is one class")
        if self.draw.outer == "transformer":  # ours: an error that it raises is no refusal of the library
            self.library("fit", wrappers.build, self.nest("none"), self.train, self.y, self.fit_params)
            return wrappers.build(self.nest("transformer"), self.train, self.y, self.fit_params)
        return self.library(
            "fit", wrappers.build, self.nest(self.draw.outer), self.train, self.y, self.fit_params
        )

    def library(self, action: str, call: Any, *args: Any, **named: Any) -> Any:
        """Call a library; an error that it raises does not count as a finding."""
        try:
            return call(*args, **named)
        except Exception as error:
            raise NotDrawnError(f"{action}: {type(error).__name__}: {str(error)[:200]}") from error

    def _convert(self, frame: pd.DataFrame) -> containers.Converted:
        def convert() -> containers.Converted:
            return containers.convert(self.draw.container, frame, self.draw.trained_on, self.rng)

        return self.library("container", convert)

    def _hardened(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Replace some numbers by thresholds of the model or their next neighbours."""
        if self.draw.steps != "none" or not self._readable():
            return frame
        places = [(int(i or 0), self.draw.columns[i or 0] != data.CODES) for i in self.fitted.origins]
        return thresholds.hardened(frame, readers.trees_of(self.fitted.last), places, self.rng)

    def _seen(self) -> Any:
        """Return X if the library can predict it, else the plain container, which the library must accept."""
        try:
            if self._is_misread():
                raise TypeError("the library crashes, or reads other numbers")
            margin_of(self.fitted.last, self.fitted.transform(self.X))
            self.accepted = True
            return self.X
        except Exception as error:
            self.accepted = False
            self.why_not = f"{type(error).__name__}: {str(error)[:150]}"
        self.library("predict", lambda: self.margin(self.converted.plain))
        return self.converted.plain

    def _is_misread(self) -> bool:
        """Return whether the library misreads X.

        CatBoost 1.2.10 reads beyond the memory of polars frames with categories, and XGBoost reads big-endian
        arrays with their bytes in the wrong order.
        """
        polars = type(self.X).__module__.startswith("polars")
        if self.draw.family == "xgboost" and self.draw.container == "big-endian":
            return True
        return self.draw.family == "catboost" and polars and bool(self.data.categorical)

    def margin(self, X: Any, *, contrast: bool = False) -> np.ndarray:
        """Compute the libraries' own margin of rows of X."""
        return margin_of(self.fitted.last, self.fitted.transform(X), contrast=contrast)

    @cached_property
    def margins(self) -> np.ndarray:
        return margin_of(self.fitted.last, self.transformed)

    @cached_property
    def contrasts(self) -> np.ndarray:
        return margin_of(self.fitted.last, self.transformed, contrast=True)

    @cached_property
    def column_names(self) -> list[str]:
        """Names of the model's columns, for rows that have names only if the training rows had names."""
        return self.names_for(self.converted.plain)

    def names_for(self, X: Any) -> list[str]:
        """Return the names of the model's columns for rows of X."""
        explainer = TreeExplainer(self.fitted.top, check_additivity=False, **self._any_background())
        return list(explainer.explain(containers.rows(X, [0])).feature_names)

    def _any_background(self) -> dict[str, Any]:
        return {"data": self.converted.plain} if "linear_tree" in self.draw.params else {}

    @property
    def n_outputs(self) -> int:
        return self.margins.shape[1]

    @cached_property
    def spread(self) -> np.ndarray:
        """Range of each output's margins over training rows and explained rows."""
        trained = self.library("predict", lambda: self.margin(self.train, contrast=True))
        return np.ptp(np.concatenate([trained, self.contrasts]), axis=0)

    @cached_property
    def leaf_range(self) -> np.ndarray:
        """Bound on the sum over the trees of the range of their leaves, for each output; 0 if unknown."""
        if self._readable():
            return readers.leaf_ranges(self.fitted.last) + np.zeros(self.n_outputs)
        model = self.fitted.last
        if library_of(model) != "catboost":
            return np.zeros(self.n_outputs)
        return np.full(self.n_outputs, 2 * model.tree_count_ * np.abs(model.get_leaf_values()).max())

    @cached_property
    def magnitude(self) -> np.ndarray:
        """Bound on the sum of the magnitudes of the terms that add up to a margin, without the intercept."""
        bound = np.abs(self.contrasts).max(axis=0) + self.spread
        if self._readable():
            bound = bound + readers.largest_leaves(self.fitted.last)
        if sums.is_sum(self.fitted.last):
            transformed = self.library("transform", self.fitted.transform, self.train)
            bound = bound + sums.largest_terms(self.fitted.last, transformed)
        if readers.has_linear_leaves(self.fitted.last):
            bound = bound + readers.linear_magnitude(self.fitted.last, self._largest())
        return bound

    def _largest(self) -> np.ndarray:
        """Return the largest magnitude in each column of the model, over all rows."""
        largest = []
        for rows in (self.train, self.seen, self.seen_background):
            transformed = self.library("transform", self.fitted.transform, rows)
            if not is_encodable(transformed):
                continue
            encoded = np.abs(readers.rows_of(self.fitted.last, transformed, self.categories))
            largest.append(np.max(encoded, axis=0, initial=0.0, where=np.isfinite(encoded)))
        return np.max(largest, axis=0)

    @property
    def device(self) -> str:
        return gpu.device_of(self.draw)

    @cached_property
    def passed_X(self) -> Any:
        """X, or a copy on a GPU."""
        return gpu.on_device(self.draw, self.X)

    @property
    def single_x(self) -> bool:
        return self.draw.container in containers.SINGLE

    def allowed(
        self,
        right: np.ndarray,
        *,
        whole: bool = False,
        exact: bool = False,
        factor: float = 1.0,
        float32: bool = False,
    ) -> np.ndarray:
        """Return the permitted deviation of all rows' values, per output; ``right`` has the outputs last.

        By default, the reference was computed from contrasts, or with ``exact`` in float64 without the
        library. With ``whole``, one of the compared sides includes predictions with their offset, so the
        deviation allows for the rounding errors of the library's type at the offset's magnitude.
        """
        flat = np.abs(right).reshape(-1, right.shape[-1])
        scale = np.maximum(flat.max(axis=0, initial=0.0), self._wide(self.spread, right))
        precision = self.draw.options.get("precision", "single")
        deviation = factor * tolerance.of_values(precision, scale, float32=self.single_x or float32)
        if precision == "single":
            deviation = deviation + self._wide(factor * tolerance.of_leaves(self.leaf_range), right)
        magnitude = self.magnitude
        if whole:
            magnitude = magnitude + np.abs(self.margins - self.contrasts).max(axis=0)
        return deviation + self._wide(tolerance.of_sums(self.fitted.last, magnitude, exact=exact), right)

    def _wide(self, numbers: np.ndarray, like: np.ndarray) -> np.ndarray:
        """Repeat a binary classifier's only output for both of its classes, if both are requested."""
        if like.shape[-1] == 2 and len(numbers) == 1:
            return np.repeat(numbers, 2)
        return numbers

    # ---- games

    @cached_property
    def categories(self) -> dict[int, list[Any]]:
        """Categories in training, for the columns that the model proper sees."""
        if not self.data.categorical:
            return {}
        transformed = self.library("transform", self.fitted.transform, self.train)
        if not isinstance(transformed, pd.DataFrame):
            return {}
        dtypes = enumerate(transformed.dtypes)
        return {j: list(d.categories) for j, d in dtypes if isinstance(d, pd.CategoricalDtype)}

    def _readable(self) -> bool:
        """Return whether the hunt can read the trees; CatBoost writes no border between infinite numbers."""
        if self.draw.family == "catboost" and "infinite" in self.draw.columns:
            return False
        return readers.readable(self.fitted.last)

    @cached_property
    def trees(self) -> tuple[list[Tree], np.ndarray] | None:
        """The trees, as the hunt's own readers read them, and the first rows as the trees compare them."""
        if self.n_columns > truth.MOST_COLUMNS or not self._readable():
            return None
        rows = containers.rows(self._encodable(self.transformed, self.converted), range(N_DEFINED))
        trees = readers.trees_of(self.fitted.last)
        return trees, readers.rows_of(self.fitted.last, rows, self.categories)

    def _encodable(self, transformed: Any, converted: containers.Converted) -> Any:
        if is_encodable(transformed):
            return transformed
        return self.library("transform", self.fitted.transform, converted.plain)

    @cached_property
    def counted_coalition_values(self) -> np.ndarray | None:
        """Like ``path_coalition_values``, with the covers of the background rows."""
        if self.trees is None:
            return None
        transformed = self.library("transform", self.fitted.transform, self.seen_background)
        rows = readers.rows_of(
            self.fitted.last, self._encodable(transformed, self.background), self.categories
        )
        trees = counted(self.trees[0], rows, self.background_weights)
        return coalition_values(trees, self.trees[1], self.n_outputs)

    @cached_property
    def path_coalition_values(self) -> np.ndarray | None:
        """Path-dependent coalition values of the first rows, without the intercept."""
        return None if self.trees is None else coalition_values(*self.trees, self.n_outputs)

    @cached_property
    def unused(self) -> list[int]:
        """Columns that no tree splits on."""
        if self.trees is None:
            return []
        return sorted(set(range(self.n_columns)) - used_columns(self.trees[0]))

    @cached_property
    def kept(self) -> list[int]:
        """Columns of the model that get values: all columns, or the columns on which trees split."""
        if self.draw.options.get("columns") != "used":
            return list(range(self.n_columns))
        # The terms of LightGBM's linear leaves use only columns on the leaves' paths.
        if (self._readable() or self.draw.family == "lightgbm") and not self.has_combinations:
            return sorted(used_columns(readers.trees_of(self.fitted.last)))
        indices = TreeExplainer(self.fitted.top, columns="used").feature_indices
        assert indices is not None
        return indices.tolist()

    @cached_property
    def background_frame(self) -> pd.DataFrame:
        chosen = self.rng.choice(len(self.data.train), self.draw.background, replace=False)
        frame = self.data.train.iloc[chosen].reset_index(drop=True)
        for name, dtype in self.data.explain.dtypes.items():
            if isinstance(dtype, pd.CategoricalDtype):  # including the order, in which equal types may differ
                frame[name] = frame[name].cat.set_categories(dtype.categories)
        return frame

    @cached_property
    def background(self) -> containers.Converted:
        return self._convert(self.background_frame)

    @cached_property
    def background_weights(self) -> np.ndarray | None:
        if not self.draw.background_weights:
            return None
        weights = self.rng.uniform(0.1, 2.0, self.draw.background)
        weights[0] = 0.0 if len(weights) > 1 else weights[0]
        return weights

    @cached_property
    def seen_background(self) -> Any:
        return self.background.X if self.seen is self.X else self.background.plain

    @cached_property
    def pair_coalition_values(self) -> np.ndarray | None:
        """Coalition values of the first rows against each background row, by mixtures of model columns."""
        if self.n_columns > truth.MOST_COLUMNS or self.has_combinations:
            return None
        transformed = containers.rows(self.transformed, range(N_DEFINED))
        background = self.library("transform", self.fitted.transform, self.seen_background)
        return self.library(
            "mixtures",
            truth.coalition_values_of_pairs,
            lambda rows: margin_of(self.fitted.last, rows, contrast=True),
            transformed,
            background,
            self.n_columns,
        )

    @property
    def has_combinations(self) -> bool:
        """Whether columns of a CatBoost model share a player, so that columns and players differ."""
        return (
            self.draw.family == "catboost"
            and bool(self.data.categorical)
            and self.draw.params["max_ctr_complexity"] > 1
        )

    @cached_property
    def background_margins(self) -> np.ndarray:
        return self.library("predict", self.margin, self.seen_background)
