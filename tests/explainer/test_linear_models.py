"""Explainers of LightGBM models with linear leaves: their values, and rejected requests with the reason."""

from __future__ import annotations

import json
import pickle
import zipfile
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import (
    ShapTransformer,
    TreeExplainer,
    cross_val_explain,
    explain,
    explain_batches,
    friedman_h,
    partial_dependence,
    shap_importance,
)
from skshapgpu._common import devices
from skshapgpu._common.algorithms import ALGORITHMS, BANZHAF_VALUES, SHAP_VALUES
from skshapgpu._engine.kind_plans import NO_INTERVALS
from skshapgpu._files.saving import digest
from skshapgpu.adapters import InputSchema, adapt
from skshapgpu.adapters.ensemble import LINEAR_FIELDS
from skshapgpu.errors import UnsupportedModelError

lgb = pytest.importorskip("lightgbm")

pytestmark = [pytest.mark.filterwarnings("ignore:::lightgbm"), pytest.mark.usefixtures("on_cpu")]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 5)) + np.array([0.0, 100.0, 0.0, -5.0, 0.0])
Y = X[:, 0] * (X[:, 1] - 100) + X[:, 3] + 1000
X[RNG.random(X.shape) < 0.1] = np.nan
BACKGROUND = X[:40]
OPTIONS: dict[str, Any] = {
    "linear_tree": True,
    "num_leaves": 7,
    "n_estimators": 8,
    "verbose": -1,
    "n_jobs": 1,
}


@pytest.fixture(scope="module")
def model() -> Any:
    return lgb.LGBMRegressor(**OPTIONS).fit(X[:, :4], Y)


@pytest.fixture(scope="module")
def classifier() -> Any:
    return lgb.LGBMClassifier(**OPTIONS).fit(X, Y > np.median(Y))


# Values


def test_values_add_up(model: Any) -> None:
    explanation = explain(model, X[:, :4], data=BACKGROUND[:, :4])
    margin = model.predict(X[:, :4])
    assert explanation.feature_perturbation == "interventional" and explanation.device == "cpu"
    np.testing.assert_allclose(explanation.values.sum(axis=1) + explanation.base_values, margin, rtol=1e-12)
    assert 0 < explanation.additivity_error < 1e-9
    assert explanation.base_values == pytest.approx(model.predict(BACKGROUND[:, :4]).mean(), rel=1e-12)


def test_single_precision_rows(model: Any) -> None:
    rows = X[:, :4].astype(np.float32)
    values = TreeExplainer(model, BACKGROUND[:, :4]).shap_values(rows)
    right = TreeExplainer(model, BACKGROUND[:, :4]).shap_values(rows.astype(np.float64))
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, right.astype(np.float32))


def test_additivity_is_checked(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = TreeExplainer(model, BACKGROUND[:, :4])
    plan = explainer._compiled.of(SHAP_VALUES).plan()

    class Wrong:
        def explain(self, X: Any, values: np.ndarray, *args: Any, **named: Any) -> None:
            plan.explain(X, values, *args, **named)
            values[3, 0, 1] += 0.1

        def __getattr__(self, name: str) -> Any:
            return getattr(plan, name)

    monkeypatch.setitem(explainer._compiled.of(SHAP_VALUES)._plans, NO_INTERVALS, Wrong())
    with pytest.raises(RuntimeError, match="additivity check failed at row 3"):
        explainer.shap_values(X[:, :4])
    explainer.shap_values(X[:, :4], check_additivity=False)


def test_both_classes(classifier: Any) -> None:
    one = TreeExplainer(classifier, BACKGROUND).explain(X)
    both = TreeExplainer(classifier, BACKGROUND, outputs="all").explain(X)
    np.testing.assert_array_equal(both.values[..., 1], one.values)
    np.testing.assert_array_equal(both.values[..., 0], -one.values)
    margin = classifier.predict(X, raw_score=True)
    np.testing.assert_allclose(one.values.sum(axis=1) + one.base_values, margin, rtol=1e-9, atol=1e-12)


def test_used_columns_and_groups(classifier: Any) -> None:
    used = TreeExplainer(classifier, BACKGROUND, columns="used")
    every = TreeExplainer(classifier, BACKGROUND).shap_values(X)
    np.testing.assert_array_equal(used.shap_values(X), every[:, used.feature_indices])
    assert len(used.feature_indices) < 5 or every[:, 4].any()
    groups = {"first": [0, 3], "second": [1, 2, 4]}
    grouped = TreeExplainer(classifier, BACKGROUND, feature_groups=groups).shap_values(X)
    np.testing.assert_allclose(grouped.sum(axis=1), every.sum(axis=1), rtol=0, atol=1e-12)
    assert np.abs(grouped[:, 0] - every[:, [0, 3]].sum(axis=1)).max() > 1e-3


def test_columns_that_only_leaves_have(model: Any) -> None:
    """LightGBM trains no such leaves, but an edited model or a model of another library may have them."""
    adapted = adapt(model)
    ensemble = adapted.ensemble
    assert 2 in np.unique(ensemble.linear_feature)
    inner = ensemble.left >= 0
    changed = replace(
        adapted,
        predictions={},
        ensemble=replace(ensemble, feature=np.where(inner & (ensemble.feature == 2), 0, ensemble.feature)),
    )
    assert 2 not in changed.ensemble.feature[inner]
    rows, background = np.nan_to_num(X[:, :4]), np.nan_to_num(BACKGROUND[:, :4])
    explainer = TreeExplainer(changed, background, columns="used")
    assert list(explainer.feature_indices) == [0, 1, 2, 3]
    values = explainer.shap_values(rows)
    assert np.abs(values[:, 2]).max() > 0.01
    np.testing.assert_allclose(
        values.sum(axis=1) + explainer.expected_value, changed.ensemble.margin(rows)[:, 0], rtol=1e-12
    )
    np.testing.assert_array_equal(explainer.shap_values(np.asfortranarray(rows)), values)


def test_threads_memory_and_progress(model: Any) -> None:
    rows, background = np.tile(X[:, :4], (12, 1)), BACKGROUND[:, :4]
    right = TreeExplainer(model, background).shap_values(rows)
    np.testing.assert_array_equal(TreeExplainer(model, background, n_jobs=2).shap_values(rows), right)
    limited = TreeExplainer(model, background, memory_limit="900KB")
    assert limited.plan(len(rows)).peak_bytes <= 900_000 and limited.plan(len(rows)).refusal is None
    np.testing.assert_allclose(limited.shap_values(rows), right, rtol=0, atol=1e-10)
    with pytest.raises(MemoryError, match="memory_limit"):
        TreeExplainer(model, background, memory_limit="50KB").shap_values(rows)
    done = []
    TreeExplainer(model, background).explain(rows, progress=lambda n, total: done.append((n, total)))
    assert done[-1] == (len(rows), len(rows))


def test_plan_and_info(model: Any) -> None:
    explainer = TreeExplainer(model, BACKGROUND[:, :4])
    plan, info = explainer.plan(10_000), explainer.model_info()
    assert plan.device == "cpu" and plan.tree_groups == ()
    assert 1.5 * plan.seconds < explainer.plan(20_000).seconds < 2.5 * plan.seconds
    assert 0 < info["n_linear_leaves"] < info["n_leaves"] == 8 * 7
    assert info["table_bytes"] > 0 and "40 background rows" in repr(explainer)


def test_files_and_pickles(model: Any, tmp_path: Any) -> None:
    explainer = TreeExplainer(model, BACKGROUND[:, :4])
    right = explainer.shap_values(X[:, :4])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(explainer)).shap_values(X[:, :4]), right)
    path = tmp_path / "explainer.npz"
    explainer.save(path)
    loaded = TreeExplainer.load(path)
    np.testing.assert_array_equal(loaded.shap_values(X[:, :4]), right)
    np.testing.assert_array_equal(
        loaded.explain(X[:, :4], index="BV").values, explainer.explain(X[:, :4], index="BV").values
    )
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read("header.json"))
    assert header["version"] == 2  # which earlier releases reject
    assert header["digest"] == digest(adapt(model).ensemble)


def test_files_of_other_models_are_as_before(tmp_path: Any) -> None:
    constant = lgb.LGBMRegressor(**(OPTIONS | {"linear_tree": False})).fit(X, Y)
    path = tmp_path / "explainer.npz"
    TreeExplainer(constant).save(path)
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read("header.json"))
    assert header["version"] == 1
    assert not any("linear" in str(key) for key, _ in header["ensemble"]["mapping"])


def test_digest_depends_on_the_functions(model: Any) -> None:
    ensemble = adapt(model).ensemble
    coefficient = ensemble.linear_coefficient.copy()
    coefficient[0] += 1
    assert digest(ensemble) != digest(replace(ensemble, linear_coefficient=coefficient))


def test_batches_of_files(model: Any, tmp_path: Any) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = [f"Column_{i}" for i in range(4)]
    pq.write_table(pa.table({name: X[:, i] for i, name in enumerate(names)}), tmp_path / "rows.parquet")
    explain_batches(
        model, tmp_path / "rows.parquet", tmp_path / "out.parquet", batch_size=70, data=BACKGROUND[:, :4]
    )
    table = pq.read_table(tmp_path / "out.parquet")
    right = TreeExplainer(model, BACKGROUND[:, :4]).shap_values(X[:, :4])
    value_columns = [column for column in table.column_names if column.startswith("Column_")]
    assert len(value_columns) == 4
    values = np.stack([table[column].to_numpy() for column in value_columns], axis=1)
    np.testing.assert_allclose(values, right, rtol=1e-6, atol=1e-9)


def test_estimators() -> None:
    rows, background = np.nan_to_num(X[:, :4]), np.nan_to_num(BACKGROUND[:, :4])
    model, options = lgb.LGBMRegressor(**OPTIONS), {"data": background}
    pipeline = make_pipeline(StandardScaler(), ShapTransformer(model, **options), LinearRegression())
    assert pipeline.fit(rows, Y).score(rows, Y) > 0.5
    explanation = cross_val_explain(model, rows, Y, cv=3, explain_params=options)["explanation"]
    assert explanation.values.shape == rows.shape and explanation.additivity_error < 1e-9
    importances = shap_importance(model.fit(rows, Y), rows, explain_params=options).importances_mean
    np.testing.assert_allclose(
        importances, np.abs(TreeExplainer(model, background).shap_values(rows)).mean(axis=0), rtol=1e-6
    )


# Rejected calls


class Untouched:
    """Rows that must not be looked at before the error."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"looked at {name}")


@pytest.mark.parametrize(
    "options", [{}, {"data": Untouched(), "feature_perturbation": "tree_path_dependent"}, {"cover": "weight"}]
)
def test_path_dependent_values_are_not_defined(model: Any, options: dict[str, Any]) -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"path-dependent values are not defined.*background rows as"
    ):
        TreeExplainer(model, **options)


@pytest.mark.parametrize("model_output", ["probability", "log_loss"])
def test_functions_of_the_margin(classifier: Any, model_output: str) -> None:
    with pytest.raises(
        ValueError, match=f"'{model_output}' is not computed for models with linear leaves: use"
    ):
        TreeExplainer(classifier, Untouched(), model_output=model_output)


def test_interactions_and_owen_values(model: Any) -> None:
    explainer = TreeExplainer(model, BACKGROUND[:, :4], feature_groups={"both": [0, 1]})
    only = "not computed for models with linear leaves: only SHAP values and Banzhaf values"
    for index in ("SII", "STII", "BII"):
        with pytest.raises(ValueError, match=only):
            explainer.explain_interactions(Untouched(), index=index)
    for call in (
        lambda: explainer.explain(Untouched(), index="OV"),
        lambda: explainer.explain_interactions(Untouched(), interactions="occurring", order=3),
        lambda: explainer.shap_interaction_values(Untouched()),
        lambda: explainer.occurring_interactions(),
        lambda: explainer.plan(10, interactions=5),
    ):
        with pytest.raises(ValueError, match=only):
            call()


@pytest.mark.parametrize("algorithm", [row.name for row in ALGORITHMS if not row.linear_results])
def test_other_algorithms(model: Any, algorithm: str) -> None:
    with pytest.raises(ValueError, match="computes no interventional SHAP values: use 'auto'"):
        TreeExplainer(model, Untouched(), algorithm=algorithm)


def test_table_of_algorithms() -> None:
    for row in ALGORITHMS:
        assert bool(row.linear_results) == row.interventional
        for result in row.linear_results:
            assert result.kinds == (SHAP_VALUES, BANZHAF_VALUES)
            assert (result.devices, result.interventional) == (("cpu",), True)


def test_gpus(model: Any) -> None:
    with (
        devices.elsewhere(),
        pytest.raises(ValueError, match="linear leaves are computed on the CPU only: use"),
    ):
        TreeExplainer(model, BACKGROUND[:, :4], device="cuda")
    compiled = TreeExplainer(model, BACKGROUND[:, :4])._compiled
    for kind, what in ((SHAP_VALUES, ""), (BANZHAF_VALUES, "Banzhaf values")):
        with pytest.raises(
            TypeError, match="of a model with linear leaves are computed on the CPU only, but X"
        ):
            compiled.require(kind, what, True)


def test_partial_dependence(model: Any) -> None:
    for call in (
        lambda: partial_dependence(model, Untouched(), [0]),
        lambda: friedman_h(model, Untouched()),
    ):
        with pytest.raises(UnsupportedModelError, match=r"not computed for models with linear leaves.*brute"):
            call()


def test_infinite_values(model: Any) -> None:
    rows = X[:5, :4].copy()
    rows[2, 1] = np.inf
    with pytest.raises(ValueError, match=r"infinity.*row 2, column"):
        TreeExplainer(model, BACKGROUND[:, :4]).shap_values(rows)
    with pytest.raises(ValueError, match="data contains infinity"):
        TreeExplainer(model, rows)


def test_numbers_that_overflow(model: Any) -> None:
    adapted = adapt(model)
    steep = replace(adapted.ensemble, linear_coefficient=100 * adapted.ensemble.linear_coefficient)
    rows = X[:5, :4].copy()
    rows[3, 1] = 1.7e308
    with pytest.raises(ValueError, match="row 3 of X has numbers so large that a linear leaf overflows"):
        TreeExplainer(replace(adapted, ensemble=steep), BACKGROUND[:, :4]).shap_values(rows)
    with pytest.raises(ValueError, match="data has numbers so large that a linear leaf overflows"):
        TreeExplainer(replace(adapted, ensemble=steep), rows)


def test_schema_allows_no_infinite_values(model: Any) -> None:
    adapted = adapt(model)
    assert not replace(adapted, schema=InputSchema(4)).schema.allow_inf
    constant = replace(adapted.ensemble, **{name: [] for name in LINEAR_FIELDS})
    assert replace(adapted, ensemble=constant, schema=InputSchema(4)).schema.allow_inf


def test_too_long_paths_are_named() -> None:
    wide = np.random.default_rng(0).normal(size=(40, 70))
    adapted = adapt(lgb.LGBMRegressor(**(OPTIONS | {"n_estimators": 1})).fit(wide, wide[:, 0]))
    ensemble = adapted.ensemble
    n_terms = np.where(np.arange(ensemble.n_nodes) == ensemble.n_nodes - 1, 70, 0)
    linear = replace(
        ensemble,
        linear_offsets=np.concatenate([[0], np.cumsum(n_terms)]),
        linear_feature=np.arange(70),
        linear_coefficient=np.ones(70),
        linear_intercept=np.zeros(ensemble.n_nodes),
    )
    with pytest.raises(ValueError, match="70 different features; background data allow for at most 64"):
        TreeExplainer(replace(adapted, ensemble=linear), wide)
