"""GPBoost: values of the fixed effects, with and without random effects, equal their definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.checks import assert_margin, hard_rows
from helpers.definition import assert_adds_up_to, assert_values_equal_definition
from helpers.families import frame_with_categories, library
from helpers.sums_data import FRAME, NUMBERS, SIGNAL, THREE, TWO
from sklearn.exceptions import NotFittedError

from skshapgpu import TreeExplainer, UnsupportedModelError, explain
from skshapgpu.adapters import adapt

gpboost = library("gpboost")

X = FRAME.to_numpy()
PLAIN = pd.DataFrame(X)
ROWS, BACKGROUND = PLAIN.iloc[5:9], PLAIN.iloc[40:46]
GROUPS = np.arange(len(X)) % 12
IS_HIGH = (TWO == "yes").astype(float)

#: Targets of models with random effects, by likelihood; the groups move them.
LIKELIHOODS = {
    "gaussian": NUMBERS + 9 * GROUPS,
    "bernoulli_logit": IS_HIGH,
    "poisson": np.abs(np.round(SIGNAL * 3)),
    "gaussian_heteroscedastic": NUMBERS,
}


def train(y: np.ndarray, gp_model: Any = None, rows: Any = X, **params: Any) -> Any:
    settings = {"learning_rate": 0.3, "max_depth": 3, "min_data_in_leaf": 5, "verbose": -1, "num_threads": 1}
    dataset = gpboost.Dataset(rows, y, free_raw_data=False)
    return gpboost.train(settings | params, dataset, num_boost_round=4, gp_model=gp_model)


def fixed_effects(booster: Any, rows: Any) -> np.ndarray:
    return booster.predict(np.asarray(rows), pred_latent=True, ignore_gp_model=True)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_fixed_effects_beside_random_effects(likelihood: str, tmp_path: Path) -> None:
    effects = gpboost.GPModel(group_data=GROUPS, likelihood=likelihood)
    booster = train(LIKELIHOODS[likelihood], effects)
    assert_values_equal_definition(booster, lambda rows: fixed_effects(booster, rows), ROWS, BACKGROUND)
    if likelihood == "gaussian":
        by_group = booster.predict(X, group_data_pred=GROUPS, pred_latent=True)
        np.testing.assert_array_equal(by_group["fixed_effect"], fixed_effects(booster, X))
        assert np.ptp(by_group["random_effect_mean"]) > 10
    with pytest.raises(ValueError, match="model_output='probability' needs"):
        TreeExplainer(booster, X[:5], model_output="probability")
    booster.save_model(str(tmp_path / "model.json"))
    loaded = gpboost.Booster(model_file=str(tmp_path / "model.json"))
    np.testing.assert_array_equal(explain(loaded, X).values, explain(booster, X).values)


@pytest.mark.parametrize(
    "params",
    [
        {"objective": "regression"},
        {"objective": "binary", "sigmoid": 0.7},
        {"objective": "multiclass", "num_class": 3},
        {"objective": "regression", "boosting": "dart", "drop_rate": 0.5},
        {"objective": "regression", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
    ],
)
def test_boosters_without_random_effects(params: dict[str, Any]) -> None:
    target = {"binary": IS_HIGH, "multiclass": np.searchsorted(["a", "b", "c"], THREE)}
    booster = train(target.get(params["objective"], NUMBERS), **params)
    n_averaged = booster.num_trees() if params.get("boosting") == "rf" else 1
    explanation = assert_values_equal_definition(
        booster, lambda rows: fixed_effects(booster, rows) / n_averaged, ROWS, BACKGROUND
    )
    if params.get("boosting") == "rf":
        assert_adds_up_to(explanation, booster.predict(ROWS.to_numpy()), 1e-7)
    if params["objective"] == "binary":
        probability = TreeExplainer(booster, X[:5], model_output="probability", precision="double")
        assert_adds_up_to(probability.explain(X), booster.predict(X), 1e-10)


def test_trees_decide_as_gpboost_does_on_every_threshold() -> None:
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    for rows, params in (
        (holes, {}),
        (X, {}),
        (holes, {"zero_as_missing": True}),
        (X, {"categorical_feature": [3]}),
    ):
        if params.get("categorical_feature"):
            rows = np.column_stack([X[:, :3], np.abs(X[:, 3])])
        booster = train(NUMBERS, objective="regression", rows=rows, **params)
        ensemble = adapt(booster).ensemble
        hard = hard_rows(ensemble, 1000)
        assert_margin(ensemble, hard, fixed_effects(booster, hard), rtol=1e-15)


def test_categories_of_a_frame() -> None:
    table, y = frame_with_categories()
    booster = train(y, rows=table, objective="regression", min_data_per_group=5, cat_smooth=1)
    assert booster.pandas_categorical
    reordered = table.assign(color=table["color"].cat.set_categories(sorted(set(table["color"]))[::-1]))
    expected = booster.predict(table, pred_latent=True)
    for rows in (table, reordered):
        explanation = explain(booster, rows, precision="double")
        assert_adds_up_to(explanation, expected, 1e-10)
        assert explanation.checked_against == "model"
    assert explanation.feature_names == tuple(table)
    integers = (table["weight"] * 1000).round().astype(np.int64)
    # A frame without floats, whose integers GPBoost rounds to float32.
    counted = table.assign(size=integers, weight=integers + 2**30)
    booster = train(y, rows=counted.assign(weight=integers), objective="regression", min_data_per_group=5)
    with pytest.raises(ValueError, match="pass X as an array of float64"):
        explain(booster, counted)
    assert explain(booster, counted.assign(weight=integers)).checked_against == "model"


def test_wrappers() -> None:
    classifier = gpboost.GPBoostClassifier(n_estimators=3).fit(FRAME, TWO)
    explanation = explain(classifier, FRAME, outputs="all", precision="double")
    assert explanation.output_names == ("no", "yes") and explanation.checked_against == "model"
    margins = classifier.predict(FRAME, raw_score=True)
    assert_adds_up_to(explanation, np.column_stack([-margins, margins]), 1e-12)
    effects = gpboost.GPModel(group_data=GROUPS, likelihood="gaussian")
    regressor = gpboost.GPBoostRegressor(n_estimators=3).fit(FRAME, NUMBERS, gp_model=effects)
    assert_adds_up_to(
        explain(regressor, FRAME, precision="double"), fixed_effects(regressor.booster_, FRAME), 1e-9
    )
    with pytest.raises(NotFittedError, match="GPBoostRegressor is not fitted"):
        explain(gpboost.GPBoostRegressor(), FRAME)
    with pytest.raises(UnsupportedModelError, match="GPModel of gpboost: pass a Booster"):
        explain(gpboost.GPModel(group_data=GROUPS, likelihood="gaussian"), FRAME)


def test_integers_are_rounded_to_float32_or_refused() -> None:
    integers = np.round(X * 1000).astype(np.int64) + 2**30
    booster = train(NUMBERS, objective="regression", rows=integers.astype(float))
    rounded, exact = (booster.predict(rows) for rows in (integers, integers.astype(float)))
    assert (rounded != exact).any()
    assert_adds_up_to(explain(booster, integers, precision="double"), rounded, 1e-9)
    assert_adds_up_to(explain(booster, integers.astype(float), precision="double"), exact, 1e-9)
    np.testing.assert_array_equal(booster.predict(pd.DataFrame(integers)), rounded)
    with pytest.raises(ValueError, match="pass X as an array of float64"):
        explain(booster, pd.DataFrame(integers))
