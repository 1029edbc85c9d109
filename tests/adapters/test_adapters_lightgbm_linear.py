"""LightGBM's linear trees: margins equal ``predict``, values equal the definition by mixed rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import factorial
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers.lightgbm_models import RF, edited, without_sizes

from skshapgpu import TreeExplainer, reference
from skshapgpu.adapters import adapt
from skshapgpu.adapters.lightgbm import read_text

lgb = pytest.importorskip("lightgbm")

pytestmark = [pytest.mark.filterwarnings("ignore:::lightgbm"), pytest.mark.usefixtures("on_cpu")]

#: Rounding errors of predictions and of their sums over 16 coalitions, relative to the largest term. Columns
#: have offsets of at most 1000, for which intercepts of leaves make up.
TOLERANCE = 1e-10

OBJECTIVES = ("regression", "binary", "multiclass", "poisson", "huber")
BOOSTINGS: dict[str, dict[str, Any]] = {
    "gbdt": {"bagging_freq": 1, "bagging_fraction": 0.8},
    "rf": RF,
    "dart": {"boosting": "dart", "drop_rate": 0.5, "skip_drop": 0.0},
    "goss": {"data_sample_strategy": "goss"},
}
N_FEATURES, N_ROWS, ROUNDS = 4, 90, 3


class Drawn(NamedTuple):
    booster: Any
    X: np.ndarray
    margin: Callable[[np.ndarray], np.ndarray]
    rng: np.random.Generator


def drawn(seed: int) -> Drawn:
    """Train a small model on random data: offsets, missing values, categories."""
    rng = np.random.default_rng(seed)
    offset = rng.choice([0.0, 0.0, 100.0, -1000.0], N_FEATURES)
    X = rng.normal(size=(N_ROWS, N_FEATURES)) * rng.choice([1.0, 10.0], N_FEATURES) + offset
    X[:, 3] = rng.integers(0, 5, N_ROWS)
    y = (X[:, 0] - offset[0]) * (X[:, 3] % 2) + np.abs(X[:, 1] - offset[1]) + 0.1 * rng.normal(size=N_ROWS)
    if rng.random() < 0.6:
        X[rng.random(X.shape) < 0.12] = np.nan
    objective = str(rng.choice(OBJECTIVES))
    boosting = str(rng.choice(list(BOOSTINGS)))
    params: dict[str, Any] = {"objective": objective, **BOOSTINGS[boosting]}
    if objective == "binary":
        y = (y > np.median(y)) + 0.0
    if objective == "multiclass":
        y, params["num_class"] = np.digitize(y, np.quantile(y, [0.3, 0.6])) + 0.0, 3
    if objective == "poisson":
        y = np.abs(y)
    if objective == "huber":
        y = y + 50
    params |= {
        "linear_tree": True,
        "linear_lambda": float(rng.choice([0.0, 0.1])),
        "num_leaves": int(rng.integers(2, 9)),
        "min_data_in_leaf": 4,
        "min_data_per_group": 1,
        "cat_smooth": 1.0,
        "use_missing": bool(rng.random() < 0.8),
        "feature_fraction": float(rng.choice([1.0, 0.6])),
        "seed": seed,
        "verbose": -1,
        "num_threads": 1,
    }
    categorical = [3] if rng.random() < 0.5 else []
    booster = lgb.train(params, lgb.Dataset(X, y, categorical_feature=categorical), ROUNDS)
    n_averaged = ROUNDS if boosting == "rf" else 1

    def margin(rows: np.ndarray) -> np.ndarray:
        predictions = booster.predict(rows, raw_score=True)
        return np.reshape(predictions, (len(rows), -1)) / n_averaged

    return Drawn(booster, X, margin, rng)


# Margins


def test_margin_is_that_of_predict() -> None:
    n_linear = n_missing = 0
    for seed in range(40):
        booster, X, margin, rng = drawn(seed)
        ensemble = adapt(booster).ensemble
        hard = X.copy()
        hard[rng.random(X.shape) < 0.1] = np.nan
        hard[rng.random(X.shape) < 0.05] = rng.choice([0.0, -0.0, 1e-36, -1e-36, 1e-35, 1e6, -1e6])
        inner = np.flatnonzero((ensemble.left >= 0) & np.isfinite(ensemble.threshold))
        for node in rng.choice(inner, 20):
            hard[rng.integers(N_ROWS), ensemble.feature[node]] = ensemble.threshold[node]
        expected = margin(hard)
        np.testing.assert_allclose(ensemble.margin(hard), expected, rtol=1e-12, atol=1e-12)
        n_linear += ensemble.has_linear_leaves
        n_missing += not np.array_equal(margin(hard), margin(np.nan_to_num(hard)))
    assert n_linear > 35 and n_missing > 20


def test_single_precision_rows_are_predicted_as_they_are() -> None:
    booster, X, margin, _ = drawn(1)
    ensemble, rows = adapt(booster).ensemble, X.astype(np.float32)
    assert ensemble.x_dtype == "float64"
    np.testing.assert_allclose(ensemble.margin(rows), margin(rows), rtol=1e-12)


def test_offsets_of_targets_and_initial_scores() -> None:
    """The average from which boosting starts is in the first constants; a model has no initial score."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X[:, 0] * X[:, 1] + 1e4
    params = {"objective": "regression", "linear_tree": True, "verbose": -1, "num_threads": 1}
    for init_score in (None, np.full(200, 1e4)):
        booster = lgb.train(params, lgb.Dataset(X, y, init_score=init_score), 5)
        adapted = adapt(booster)
        assert adapted.ensemble.has_linear_leaves
        margins = adapted.ensemble.margin(X)[:, 0]
        np.testing.assert_allclose(margins, booster.predict(X, raw_score=True), rtol=1e-12)
        assert (np.abs(margins) > 5000).all() == (init_score is None)


def test_early_stopping_and_refitted_leaves() -> None:
    _, X, _, rng = drawn(0)
    y = np.nan_to_num(X[:, 0]) + rng.normal(size=N_ROWS)
    model = lgb.LGBMRegressor(n_estimators=40, linear_tree=True, verbose=-1, n_jobs=1, min_child_samples=5)
    model.fit(X, y, eval_set=[(X, rng.permutation(y))], callbacks=[lgb.early_stopping(2, verbose=False)])
    ensemble = adapt(model).ensemble
    assert ensemble.n_trees == model.best_iteration_ < 40
    np.testing.assert_allclose(ensemble.margin(X)[:, 0], model.predict(X), rtol=1e-12)


# Values


@cache
def coalitions(n: int) -> np.ndarray:
    """Return which of n players each coalition has: (2^n, n)."""
    return (np.arange(2**n)[:, np.newaxis] >> np.arange(n) & 1).astype(bool)


def values_by_predict(
    margin: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    background: np.ndarray,
    weights: np.ndarray,
    groups: list[list[int]],
) -> dict[str, np.ndarray]:
    """Compute Shapley and Banzhaf values of groups of columns, (n_groups, n_outputs), by their definition."""
    n = len(groups)
    known = coalitions(n)
    of_column = np.empty(len(x), int)
    for number, columns in enumerate(groups):
        of_column[columns] = number
    mixed = np.where(known[:, np.newaxis, of_column], x, background)
    value = margin(mixed.reshape(-1, len(x))).reshape(2**n, len(background), -1)
    value = np.einsum("sbo,b->so", value, weights)
    values = {name: np.zeros((n, value.shape[1])) for name in ("SV", "BV")}
    for s in range(2**n):
        size = int(known[s].sum())
        for i in np.flatnonzero(~known[s]):
            change = value[s | 1 << i] - value[s]
            values["SV"][i] += change * factorial(size) * factorial(n - size - 1) / factorial(n)
            values["BV"][i] += change / 2 ** (n - 1)
    return values


@pytest.mark.parametrize("first", range(0, 600, 50))
def test_values_are_those_of_predictions(first: int) -> None:
    n_linear = 0
    for seed in range(first, first + 50):
        booster, X, margin, rng = drawn(seed)
        background = X[rng.choice(N_ROWS, 5, replace=False)]
        rows = X[rng.choice(N_ROWS, 2, replace=False)].copy()
        rows[1] = np.where(rng.random(N_FEATURES) < 0.2, np.nan, rows[1] * rng.choice([1.0, 3.0], N_FEATURES))
        weights = rng.random(5) if rng.random() < 0.5 else None
        shares = np.full(5, 0.2) if weights is None else weights / weights.sum()
        grouped = rng.random() < 0.3
        groups = [[0, 2], [1], [3]] if grouped else [[i] for i in range(N_FEATURES)]
        explainer = TreeExplainer(
            booster,
            background,
            data_weight=weights,
            feature_groups={"both": [0, 2]} if grouped else None,
            precision="double",
        )
        n_linear += adapt(booster).ensemble.has_linear_leaves
        assert explainer.feature_perturbation == "interventional"
        base = shares @ margin(background)
        scale = np.abs(margin(np.concatenate([rows, background, X]))).max()
        np.testing.assert_allclose(
            explainer.expected_value, base if len(base) > 1 else base[0], atol=1e-12 * scale
        )
        values_of_index = {index: explainer.explain(rows, index=index).values for index in ("SV", "BV")}
        for i, x in enumerate(rows):
            for index, right in values_by_predict(margin, x, background, shares, groups).items():
                got = values_of_index[index][i].reshape(right.shape)
                np.testing.assert_allclose(
                    got, right, rtol=0, atol=TOLERANCE * scale, err_msg=f"{seed} {index}"
                )
    assert n_linear > 40


def test_reference_is_the_definition_too() -> None:
    for seed in range(10):
        booster, X, margin, _ = drawn(seed)
        ensemble, background = adapt(booster).ensemble, X[:4]
        shapley, base, _ = reference.interventional(ensemble, X[50:52], background)
        banzhaf = reference.interventional(ensemble, X[50:52], background, index="BV").values
        np.testing.assert_allclose(base, margin(background).mean(axis=0), rtol=1e-10)
        weights, groups = np.full(4, 0.25), [[i] for i in range(N_FEATURES)]
        for i, x in enumerate(X[50:52]):
            right = values_by_predict(margin, x, background, weights, groups)
            scale = np.abs(base).max() + np.abs(right["SV"]).max()
            np.testing.assert_allclose(shapley[i].T, right["SV"], rtol=0, atol=TOLERANCE * scale)
            np.testing.assert_allclose(banzhaf[i].T, right["BV"], rtol=0, atol=TOLERANCE * scale)


def test_data_frames_with_categories() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"size": rng.normal(size=150) + 50, "age": rng.normal(size=150)})
    frame["colour"] = pd.Categorical(rng.choice(["red", "green", "blue"], 150))
    y = frame["size"] * (frame["colour"] == "red") + frame["age"]
    model = lgb.LGBMRegressor(
        n_estimators=5, linear_tree=True, verbose=-1, n_jobs=1, min_data_per_group=5, cat_smooth=1.0
    )
    model.fit(frame, y)
    assert (adapt(model).ensemble.category_set >= 0).any() and adapt(model).ensemble.has_linear_leaves
    background, rows = frame.iloc[:5], frame.iloc[100:103]
    explanation = TreeExplainer(model, background, precision="double").explain(rows)
    assert list(explanation.feature_names) == ["size", "age", "colour"]
    for i in range(len(rows)):
        mixtures = []
        for known in coalitions(3):
            mixed = background.copy()
            for column in frame.columns[known]:
                mixed[column] = rows[column].iloc[[i] * 5].to_numpy()
                mixed[column] = mixed[column].astype(frame[column].dtype)
            mixtures.append(mixed)
        predictions = model.predict(pd.concat(mixtures))[:, np.newaxis]
        right = values_by_predict(
            lambda _, predictions=predictions: predictions,
            np.zeros(3),
            np.zeros((5, 3)),
            np.full(5, 0.2),
            [[0], [1], [2]],
        )["SV"][:, 0]
        np.testing.assert_allclose(explanation.values[i], right, rtol=0, atol=1e-10 * np.abs(y).max())


# Texts of models


def test_model_files(tmp_path: Any) -> None:
    booster, X, _, _ = drawn(3)
    path = tmp_path / "model.txt"
    booster.save_model(path)
    background = X[:10]
    expected = TreeExplainer(booster, background).shap_values(X)
    for given in (str(path), path.read_bytes()):
        np.testing.assert_array_equal(TreeExplainer(given, background).shap_values(X), expected)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("leaf_features", 4, r"leaf_features outside the features 0\.\.3"),
        ("leaf_features", -1, r"leaf_features outside the features 0\.\.3"),
        ("leaf_coeff", "nan", "linear leaf with numbers that are not finite"),
        ("leaf_coeff", "inf", "linear leaf with numbers that are not finite"),
        ("leaf_const", "nan", "linear leaf with numbers that are not finite"),
        ("num_features", 3, "needs .* numbers as leaf_features"),
        ("num_features", -1, "num_features outside the text"),
        ("num_features", 2**40, "num_features outside the text"),
        ("num_features", 2**62, "num_features outside the text"),
        ("leaf_const", "", "needs .* numbers as leaf_const"),
        ("leaf_features", "", "needs .* numbers as leaf_features"),
        ("leaf_coeff", "", "needs .* numbers as leaf_coeff"),
        ("num_features", "", "needs .* numbers as num_features"),
    ],
)
def test_edited_texts_are_refused(field: str, value: object, message: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    params = {
        "objective": "regression",
        "linear_tree": True,
        "num_leaves": 6,
        "verbose": -1,
        "num_threads": 1,
    }
    booster = lgb.train(params, lgb.Dataset(X, X[:, 0] * X[:, 1]), 3)
    assert read_text(booster.model_to_string()).ensemble.has_linear_leaves
    with pytest.raises(ValueError, match=message):
        read_text(edited(booster, field, 2, 0, value))


def test_single_leaf_with_a_function() -> None:
    """LightGBM trains no such trees."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    params = {
        "objective": "regression",
        "linear_tree": True,
        "num_leaves": 2,
        "verbose": -1,
        "num_threads": 1,
    }
    text = lgb.train(params, lgb.Dataset(X, X[:, 0]), 1).model_to_string()
    head, _, rest = text.partition("\nTree=0\n")
    tail = rest.partition("\nend of trees")[2]
    tree = "0\nnum_leaves=1\nnum_cat=0\nleaf_value=7\nis_linear=1\nleaf_const=1\nnum_features=2\n"
    tree += "leaf_features=1 0\nleaf_coeff=2 -3\nshrinkage=1\n\n\n"
    adapted = read_text(f"{without_sizes(head)}\nTree={tree}\nend of trees{tail}")
    rows = np.array([[1.0, 10.0], [np.nan, 10.0]])
    np.testing.assert_array_equal(adapted.ensemble.margin(rows)[:, 0], [18, 7])
    explanation = TreeExplainer(adapted, np.zeros((1, 2))).explain(rows)
    # In the second row, the value is 21 if only x[1] is known, and 7 if x[0] is known, with or without x[1].
    np.testing.assert_allclose(explanation.values, [[-3, 20], [(6 + 7 - 21) / 2, (20 + 7 - 7) / 2]])
