"""Wrappers of a model: leading steps of a pipeline, and estimators around the pipeline.

The hunt knows from which column of X each output column of its steps derives, because it constructs the
steps; it does not rely on the package for this. To add steps or a wrapper, add a line to ``STEPS`` or
``OUTER``.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import RFE, SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, KFold, TunedThresholdClassifierCV
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.utils import check_array

from .margins import library_of

#: Folder for files; the runner deletes it.
FOLDER: str | None = None

#: For each output column of the steps, the position of the column of X from which it derives, or None if it
#: derives from several.
Origins = list[Any]


@dataclass(eq=False)
class Fitted:
    """A fitted nest and its parts.

    Attributes
    ----------
    top : object
        The estimator that the package gets.
    steps : list
        Fitted transformers in front of the model proper.
    last : object
        The model proper.
    origins : list
        Origins of the columns that ``last`` sees.
    one_to_one : bool
        Whether each of these columns derives from one column of X, and no two from the same.
    """

    top: Any
    steps: list[Any]
    last: Any
    origins: Origins
    one_to_one: bool

    def transform(self, X: Any) -> Any:
        """Transform X to the rows that the model proper sees."""
        for step in self.steps:
            X = step.transform(X)
        return X


def _reversed(X: Any) -> Any:
    return X.iloc[:, ::-1] if hasattr(X, "iloc") else X[:, ::-1]


def _without_first(X: Any) -> Any:
    return X.iloc[:, 1:] if hasattr(X, "iloc") else X[:, 1:]


Steps = tuple[list[tuple[str, Any]], Callable[[list[Any]], Origins]]


def _same(p: int) -> Callable[[list[Any]], Origins]:
    return lambda steps: list(range(p))


def _halves(p: int) -> tuple[list[int], list[int]]:
    """Split columns into two parts of a ColumnTransformer, neither part in order."""
    return list(range(p - 1, -1, -2)), list(range(p - 2, -1, -2))


def _columns(frame: bool, names: list[str], which: list[int]) -> list[Any]:
    return [names[i] for i in which] if frame else which


def _reordering(p: int, numeric: list[int], categorical: list[int], select: Callable[..., Any]) -> Steps:
    first, second = _halves(p)
    parts = [("odd", "passthrough", select(first)), ("even", "passthrough", select(second))]
    return [("reorder", ColumnTransformer(parts))], lambda steps: first + second


def _dropping(p: int, numeric: list[int], categorical: list[int], select: Callable[..., Any]) -> Steps:
    remaining = [i for i in range(p) if i != 0] or [0]
    parts = [("gone", "drop", select([i for i in range(p) if i not in remaining]))]
    return [("drop", ColumnTransformer(parts, remainder="passthrough"))], lambda steps: remaining


def _scaling_last(p: int, numeric: list[int], categorical: list[int], select: Callable[..., Any]) -> Steps:
    scaled, others = numeric[1::2], [i for i in range(p) if i not in numeric[1::2]]
    parts = [("scale", StandardScaler(), select(scaled))]
    return [("scale", ColumnTransformer(parts, remainder="passthrough"))], lambda steps: scaled + others


def _encoding(p: int, numeric: list[int], categorical: list[int], select: Callable[..., Any]) -> Steps:
    """Place numbers after one-hot columns."""
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False, max_categories=3)
    parts = [("one", encoder, select(categorical)), ("rest", "passthrough", select(numeric))]

    def origins(steps: list[Any]) -> Origins:
        fitted = steps[0].named_transformers_["one"]
        counts = [len(part) for part in _one_hot_columns(fitted)] if categorical else []
        return [c for c, count in zip(categorical, counts) for _ in range(count)] + numeric

    return [("encode", ColumnTransformer(parts))], origins


def _one_hot_columns(encoder: OneHotEncoder) -> list[list[str]]:
    """Return each input's columns: one for each known category and one for infrequent categories."""
    widths = []
    for i, categories in enumerate(encoder.categories_):
        infrequent = encoder.infrequent_categories_[i]
        n = len(categories) if infrequent is None else len(categories) - len(infrequent) + 1
        widths.append([""] * n)
    return widths


def _ordinal(p: int, numeric: list[int], categorical: list[int], select: Callable[..., Any]) -> Steps:
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    parts = [("code", encoder, select(categorical)), ("rest", "passthrough", select(numeric))]
    return [("encode", ColumnTransformer(parts))], lambda steps: categorical + numeric


def _selecting(p: int, numeric: list[int], categorical: list[int], select: Callable[..., Any]) -> Steps:
    step = SelectKBest(_by_position, k=max(1, p - 1))
    return [("select", step)], lambda steps: list(np.flatnonzero(steps[0].get_support()))


def _by_position(X: Any, y: Any) -> np.ndarray:
    """Return scores that drop the first column."""
    return np.arange(X.shape[1], dtype=float)


def _mixing(p: int, numeric: list[int], categorical: list[int], select: Callable[..., Any]) -> Steps:
    n = max(1, p - 1)
    return [("scale", StandardScaler()), ("pca", PCA(n, random_state=0))], lambda steps: [None] * n


def _normalizing(p: int, numeric: list[int], categorical: list[int], select: Callable[..., Any]) -> Steps:
    return [("norm", Normalizer())], lambda steps: [None] * p


def _of_neighbours(p: int, numeric: list[int], categorical: list[int], select: Callable[..., Any]) -> Steps:
    return [("impute", KNNImputer(n_neighbors=2, keep_empty_features=True))], lambda steps: [None] * p


def _union(p: int, numeric: list[int], categorical: list[int], select: Callable[..., Any]) -> Steps:
    union = FeatureUnion([("a", MinMaxScaler()), ("b", FunctionTransformer(_reversed))])
    return [("union", union)], lambda steps: [*range(p), *range(p - 1, -1, -1)]


def _nested(p: int, numeric: list[int], categorical: list[int], select: Callable[..., Any]) -> Steps:
    inner = Pipeline([("impute", SimpleImputer(keep_empty_features=True)), ("scale", RobustScaler())])
    first, second = _halves(p)
    columns = ColumnTransformer(
        [("a", inner, select(first)), ("b", SimpleImputer(keep_empty_features=True), select(second))]
    )
    return [("outer", Pipeline([("columns", columns), ("id", "passthrough")]))], lambda steps: first + second


#: Steps by name. ``WITH_CATEGORIES`` need columns of categories, ``ANY_COLUMNS`` accept them, and all others
#: accept only numbers.
STEPS: dict[str, Callable[..., Steps]] = {
    "none": lambda p, *rest: ([], _same(p)),
    "scaler": lambda p, *rest: ([("scale", StandardScaler())], _same(p)),
    "imputer": lambda p, *rest: ([("impute", SimpleImputer(keep_empty_features=True))], _same(p)),
    "reversed": lambda p, *rest: (
        [("reverse", FunctionTransformer(_reversed))],
        lambda steps: list(range(p - 1, -1, -1)),
    ),
    "without first": lambda p, *rest: (
        [("cut", FunctionTransformer(_without_first))],
        lambda steps: list(range(1, p)),
    ),
    "reorder": _reordering,
    "drop": _dropping,
    "scale some": _scaling_last,
    "select": _selecting,
    "pca": _mixing,
    "union": _union,
    "normalizer": _normalizing,
    "neighbours": _of_neighbours,
    "nested": _nested,
    "one-hot": _encoding,
    "ordinal": _ordinal,
}

WITH_CATEGORIES = ["one-hot", "ordinal"]
#: Steps for which the package must know the origins of columns; for other steps, it may refuse to say.
KNOWN_ORIGINS = [
    "none",
    "scaler",
    "imputer",
    "reorder",
    "drop",
    "scale some",
    "select",
    "nested",
    "one-hot",
    "ordinal",
]
#: Steps that also accept categories, for models that support them.
ANY_COLUMNS = ["none", "reorder", "drop", "reversed", "without first", "scale some"]


class _Checked:
    """X as SelfTrainingClassifier converts it before the model sees it."""

    def transform(self, X: Any) -> Any:
        return check_array(X, accept_sparse=True, ensure_all_finite=False)


@dataclass(eq=False)
class Nest:
    """An unfitted estimator: a model, its leading steps, and the estimators around both."""

    steps_name: str
    outer: str
    estimator: Any
    has_steps: bool
    find_origins: Callable[[list[Any]], Origins]

    def routed(self, fit_params: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of the model's ``fit`` under their names in the nest's ``fit``."""
        prefix = "model__" if self.has_steps else ""
        return {prefix + name: value for name, value in fit_params.items()}

    def taken_apart(self, fitted: Any) -> tuple[list[Any], Any]:
        """Return the steps and the model proper of the fitted nest."""
        if self.outer == "RFE":
            return [fitted], fitted.estimator_
        for name in ("best_estimator_", "estimator_"):
            if self.outer in HOLDERS and hasattr(fitted, name):
                fitted = getattr(fitted, name)
                break
        checks = [_Checked()] if self.outer == "self-training" else []
        if self.has_steps:
            steps = [step for name, step in fitted.steps[:-1] if name != "sampler"]
            return [*checks, *steps], fitted.steps[-1][1]
        return checks, fitted


def nest(steps_name: str, outer: str, model: Any, X: Any, categorical: list[int]) -> Nest:
    """Build the estimator of a draw; ``categorical``: columns of X."""
    frame = hasattr(X, "columns")  # a frame of pandas or polars
    names = list(X.columns) if frame else []
    p = X.shape[1]
    numeric = [i for i in range(p) if i not in categorical]
    steps, origins = STEPS[steps_name](p, numeric, categorical, lambda which: _columns(frame, names, which))
    if outer == "sampler":
        steps = [*steps, ("sampler", _sampler())]
    inner = _pipeline(outer)([*steps, ("model", model)]) if steps else model
    if steps and frame and steps_name in ANY_COLUMNS and categorical:
        inner.set_output(transform="pandas")
    estimator = HOLDERS[outer](inner) if outer in HOLDERS else inner
    if outer == "RFE":
        origins = _of_rfe
    return Nest(steps_name, outer, estimator, bool(steps), origins)


def _of_rfe(steps: list[Any]) -> Origins:
    return list(np.flatnonzero(steps[0].support_))


def _sampler() -> Any:
    from imblearn.under_sampling import RandomUnderSampler

    return RandomUnderSampler(random_state=0)


def _pipeline(outer: str) -> Any:
    if outer != "sampler":
        return Pipeline
    import imblearn.pipeline

    return imblearn.pipeline.Pipeline


def _transformer(inner: Any) -> Any:
    from skshapgpu import ShapTransformer

    return ShapTransformer(inner)


#: Wrappers fitted with the pipeline inside.
HOLDERS: dict[str, Callable[[Any], Any]] = {
    "search": lambda inner: GridSearchCV(inner, {}, cv=KFold(2), error_score="raise"),
    "fixed threshold": lambda inner: FixedThresholdClassifier(inner, threshold=0.3),
    "tuned threshold": lambda inner: TunedThresholdClassifierCV(inner, cv=2),
    "RFE": lambda inner: RFE(inner, n_features_to_select=0.7),
    "self-training": lambda inner: SelfTrainingClassifier(inner, max_iter=2),
    "transformer": _transformer,
}


def build(nested: Nest, X: Any, y: np.ndarray, fit_params: dict[str, Any]) -> Fitted:
    """Fit a nest."""
    top = nested.estimator.fit(X, y, **nested.routed(fit_params))
    steps, last = nested.taken_apart(top)
    origins = nested.find_origins([step for step in steps if not isinstance(step, _Checked)])
    top, last = _outside(nested.outer, top, last)
    one_to_one = None not in origins and len(set(origins)) == len(origins)
    return Fitted(top, steps, last, origins, one_to_one)


def _outside(outer: str, top: Any, last: Any) -> tuple[Any, Any]:
    """Return the object to explain, and a model that predicts alike after the steps."""
    if outer == "frozen":
        return FrozenEstimator(top), last
    if outer == "frozen in a pipeline":
        return Pipeline([("same", "passthrough"), ("model", FrozenEstimator(top))]), last
    if outer == "pickled":
        return pickle.loads(pickle.dumps(top)), last
    if outer == "native":
        native = last.get_booster() if library_of(last) == "xgboost" else last.booster_
        return native, native
    if outer == "file":
        return _file_and_model(last)
    return top, last


def _file_and_model(last: Any) -> tuple[Path, Any]:
    """Save the model in a file of its library; return the file and the model that the library reads."""
    library = library_of(last)
    folder = Path(tempfile.mkdtemp(dir=FOLDER))
    path = folder / {"xgboost": "m.ubj", "lightgbm": "m.txt", "catboost": "m.cbm"}[library]
    if library == "xgboost":
        last.save_model(path)
        again = type(last)()
        again.load_model(path)  # which stops at the best round, as last does, but does not know its missing=
        return path, again
    if library == "lightgbm":
        import lightgbm

        last.booster_.save_model(path)
        return path, lightgbm.Booster(model_file=path)
    last.save_model(str(path))
    return path, type(last)().load_model(str(path))


OUTER = [
    "none",
    "none",
    "frozen",
    "search",
    "pickled",
    "frozen in a pipeline",
    "transformer",
    "fixed threshold",
    "tuned threshold",
    "RFE",
    "self-training",
    "sampler",
]

#: Wrappers with the model of the pipeline alone.
SAME_MODEL = ["none", "frozen", "search", "pickled", "frozen in a pipeline", "transformer"]

#: Wrappers of classifiers only; some do not support weights.
OF_CLASSIFIERS = ["fixed threshold", "tuned threshold", "self-training", "sampler"]
WITHOUT_WEIGHTS = ["fixed threshold", "tuned threshold", "RFE", "self-training", "sampler"]

#: Only for a library's own model without steps.
NATIVE = ["native", "file"]
