"""The trees that shap and patch_shap explain: early stopping, limits, and models trained further."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import ShapFallbackWarning, TreeExplainer, patch_shap

shap = pytest.importorskip("shap", minversion="0.45")

from helpers.shap_models import DIABETES, PROGRESSION, assert_same, assert_same_base, only_ours  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("error::skshapgpu.ShapFallbackWarning"),
    pytest.mark.filterwarnings("ignore:LightGBM binary classifier with TreeExplainer:UserWarning"),
]

TRAINED, VALIDATED, ROWS = DIABETES[:300, :5], DIABETES[300:, :5], DIABETES[::20, :5]
TARGET = PROGRESSION - 1e4  # in float32, shap's values of a target far from zero have few digits
CLASSES = np.digitize(TARGET, np.quantile(TARGET, [1 / 3, 2 / 3]))


def xgboost_stopped_early(y: np.ndarray = TARGET, **params: Any) -> Any:
    xgboost = pytest.importorskip("xgboost")
    rows, others = (
        xgboost.DMatrix(X, y[part]) for X, part in ((TRAINED, slice(300)), (VALIDATED, slice(300, None)))
    )
    params = {"max_depth": 3, "learning_rate": 0.6, "nthread": 1, **params}
    booster = xgboost.train(
        params, rows, 60, evals=[(others, "others")], early_stopping_rounds=4, verbose_eval=False
    )
    assert booster.best_iteration + 1 < booster.num_boosted_rounds()
    return booster


def lightgbm_stopped_early(y: np.ndarray = TARGET, **params: Any) -> Any:
    lightgbm = pytest.importorskip("lightgbm")
    rows = lightgbm.Dataset(TRAINED, y[:300])
    params = {"learning_rate": 0.6, "num_leaves": 6, "verbose": -1, "num_threads": 1, **params}
    booster = lightgbm.train(
        params,
        rows,
        60,
        valid_sets=[lightgbm.Dataset(VALIDATED, y[300:], reference=rows)],
        callbacks=[lightgbm.early_stopping(4, verbose=False)],
        keep_training_booster=True,
    )
    assert 0 < booster.best_iteration < booster.current_iteration()
    return booster


def catboost_with_classes(**params: Any) -> Any:
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostClassifier(
        iterations=5, depth=3, verbose=0, allow_writing_files=False, thread_count=1, **params
    )
    return model.fit(TRAINED, CLASSES[:300])


NATIVE = {
    "regression": {},
    # Releases of shap before 0.54 read one of several base scores.
    "classes": {"y": CLASSES, "objective": "multi:softprob", "num_class": 3, "base_score": 0.5},
    "two classes": {"y": (CLASSES > 0).astype(int), "objective": "binary:logistic"},
    "dart": {"booster": "dart", "rate_drop": 0.3},
    "trees in parallel": {"num_parallel_tree": 3, "subsample": 0.5},
}


@pytest.mark.parametrize("name", NATIVE)
def test_native_boosters_are_explained_up_to_the_best_iteration(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    booster = xgboost_stopped_early(**NATIVE[name])
    theirs = shap.TreeExplainer(booster)
    expected, pairs = theirs.shap_values(ROWS), theirs.shap_interaction_values(ROWS)
    n_rounds = booster.best_iteration + 1
    margin = booster.predict(
        pytest.importorskip("xgboost").DMatrix(ROWS), iteration_range=(0, n_rounds), output_margin=True
    )
    with monkeypatch.context() as context, patch_shap():
        ours = shap.TreeExplainer(booster)
        only_ours(context)
        for limit in (None, theirs.model.tree_limit):
            assert_same(ours.shap_values(ROWS, tree_limit=limit), expected)
            assert_same(ours.shap_interaction_values(ROWS, tree_limit=limit), pairs)
        assert_same(ours(ROWS).values, expected)
        values = ours.shap_values(ROWS)
    np.testing.assert_allclose(ours.expected_value + values.sum(axis=1), margin, rtol=1e-5, atol=1e-3)
    assert np.abs(TreeExplainer(booster).shap_values(ROWS) - values).max() > 1e-3 * np.abs(values).max()


@pytest.mark.parametrize("name", ["regression", "classes", "two classes", "dart"])
def test_native_boosters_with_background_data(name: str) -> None:
    booster = xgboost_stopped_early(**NATIVE[name])
    theirs = shap.TreeExplainer(booster, TRAINED[:30])
    expected, n_rounds = theirs.shap_values(ROWS, check_additivity=False), booster.best_iteration + 1
    margin, background = (
        booster.predict(
            pytest.importorskip("xgboost").DMatrix(X), iteration_range=(0, n_rounds), output_margin=True
        )
        for X in (ROWS, TRAINED[:30])
    )
    with patch_shap():
        ours = shap.TreeExplainer(booster, TRAINED[:30])
        values = ours.shap_values(ROWS, tree_limit=theirs.model.tree_limit)
        if name != "dart":  # whose weights of trees shap ignores
            assert_same(values, expected)
            assert_same_base(ours.expected_value, theirs.expected_value)
    np.testing.assert_allclose(ours.expected_value, background.mean(axis=0), rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(ours.expected_value + values.sum(axis=1), margin, rtol=1e-5, atol=1e-3)


@pytest.mark.skipif(not hasattr(shap.explainers, "_load_tree_backend"), reason="shap has its own class")
def test_the_backend_explains_the_rounds_that_shap_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    from skshapgpu.shap_backend import GPUTreeExplainer

    monkeypatch.setenv("SKSHAPGPU_DEVICE", "cpu")
    booster = xgboost_stopped_early()
    theirs, ours = shap.TreeExplainer(booster), GPUTreeExplainer(booster)
    expected = theirs.shap_values(ROWS)
    for limit in (None, theirs.model.tree_limit):
        assert_same(ours.shap_values(ROWS, tree_limit=limit), expected)
    assert_same(ours.shap_interaction_values(ROWS), theirs.shap_interaction_values(ROWS))
    np.testing.assert_allclose(ours.expected_value, theirs.expected_value, rtol=1e-5)
    with pytest.raises(NotImplementedError, match="not tree_limit=-1"):
        ours.shap_values(ROWS, tree_limit=-1)
    with pytest.raises(NotImplementedError, match="several outputs together with background data"):
        GPUTreeExplainer(catboost_with_classes(), TRAINED[:30])


@pytest.mark.parametrize("family", ["sklearn", "xgboost", "xgboost classes", "lightgbm", "catboost"])
@pytest.mark.parametrize("n_background", [0, 30])
def test_other_limits_are_those_of_shap(family: str, n_background: int) -> None:
    """Also the base value, which is that of shap's own trees."""
    if family == "sklearn":
        model = RandomForestRegressor(6, max_depth=4, random_state=0).fit(TRAINED, TARGET[:300])
    elif family == "catboost":
        model = pytest.importorskip("catboost").CatBoostRegressor(
            iterations=5, depth=3, verbose=0, allow_writing_files=False, thread_count=1
        )
        model.fit(TRAINED, TARGET[:300])
    elif family == "lightgbm":
        model = (
            pytest.importorskip("lightgbm")
            .LGBMRegressor(n_estimators=5, verbose=-1)
            .fit(TRAINED, TARGET[:300])
        )
    else:
        model = xgboost_stopped_early(**NATIVE["classes" if "classes" in family else "regression"])
    data = TRAINED[:n_background] if n_background else None
    for limit in (1, 3, -1):
        if family == "catboost" and data is None and limit > 0:
            continue  # shap refuses them
        theirs = shap.TreeExplainer(model, data)
        expected = theirs.shap_values(ROWS, tree_limit=limit, check_additivity=False)
        with patch_shap():
            ours = shap.TreeExplainer(model, data)
            if limit == -1 and "xgboost" not in family:
                assert_same(ours.shap_values(ROWS, tree_limit=limit, check_additivity=False), expected)
                continue
            with pytest.warns(ShapFallbackWarning, match=f"not tree_limit={limit}"):
                values = ours.shap_values(ROWS, tree_limit=limit, check_additivity=False)
        assert_same(values, expected, 0)
        assert_same_base(ours.expected_value, theirs.expected_value)


def test_a_limit_that_is_set_later() -> None:
    booster = xgboost_stopped_early()
    theirs = shap.TreeExplainer(booster)
    theirs.model.tree_limit = 2
    expected = theirs.shap_values(ROWS)
    with patch_shap():
        ours = shap.TreeExplainer(booster)
        ours.model.tree_limit = 2
        with pytest.warns(ShapFallbackWarning, match="not tree_limit=2"):
            assert_same(ours.shap_values(ROWS), expected, 0)


def test_rounds_of_lightgbm_after_the_best_iteration() -> None:
    """shap's values use all rounds, its interactions only the rounds that predict."""
    booster = lightgbm_stopped_early()
    theirs = shap.TreeExplainer(booster)
    expected = theirs.shap_values(ROWS)
    assert np.abs(expected - TreeExplainer(booster).shap_values(ROWS)).max() > 1e-3 * np.abs(expected).max()
    with patch_shap(), pytest.warns(ShapFallbackWarning, match="up to the best iteration, with which"):
        assert_same(shap.TreeExplainer(booster).shap_values(ROWS), expected, 0)


def test_interactions_of_which_shap_adds_up_the_classes_go_to_shap() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    params = {"objective": "multiclass", "num_class": 3, "verbose": -1, "num_threads": 1}
    booster = lightgbm.train(params, lightgbm.Dataset(TRAINED, CLASSES[:300]), 4)
    theirs = shap.TreeExplainer(booster)
    expected, pairs = theirs.shap_values(ROWS), theirs.shap_interaction_values(ROWS)
    with patch_shap():
        ours = shap.TreeExplainer(booster)
        assert_same(ours.shap_values(ROWS), expected)
        with pytest.warns(ShapFallbackWarning, match="3 outputs of Booster, and shap 1"):
            assert_same(ours.shap_interaction_values(ROWS), pairs, 0)


@pytest.mark.parametrize("params", [{}, {"loss_function": "MultiClassOneVsAll"}])
def test_models_with_which_shap_would_end_the_process(params: dict[str, Any]) -> None:
    model = catboost_with_classes(**params)
    with patch_shap():
        for construct in (
            lambda: shap.TreeExplainer(model, TRAINED[:30]),
            lambda: shap.TreeExplainer(model=model, data=TRAINED[:30]),
            lambda: shap.TreeExplainer(model, TRAINED[:30], feature_perturbation="tree_path_dependent"),
            lambda: shap.Explainer(model, TRAINED[:30], algorithm="tree"),
        ):
            with pytest.raises(NotImplementedError, match=r"use skshapgpu.TreeExplainer\(model, data\)"):
                construct()
        assert shap.TreeExplainer(model).shap_values(ROWS).shape == (*ROWS.shape, 3)


def test_wrappers_whose_explainers_were_made_before_the_patch() -> None:
    """shap keeps only the native Booster of a wrapper, which has all rounds and no ``missing``."""
    xgboost = pytest.importorskip("xgboost")
    options = {"n_estimators": 60, "max_depth": 3, "learning_rate": 0.6, "n_jobs": 1}
    stopped = xgboost.XGBRegressor(early_stopping_rounds=4, **options)
    stopped.fit(TRAINED, TARGET[:300], eval_set=[(VALIDATED, TARGET[300:])], verbose=False)
    assert stopped.best_iteration + 1 < stopped.get_booster().num_boosted_rounds()
    theirs = shap.TreeExplainer(stopped)
    expected = theirs.shap_values(ROWS)
    with patch_shap():
        assert_same(theirs.shap_values(ROWS), expected)
    rows = np.where(ROWS < 500, -1.0, ROWS)
    theirs = shap.TreeExplainer(xgboost.XGBRegressor(missing=-1.0, **options).fit(TRAINED, TARGET[:300]))
    expected = theirs.shap_values(rows)
    with patch_shap(), pytest.warns(ShapFallbackWarning, match="made without patch_shap"):
        assert_same(theirs.shap_values(rows), expected, 0)


def assert_changed(model: Any, explainer: Any, before: np.ndarray) -> None:
    """Check that shap explains the model as it is now, and that the explainer does, too."""
    with pytest.warns(ShapFallbackWarning, match="the model has changed since the explainer was made"):
        values = explainer.shap_values(ROWS)
    assert np.abs(values - before).max() > 1e-3 * np.abs(before).max()
    rows = pytest.importorskip("xgboost").DMatrix(ROWS) if hasattr(model, "num_boosted_rounds") else ROWS
    np.testing.assert_allclose(explainer.expected_value + values.sum(axis=1), model.predict(rows), rtol=1e-4)


def test_models_trained_further_that_shap_asks_in_each_call() -> None:
    lightgbm, catboost = pytest.importorskip("lightgbm"), pytest.importorskip("catboost")
    params = {"verbose": -1, "num_threads": 1, "num_leaves": 6}
    rows = lightgbm.Dataset(TRAINED, TARGET[:300])
    booster = lightgbm.train(params, rows, 4, keep_training_booster=True)
    model = catboost.CatBoostRegressor(
        iterations=5, depth=3, verbose=0, allow_writing_files=False, thread_count=1
    )
    model.fit(TRAINED, TARGET[:300])
    with patch_shap():
        ours = shap.TreeExplainer(booster)
        before = ours.shap_values(ROWS)
        booster.update()
        assert_changed(booster, ours, before)
        ours = shap.TreeExplainer(booster)
        before = ours.shap_values(ROWS)
        booster.set_leaf_output(0, 0, 100.0)
        assert_changed(booster, ours, before)
        ours = shap.TreeExplainer(model)
        before = ours.shap_values(ROWS)
        model.fit(TRAINED, -TARGET[:300])  # as many trees again
        assert_changed(model, ours, before)


def test_boosters_of_xgboost_trained_further() -> None:
    """shap explains the rounds that the model had, unless the model itself was changed in place."""
    xgboost = pytest.importorskip("xgboost")
    rows = xgboost.DMatrix(TRAINED, TARGET[:300])
    booster = xgboost.train({"max_depth": 3, "nthread": 1}, rows, 6)
    with patch_shap():
        ours = shap.TreeExplainer(booster)
        before = ours.shap_values(ROWS)
        booster.update(rows, 6)
        np.testing.assert_array_equal(ours.shap_values(ROWS), before)
    assert_same(ours.shap_values(ROWS).astype(np.float64), before)  # by shap itself
    booster = xgboost.train({"max_depth": 3, "nthread": 1}, rows, 6)
    other = xgboost.train({"max_depth": 3, "nthread": 1}, xgboost.DMatrix(TRAINED, -TARGET[:300]), 6)
    with patch_shap():
        ours = shap.TreeExplainer(booster)
        before = ours.shap_values(ROWS)
        booster.load_model(other.save_raw())
        assert_changed(booster, ours, before)


def test_shap_explains_dictionaries_of_trees() -> None:
    """A dictionary does not say how many columns X has, and shap takes any number of them."""
    tree = (
        RandomForestRegressor(1, max_depth=2, random_state=0).fit(TRAINED, TARGET[:300]).estimators_[0].tree_
    )
    model = {
        "trees": [
            {
                "children_left": tree.children_left,
                "children_right": tree.children_right,
                "children_default": tree.children_right,
                "features": tree.feature,
                "thresholds": tree.threshold,
                "values": tree.value[:, 0, :],
                "node_sample_weight": tree.weighted_n_node_samples,
            }
        ]
    }
    wide = np.hstack([ROWS, ROWS])
    expected = shap.TreeExplainer(model).shap_values(wide)
    with patch_shap(), pytest.warns(ShapFallbackWarning, match="does not say how many columns X has"):
        values = shap.TreeExplainer(model).shap_values(wide)
    np.testing.assert_array_equal(values, expected)
    ours = TreeExplainer(model | {"n_features": wide.shape[1]}, precision="double").shap_values(wide)
    # both add up in float64, relative to values of about 1e4
    np.testing.assert_allclose(ours, np.reshape(expected, ours.shape), rtol=0, atol=1e-8)
