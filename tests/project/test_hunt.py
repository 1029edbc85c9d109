"""The hunt: a fixed set of cases, and deliberately wrong results that the hunt must find."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("polars")
pytest.importorskip("pyarrow")

from hunt import (
    games,
    many,
    modes,
    modes_dependence,
    modes_further,
    modes_groups,
    modes_typed,
    pool,
    survival,
    truth,
)
from hunt.case import Case
from hunt.draws import draw
from hunt.models import installed
from hunt.run import Result, run
from hunt.tally import Tally

from skshapgpu import TreeExplainer

#: Dimensions whose every choice must occur in the fixed set.
COVERED = (
    "family",
    "task",
    "steps",
    "outer",
    "container",
    "mode",
    "offset in scales",
    "names",
    "precision",
    "tables",
    "columns with values",
    "groups",
    "perturbation",
    "request",
    "response",
    "feature",
    "grid",
    "curve by",
    "further",
    "tree limit",
    "slice",
    "patched data",
    "first step",
    "source",
    "typed sink",
)


def _fixed_seeds() -> list[int]:
    """Return the first seeds that together cover every choice of every dimension."""
    met: set[tuple[str, str]] = set()
    seeds = []
    for seed in range(400):
        dimensions_of_seeds = {(name, draw(seed).dimensions()[name]) for name in COVERED}
        if not dimensions_of_seeds <= met:
            met |= dimensions_of_seeds
            seeds.append(seed)
    return seeds


@pytest.mark.parametrize("seed", _fixed_seeds())
def test_fixed_seeds(seed):
    result = run(seed)
    assert not result.findings, f"./dev hunt --seed {seed}: {result.findings}"
    if not (result.refusals or result.not_drawn):
        assert sum(result.checks.values()) > 0


def test_a_seed_is_a_case_for_ever():
    assert draw(11) == draw(11)
    assert str(draw(11)) != str(draw(12))
    fixed = draw(11, family="tree", mode="values", task="regression")
    assert (fixed.family, fixed.mode, fixed.task) == ("tree", "values", "regression")


# Truth


def test_values_of_two_players():
    """v(none) = 1, v(a) = 4, v(b) = 3, v(a, b) = 10."""
    coalition_values = np.array([1.0, 4.0, 3.0, 10.0])[:, None, None]
    # a adds 3 first and 7 second, b adds 2 first and 6 second.
    assert games.values(coalition_values)[0, :, 0].tolist() == [5.0, 4.0]
    assert games.values(coalition_values, "BV")[0, :, 0].tolist() == [5.0, 4.0]
    # Together, a and b add 10 - 4 - 3 + 1 more than each alone.
    for index in ("SII", "STII", "BII"):
        assert games.sets(coalition_values, [(0, 1)], index)[0, :, 0].tolist() == [4.0]
    assert games.matrices(coalition_values, "SII")[0, ..., 0].tolist() == [[3.0, 2.0], [2.0, 2.0]]
    assert games.matrices(coalition_values, "STII")[0, ..., 0].tolist() == [[3.0, 2.0], [2.0, 2.0]]
    assert games.matrices(coalition_values, "BII")[0, ..., 0].tolist() == [[5.0, 2.0], [2.0, 4.0]]


def test_values_of_three_players():
    """A majority of two of three: each has a third; by Banzhaf each decides two times out of four."""
    coalition_values = np.array([float(mask.bit_count() >= 2) for mask in range(8)])[:, None, None]
    np.testing.assert_allclose(games.values(coalition_values)[0, :, 0], [1 / 3] * 3, rtol=1e-15)
    np.testing.assert_allclose(games.values(coalition_values, "BV")[0, :, 0], [0.5] * 3, rtol=1e-15)
    # If the third is known, the other two together add 1 - 1 - 1 + 0, else 1.
    np.testing.assert_allclose(games.sets(coalition_values, [(0, 1)], "SII")[0, 0, 0], 0.0, atol=1e-15)
    # The Shapley-Taylor index weights the empty set with 2/3, and the third player with 1/3.
    np.testing.assert_allclose(games.sets(coalition_values, [(0, 1)], "STII")[0, 0, 0], 1 / 3, rtol=1e-15)
    np.testing.assert_allclose(games.sets(coalition_values, [(0, 1, 2)], "SII")[0, 0, 0], -2.0, rtol=1e-15)


def test_values_of_groups():
    """1 if a, b and c are all known, as docs/groups.md says: a and b together get 1/2, and 1/4 each."""
    coalition_values = np.array([0.0] * 7 + [1.0])[:, None, None]
    values = games.of_groups(coalition_values, [[0, 1], [2]])
    assert values[:, 0, 0].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert games.values(values)[0, :, 0].tolist() == [0.5, 0.5]
    assert games.owen_values(coalition_values, [[0, 1], [2]])[0, :, 0].tolist() == [0.25, 0.25, 0.5]
    # Groups of one column each, or a single group of all columns, change nothing.
    alike = np.array([1.0, 4.0, 3.0, 10.0])[:, None, None]
    for groups in ([[0], [1]], [[1, 0]]):
        assert games.owen_values(alike, groups)[0, :, 0].tolist() == [5.0, 4.0]


def test_chance_to_survive():
    """At the median of the noise, half survive; the derivative is compared with differences."""
    model = SimpleNamespace(
        get_xgb_params=lambda: {"aft_loss_distribution": "extreme", "aft_loss_distribution_scale": 2.0}
    )
    of, derivative = survival._aft(model, 3.0)
    # For the distribution of the smallest value, P(Z > z) = exp(-exp(z)), with z = (log 3 - margin) / 2.
    margins = np.array([0.0, 1.0])
    np.testing.assert_allclose(of(margins, 0.0), np.exp(-np.exp((np.log(3) - margins) / 2)), rtol=1e-12)
    slope = (of(margins + 1e-5, 0.0) - of(margins - 1e-5, 0.0)) / 2e-5
    np.testing.assert_allclose(derivative(margins, 0.0), slope, rtol=1e-8)
    hazard = survival._cox("survival", 0.7)
    slope = (hazard.of(margins + 1e-5, 0.0) - hazard.of(margins - 1e-5, 0.0)) / 2e-5
    np.testing.assert_allclose(hazard.derivative(margins, 0.0), slope, rtol=1e-8)


def test_mixtures():
    """Explain f(a, b) = a b of (2, 3) against (1, 1) and (0, 5), which has three times the weight."""
    X, background = np.array([[2.0, 3.0]]), np.array([[1.0, 1.0], [0.0, 5.0]])
    coalition_values = truth.coalition_values_of_pairs(
        lambda rows: rows[:, :1] * rows[:, 1:], X, background, 2
    )
    assert coalition_values[:, 0, :, 0].tolist() == [[1.0, 0.0], [2.0, 10.0], [3.0, 0.0], [6.0, 6.0]]
    values = games.values(truth.mean_coalition_values(coalition_values, np.array([1.0, 3.0])))[0, :, 0]
    # The values are 2 and 3 against the first row, and 8 and -2 against the second.
    np.testing.assert_allclose(values, [(2 + 3 * 8) / 4, (3 + 3 * -2) / 4], rtol=1e-15)


def test_rescaled_values_of_the_page():
    """10 and 5 on a margin of 0 are 0.33 and 0.17 of the probability, as docs/outputs.md says."""
    X, background = np.array([[10.0, 5.0]]), np.array([[0.0, 0.0]])
    coalition_values = truth.coalition_values_of_pairs(
        lambda rows: rows.sum(axis=1, keepdims=True), X, background, 2
    )
    link, slope = truth.logistic(1.0)
    values, base = truth.rescaled(coalition_values, X.sum(1)[:, None], np.zeros((1, 1)), link, slope, None)
    np.testing.assert_allclose(values[0, :, 0], [1 / 3, 1 / 6], atol=1e-6)
    assert base.tolist() == [[0.5]]


# Wrong results are found


def _with(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    explain = TreeExplainer.explain

    def changed(self: TreeExplainer, *args: Any, **options: Any) -> Any:
        explanation = explain(self, *args, **options)
        return replace(explanation, values=change(explanation.values.copy()))

    monkeypatch.setattr(TreeExplainer, "explain", changed)


PLAIN = {
    "family": "forest",
    "columns": ("normal", "normal", "few"),
    "steps": "none",
    "outer": "none",
    "container": "array",
    "trained_on": "array",
    "depth": 4,
    "trees": 10,
    "max_features": None,
    "leaves": False,
}


def _swap_classes(values: np.ndarray) -> np.ndarray:
    values[..., [0, 1]] = values[..., [1, 0]]
    return values


def _shift(values: np.ndarray) -> np.ndarray:
    values += 1e-4 * np.ptp(values)
    return values


@pytest.mark.parametrize("mode", ["values", "background"])
@pytest.mark.parametrize(
    "task, change",
    [
        ("regression", lambda values: values[:, ::-1]),
        ("regression", _shift),
        ("classes", _swap_classes),
        ("binary", np.negative),
    ],
    ids=["permuted columns", "a shift", "another class", "the other class"],
)
def test_wrong_values_are_found(monkeypatch, mode, task, change):
    options = PLAIN | {"mode": mode, "task": task, "outputs": "auto"}
    assert not run(3, options).findings
    _with(monkeypatch, change)
    findings = run(3, options).findings
    assert any(text.startswith(("values", "interventional")) for text in findings)


def test_a_shift_is_found_whatever_the_offset(monkeypatch):
    """An error of 1e-4 of the spread is found, although the margins are about a million."""
    options = PLAIN | {"mode": "values", "task": "regression", "offset": 1e6, "outputs": "auto"}
    assert not run(5, options).findings
    _with(monkeypatch, _shift)
    assert any(text.startswith("additivity") for text in run(5, options).findings)


@pytest.mark.parametrize("form", ["occurring", "all"], ids=["path-dependent", "interventional"])
def test_wrong_values_of_many_rows_are_found(monkeypatch, form):
    options = PLAIN | {"mode": "many rows", "task": "regression", "form": form, "index": "SII"}
    options |= {"tables": "wherever possible", "algorithm": "auto", "memory_limit": None, "offset": 0.0}
    options |= {"device": "cpu"}  # tables of a GPU are others
    seed = next(seed for seed in range(20) if _repeats(seed, options) >= 100)
    right = run(seed, options)
    assert not right.findings and right.checks["calls with tables"] == 1
    _with(monkeypatch, lambda values: _shift(values) if len(values) >= 1024 else values)
    findings = run(seed, options).findings
    assert any(text.startswith("many rows by the definition") for text in findings), findings


def _repeats(seed: int, options: dict[str, Any]) -> int:
    case = Case(draw(seed, **options))
    return many.repeated(case.X, case.rng)[2]


@pytest.mark.parametrize("mode", ["values", "background", "interactions"])
def test_wrong_columns_are_found(monkeypatch, mode):
    options = PLAIN | {"mode": mode, "columns with values": "used", "outputs": "auto", "form": "matrices"}
    options |= {"columns": ("normal", "constant", "normal", "few"), "task": "regression", "index": "SII"}
    right = run(3, options)
    assert not right.findings and "'columns': 'used'" in right.description
    monkeypatch.setattr(TreeExplainer, "feature_indices", property(lambda self: np.array([1, 2, 3])))
    _with(monkeypatch, lambda values: values[:, ::-1])
    compute = TreeExplainer.shap_interaction_values

    def changed(self: TreeExplainer, *args: Any, **options: Any) -> Any:
        return compute(self, *args, **options)[:, ::-1, ::-1]

    monkeypatch.setattr(TreeExplainer, "shap_interaction_values", changed)
    wrong = {"values": "values SV", "background": "interventional SV", "interactions": "matrices SII"}
    assert any(text.startswith(wrong[mode]) for text in run(3, options).findings)


@pytest.mark.parametrize("request_", ["SV", "OV"])
def test_wrong_groups_are_found(monkeypatch, request_):
    options = PLAIN | {
        "mode": "groups",
        "groups": "names",
        "perturbation": "path-dependent",
        "request": request_,
    }
    options |= {"task": "regression", "outputs": "auto", "columns with values": "all"}
    seed = next(seed for seed in range(20) if len(modes_groups.partition(Case(draw(seed, **options)))) == 2)
    assert not run(seed, options).findings
    _with(monkeypatch, lambda values: values[:, ::-1])
    findings = run(seed, options).findings
    assert any(text.startswith(("groups SV", "Owen values")) for text in findings), findings


def test_a_wrong_curve_is_found(monkeypatch):
    options = PLAIN | {
        "mode": "partial dependence",
        "task": "regression",
        "feature": "position",
        "grid": "default",
    }
    options |= {"curve by": "columns", "categorical": "by itself", "curve": "average", "centered": "no"}
    assert not run(3, options).findings
    curve = modes_dependence.partial_dependence
    monkeypatch.setattr(
        modes_dependence,
        "partial_dependence",
        lambda model, X, feature, **rest: curve(model, X, (feature + 1) % 3, **rest),
    )
    assert any(text.startswith("average curve") for text in run(3, options).findings)


TYPED_ROWS = {
    "mode": "typed",
    "first type": "category",
    "second type": "nullable integer",
    "first step": "ordinal",
    "source": "frame",
    "typed sink": "explain",
    "typed perturbation": "interventional",
    "typed model": "forest",
}


def test_a_column_that_is_read_otherwise_is_found(monkeypatch):
    assert not run(3, TYPED_ROWS).findings
    explain = modes_typed.explain
    monkeypatch.setattr(
        modes_typed,
        "explain",
        lambda model, X, **rest: explain(model, X.assign(c1=X["c1"].fillna(0)), **rest),
    )
    assert any(text.startswith("additivity of typed rows") for text in run(3, TYPED_ROWS).findings)


@pytest.mark.parametrize(
    "refused",
    [
        "a step computes a row from other rows",
        "The feature names should match those that were passed during fit",
        "ufunc 'isnan' not supported for the input types",
        "write it with the same type to all files",
        "write the column with the same categories to all files",
    ],
)
@pytest.mark.parametrize("sink", ["explain", "batch explainer"])
def test_a_refusal_without_its_reason_is_found(monkeypatch, refused, sink):
    """The hunt checks how the steps and pandas behave, not how the message describes their behaviour."""

    def refuses(*args: Any, **options: Any) -> Any:
        raise ValueError(refused)

    monkeypatch.setattr(modes_typed, "_explained", refuses)
    (finding,) = run(3, TYPED_ROWS | {"typed sink": sink, "batch size": "auto"}).findings
    assert refused in finding


def test_categories_whose_text_depends_on_other_rows():
    options = TYPED_ROWS | {"first step": "text of one column", "typed sink": "values.npy", "batch size": 20}
    import pandas as pd

    # In pandas 3, a missing value of another row turns the text "1" of an integer into "1.0".
    texts = pd.Series(pd.Categorical([1, None])).astype(str)
    dependent = ["dependent rows"] if texts[0] == "1.0" else []
    assert dependent or int(pd.__version__.partition(".")[0]) < 3
    for kind, refusals in (("category of integers", dependent), ("category", [])):
        result = run(3, options | {"first type": kind})
        assert (result.findings, result.refusals) == ([], refusals)


def test_a_model_explained_as_it_was_is_found(monkeypatch):
    options = PLAIN | {
        "mode": "trained further",
        "task": "regression",
        "further": "explainer",
        "outputs": "auto",
    }
    right = run(3, options)
    assert not right.findings and right.checks["margins that changed"] == 1
    made: list[TreeExplainer] = []
    monkeypatch.setattr(modes, "explainer_of", lambda case, **rest: made[0])
    monkeypatch.setattr(modes_further, "change", _change_after(made, modes_further.change))
    findings = run(3, options).findings  # or the explainer finds it itself, in its first call
    assert any(text.startswith("additivity") or "PredictionMismatchError" in text for text in findings), (
        findings
    )


def _change_after(made: list[TreeExplainer], change: Any) -> Any:
    def changed(case: Case) -> None:
        made.append(TreeExplainer(case.fitted.top, device="cpu"))
        change(case)

    return changed


def test_a_wrong_exception_is_found(monkeypatch):
    def fails(*args: Any, **options: Any) -> Any:
        raise ZeroDivisionError("of no use")

    monkeypatch.setattr(TreeExplainer, "explain", fails)
    assert "ZeroDivisionError: of no use" in run(3, PLAIN | {"mode": "values"}).findings[0]


def test_a_refusal_of_what_must_be_accepted_is_found(monkeypatch):
    def refuses(*args: Any, **options: Any) -> Any:
        raise ValueError("not today")

    monkeypatch.setattr(TreeExplainer, "explain", refuses)
    assert "not today" in run(3, PLAIN | {"mode": "values"}).findings[0]


# The runner


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_lost_process_is_a_finding_and_the_next_case_goes_on(monkeypatch):
    monkeypatch.setattr(pool, "_CONTEXT", multiprocessing.get_context("fork"))  # which also has the next line
    monkeypatch.setattr(pool, "run", _dies_of_seed_1)
    results = pool.Pool(1, {}).results(0, float("inf"))
    try:
        cases = [next(results) for _ in range(3)]
    finally:
        results.close()
    assert [result.seed for result in cases] == [0, 1, 2]
    assert [result.findings for result in cases] == [[], ["the process died with exit code -9"], []]
    assert cases[1].description == str(draw(1))


def _dies_of_seed_1(seed: int, fixed: dict[str, Any]) -> Result:
    if seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return Result(seed)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize(
    ("run", "finding"),
    [
        (lambda seed, fixed: time.sleep(100), "no result after 2 s"),
        (lambda seed, fixed: sum(iter(int, 1)), "no result after 0 s of the processor"),
    ],
    ids=["waits", "computes"],
)
def test_a_case_that_does_not_end_is_a_finding(monkeypatch, run, finding):
    monkeypatch.setattr(pool, "_CONTEXT", multiprocessing.get_context("fork"))
    monkeypatch.setattr(pool, "run", run)
    monkeypatch.setattr(pool, "MOST_SECONDS", 0.1)
    monkeypatch.setattr(pool, "MOST_SECONDS_WAITED", 2.0)
    results = pool.Pool(1, {}).results(0, 0.0)
    assert next(results).findings == [finding]
    results.close()


def test_the_table_counts_cases_and_checks():
    tally = Tally()
    for seed in (0, 1):
        tally.add(run(seed, PLAIN | {"mode": "values", "task": "regression"}))
    document = tally.document()
    assert document["by_dimension"]["family"]["forest"]["cases"] == document["cases"] == 2
    assert document["checks"] == sum(document["by_check"].values()) > 10
    assert "numpy" in document["versions"]
    assert "forest" in tally.table() and "2 cases" in tally.table()


def test_every_installed_library_is_drawn():
    drawn = {draw(seed).family for seed in range(400)}
    assert drawn == set(installed())
