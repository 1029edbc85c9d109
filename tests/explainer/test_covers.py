"""The option ``cover``: path-dependent values weight branches by the number or weight of training rows."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.families import library, regressor
from sklearn.datasets import load_diabetes
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)

from skshapgpu import (
    ShapInteractionTransformer,
    ShapTransformer,
    TreeExplainer,
    UnsupportedModelError,
    explain,
    reference,
)
from skshapgpu.adapters import adapt

X, Y = load_diabetes(return_X_y=True)
X = X[:, :6]
CLASSES = np.digitize(Y, [110.0, 200.0])
WEIGHT = np.random.default_rng(0).uniform(0.1, 9.0, len(Y))


def lightgbm_model(n_classes: int, **options: Any) -> Any:
    lightgbm = library("lightgbm")
    cls = lightgbm.LGBMClassifier if n_classes else lightgbm.LGBMRegressor
    y = {0: Y, 2: CLASSES > 0, 3: CLASSES}[n_classes]
    model = cls(n_estimators=6, num_leaves=12, verbose=-1, random_state=0, **options)
    return model.fit(X, y, sample_weight=WEIGHT)


def dumped(model: Any) -> np.ndarray:
    """Return the nodes' Hessians as LightGBM prints them: inner nodes by their number, then leaves."""
    covers = []
    for tree in model.booster_.dump_model()["tree_info"]:
        n_leaves = tree["num_leaves"]
        cover = np.zeros(2 * n_leaves - 1)
        nodes = [tree["tree_structure"]]
        for node in nodes:
            if "split_index" in node:
                cover[node["split_index"]] = node["internal_weight"]
                nodes += [node["left_child"], node["right_child"]]
            else:
                cover[n_leaves - 1 + node.get("leaf_index", 0)] = node.get("leaf_weight", 0.0)
        if not cover[0]:  # LightGBM 4.0 prints 0 for the root
            cover[0] = cover[n_leaves - 1 :].sum()
        covers.append(cover)
    return np.concatenate(covers)


@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("options", [{}, {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}])
def test_lightgbm_hessians(n_classes: int, options: dict[str, Any]) -> None:
    model = lightgbm_model(n_classes, **options)
    adapted = adapt(model).with_cover("weight")
    ensemble = adapted.ensemble
    assert adapted.cover_kind == "weight" and ensemble.n_nodes > 60
    # LightGBM prints the Hessians of inner nodes with six digits.
    np.testing.assert_allclose(ensemble.cover, dumped(model), rtol=1e-5)
    assert (abs(ensemble.cover - adapt(model).ensemble.cover) > 1e-3 * ensemble.cover).mean() > 0.9
    expected, base_value, _ = reference.path_dependent(replace(ensemble, cover=dumped(model)), X[:20])
    explainer = TreeExplainer(model, cover="weight", device="cpu", precision="double")
    scale = np.abs(expected).max()
    values = explainer.shap_values(X[:20]).reshape(20, 6, -1).transpose(0, 2, 1)
    np.testing.assert_allclose(values, expected, rtol=0, atol=2e-5 * scale)
    np.testing.assert_allclose(np.ravel(explainer.expected_value), base_value, rtol=0, atol=2e-5 * scale)
    counted = TreeExplainer(model, device="cpu", precision="double").shap_values(X[:20])
    assert abs(counted.reshape(20, 6, -1).transpose(0, 2, 1) - expected).max() > 1e-3 * scale


def test_lightgbm_trees_of_one_leaf() -> None:
    lightgbm = library("lightgbm")
    model = lightgbm.LGBMRegressor(n_estimators=3, min_child_samples=500, verbose=-1).fit(X, Y)
    assert TreeExplainer(model, cover="weight", device="cpu").expected_value == pytest.approx(Y.mean())


def test_lightgbm_text_without_its_weights() -> None:
    from skshapgpu.adapters import lightgbm as reader

    text = lightgbm_model(0).booster_.model_to_string()
    lines = [line for line in text.split("\n") if not line.startswith(("leaf_weight=", "tree_sizes="))]
    adapted = reader.read_text("\n".join(lines))
    with pytest.raises(ValueError, match="no leaf_weight"):
        adapted.with_cover("weight")


@pytest.mark.parametrize(
    "model, y",
    [
        (RandomForestRegressor(6, max_depth=5, random_state=0), Y),
        (GradientBoostingClassifier(n_estimators=5, subsample=0.7, random_state=0), CLASSES),
        (ExtraTreesClassifier(6, max_depth=6, random_state=0), CLASSES),
    ],
)
def test_scikit_learn_counts(model: Any, y: Any) -> None:
    model.fit(X, y, sample_weight=WEIGHT)
    members = np.ravel(model.estimators_)
    counted, weighted = (adapt(model).with_cover(kind).ensemble for kind in ("count", "weight"))
    np.testing.assert_array_equal(
        counted.cover, np.concatenate([member.tree_.n_node_samples for member in members])
    )
    np.testing.assert_array_equal(
        weighted.cover, np.concatenate([member.tree_.weighted_n_node_samples for member in members])
    )
    expected, base_value, _ = reference.path_dependent(counted, X[:10])
    explanation = explain(model, X[:10], cover="count", device="cpu", precision="double")
    values = explanation.values.reshape(10, 6, -1).transpose(0, 2, 1)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10 * np.abs(expected).max())
    np.testing.assert_allclose(np.ravel(explanation.base_values), base_value, rtol=1e-12)
    assert (
        abs(explain(model, X[:10], device="cpu").values - explanation.values).max() > 1e-3 * abs(values).max()
    )


@pytest.mark.parametrize("kind", ["count", "weight"])
def test_treelite_has_those_of_its_model(kind: str) -> None:
    treelite = library("treelite")
    model = RandomForestRegressor(4, max_depth=5, random_state=0).fit(X, Y, sample_weight=WEIGHT)
    ensemble, own = (
        adapt(m).with_cover(kind).ensemble for m in (treelite.sklearn.import_model(model), model)
    )
    np.testing.assert_array_equal(ensemble.cover, own.cover)
    assert adapt(model).cover_kind == "weight"


@pytest.mark.parametrize(
    "family, has, has_not",
    [
        ("xgboost", "weight", "count"),
        ("catboost", "weight", "count"),
        ("hist", "count", "weight"),
    ],
)
def test_what_a_model_does_not_have_is_refused(family: str, has: str, has_not: str) -> None:
    model = HistGradientBoostingRegressor(max_iter=3) if family == "hist" else regressor(family)
    model.fit(X, Y)
    auto, same = (TreeExplainer(model, cover=kind, device="cpu").shap_values(X) for kind in ("auto", has))
    np.testing.assert_array_equal(auto, same)
    with pytest.raises(UnsupportedModelError, match=f"cover='{has_not}'.* has no {has_not}s"):
        TreeExplainer(model, cover=has_not)


def test_contradictions() -> None:
    model = RandomForestRegressor(3, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="cover must be one of"):
        TreeExplainer(model, cover="hessian")
    with pytest.raises(ValueError, match="cover='count' selects covers that the model stores"):
        TreeExplainer(model, X, cover="count")
    with pytest.raises(ValueError, match="cover must be one of"):
        ShapTransformer(model, cover=1).fit(X, Y)


def test_files_pickles_and_transformers_keep_it(tmp_path: Path) -> None:
    model = RandomForestRegressor(5, max_depth=4, random_state=0)
    options = {"cover": "count", "device": "cpu"}
    transformer = ShapTransformer(model, **options).fit(X, Y, sample_weight=WEIGHT)
    explainer = TreeExplainer(transformer.estimator_, **options)
    expected = explainer.shap_values(X)
    weighted = TreeExplainer(transformer.estimator_, device="cpu").shap_values(X)
    assert abs(expected - weighted).max() > 1e-3 * abs(expected).max()
    explainer.save(tmp_path / "file")
    pairs = ShapInteractionTransformer(model, **options).fit(X, Y, sample_weight=WEIGHT)
    for values in (
        transformer.transform(X),
        TreeExplainer.load(tmp_path / "file", device="cpu").shap_values(X),
        pickle.loads(pickle.dumps(explainer)).shap_values(X),
    ):
        np.testing.assert_array_equal(values, expected)
    explanation = TreeExplainer(pairs.estimator_, **options).explain_interactions(
        X, interactions=pairs.interactions_
    )
    assert explanation.values.any()
    np.testing.assert_array_equal(pairs.transform(X), explanation.values)
