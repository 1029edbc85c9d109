"""progress=: reports of long calls, which do not influence values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier

import skshapgpu._common.progress
from skshapgpu import (
    ShapInteractionTransformer,
    ShapTransformer,
    TreeExplainer,
    explain,
    explain_interactions,
)
from skshapgpu._common.algorithms import SHAP_VALUES, Kind
from skshapgpu._common.progress import ProgressTracker

CANCER, BENIGN = load_breast_cancer(return_X_y=True)
CANCER = CANCER[:, :12]
IRIS, SPECIES = load_iris(return_X_y=True)

Told = list[tuple[int, int]]


@pytest.fixture(scope="module")
def binary() -> GradientBoostingClassifier:
    return GradientBoostingClassifier(n_estimators=8, max_depth=3, random_state=0).fit(CANCER, BENIGN)


@pytest.fixture(autouse=True)
def steps_of_seven_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skshapgpu._common.progress, "_LEAST_ROWS", 7)
    monkeypatch.setattr(skshapgpu._common.progress, "_SECONDS", (0.0, 0.0))


def told_by(call: Callable[..., Any]) -> tuple[Any, Told]:
    told: Told = []
    return call(progress=lambda done, of: told.append((done, of))), told


def check(call: Callable[..., Any], n_rows: int, *, step: int = 7) -> None:
    explanation, told = told_by(call)
    np.testing.assert_array_equal(explanation.values, call().values)
    assert explanation.additivity_error == call().additivity_error
    done = [rows for rows, _ in told]
    assert done == sorted(set(done)) and done[-1] == n_rows
    assert {of for _, of in told} == {n_rows}
    assert len(told) >= n_rows // step and max(np.diff(done)) <= step


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "auto"},
        {"algorithm": "quadrature", "precision": "double", "n_jobs": 2},
        {"algorithm": "fast_v2"},
        {"algorithm": "treeshap"},
        {"algorithm": "fast_v1"},
        {"outputs": "all"},
        {"data": CANCER[::50]},
        {"data": CANCER[::50], "model_output": "probability"},
    ],
    ids=str,
)
def test_shap_values(binary: Any, options: dict[str, Any]) -> None:
    explainer = TreeExplainer(binary, device="cpu", **options)
    check(lambda **progress: explainer.explain(CANCER, **progress), len(CANCER))


def scratch(model: Any, kind: Kind) -> int:
    """Return the bytes that a thread takes, whatever the number of rows."""
    compiled = TreeExplainer(model, device="cpu")._compiled
    return compiled.of(kind).plan().info()["scratch_bytes_per_thread"]


def test_chunks_that_a_limit_makes(binary: Any) -> None:
    limit = scratch(binary, SHAP_VALUES) + CANCER.nbytes + 10_000
    explainer = TreeExplainer(binary, device="cpu", memory_limit=limit)
    check(lambda **progress: explainer.explain(CANCER, **progress), len(CANCER))


def test_losses(binary: Any) -> None:
    explainer = TreeExplainer(binary, CANCER[::50], model_output="log_loss", device="cpu")
    check(lambda **progress: explainer.explain(CANCER, BENIGN, **progress), len(CANCER))


@pytest.mark.parametrize("index", ["SV", "BV"])
def test_several_outputs_and_sparse_rows(index: str) -> None:
    model = RandomForestClassifier(3, random_state=0).fit(IRIS, SPECIES)
    for X in (IRIS, sp.csr_array(IRIS)):
        check(lambda X=X, **progress: explain(model, X, index=index, device="cpu", **progress), 150)


@pytest.mark.parametrize("data", [None, CANCER[::100]], ids=["covers", "background"])
@pytest.mark.parametrize("pairs", ["occurring", 5, [(0, 1), (3, 4)]], ids=str)
def test_interactions(binary: Any, pairs: Any, data: Any) -> None:
    def call(**progress: Any) -> Any:
        return explain_interactions(
            binary, CANCER[:100], interactions=pairs, data=data, device="cpu", **progress
        )

    check(call, 100)


def test_triples(binary: Any) -> None:
    explainer = TreeExplainer(binary, device="cpu")
    check(lambda **told: explainer.explain_interactions(CANCER, interactions=3, order=3, **told), len(CANCER))


def test_two_passes_count_as_one(binary: Any) -> None:
    result, chunk = 4 * 8 * len(CANCER), 40_000  # bytes; the latter is less than rows in process take
    limit = scratch(binary, Kind(2, "SII")) + result + chunk
    explainer = TreeExplainer(binary, device="cpu", memory_limit=limit)
    explanation, told = told_by(
        lambda **given: explainer.explain_interactions(CANCER, interactions=4, **given)
    )
    assert len(told) > 1.5 * len(CANCER) / 7 and told[-1] == (len(CANCER), len(CANCER))
    np.testing.assert_array_equal(
        explanation.values,
        TreeExplainer(binary, device="cpu").explain_interactions(CANCER, interactions=4).values,
    )


def test_steps_follow_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skshapgpu._common.progress, "_SECONDS", (0.1, 0.4))
    clock = [0.0]
    monkeypatch.setattr(skshapgpu._common.progress, "perf_counter", lambda: clock[0])
    progress = ProgressTracker(1000, lambda done, of: None)
    steps = []
    for seconds in (0.01, 0.05, 0.2, 0.5, 0.5, 0.5):
        clock[0] += seconds
        progress.done(1)
        steps.append(progress.step)
    assert steps == [14, 28, 28, 14, 7, 7]


def test_what_the_function_raises_ends_the_work(binary: Any) -> None:
    def enough(done: int, of: int) -> None:
        if done > 20:
            raise KeyboardInterrupt

    explainer = TreeExplainer(binary, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        explainer.explain(CANCER, progress=enough)
    np.testing.assert_array_equal(explainer.explain(CANCER).values, explainer.shap_values(CANCER))


def test_no_rows(binary: Any) -> None:
    _, told = told_by(lambda **progress: explain(binary, CANCER[:0], **progress))
    assert told == []


def test_transformers(binary: Any) -> None:
    transformer = ShapTransformer.from_fitted(binary, device="cpu")
    check(lambda **progress: transformer.explain(CANCER, **progress), len(CANCER))
    of_pairs = ShapInteractionTransformer.from_fitted(binary, device="cpu")
    check(lambda **progress: of_pairs.explain(CANCER[:100], **progress), 100)
    for made in (transformer, of_pairs):
        with pytest.raises(TypeError, match="progress must be True, False or a function"):
            made.explain("no table either", progress="yes")


def test_errors_name_the_row(binary: Any) -> None:
    X = CANCER.copy()
    X[300, 2] = np.nan
    with pytest.raises(ValueError, match="row 300, column"):
        explain(binary, X, progress=lambda done, of: None)


@pytest.mark.parametrize("progress", ["yes", 1, [1]])
def test_what_is_no_progress(binary: Any, progress: Any) -> None:
    for call in (explain, lambda *a, **o: explain_interactions(*a, **o)):
        with pytest.raises(TypeError, match="progress must be True, False or a function"):
            call(binary, "no table either", progress=progress)


# Bars


@pytest.mark.parametrize("library", ["tqdm", "rich"])
def test_a_bar(
    binary: Any, library: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(library)
    if library == "rich":
        monkeypatch.setitem(sys.modules, "tqdm", None)
    values = explain(binary, CANCER, progress=True).values
    written = "".join(capfd.readouterr())
    assert "explaining" in written and "100%" in written
    np.testing.assert_array_equal(values, explain(binary, CANCER).values)
    explain(binary, CANCER)
    assert not "".join(capfd.readouterr())


def test_neither_library(binary: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("tqdm", "rich"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match="pip install tqdm"):
        explain(binary, "no table either", progress=True)
    assert explain(binary, CANCER, progress=None).shape == CANCER.shape
