"""CatBoost's CTRs: its own predictions and values, the definition for their players, edited exports."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator

from skshapgpu import ShapTransformer, TreeExplainer, cross_val_explain, explain
from skshapgpu.adapters import adapt
from skshapgpu.adapters._catboost_cbm import CbmFile
from skshapgpu.adapters._catboost_ctr import Combination, CtrColumns
from skshapgpu.adapters.catboost import read_document
from skshapgpu.errors import UnsupportedModelError
from skshapgpu.inputs import read
from skshapgpu.reference import (
    interventional_banzhaf,
    interventional_interactions,
    interventional_shap,
    path_dependent_banzhaf,
    path_dependent_interactions,
    path_dependent_shap,
)
from skshapgpu.schema import AdaptedModel, InputSchema

catboost = pytest.importorskip("catboost")
pd = pytest.importorskip("pandas")

OPTIONS = {
    "iterations": 40,
    "depth": 5,
    "learning_rate": 0.3,
    "thread_count": 1,
    "random_seed": 0,
    "one_hot_max_size": 3,
    "max_ctr_complexity": 4,
    "model_size_reg": 0,  # else few combinations are found worth their size
    "allow_writing_files": False,
    "logging_level": "Silent",
}
N_ROWS = 600
CATEGORIES = ["colour", "number", "shape", "letter"]


def rows(seed: int = 0, n_rows: int = N_ROWS, *, nan: bool = False) -> Any:
    """Four categorical columns, of which the third has few enough for one-hot splits, and two numbers."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "colour": rng.choice(["red", "green", "blue", "é漢", "", "x" * 70, "1", "0"], n_rows),
            "x": rng.normal(size=n_rows),
            "number": rng.integers(-5, 20, n_rows),
            "shape": rng.choice(["round", "flat", "none"], n_rows),
            "letter": rng.choice(list("abcdef"), n_rows),
            "z": rng.choice([0.0, 1.0, 2.5], n_rows),
        }
    )
    if nan:
        frame.loc[rng.random(n_rows) < 0.3, "x"] = np.nan
        frame.loc[rng.random(n_rows) < 0.2, "z"] = np.nan
    return frame


def target(frame: Any) -> np.ndarray:
    """What needs combinations of up to four categories, of categories with numbers, and categories alone."""
    colour = frame["colour"].map({c: i for i, c in enumerate(["red", "green", "blue", "é漢", "", "1", "0"])})
    colour, letter = colour.fillna(9).to_numpy(), frame["letter"].map(ord).to_numpy()
    signs = np.where(letter % 2, 1.0, -1.0) * np.where(frame["shape"] == "flat", 1.0, -0.5)
    number = frame["number"].to_numpy()
    return (
        (colour % 3 - 1) * (number % 4 - 1.5) * signs + (frame["x"].fillna(1) > 0) * (letter % 3) + colour / 4
    )


def unseen(frame: Any) -> Any:
    """The same with categories that training did not have, numbers on borders, and what is not finite."""
    frame = frame.copy()
    frame.loc[::7, "colour"] = "new"
    frame.loc[::5, "number"] = 1000
    frame.loc[::11, "shape"] = "unknown"
    frame.loc[::13, "letter"] = "zz"
    frame.loc[::6, "x"] = np.nan
    frame.loc[1::17, "x"] = np.inf
    frame.loc[2::17, "x"] = -np.inf
    return frame


def fit(
    kind: str = "regressor", frame: Any = None, y: np.ndarray | None = None, fit: Any = None, **options: Any
) -> Any:
    frame = rows() if frame is None else frame
    y = target(frame) if y is None else y
    if kind == "classes":
        y = np.digitize(y, [-1, 1])
    elif kind == "binary":
        y = (y > 0).astype(int)
    cls = catboost.CatBoostRegressor if kind == "regressor" else catboost.CatBoostClassifier
    return cls(cat_features=CATEGORIES, **OPTIONS | options).fit(frame, y, **fit or {})


def encoded(adapted: AdaptedModel, X: Any) -> np.ndarray:
    return read(X, adapted.schema, adapted.ensemble.x_dtype).chunk(0, len(X))


def raw(model: Any, X: Any) -> np.ndarray:
    return catboost.CatBoost.predict(model, X, prediction_type="RawFormulaVal").reshape(len(X), -1)


def own_values(model: Any, X: Any) -> np.ndarray:
    """CatBoost's ShapValues, outputs last, and without the base value."""
    pool = catboost.Pool(X, cat_features=CATEGORIES)
    values = model.get_feature_importance(pool, type="ShapValues")[..., :-1]
    return values if values.ndim == 2 else values.swapaxes(1, 2)


def shares(adapted: AdaptedModel) -> np.ndarray:
    """How much each column of X gets of each player."""
    n = adapted.schema.n_features
    matrix = np.zeros((adapted.ensemble.n_players, n))
    matrix[range(n), range(n)] = 1
    for player, columns in enumerate(adapted.shared, n):
        matrix[player, list(columns)] = 1 / len(columns)
    return matrix


def assert_margin(model: Any, X: Any) -> AdaptedModel:
    adapted = adapt(model)
    assert adapted.schema.derived is not None
    expected = raw(model, X)
    margin = adapted.ensemble.margin(encoded(adapted, X))
    np.testing.assert_allclose(margin, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    return adapted


def assert_values(model: Any, X: Any) -> AdaptedModel:
    """Margins and values are CatBoost's, in both precisions."""
    adapted = assert_margin(model, X)
    expected = own_values(model, X)
    scale = np.abs(expected).max()
    assert (np.abs(expected).max(axis=0) > 1e-6 * scale).any()
    for precision, tolerance in (("double", 1e-12), ("single", 2e-6)):
        found = TreeExplainer(model, precision=precision).shap_values(X)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)
    return adapted


def ctr_types(model: Any, folder: Path) -> set[tuple[str, int]]:
    """Type and number of elements of each CTR of the export."""
    ctrs = export(model, folder)["features_info"]["ctrs"]
    return {(ctr["ctr_type"], len(ctr["elements"])) for ctr in ctrs}


def export(model: Any, folder: Path) -> dict[str, Any]:
    path = folder / "model.json"
    model.save_model(str(path), format="json")
    return json.loads(path.read_text(encoding="utf-8"))


# Values


TYPES = {
    "Borders": "Borders",
    "several borders": "Borders:TargetBorderCount=4:Prior=0/1:Prior=0.25/1",
    "Buckets": "Buckets:TargetBorderCount=3",
    "mean": "BinarizedTargetMeanValue:TargetBorderCount=5:Prior=1/1",
    "Counter": "Counter:CtrBorderCount=40:Prior=0.5/1",
}


@pytest.mark.parametrize("kind", ["regressor", "binary", "classes"])
@pytest.mark.parametrize("ctr", TYPES)
@pytest.mark.parametrize("where", ["simple_ctr", "combinations_ctr"])
def test_types(where: str, ctr: str, kind: str, tmp_path: Path) -> None:
    if kind == "binary" and "TargetBorderCount" in TYPES[ctr]:
        ctr_text = TYPES[ctr].replace("TargetBorderCount=4", "TargetBorderCount=1")
        ctr_text = ctr_text.replace("TargetBorderCount=3", "TargetBorderCount=1").replace("=5", "=1")
    else:
        ctr_text = TYPES[ctr]
    other = {"simple_ctr": "combinations_ctr", "combinations_ctr": "simple_ctr"}[where]
    model = fit(kind, **{where: [ctr_text], other: ["Counter" if ctr != "Counter" else "Borders"]})
    name = ctr_text.partition(":")[0]
    assert any(
        found == name and (n > 1) >= (where != "simple_ctr") for found, n in ctr_types(model, tmp_path)
    )
    assert_values(model, unseen(rows(1)))


@pytest.mark.parametrize("max_ctr_complexity", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["regressor", "classes"])
def test_complexity(max_ctr_complexity: int, kind: str) -> None:
    model = fit(kind, max_ctr_complexity=max_ctr_complexity, iterations=60, one_hot_max_size=2)
    adapted = assert_values(model, unseen(rows(1)))
    longest = max(map(len, adapted.shared), default=1)
    assert longest == max_ctr_complexity or (max_ctr_complexity == 4 and longest == 3)


def test_questions_in_combinations() -> None:
    """A CTR may also ask for numbers and for single categories."""
    found: list[Combination] = []
    for nan_mode in ("Min", "Max"):
        frame = rows(nan=True)
        model = fit(frame=frame, nan_mode=nan_mode, iterations=60)
        adapted = assert_values(model, unseen(rows(1, nan=True)))
        found += adapted.schema.derived.combinations
    assert {missing for one in found for *_, missing in one.above} == {False, True}
    assert any(one.equal for one in found)


def test_numbers_on_the_borders_of_combinations() -> None:
    model = fit(iterations=60)
    frame = rows(1, 2000)
    borders = [b for one in adapt(model).schema.derived.combinations for c, b, _ in one.above if c == 1]
    assert borders
    near = np.float32(borders)
    near = np.concatenate([near, np.nextafter(near, np.float32(9)), np.nextafter(near, np.float32(-9))])
    frame["x"] = np.random.default_rng(0).choice(near, len(frame)).astype(np.float64)
    assert_margin(model, frame)


def test_one_hot_splits_and_ctrs_of_a_column_are_one_player() -> None:
    model = fit(iterations=60, one_hot_max_size=10, simple_ctr="Borders")
    adapted = assert_values(model, unseen(rows(1)))
    ensemble = adapted.ensemble
    inner = np.flatnonzero(ensemble.left >= 0)
    one_hot = set(ensemble.feature[inner[ensemble.category_set[inner] >= 0]])
    by_ctr = {c for one in adapted.schema.derived.combinations for c in one.categories}
    assert one_hot and by_ctr
    assert {0, 3, 4} & one_hot


@pytest.mark.parametrize("text", [True, False])
def test_many_categories(text: bool) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 3000, 4000)
    frame = pd.DataFrame({"user": numbers, "x": rng.normal(size=4000), "item": rng.integers(0, 500, 4000)})
    if text:
        frame["user"] = frame["user"].map("user number {}".format)
        frame["item"] = frame["item"].map("an item whose name has more than 32 bytes, {}".format)
    y = np.sin(numbers) + frame["x"] * (numbers % 2)
    options = OPTIONS | {"iterations": 30}
    model = catboost.CatBoostRegressor(cat_features=["user", "item"], **options).fit(frame, y)
    again = frame.head(500).copy()
    again.loc[::3, "user"] = "nobody" if text else -1
    adapted = adapt(model)
    np.testing.assert_allclose(
        adapted.ensemble.margin(encoded(adapted, again))[:, 0], model.predict(again), rtol=0, atol=1e-12
    )
    own = model.get_feature_importance(catboost.Pool(again, cat_features=["user", "item"]), type="ShapValues")
    np.testing.assert_allclose(explain(model, again, precision="double").values, own[:, :-1], atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"counter_calc_method": "Full"},
        {"counter_calc_method": "SkipTest"},
        {"ctr_leaf_count_limit": 5},
        {"store_all_simple_ctr": True, "ctr_leaf_count_limit": 5},
        {"has_time": True},
        {"boosting_type": "Plain"},
        {"boosting_type": "Ordered"},
        {"per_feature_ctr": ["0:Buckets:TargetBorderCount=2:Prior=0.5", "4:Counter:Prior=0"]},
        {"ctr_target_border_count": 3},
        {"loss_function": "MAE"},
    ],
    ids=str,
)
def test_settings(options: dict[str, Any]) -> None:
    assert_values(fit(**options), unseen(rows(1)))


@pytest.mark.parametrize("loss", ["MultiRMSE", "MultiLogloss"])
def test_several_targets(loss: str) -> None:
    frame = rows()
    y = np.column_stack([target(frame), -(target(frame) ** 2)])
    if loss == "MultiLogloss":
        model = fit("several", frame=frame, y=(y > [0, -1]).astype(int), loss_function=loss)
    else:
        model = fit(frame=frame, y=y, loss_function=loss)
    assert assert_values(model, unseen(rows(1))).ensemble.n_outputs == 2


def test_uncertainty() -> None:
    """CatBoost gives values of its first output only."""
    model, X = fit(loss_function="RMSEWithUncertainty"), unseen(rows(1))
    adapted = assert_margin(model, X)
    assert adapted.ensemble.n_outputs == 2
    found = explain(model, X, precision="double").values
    np.testing.assert_allclose(found[..., :1], own_values(model, X), rtol=0, atol=1e-11)


def test_one_against_the_rest() -> None:
    assert assert_values(fit("classes", loss_function="MultiClassOneVsAll"), unseen(rows(1)))


def test_sum_of_models() -> None:
    frame = rows()
    models = [fit(), fit(y=np.abs(target(frame)), random_seed=1, max_ctr_complexity=2)]
    assert_values(catboost.sum_models(models, weights=[1.0, -0.5]), unseen(rows(1)))


def test_scale_and_bias() -> None:
    model = fit()
    model.set_scale_and_bias(-2.0, 3.0)
    assert_margin(model, unseen(rows(1)))


def test_loaded_model(tmp_path: Path) -> None:
    for form in ("cbm", "json"):
        fit().save_model(str(tmp_path / form), format=form)
        model = catboost.CatBoostRegressor().load_model(str(tmp_path / form), format=form)
        assert_values(model, unseen(rows(1)))


@pytest.mark.parametrize("grow_policy", ["Depthwise", "Lossguide"])
def test_other_trees(grow_policy: str) -> None:
    """CatBoost's own values of them do not add up. They have no combinations."""
    model = fit(grow_policy=grow_policy, iterations=8)
    adapted = assert_margin(model, unseen(rows(1)))
    assert adapted.ensemble.n_features > adapted.ensemble.n_players
    X = unseen(rows(1)).head(20)
    expected = path_dependent_shap(adapted.ensemble, encoded(adapted, X))[0][:, 0] @ shares(adapted)
    np.testing.assert_allclose(explain(model, X, precision="double").values, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "quadrature"},
        {"algorithm": "fast_v2"},
        {"algorithm": "treeshap"},
        {"algorithm": "fast_v1"},
        {"n_jobs": 2},
        {"memory_limit": "4MB"},
        {"memory_limit": "20MB"},
    ],
    ids=str,
)
def test_options(options: dict[str, Any], on_cpu: None) -> None:
    model, X = fit(), unseen(rows(1, 5000))
    found = TreeExplainer(model, precision="double", **options).shap_values(X)
    np.testing.assert_allclose(found, own_values(model, X), rtol=0, atol=1e-12)


def edited_model(model: Any, folder: Path, edit: Callable[[dict[str, Any]], None]) -> Any:
    document = export(model, folder)
    edit(document)
    path = folder / "edited.json"
    path.write_text(json.dumps(document))
    return catboost.CatBoostRegressor().load_model(str(path), format="json")


def test_types_that_only_gpus_train(tmp_path: Path) -> None:
    """Their tables are those of other types: CatBoost predicts with them after the export was edited."""
    for old, new in (("BinarizedTargetMeanValue", "FloatTargetMeanValue"), ("Counter", "FeatureFreq")):
        ctr = f"{old}:Prior=0.5/1"

        def edit(document: dict[str, Any], old: str = old, new: str = new) -> None:
            tables = document["ctr_data"]
            for name in [name for name in tables if f'"{old}"' in name]:
                table = tables[name.replace(old, new)] = tables.pop(name)
                if new == "FloatTargetMeanValue":
                    for i in range(1, len(table["hash_map"]), 3):
                        table["hash_map"][i] = table["hash_map"][i] * -0.37 + 1e-3
            for ctr in document["features_info"]["ctrs"]:
                if ctr["ctr_type"] == old:
                    ctr |= {"ctr_type": new, "identifier": ctr["identifier"].replace(old, new)}
                    ctr |= {"prior_denomerator": 2.5, "shift": 0.125}

        before = fit(simple_ctr=[ctr, "Borders"], combinations_ctr=[ctr])
        model = edited_model(before, tmp_path, edit)
        assert {name for name, _ in ctr_types(model, tmp_path)} == {new, "Borders"}
        assert np.abs(model.predict(rows(1)) - before.predict(rows(1))).max() > 0.1
        assert_values(model, unseen(rows(1)))


SEVERAL = ["Borders:TargetBorderCount=1", "Borders:TargetBorderCount=3:TargetBorderType=Uniform"]


@pytest.mark.parametrize(
    "ctrs",
    [
        {"simple_ctr": SEVERAL},
        {"combinations_ctr": SEVERAL},
        {
            "simple_ctr": [ctr.replace("Borders", "Buckets", 1) for ctr in SEVERAL],
            "combinations_ctr": SEVERAL,
        },
        {"simple_ctr": [ctr.replace("Borders", "BinarizedTargetMeanValue", 1) for ctr in SEVERAL]},
    ],
    ids=str,
)
def test_several_binarizations_of_one_type(ctrs: dict[str, list[str]], tmp_path: Path) -> None:
    """CatBoost's export has one table for both: its own prediction from it is another one."""
    model = fit(**ctrs)
    same = edited_model(model, tmp_path, lambda document: None)
    assert np.abs(same.predict(rows()) - model.predict(rows())).max() > 0.1
    assert_values(model, unseen(rows(1)))


# Players


@pytest.fixture(scope="module")
def small() -> Any:
    """Few enough players for the definition."""
    model = fit(iterations=30, depth=4)
    adapted = adapt(model)
    assert len(adapted.shared) >= 3 and adapted.ensemble.n_players <= 12
    assert adapted.ensemble.n_features > adapted.ensemble.n_players
    return model


PRECISIONS = [("double", 1e-11), ("single", 2e-6)]


@pytest.mark.parametrize("precision, tolerance", PRECISIONS)
def test_definition(small: Any, precision: str, tolerance: float) -> None:
    X = unseen(rows(1)).head(15)
    adapted, explainer = adapt(small), TreeExplainer(small, precision=precision)
    S, E = shares(adapted), encoded(adapted, X)
    expected, base = path_dependent_shap(adapted.ensemble, E)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(explainer.shap_values(X), expected[:, 0] @ S, rtol=0, atol=tolerance * scale)
    assert explainer.expected_value == pytest.approx(base[0], rel=1e-12)
    banzhaf = path_dependent_banzhaf(adapted.ensemble, E)[:, 0] @ S
    found = explainer.explain(X, index="bv").values
    np.testing.assert_allclose(found, banzhaf, rtol=0, atol=tolerance * scale)
    for index in ("sii", "stii"):
        expected = S.T @ path_dependent_interactions(adapted.ensemble, E, index)[:, 0] @ S
        assert_interactions(explainer, X, index, expected, tolerance * scale)
        np.testing.assert_allclose(
            expected.sum(axis=2), explainer.shap_values(X), rtol=0, atol=8 * tolerance * scale
        )
    assert_interactions(explainer, X, "bii", banzhaf_matrices(adapted, E, banzhaf), tolerance * scale)


@pytest.mark.parametrize("precision, tolerance", PRECISIONS)
@pytest.mark.parametrize("options", [{}, {"memory_limit": "8MB"}], ids=str)
def test_definition_with_background(
    small: Any, precision: str, tolerance: float, options: dict[str, Any]
) -> None:
    X, data = unseen(rows(1)).head(4), unseen(rows(2)).iloc[:5]
    adapted = adapt(small)
    explainer = TreeExplainer(small, data, precision=precision, **options)
    S, E, B = shares(adapted), encoded(adapted, X), encoded(adapted, data)
    expected, base = interventional_shap(adapted.ensemble, E, B)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(explainer.shap_values(X), expected[:, 0] @ S, rtol=0, atol=tolerance * scale)
    assert explainer.expected_value == pytest.approx(base[0], rel=1e-9)
    banzhaf = interventional_banzhaf(adapted.ensemble, E, B)[:, 0] @ S
    found = explainer.explain(X, index="bv").values
    np.testing.assert_allclose(found, banzhaf, rtol=0, atol=tolerance * scale)
    for index in ("sii", "stii"):
        expected = S.T @ interventional_interactions(adapted.ensemble, E, B, index=index)[:, 0] @ S
        assert_interactions(explainer, X, index, expected, tolerance * scale)


def banzhaf_matrices(adapted: AdaptedModel, E: np.ndarray, banzhaf: np.ndarray) -> np.ndarray:
    """Pairs of players shared, and Banzhaf values on the diagonal."""
    S = shares(adapted)
    of_players = path_dependent_interactions(adapted.ensemble, E, "bii")[:, 0]
    np.einsum("rpp->rp", of_players)[...] = 0
    matrices = S.T @ of_players @ S
    np.einsum("raa->ra", matrices)[...] = banzhaf
    return matrices


def assert_interactions(
    explainer: TreeExplainer, X: Any, index: str, expected: np.ndarray, allowed: float
) -> None:
    found = explainer.explain_interactions(X, index=index).values
    np.testing.assert_allclose(found, expected, rtol=0, atol=8 * allowed)
    assert (found == found.swapaxes(1, 2)).all()
    occurring = explainer.explain_interactions(X, pairs="occurring", index=index)
    first, second = occurring.pairs.T
    np.testing.assert_allclose(occurring.values, 2 * expected[:, first, second], rtol=0, atol=8 * allowed)
    others = np.ones(expected.shape[1:], bool)
    others[first, second] = others[second, first] = False
    np.fill_diagonal(others, False)
    assert (np.abs(expected[:, others]) <= 8 * allowed).all()
    np.testing.assert_array_equal(occurring.pairs, explainer.occurring_pairs())
    listed = [("letter", "colour"), (1, 5), ("number", "letter")]
    positions = np.array([(4, 0), (1, 5), (2, 4)])
    found = explainer.explain_interactions(X, pairs=listed, index=index).values
    np.testing.assert_array_equal(found, 2 * dense(explainer, X, index)[:, positions[:, 0], positions[:, 1]])
    strongest = explainer.explain_interactions(X, pairs=3, index=index)
    mean = np.abs(occurring.values).mean(axis=0)
    np.testing.assert_allclose(np.sort(strongest.strength)[::-1], np.sort(mean)[::-1][:3], rtol=1e-6)


def dense(explainer: TreeExplainer, X: Any, index: str) -> np.ndarray:
    return explainer.explain_interactions(X, index=index).values


def test_interactions_of_several_outputs() -> None:
    model, X = fit("classes"), unseen(rows(1)).head(50)
    explainer = TreeExplainer(model, precision="double")
    matrices = explainer.shap_interaction_values(X)
    assert matrices.shape == (50, 6, 6, 3)
    np.testing.assert_allclose(matrices.sum(axis=2), explainer.shap_values(X), rtol=0, atol=1e-12)


def test_both_classes() -> None:
    model, X = fit("binary"), unseen(rows(1)).head(50)
    both = TreeExplainer(model, outputs="all", precision="double").shap_values(X)
    np.testing.assert_allclose(both[..., 1], own_values(model, X), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(both[..., 0], -both[..., 1])


def test_probability() -> None:
    model, X, data = fit("binary"), unseen(rows(1)).head(20), rows(2).head(10)
    explanation = TreeExplainer(model, data, model_output="probability", precision="double").explain(X)
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, model.predict_proba(X)[:, 1], rtol=0, atol=1e-10)


def test_triples_are_refused(on_cpu: None) -> None:
    explainer = TreeExplainer(fit())
    with pytest.raises(ValueError, match=r"share contributions.*order=2"):
        explainer.explain_interactions(rows(1).head(2), pairs="occurring", order=3)
    with pytest.raises(ValueError, match="share contributions"):
        explainer.occurring_pairs(order=3)


def test_triples_of_ctrs_of_single_columns(on_cpu: None) -> None:
    model = fit(max_ctr_complexity=1)
    assert not adapt(model).shared
    found = TreeExplainer(model).explain_interactions(rows(1).head(4), pairs="occurring", order=3)
    assert np.abs(found.values).max() > 0


# X


def test_kinds_of_tables() -> None:
    model, X = fit(), unseen(rows(1)).head(60)
    explainer = TreeExplainer(model)
    expected = explainer.shap_values(X)
    tables = [X.to_numpy(object), X.astype({"colour": "category", "letter": "string"})]
    if (polars := sys.modules.get("polars")) is not None:
        tables.append(polars.from_pandas(X))
    for table in tables:
        np.testing.assert_array_equal(explainer.shap_values(table), expected)


def test_sparse_rows_and_whole_numbers() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, (400, 3))
    model = catboost.CatBoostRegressor(cat_features=[0, 2], **OPTIONS).fit(
        X, X[:, 0] * (X[:, 2] % 3) + X[:, 1]
    )
    explainer = TreeExplainer(model, precision="double")
    assert adapt(model).schema.derived is not None
    own = model.get_feature_importance(catboost.Pool(X, cat_features=[0, 2]), type="ShapValues")[:, :-1]
    for table in (X, sparse.csr_matrix(X), X.astype(np.int8), np.asfortranarray(X)):
        np.testing.assert_allclose(explainer.shap_values(table), own, rtol=0, atol=1e-12)


def test_refused_category_is_named() -> None:
    X = rows(1).head(5).astype({"number": object})
    X.loc[3, "number"] = 1.5
    with pytest.raises(ValueError, match=r"column 'number'.*holds 1\.5"):
        TreeExplainer(fit()).shap_values(X)


def test_no_rows() -> None:
    assert TreeExplainer(fit()).shap_values(rows(1).head(0)).shape == (0, 6)


def test_rows_on_a_gpu_are_refused(gpu: None) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="categorical columns"):
        TreeExplainer(fit()).shap_values(torch.zeros((2, 6), device="cuda"))


@pytest.mark.usefixtures("gpu")
def test_gpu() -> None:
    X = unseen(rows(1))
    for kind in ("regressor", "classes"):
        model = fit(kind)
        scale = np.abs(own_values(model, X)).max()
        for precision, tolerance in PRECISIONS:
            explainer = TreeExplainer(model, precision=precision, device="cuda")
            found = explainer.shap_values(X)
            np.testing.assert_allclose(found, own_values(model, X), rtol=0, atol=tolerance * scale)
            on_cpu = TreeExplainer(model, precision="double", device="cpu").shap_interaction_values(
                X.head(50)
            )
            found = explainer.shap_interaction_values(X.head(50))
            np.testing.assert_allclose(found, on_cpu, rtol=0, atol=8 * tolerance * scale)


def test_progress_and_chunks_change_no_bit(on_cpu: None) -> None:
    model, X = fit(), unseen(rows(1, 9000))
    expected = TreeExplainer(model).shap_values(X)
    told: list[int] = []
    np.testing.assert_array_equal(
        explain(model, X, progress=lambda done, n: told.append(done)).values, expected
    )
    assert told[-1] == 9000
    parts = [TreeExplainer(model).shap_values(X[i : i + 1234]) for i in range(0, 9000, 1234)]
    np.testing.assert_array_equal(np.concatenate(parts), expected)


# What explainers are used in


def test_pickle_and_file(tmp_path: Path) -> None:
    explainer, X = TreeExplainer(fit()), unseen(rows(1))
    explainer.save(tmp_path / "file")
    for other in (pickle.loads(pickle.dumps(explainer)), TreeExplainer.load(tmp_path / "file")):
        np.testing.assert_array_equal(other.shap_values(X), explainer.shap_values(X))
        np.testing.assert_array_equal(
            other.shap_interaction_values(X.head(9)), explainer.shap_interaction_values(X.head(9))
        )


def test_loading_needs_no_catboost(tmp_path: Path) -> None:
    explainer, X = TreeExplainer(fit("classes"), rows(2).head(9), device="cpu"), unseen(rows(1))
    explainer.save(tmp_path / "file")
    X.to_pickle(tmp_path / "rows")
    np.save(tmp_path / "values.npy", explainer.shap_values(X))
    code = """
import os, sys, numpy, pandas
sys.modules["catboost"] = None
from skshapgpu import TreeExplainer
folder = sys.argv[1]
explainer = TreeExplainer.load(os.path.join(folder, "file"), device="cpu")
values = explainer.shap_values(pandas.read_pickle(os.path.join(folder, "rows")))
assert (values == numpy.load(os.path.join(folder, "values.npy"))).all()
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


@pytest.mark.skipif(
    not hasattr(catboost.CatBoostRegressor, "__sklearn_tags__"),
    reason="this CatBoost is no estimator of later releases of scikit-learn",
)
def test_scikit_learn() -> None:
    frame = rows()
    y = target(frame)
    model = fit(iterations=5)
    found = ShapTransformer(FrozenEstimator(model)).fit(frame, y).transform(frame)
    np.testing.assert_array_equal(found, explain(model, frame).values)
    model = catboost.CatBoostRegressor(
        **OPTIONS | {"iterations": 5}
    )  # one with cat_features cannot be cloned
    result = cross_val_explain(model, frame, y, cv=3, params={"cat_features": CATEGORIES})
    assert result["explanation"].values.shape == (N_ROWS, 6)


# Edited exports and files


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    ctrs = ["Borders", "Buckets:TargetBorderCount=2", "BinarizedTargetMeanValue", "Counter"]
    model = fit(iterations=12, simple_ctr=ctrs, combinations_ctr=ctrs)
    found = export(model, tmp_path_factory.mktemp("export"))
    types = {ctr["ctr_type"] for ctr in found["features_info"]["ctrs"]}
    assert types == {ctr.partition(":")[0] for ctr in ctrs}
    return found


def paths_of(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in items:
        yield from paths_of(child, (*path, key))


WRONG = ["delete", None, -1, 3, 1e9, 10**30, "text", "7", [], {}, math.nan, math.inf, True]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_edited_document_never_crashes(document: dict[str, Any], wrong: Any) -> None:
    """Any one field of CTRs replaced: an error that callers expect, or a model that computes."""
    places = [("features_info", "ctrs", *path) for path in paths_of(document["features_info"]["ctrs"])]
    for name, table in document["ctr_data"].items():
        found = list(paths_of(table))
        places += [("ctr_data", name, *path) for path in [*found[:4], *found[-4:]]]
    places += [
        ("ctr_data",),
        ("features_info", "ctrs"),
        *(("ctr_data", name) for name in document["ctr_data"]),
    ]
    X, refused = rows(1).head(3), 0
    for path in places[::7]:
        edited = copy.copy(document)
        parent: Any = edited
        for key in path[:-1]:
            parent[key] = copy.copy(parent[key])
            parent = parent[key]
        if wrong == "delete":
            del parent[path[-1]]
        else:
            parent[path[-1]] = wrong
        try:
            ensemble, encoders, derived, shared = read_document(edited, 6)
        except (ValueError, UnsupportedModelError):
            refused += 1
            continue
        schema = InputSchema(6, encoders=encoders, derived=derived)
        adapted = AdaptedModel(ensemble, schema, "catboost", shared=shared)
        assert ensemble.margin(encoded(adapted, X)).shape == (3, 1)
    assert refused


def first_ctr(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(ctr for ctr in document["features_info"]["ctrs"] if ctr["ctr_type"] == kind)


def first_table(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return document["ctr_data"][first_ctr(document, kind)["identifier"]]


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: first_ctr(d, "Borders").update(target_border_idx=1),
        lambda d: first_ctr(d, "Borders").update(target_border_idx=-1),
        lambda d: first_ctr(d, "Buckets").update(target_border_idx=3),
        lambda d: first_ctr(d, "Borders").update(borders=[0.5]),
        lambda d: first_ctr(d, "Borders").update(prior_numerator=math.nan),
        lambda d: first_ctr(d, "Borders").update(scale=1e39),
        lambda d: first_ctr(d, "Borders").update(identifier="another"),
        lambda d: first_ctr(d, "Borders").update(identifier=first_ctr(d, "Counter")["identifier"]),
        lambda d: first_ctr(d, "Borders").update(elements=[]),
        lambda d: first_ctr(d, "Borders")["elements"][0].update(cat_feature_index=9),
        lambda d: first_table(d, "Borders").update(hash_stride=2),
        lambda d: first_table(d, "Borders").update(hash_stride=0),
        lambda d: first_table(d, "Borders").update(hash_stride=-3),
        lambda d: first_table(d, "Borders").update(hash_stride=10**12),
        lambda d: first_table(d, "Borders").update(hash_stride=10**12, hash_map=[]),
        lambda d: first_table(d, "Counter").update(hash_stride=3),
        lambda d: first_table(d, "Counter").update(counter_denominator=math.inf),
        lambda d: first_table(d, "BinarizedTargetMeanValue").update(hash_stride=2),
        lambda d: first_table(d, "Borders")["hash_map"].pop(),
        lambda d: first_table(d, "Borders")["hash_map"].extend(first_table(d, "Borders")["hash_map"][-3:]),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(0, "18446744073709551616"),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(0, "-1"),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(0, "0x7"),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(0, 1.0),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(1, -1),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(1, 2**31),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(1, 1.5),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(1, [1]),
        lambda d: first_table(d, "BinarizedTargetMeanValue")["hash_map"].__setitem__(1, 1e39),
        lambda d: first_table(d, "BinarizedTargetMeanValue")["hash_map"].__setitem__(1, math.nan),
        lambda d: d["ctr_data"].clear(),
    ],
)
def test_edited_document(document: dict[str, Any], edit: Callable[[dict[str, Any]], Any]) -> None:
    edited = copy.deepcopy(document)
    read_document(edited, 6)
    edit(edited)
    with pytest.raises(ValueError):
        read_document(edited, 6)


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: first_ctr(d, "Borders").update(ctr_type="Medians"),
        lambda d: first_ctr(d, "Borders")["elements"][0].update(combination_element="estimated_feature"),
    ],
)
def test_unknown_kinds_are_refused(document: dict[str, Any], edit: Callable[[dict[str, Any]], Any]) -> None:
    edited = copy.deepcopy(document)
    edit(edited)
    with pytest.raises(UnsupportedModelError, match=r"Medians|estimated_feature"):
        read_document(edited, 6)


def test_split_of_no_ctr(document: dict[str, Any]) -> None:
    for number in (-1, 0, 10**9, 2**70, 1.5):
        edited = copy.deepcopy(document)
        tree = next(
            t for t in edited["oblivious_trees"] if any("ctr_target_border_idx" in s for s in t["splits"])
        )
        next(s for s in tree["splits"] if "ctr_target_border_idx" in s)["split_index"] = number
        with pytest.raises(ValueError):
            read_document(edited, 6)


def changed(columns: CtrColumns, **values: Any) -> CtrColumns:
    return dataclasses.replace(columns, **values)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: changed(c, n_features=2),
        lambda c: changed(c, keys=c.keys[::-1]),
        lambda c: changed(c, keys=c.keys[:-1]),
        lambda c: changed(c, keys=c.keys.astype(np.int64)),
        lambda c: changed(c, numbers=c.numbers[:-1]),
        lambda c: changed(c, numbers=c.numbers * np.float32(np.inf)),
        lambda c: changed(c, numbers=c.numbers[np.newaxis]),
        lambda c: changed(c, combination=c.combination + 10**6),
        lambda c: changed(c, combination=c.combination - 10**6),
        lambda c: changed(c, combination=c.combination[:-1]),
        lambda c: changed(c, good=c.good + 99),
        lambda c: changed(c, good=c.good - 99),
        lambda c: changed(c, total=c.total - 99),
        lambda c: changed(c, constants=c.constants[:, :4]),
        lambda c: changed(c, constants=c.constants * np.float32(np.nan)),
        lambda c: changed(c, combinations=c.combinations[:-1]),
        lambda c: changed(
            c, combinations=[dataclasses.replace(one, categories=()) for one in c.combinations]
        ),
        lambda c: changed(
            c, combinations=[dataclasses.replace(one, categories=(6,)) for one in c.combinations]
        ),
        lambda c: changed(c, combinations=[dataclasses.replace(one, n_keys=-1) for one in c.combinations]),
        lambda c: changed(
            c,
            combinations=[dataclasses.replace(one, above=((1, math.nan, False),)) for one in c.combinations],
        ),
    ],
)
def test_derived_columns_that_contradict_themselves(
    document: dict[str, Any], change: Callable[[CtrColumns], CtrColumns]
) -> None:
    """As a damaged file has them."""
    derived = read_document(document, 6).derived
    assert derived is not None
    changed(derived)
    with pytest.raises((ValueError, np.exceptions.DTypePromotionError)), np.errstate(all="ignore"):
        change(derived)


def test_adapted_models_that_contradict_themselves(document: dict[str, Any]) -> None:
    ensemble, encoders, derived, shared = read_document(document, 6)
    schema = InputSchema(6, encoders=encoders, derived=derived)
    assert AdaptedModel(ensemble, schema, "catboost", shared=shared).shared == shared
    for wrong in (
        shared[1:],
        (*shared[1:], ()),
        (*shared[1:], (0, 6)),
        (*shared[1:], (2, 2)),
        (*shared, (0, 2)),
    ):
        with pytest.raises(ValueError):
            AdaptedModel(ensemble, schema, "catboost", shared=wrong)
    with pytest.raises(ValueError):
        AdaptedModel(ensemble, InputSchema(6, encoders=encoders), "catboost", shared=shared)
    with pytest.raises(ValueError, match="encoders"):
        InputSchema(6, derived=derived)
    with pytest.raises(ValueError, match="other columns"):
        InputSchema(7, encoders=encoders, derived=derived)


@pytest.mark.parametrize("cut", [0, 3, 7, 20, 300, 3000, -1000, -8, -1])
def test_cut_off_file_of_catboost(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "model.cbm"
    fit(iterations=3).save_model(str(path), format="cbm")
    data = path.read_bytes()
    assert CbmFile(data).tables()
    with pytest.raises(ValueError, match="cannot read"):
        CbmFile(data[:cut]).tables()


def test_file_of_several_binarizations(tmp_path: Path) -> None:
    path = tmp_path / "model.cbm"
    model = fit(simple_ctr=SEVERAL, iterations=10)
    model.save_model(str(path))
    adapted = adapt(str(path))
    expected = raw(model, rows(1))
    np.testing.assert_allclose(
        adapted.ensemble.margin(encoded(adapted, rows(1))), expected, rtol=0, atol=1e-12
    )
