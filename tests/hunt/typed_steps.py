"""First steps of pipelines that depend on the columns' types: of libraries, and written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
    TargetEncoder,
)

#: The column of plain numbers that every frame has.
NUMBER = "number"


def _texts(series: pd.Series) -> pd.Series:
    """Return each value as a string that shows its type: 1, 1.0 and True differ; so do nan, None and <NA>."""
    return pd.Series([str(value) for value in series], index=series.index, dtype=object)


class ByHand(TransformerMixin, BaseEstimator):
    """A transformer without ``feature_names_in_`` that selects columns by name, and codes their strings."""

    def fit(self, X: pd.DataFrame, y: Any = None) -> ByHand:
        others = [name for name in sorted(X.columns) if name != NUMBER]
        self.codes_ = {
            name: {text: i for i, text in enumerate(sorted(set(_texts(X[name]))))} for name in others
        }
        return self

    def transform(self, X: pd.DataFrame) -> Any:
        columns = {name: _texts(X[name]).map(codes).fillna(-1.0) for name, codes in self.codes_.items()}
        return pd.DataFrame({NUMBER: X[NUMBER].astype(float), **columns}).astype(float)


class ByHandAsArray(ByHand):
    """A step written by hand that returns an array and knows the names of its columns."""

    def transform(self, X: pd.DataFrame) -> np.ndarray:
        return super().transform(X).to_numpy()

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        return np.array([NUMBER, *self.codes_], dtype=object)


class InPlace(TransformerMixin, BaseEstimator):
    """A transformer that keeps the columns, and adds how many of them have the same type as in training."""

    def fit(self, X: pd.DataFrame, y: Any = None) -> InPlace:
        self.known_ = {name: str(dtype) for name, dtype in X.dtypes.items()}
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        alike = sum(str(X[name].dtype) == kind for name, kind in self.known_.items())
        X = X.assign(alike=float(alike))
        return X.assign(**{name: _texts(X[name]).str.len() for name in self.known_ if name != NUMBER})


def _text_of_others(X: pd.DataFrame) -> pd.DataFrame:
    return X.assign(**{name: X[name].astype(str) for name in X.columns if name != NUMBER})


def _text(X: pd.DataFrame) -> pd.DataFrame:
    return X.astype(str)


def _arrow_backed(X: pd.DataFrame) -> pd.DataFrame:
    return X.convert_dtypes(dtype_backend="pyarrow").astype({NUMBER: float})


def _codes(X: pd.DataFrame) -> pd.DataFrame:
    """Return the codes of categories, which depend on the order, and the lengths of other strings."""
    return X.assign(
        **{
            name: X[name].cat.codes
            if isinstance(X[name].dtype, pd.CategoricalDtype)
            else _texts(X[name]).str.len()
            for name in X.columns
            if name != NUMBER
        }
    )


def _lengths(X: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({f"length of {name}": _texts(X[name]).str.len() for name in sorted(X.columns)})


def _numbers(X: pd.DataFrame) -> pd.DataFrame:
    return X[[NUMBER]]


def _one_hot() -> OneHotEncoder:
    return OneHotEncoder(handle_unknown="ignore", sparse_output=False)


def _encoder(step: Any, others: Any) -> ColumnTransformer:
    return ColumnTransformer([("code", step, others), ("rest", "passthrough", [NUMBER])])


def _ordinal() -> OrdinalEncoder:
    return OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2)


#: Functions by name that return named steps; each takes the names of all columns except the numbers.
STEPS: dict[str, Callable[[list[str]], list[tuple[str, Any]]]] = {
    "none": lambda others: [],
    "one-hot": lambda others: [("encode", _encoder(_one_hot(), others))],
    "ordinal": lambda others: [("encode", _encoder(_ordinal(), others))],
    "target encoder": lambda others: [
        ("encode", _encoder(TargetEncoder(cv=2, random_state=0, target_type="continuous"), others))
    ],
    "text of one column": lambda others: [
        ("text", FunctionTransformer(_text_of_others)),
        ("encode", _encoder(_one_hot(), others)),
    ],
    "text of all columns": lambda others: [
        ("text", FunctionTransformer(_text)),
        ("encode", ColumnTransformer([("code", _one_hot(), others), ("rest", StandardScaler(), [NUMBER])])),
    ],
    "by hand": lambda others: [("own", ByHand())],
    "by hand as an array": lambda others: [("own", ByHandAsArray())],
    "by hand in place": lambda others: [("own", InPlace())],
    "union by hand": lambda others: [
        ("union", FeatureUnion([("own", ByHandAsArray()), ("lengths", FunctionTransformer(_lengths))]))
    ],
    "selector of dtypes": lambda others: [
        (
            "encode",
            ColumnTransformer(
                [
                    ("numbers", FunctionTransformer(_numbers), [NUMBER]),
                    ("code", _ordinal(), make_column_selector(pattern="^c")),
                ]
            ),
        )
    ],
    "codes of categories": lambda others: [("codes", FunctionTransformer(_codes))],
    "frame of arrow": lambda others: [
        ("arrow", FunctionTransformer(_arrow_backed)),
        ("encode", _encoder(_ordinal(), others)),
    ],
    "nested": lambda others: [("outer", Pipeline([("own", ByHand()), ("same", "passthrough")]))],
}
