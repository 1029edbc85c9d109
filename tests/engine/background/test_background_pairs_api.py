"""Interventional interactions and Banzhaf values: the public API, the transformer, the display."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.checks import shrink_leaves
from helpers.gpu_rows import OnGpu
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor

from skshapgpu import (
    ShapInteractionDisplay,
    ShapInteractionTransformer,
    TreeExplainer,
    explain,
    explain_interactions,
)
from skshapgpu._common import memory
from skshapgpu._common.algorithms import Kind
from skshapgpu._common.devices import Devices
from skshapgpu.reference import Index

X, Y = load_diabetes(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)

INDICES: tuple[Index, ...] = ("SII", "STII", "BII")


# The public API


def both_classes() -> tuple[TreeExplainer, np.ndarray]:
    model = GradientBoostingClassifier(n_estimators=4, random_state=0).fit(CANCER, BENIGN)
    return TreeExplainer(model, CANCER[:40], outputs="all"), CANCER[40:120]


def three_classes() -> tuple[TreeExplainer, np.ndarray]:
    model = RandomForestClassifier(5, max_depth=5, random_state=0).fit(X, np.digitize(Y, [100, 180]))
    return TreeExplainer(model, X[:40]), X[40:]


def float32() -> tuple[TreeExplainer, np.ndarray]:
    model = RandomForestRegressor(6, max_depth=5, random_state=0).fit(X, Y)
    return TreeExplainer(model, X[:40], precision="double"), X.astype(np.float32)


@pytest.fixture(scope="module", params=[both_classes, three_classes, float32], ids=lambda make: make.__name__)
def explained(request: pytest.FixtureRequest) -> tuple[TreeExplainer, np.ndarray]:
    return request.param()


@pytest.mark.parametrize("index", INDICES)
def test_forms(explained: tuple[TreeExplainer, np.ndarray], index: str) -> None:
    explainer, rows = explained
    occurring = explainer.explain_interactions(rows, index=index)
    matrices = occurring.matrices()
    assert matrices.dtype == rows.dtype and (matrices == matrices.swapaxes(1, 2)).all()
    np.testing.assert_array_equal(occurring.interactions, explainer.occurring_interactions())
    first, second = occurring.interactions.T
    np.testing.assert_array_equal(occurring.values, 2 * matrices[:, first, second])
    singles = explainer.explain(rows, index="BV" if index == "BII" else "SV")
    atol = 2e-6 * np.abs(singles.values).max()
    np.testing.assert_allclose(occurring.single_values, singles.values, rtol=0, atol=atol)
    if index == "SII":
        direct = explainer.shap_interaction_values(rows)
        assert direct.dtype == rows.dtype and (direct == direct.swapaxes(1, 2)).all()
        np.testing.assert_array_equal(occurring.values, 2 * direct[:, first, second])
        np.testing.assert_allclose(matrices, direct, rtol=0, atol=atol)
    order = np.argsort(-occurring.strength, kind="stable")[:5]
    strongest = explainer.explain_interactions(rows, index=index, interactions=5)
    np.testing.assert_array_equal(strongest.interactions, occurring.interactions[order])
    np.testing.assert_array_equal(strongest.values, occurring.values[:, order])
    listed = explainer.explain_interactions(rows, index=index, interactions=[(second[3], f"x{first[3]}")])
    np.testing.assert_array_equal(listed.values[:, 0], occurring.values[:, 3])
    for explanation in (occurring, strongest, listed):
        assert explanation.feature_perturbation == "interventional"
        assert explanation.device.startswith(os.environ["SKSHAPGPU_DEVICE"])
        np.testing.assert_array_equal(explanation.base_values, explainer.expected_value)
        assert (explanation.additivity_error is None) == (index == "BII")
    assert (singles.additivity_error is None) == (index == "BII")
    assert "feature perturbation: interventional" in repr(occurring[1:])
    if index != "BII":
        assert 0 < occurring.additivity_error < 1e-3
        np.testing.assert_allclose(matrices.sum(axis=2), singles.values, rtol=0, atol=10 * atol)


def test_one_call(forest: Any) -> None:
    expected = TreeExplainer(forest, X[:5], data_weight=[1, 1, 1, 1, 2])
    options = {"data": X[:5], "data_weight": [1, 1, 1, 1, 2]}
    pairs = explain_interactions(forest, X[:9], interactions=3, index="STII", **options)
    np.testing.assert_array_equal(
        pairs.values, expected.explain_interactions(X[:9], interactions=3, index="STII").values
    )
    banzhaf = explain(forest, X[:9], index="BV", **options)
    np.testing.assert_array_equal(banzhaf.values, expected.explain(X[:9], index="BV").values)
    assert banzhaf.index == "BV" and banzhaf.feature_perturbation == "interventional"
    path_dependent = TreeExplainer(forest).explain_interactions(X[:9])
    assert path_dependent.feature_perturbation == "tree_path_dependent"
    assert not np.allclose(path_dependent.values, expected.explain_interactions(X[:9]).values, atol=1e-3)


def test_weights_count_rows(forest: Any) -> None:
    weighted = TreeExplainer(forest, X[:4], data_weight=[2, 0, 1, 1], precision="double")
    repeated = TreeExplainer(forest, X[[0, 0, 2, 3]], precision="double")
    for index in INDICES:
        one, other = (e.explain_interactions(X[50:], index=index).matrices() for e in (weighted, repeated))
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)


def test_additivity_is_checked(forest: Any) -> None:
    explainer = TreeExplainer(forest, X[:10])
    explainer.shap_values(X)  # compared with the model's own prediction
    shrink_leaves(explainer, 1e-12)
    with pytest.raises(RuntimeError, match="additivity check failed at row"):
        explainer.shap_interaction_values(X)
    for pairs in ("occurring", 3, [(0, 1)]):
        with pytest.raises(RuntimeError, match="additivity check failed at row"):
            explainer.explain_interactions(X, interactions=pairs)
    explainer.explain_interactions(X, index="BII")
    unchecked = TreeExplainer(forest, X[:10], check_additivity=False)
    assert unchecked.explain_interactions(X).additivity_error is None


def test_threads(forest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = TreeExplainer(forest, X[:30])
    expected = explainer.explain_interactions(X, interactions="occurring")
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(
            lambda _: explainer.explain_interactions(X, interactions="occurring"), range(8)
        ):
            np.testing.assert_array_equal(found.values, expected.values)
    monkeypatch.setattr(memory, "CHUNK_BYTES", 50_000)
    found = TreeExplainer(forest, X[:30], n_jobs=2).explain_interactions(X, interactions="occurring")
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.single_values, expected.single_values)


def test_copies_and_files(forest: Any, tmp_path: Path) -> None:
    explainer = TreeExplainer(forest, X[:12], data_weight=np.arange(12))
    expected = explainer.shap_interaction_values(X[:30])
    again = pickle.loads(pickle.dumps(explainer))
    np.testing.assert_array_equal(again.shap_interaction_values(X[:30]), expected)
    explainer.save(tmp_path / "explainer.npz")
    loaded = TreeExplainer.load(tmp_path / "explainer.npz")
    np.testing.assert_array_equal(loaded.shap_interaction_values(X[:30]), expected)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("pairs", ["matrices", "occurring", 4, [(3, 7)]])
def test_memory_limit_changes_no_bit(forest: Any, pairs: Any) -> None:
    def values(explainer: TreeExplainer) -> np.ndarray:
        if pairs == "matrices":
            return explainer.shap_interaction_values(X)
        return explainer.explain_interactions(X, interactions=pairs).values

    explainer = TreeExplainer(forest, X[:10])
    expected = values(explainer)
    result = expected.nbytes + (X.nbytes if pairs == "occurring" else 0)
    scratch = explainer._compiled.of(Kind(2, "SII")).plan().info()["scratch_bytes_per_thread"]
    tables = explainer._compiled.table_bytes  # and counts
    assert tables > explainer.model_info()["table_bytes"] > 0
    limited = TreeExplainer(forest, X[:10], memory_limit=result + scratch + tables + 30_000)
    np.testing.assert_array_equal(values(limited), expected)
    with pytest.raises(
        MemoryError, match="SHAP interaction values" if pairs == "matrices" else "Shapley interactions"
    ):
        values(TreeExplainer(forest, X[:10], memory_limit=result))


def test_triples_are_path_dependent_only(forest: Any) -> None:
    explainer = TreeExplainer(forest, X[:3])
    for pairs in ("occurring", 3, [(0, 1, 2)]):
        with pytest.raises(ValueError, match="of triples are path-dependent only for now: use an explainer"):
            explainer.explain_interactions(X, interactions=pairs, order=3)
    triples = TreeExplainer(forest, device="cpu").occurring_interactions(order=3)
    np.testing.assert_array_equal(explainer.occurring_interactions(order=3), triples)


def test_margins_only(forest: Any) -> None:
    model = GradientBoostingClassifier(n_estimators=4, random_state=0).fit(CANCER, BENIGN)
    explainer = TreeExplainer(model, CANCER[:10], model_output="probability")
    with pytest.raises(
        ValueError, match="Banzhaf values are computed for the margin only: use model_output='raw'"
    ):
        explainer.explain(CANCER, index="BV")
    with pytest.raises(ValueError, match="pairs are computed for the margin only: use model_output='raw'"):
        explainer.shap_interaction_values(CANCER)


@pytest.fixture(scope="module")
def long_paths() -> RandomForestRegressor:
    wide = np.random.default_rng(0).normal(size=(2000, 40))
    return RandomForestRegressor(1, max_depth=30, random_state=0).fit(wide, wide @ np.arange(40.0))


def test_costs_of_long_paths(long_paths: Any) -> None:
    """Leaves on paths of more than 12 features have patterns of the background data instead of tables."""
    for n_rows in (2, 20):
        explainer = TreeExplainer(long_paths, np.zeros((n_rows, 40)), device="cpu")
        pairs = explainer._compiled.of(Kind(2, "BII")).pair_tables
        assert pairs is not None and pairs.n_tests % n_rows == 0 and pairs.n_tests > 13 * n_rows
        assert pairs.cuda_seconds(1000, 40) > pairs._replace(n_tests=0).cuda_seconds(1000, 40)
        assert pairs.cpu_seconds(1000, 40, 1, 4) > pairs._replace(n_tests=0).cpu_seconds(1000, 40, 1, 4)


def test_tables_that_do_not_fit_are_refused_on_gpus(forest: Any) -> None:
    explainer = TreeExplainer(forest, X[:3], device="cpu", memory_limit=10_000)
    assert explainer._compiled.of(Kind(2, "SII")).pair_tables is None
    what = (
        "of pairs of a model whose tables do not fit into memory or memory_limit are computed on the CPU only"
    )
    matrices, pairs = (
        f"interventional SHAP interaction values {what}",
        f"interventional Shapley interactions {what}",
    )
    with pytest.raises(TypeError, match=f"{matrices}, but X is on a"):
        explainer.shap_interaction_values(OnGpu())
    explainer._compiled.options = replace(explainer._compiled.options, devices=Devices(indices=(0,)))
    with pytest.raises(ValueError, match=f"{pairs}: use device='cpu'"):
        explainer.explain_interactions(X, interactions=3)

    def tables_of(**options: Any) -> Any:
        compiled = TreeExplainer(forest, X[:3], device="cpu", **options)._compiled
        return compiled.of(Kind(2, "SII")).pair_tables

    limited, tables = tables_of(memory_limit=100_000), tables_of()
    assert tables is not None and tables.table_bytes > 50_000 and tables.n_tests == 0
    assert limited is not None and limited.table_bytes <= 50_000 and limited.n_tests > 0


def test_auto_stays_on_the_cpu(forest: Any, long_paths: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """For few rows, a GPU would not be faster; if nothing fits into its memory, "auto" looks for no GPU."""
    monkeypatch.delenv("SKSHAPGPU_DEVICE", raising=False)
    assert TreeExplainer(forest, X[:3]).explain_interactions(X[:5]).device == "cpu"
    assert TreeExplainer(forest, X[:3]).explain(X[:5], index="BV").device == "cpu"
    monkeypatch.setattr(
        "skshapgpu._common.devices.Devices.choose", lambda *args: pytest.fail("looked for a GPU")
    )
    monkeypatch.setattr("skshapgpu._engine.compiled_model._GPU_TABLE_BYTES", 100)
    explainer = TreeExplainer(long_paths, np.zeros((3, 40)))
    assert explainer.explain_interactions(np.zeros((2, 40))).device == "cpu"


# The transformer and the display


@pytest.mark.parametrize("pairs", ["occurring", 4, [(2, 8), (0, 1)]])
def test_transformer(forest: Any, pairs: Any) -> None:
    transformer = ShapInteractionTransformer(
        RandomForestRegressor(4, max_depth=4, random_state=0), interactions=pairs, data=X[:9]
    )
    values = transformer.fit_transform(X, Y)
    explainer = TreeExplainer(transformer.estimator_, X[:9])
    expected = explainer.explain_interactions(X, interactions=pairs)
    np.testing.assert_array_equal(values, expected.values)
    assert transformer.base_values_ == explainer.expected_value
    np.testing.assert_array_equal(clone(transformer).fit(X, Y).transform(X), values)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(transformer)).transform(X), values)
    frozen = ShapInteractionTransformer.from_fitted(
        forest, interactions=[(2, 8)], index="BII", data=X[:9], data_weight=np.arange(9)
    )
    weighted = TreeExplainer(forest, X[:9], data_weight=np.arange(9))
    expected = weighted.explain_interactions(X, interactions=[(2, 8)], index="BII")
    np.testing.assert_array_equal(frozen.transform(X), expected.values)
    assert frozen.explain(X).feature_perturbation == "interventional"


def test_transformer_refuses_options_before_it_fits() -> None:
    class Untouched(RandomForestRegressor):
        def fit(self, X: Any, y: Any = None) -> None:
            raise AssertionError("fitted")

    for options, message in (
        ({"feature_perturbation": "interventional"}, "needs background rows"),
        (
            {"feature_perturbation": "tree_path_dependent", "data": X[:3], "cover": "count"},
            "leave out cover or data",
        ),
        ({"data_weight": [1.0]}, "weights of background rows"),
    ):
        with pytest.raises(ValueError, match=message):
            ShapInteractionTransformer(Untouched(), **options).fit(X, Y)


def test_display(forest: Any) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    display = ShapInteractionDisplay.from_estimator(forest, X, data=X[:9], max_features=None)
    strength = TreeExplainer(forest, X[:9]).explain_interactions(X, interactions="occurring").strength
    assert np.triu(display.matrix, 1).max() == pytest.approx(strength.max())
