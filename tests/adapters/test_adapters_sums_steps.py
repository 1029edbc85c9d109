"""Sums whose members are pipelines: values are those of the columns of X, before the steps of each member."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.families import (
    classifier,
    forest,
    forest_classifier,
    regressor,
    values_by_definition,
)
from helpers.sums import FRAME, NUMBERS, TARGETS, THREE, TWO, boosting, in_float64, own_margins
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingRegressor,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    QuantileTransformer,
    StandardScaler,
)

from skshapgpu import ShapTransformer, TreeExplainer, explain, partial_dependence
from skshapgpu.batches import BatchExplainer
from skshapgpu.errors import UnsupportedModelError

ROWS, BACKGROUND = FRAME.iloc[5:9], FRAME.iloc[40:46]
#: Columns of X that are strings, dates in words, and numbers with gaps, which only steps can read.
MIXED = FRAME.assign(
    **{
        "d": np.array(["low", "middle", "high"])[np.clip(FRAME["d"].astype(int), -1, 1)],
        "c": FRAME["c"].where(FRAME["c"] < 1),
    }
)


def moved(*models: Any) -> Pipeline:
    """Return a pipeline that takes three of the columns, in another order, and changes one of them."""
    select = make_column_transformer(("passthrough", ["d", "age"]), (StandardScaler(), ["c"]))
    return make_pipeline(select, *models)


def encoded(*models: Any) -> Pipeline:
    """Return a pipeline that makes several columns of one column."""
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["d"]), (MinMaxScaler(), ["body mass", "age"])
    )
    return make_pipeline(encode, *models)


def filled(*models: Any) -> Pipeline:
    steps = make_column_transformer(
        (SimpleImputer(add_indicator=True), ["c"]), (QuantileTransformer(n_quantiles=20), ["age"])
    )
    return make_pipeline(steps, *models)


#: Models by name: the model, its target and X.
MODELS: dict[str, tuple[Any, Any, Any]] = {
    "all members with steps": (
        VotingRegressor(
            [("moved", moved(forest())), ("encoded", encoded(regressor("lightgbm")))], weights=[1, 2]
        ),
        NUMBERS,
        FRAME,
    ),
    "some members with steps": (
        VotingRegressor(
            [
                ("moved", moved(regressor("xgboost"))),
                ("plain", regressor("sklearn")),
                ("scaled", make_pipeline(StandardScaler(), SelectKBest(k=2), GradientBoostingRegressor())),
                ("encoded", encoded(forest())),
                ("gone", moved(forest())),
            ],
            weights=[3, -1, 0.5, 2, 0],
        ),
        NUMBERS,
        FRAME,
    ),
    "strings and gaps": (
        VotingRegressor([("encoded", encoded(forest())), ("filled", filled(regressor("lightgbm")))]),
        NUMBERS,
        MIXED,
    ),
    "targets": (MultiOutputRegressor(moved(forest())), TARGETS, FRAME),
    "stack": (
        StackingRegressor([("moved", moved(forest())), ("plain", regressor("lightgbm"))], cv=2),
        NUMBERS,
        FRAME,
    ),
    "soft voting": (
        VotingClassifier(
            [("a", moved(forest_classifier())), ("b", encoded(forest_classifier()))], voting="soft"
        ),
        TWO,
        FRAME,
    ),
}


@cache
def fitted(name: str) -> Any:
    model, target, X = MODELS[name]
    return clone(model).fit(X, target)


def own_prediction(name: str, X: Any) -> np.ndarray:
    model = fitted(name)
    if name == "some members with steps":  # XGBoost predicts in float32
        shares = np.array(model.weights) / np.sum(model.weights)
        columns = [_predicted(member, X) for member in model.estimators_]
        return np.column_stack(columns) @ shares
    return own_margins(model, X)


def _predicted(member: Any, X: Any) -> np.ndarray:
    if isinstance(member, Pipeline):
        member, X = member[-1], member[:-1].transform(X)
    return in_float64(member).predict(X)


@pytest.mark.parametrize("name", MODELS)
def test_values_equal_their_definition(name: str) -> None:
    model, X = fitted(name), MODELS[name][2]
    rows, background = X.iloc[5:9], X.iloc[40:46]
    own = np.reshape(own_prediction(name, rows), (4, -1))
    tolerance = 1e-10 * max(1.0, np.abs(own).max())
    expected = values_by_definition(
        lambda table: np.reshape(own_prediction(name, table), (len(table), -1)), rows, background
    )
    explanation = TreeExplainer(model, background, precision="double").explain(rows)
    assert explanation.checked_against == "model" and explanation.feature_names == tuple(X)
    pd.testing.assert_frame_equal(pd.DataFrame(explanation.data), rows)
    assert np.abs(expected).max() > 1e-2
    np.testing.assert_allclose(explanation.values.reshape(expected.shape), expected, rtol=0, atol=tolerance)
    path_dependent = explain(model, rows, precision="double")
    assert path_dependent.checked_against == "model"
    total = path_dependent.values.sum(axis=1) + path_dependent.base_values
    np.testing.assert_allclose(total.reshape(own.shape), own, rtol=0, atol=tolerance)


def test_groups_used_columns_and_interactions() -> None:
    model = fitted("all members with steps")
    groups = {"sizes": ["age", "body mass"]}
    grouped = TreeExplainer(model, BACKGROUND, precision="double", feature_groups=groups).explain(ROWS)
    expected = values_by_definition(model.predict, ROWS, BACKGROUND, [["age", "body mass"], ["c"], ["d"]])
    np.testing.assert_allclose(grouped.values, expected, rtol=0, atol=1e-9)
    only = VotingRegressor([("moved", moved(forest()))]).fit(FRAME, NUMBERS)
    used = explain(only, ROWS, columns="used")
    assert used.feature_names == ("age", "c", "d")
    explainer = TreeExplainer(model, precision="double")
    matrices = explainer.shap_interaction_values(ROWS)
    np.testing.assert_allclose(matrices.sum(axis=2), explainer.shap_values(ROWS), rtol=0, atol=1e-9)


@pytest.mark.parametrize("single", [False, True])
def test_steps_read_x_as_predict_does(single: bool) -> None:
    """Steps that get float32 compute in float32; strings, integers and gaps are those of the steps."""
    model = fitted("some members with steps")
    X = FRAME.astype(np.float32) if single else FRAME
    explanation = explain(model, X)
    assert explanation.checked_against == "model"
    assert explanation.values.dtype == (np.float32 if single else np.float64)
    arrays = VotingRegressor([("a", make_pipeline(KBinsDiscretizer(4), forest())), ("b", forest())])
    arrays.fit(FRAME.to_numpy(), NUMBERS)
    integers = np.round(FRAME.to_numpy()).astype(int)
    for table in (FRAME.to_numpy(), integers, integers.astype(np.float32)):
        values = explain(arrays, table, precision="double")
        assert values.checked_against == "model" and len(values.feature_names) == 4


def test_steps_are_copied() -> None:
    model = clone(MODELS["all members with steps"][0]).fit(FRAME, NUMBERS)
    explainer = TreeExplainer(model, BACKGROUND)
    values = explainer.shap_values(ROWS)
    for member in model.estimators_:
        member[:-1].fit(FRAME * 3 + 1)
    np.testing.assert_array_equal(explainer.shap_values(ROWS), values)
    restored = pickle.loads(pickle.dumps(explainer))
    np.testing.assert_array_equal(restored.shap_values(ROWS), values)
    assert explainer.plan(10_000).n_rows == 10_000
    assert "refitted" not in repr(explainer)


@pytest.mark.usefixtures("on_cpu")
def test_probabilities_of_members_with_steps() -> None:
    members = [("a", moved(boosting())), ("b", encoded(forest_classifier())), ("c", classifier("lightgbm"))]
    model = VotingClassifier(members, voting="soft", weights=[1, 2, 1]).fit(FRAME, THREE)
    explainer = TreeExplainer(model, BACKGROUND, model_output="probability")
    expected = values_by_definition(model.predict_proba, ROWS, BACKGROUND)
    np.testing.assert_allclose(explainer.shap_values(ROWS), expected, rtol=0, atol=1e-10)
    model = CalibratedClassifierCV(moved(boosting()), ensemble=False, cv=2).fit(FRAME, TWO)
    explanation = TreeExplainer(model, BACKGROUND, precision="double").explain(ROWS)
    expected = values_by_definition(lambda X: own_margins(model, X)[:, 0], ROWS, BACKGROUND)
    assert explanation.checked_against == "model"
    np.testing.assert_allclose(explanation.values, expected, rtol=0, atol=1e-10)


def test_inside_a_pipeline_and_a_transformer() -> None:
    model = make_pipeline(
        StandardScaler().set_output(transform="pandas"), clone(MODELS["some members with steps"][0])
    ).fit(FRAME, NUMBERS)
    assert explain(model, ROWS).checked_against == "model"
    transformer = ShapTransformer(clone(MODELS["stack"][0]), precision="double").fit(FRAME, NUMBERS)
    total = np.asarray(transformer.transform(ROWS)).sum(axis=1) + transformer.base_values_
    np.testing.assert_allclose(total, transformer.estimator_.predict(ROWS), rtol=1e-10)


def test_what_is_refused(tmp_path: Path) -> None:
    model = fitted("all members with steps")
    with pytest.raises(ValueError, match="members of the model have steps of their own, which a file cannot"):
        TreeExplainer(model).save(tmp_path / "explainer.npz")
    with pytest.raises(
        UnsupportedModelError, match=r"partial dependence is not computed.*put the steps before"
    ):
        partial_dependence(model, FRAME, ["age"])
    with pytest.raises(UnsupportedModelError, match=r"batches are not explained.*put the steps before"):
        BatchExplainer(model)
    with pytest.raises(ValueError, match="order"):
        explain(model, ROWS[["body mass", "age", "c", "d"]])
    other = VotingRegressor([("a", moved(forest())), ("b", forest())]).fit(FRAME, NUMBERS)
    other.estimators_[1].feature_names_in_ = np.array(["age", "mass", "c", "d"], object)
    with pytest.raises(UnsupportedModelError, match="trained on the same X, with the same names"):
        TreeExplainer(other)
    scaled = VotingRegressor(
        [("a", make_pipeline(StandardScaler(), GradientBoostingRegressor())), ("b", forest())]
    )
    with pytest.raises(ValueError, match="Input X contains NaN"):
        explain(scaled.fit(FRAME, NUMBERS), ROWS.assign(d=np.nan))
