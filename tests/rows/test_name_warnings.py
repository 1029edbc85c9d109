"""A call warns about names of columns once, as ``predict`` of the model warns for X."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.importances import cross_validated_importance
from sklearn.base import clone
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.feature_selection import RFE
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import (
    ShapBeeswarmDisplay,
    ShapDependenceDisplay,
    ShapInteractionTransformer,
    ShapSelector,
    ShapTransformer,
    TreeExplainer,
    cross_val_explain,
    explain,
    explain_batches,
    explain_interactions,
    friedman_h,
    partial_dependence,
    shap_importance,
)

mpl.use("Agg")


RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(80, 3)) * [1, 10, 100], columns=["a", "b", "c"])
Y = (FRAME["a"] + FRAME["b"] / 10 > 0).to_numpy().astype(int)
ARRAY = FRAME.to_numpy()


def messages(call: Callable[[], Any]) -> list[str]:
    """Return the messages about names of columns; any other error ends the test."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    names = [str(w.message) for w in caught if "feature names" in str(w.message)]
    assert all(w.category is UserWarning for w in caught if "feature names" in str(w.message))
    return names


def forms() -> dict[str, Any]:
    """Return the same rows in forms with names and without."""
    frame = {
        "frame": FRAME,
        "array": ARRAY,
        "numbered frame": pd.DataFrame(ARRAY),
        "list": ARRAY.tolist(),
        "sparse": sp.csr_array(ARRAY),
    }
    for name, package in (("polars", "polars"), ("arrow", "pyarrow")):
        try:
            module = __import__(package)
        except ImportError:
            continue
        frame[name] = module.from_pandas(FRAME) if name == "polars" else module.Table.from_pandas(FRAME)
    return frame


def models() -> dict[str, Any]:
    small = {"n_estimators": 3, "random_state": 0}
    result: dict[str, Any] = {
        "tree": DecisionTreeRegressor(max_depth=3),
        "forest": RandomForestClassifier(**small),
        "extra trees": ExtraTreesRegressor(**small),
        "bagging": BaggingClassifier(**small),
        "boosting": GradientBoostingClassifier(**small),
        "histograms": HistGradientBoostingClassifier(max_iter=3),
        "isolation": IsolationForest(**small),
        "search": GridSearchCV(RandomForestClassifier(**small), {"max_depth": [2]}, cv=2),
        "pipeline": make_pipeline(StandardScaler(with_mean=False), RandomForestClassifier(**small)),
        "selection": RFE(RandomForestClassifier(**small), n_features_to_select=2),
        "named pipeline": make_pipeline(
            StandardScaler(with_mean=False).set_output(transform="pandas"), RandomForestClassifier(**small)
        ),
    }
    for package, name, options in (
        ("imblearn.ensemble", "BalancedRandomForestClassifier", small),
        ("lightgbm", "LGBMClassifier", {"n_estimators": 3, "verbose": -1}),
        ("xgboost", "XGBClassifier", small),
        ("catboost", "CatBoostClassifier", {"iterations": 3, "verbose": 0, "allow_writing_files": False}),
    ):
        try:
            module = __import__(package, fromlist=[name])
        except ImportError:
            continue
        result[name] = getattr(module, name)(**options)
    return result


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trained_on", ["frame", "array", "numbered frame"])
@pytest.mark.parametrize("name", models())
def test_warnings_are_those_of_predict(name: str, trained_on: str) -> None:
    model = models()[name].fit(forms()[trained_on], Y)
    n_warnings = n_compared = 0
    for form, X in forms().items():
        try:
            expected = messages(lambda: model.predict(X))  # noqa: B023
            explanation = messages(lambda: explain(model, X))  # noqa: B023
        except Exception as error:  # one of the two does not take these rows
            assert isinstance(error, (ValueError, TypeError)) or type(error).__name__ == "CatBoostError"
            continue
        assert explanation == expected, form
        n_warnings, n_compared = n_warnings + len(expected), n_compared + 1
    assert n_compared >= 3
    if name not in ("LGBMClassifier", "XGBClassifier", "CatBoostClassifier"):
        assert n_warnings


@pytest.mark.filterwarnings("ignore")
def test_native_boosters_do_not_warn() -> None:
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    for booster in (
        lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(FRAME, Y).booster_,
        xgboost.XGBClassifier(n_estimators=3).fit(FRAME, Y).get_booster(),
    ):
        assert messages(lambda: explain(booster, ARRAY)) == []  # noqa: B023


CLASS = "HistGradientBoostingClassifier"
UNNAMED = f"X has feature names, but {CLASS} was fitted without feature names"
NAMED = f"X does not have valid feature names, but {CLASS} was fitted with feature names"


@pytest.mark.parametrize(("trained_on", "X", "expected"), [(ARRAY, FRAME, UNNAMED), (FRAME, ARRAY, NAMED)])
def test_each_call_warns_once(trained_on: Any, X: Any, expected: str, tmp_path: Any) -> None:
    model = HistGradientBoostingClassifier(max_iter=5).fit(trained_on, Y)
    explainer = TreeExplainer(model)
    explainer.save(tmp_path / "e.npz")
    again = pickle.loads(pickle.dumps(explainer))
    calls: list[Callable[[], Any]] = [
        lambda: explain(model, X),
        lambda: explainer.shap_values(X),
        lambda: explainer.shap_values(X[:1]),
        lambda: explainer.shap_interaction_values(X),
        lambda: explain_interactions(model, X, interactions=2),
        lambda: TreeExplainer.load(tmp_path / "e.npz").explain(X),
        lambda: again.explain(X),
        lambda: TreeExplainer(model, memory_limit="1MB").explain(X),
        lambda: TreeExplainer(FrozenEstimator(model)).explain(X),
        lambda: partial_dependence(model, X, 0),
        lambda: friedman_h(model, X),
        lambda: shap_importance(model, X),
        lambda: ShapBeeswarmDisplay.from_estimator(model, X),
        lambda: ShapDependenceDisplay.from_estimator(model, X, 0),
        lambda: explain_batches(model, X, tmp_path / "v.npy", batch_size=16, if_exists="overwrite"),
    ]
    for number, call in enumerate(calls):
        assert messages(call) == [expected], number
    of_data = expected.replace("X ", "data ")
    assert messages(lambda: TreeExplainer(model, X)) == [of_data]
    counted = {"data": X, "feature_perturbation": "tree_path_dependent"}
    assert messages(lambda: TreeExplainer(model, **counted)) == [of_data]


def test_the_last_step_of_a_pipeline_takes_other_rows_than_its_names_say() -> None:
    """A row that is not scaled gets the values of another row, so the warning matters."""
    model = make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=5)).fit(FRAME, Y)
    right = explain(model, FRAME).values
    with pytest.warns(UserWarning, match=UNNAMED):
        wrong = explain(model[-1], FRAME).values
    assert np.abs(right - wrong).max() > 0.1
    assert messages(lambda: explain(model, FRAME)) == []
    scaler = "X does not have valid feature names, but StandardScaler was fitted with feature names"
    assert messages(lambda: explain(model, ARRAY)) == messages(lambda: model.predict(ARRAY)) == [scaler]


def test_files_are_one_source(tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")
    FRAME.to_parquet(tmp_path / "rows.parquet")
    np.save(tmp_path / "rows.npy", ARRAY)
    for trained_on, file, expected in (
        (ARRAY, "rows.parquet", [UNNAMED]),
        (FRAME, "rows.parquet", []),
        (FRAME, "rows.npy", [NAMED]),
        (ARRAY, "rows.npy", []),
    ):
        model = HistGradientBoostingClassifier(max_iter=5).fit(trained_on, Y)
        for options in ({}, {"interactions": "occurring"}):
            arguments = {"batch_size": 16, "if_exists": "overwrite", **options}
            call = partial(explain_batches, model, tmp_path / file, tmp_path / "out", **arguments)
            assert messages(call) == expected
    numbered = pd.DataFrame(ARRAY)
    model = HistGradientBoostingClassifier(max_iter=5).fit(ARRAY, Y)
    assert messages(lambda: explain_batches(model, numbered, tmp_path / "n.npy", batch_size=16)) == []


@pytest.mark.parametrize("X", [FRAME, ARRAY], ids=["frame", "array"])
def test_transformers_warn_once(X: Any) -> None:
    other, small = (ARRAY, FRAME)[X is ARRAY], HistGradientBoostingRegressor(max_iter=3)
    for transformer in (ShapTransformer(small), ShapInteractionTransformer(small, interactions=2)):
        assert messages(lambda: transformer.fit(X, Y)) == []  # noqa: B023
        assert messages(lambda: transformer.transform(X)) == []  # noqa: B023
        for call in (transformer.transform, transformer.explain):
            (message,) = messages(lambda: call(other))  # noqa: B023
            assert type(transformer).__name__ in message
        loaded = transformer.from_fitted(clone(small).fit(X, Y))
        if isinstance(loaded, ShapTransformer):
            (message,) = messages(lambda: loaded.transform(other))  # noqa: B023
            assert "feature names" in message
    frozen = ShapTransformer(FrozenEstimator(clone(small).fit(other, Y)))
    assert len(messages(lambda: frozen.fit(X, Y))) == 1
    (message,) = messages(lambda: frozen.transform(X))
    assert "HistGradientBoostingRegressor" in message


@pytest.mark.parametrize("form", ["frame", "array", "list", "numbered frame"])
def test_no_call_warns_of_rows_that_it_passes_on_itself(form: str) -> None:
    X = forms()[form]
    model = RandomForestClassifier(4, max_depth=3, random_state=0)
    scaled = make_pipeline(StandardScaler(), model)
    named = make_pipeline(StandardScaler().set_output(transform="pandas"), model)
    for estimator in (model, scaled, named):
        fitted = clone(estimator).fit(X, Y)
        name = explain(fitted, X).feature_names[0]
        calls: list[Callable[[], Any]] = [
            partial(explain, fitted, X),
            partial(TreeExplainer(fitted, X).explain, X),
            partial(TreeExplainer, fitted, X),
            partial(cross_val_explain, estimator, X, Y, cv=2),
            partial(cross_validated_importance, estimator, X, Y, cv=2),
            partial(ShapTransformer(estimator, cv=2).fit_transform, X, Y),
            partial(ShapDependenceDisplay.from_estimator, fitted, X, name),
        ]
        if form != "list":
            options: dict[str, Any] = {} if estimator is model else {"feature_groups": "input"}
            calls.append(partial(partial_dependence, fitted, X, 0, grid_resolution=5, **options))
            calls.append(lambda: ShapSelector(clone(model), cv=2).fit(X, Y).transform(X))
        for number, call in enumerate(calls):
            assert messages(call) == [], number
