"""The table of algorithms: listed results are exact, all others are rejected, and the pages agree."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from helpers.ensembles import leaf_scale
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier

import skshapgpu
from skshapgpu import TreeExplainer, _core, reference
from skshapgpu._common import devices
from skshapgpu._common.algorithms import (
    ALGORITHMS,
    AUTO,
    BANZHAF_VALUES,
    DEVICES,
    MODEL_OUTPUTS,
    NAMES,
    OWEN_VALUES,
    SCORE_OUTPUTS,
    SHAP_VALUES,
    TIME_OUTPUTS,
    Algorithm,
    Kind,
    Results,
    named,
)
from skshapgpu._common.indices import INDICES, INTERACTION_INDICES, VALUE_INDICES, indices_of
from skshapgpu._common.types import InteractionIndex, ValueIndex
from skshapgpu._engine.execution import plan_execution
from skshapgpu.adapters import AdaptedModel, adapt
from skshapgpu.adapters.ensemble import attributes_of
from skshapgpu.adapters.link_sums import LinkSum, Term
from skshapgpu.adapters.survival import by_link

ROOT = Path(__file__).parents[2]

#: Largest error of each precision, relative to the sum of the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}

#: All kinds that users may ask for without groups, and triples of an index that has none.
KINDS = [SHAP_VALUES, BANZHAF_VALUES]
KINDS += [Kind(order, index) for order in (2, 3) for index in INTERACTION_INDICES]

CANCER, Y = load_breast_cancer(return_X_y=True)
COLUMNS = [20, 21, 22, 23, 27, 24]
X, BACKGROUND, LABELS = CANCER[:40, COLUMNS], CANCER[100:109, COLUMNS], Y[:40]
X[::7, 2] = np.nan

#: Time of functions of time, and offset of a score.
TIME, OFFSET = 0.8, 0.25

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda row: row.name)
every_device = pytest.mark.parametrize("device", DEVICES)


@cache
def model(model_output: str = "raw") -> Any:
    """Return a binary classifier with a logistic link, or a model with its trees and ``model_output``.

    Its response and its hazard at a time t are exp(margin) and t exp(margin). Its scores are -exp(-margin)
    and the sum of this and an offset.
    """
    few = HistGradientBoostingClassifier(max_iter=4, max_leaf_nodes=9, learning_rate=0.5)
    few.fit(CANCER[:, COLUMNS], Y)
    if model_output in ("raw", "probability", "log_loss"):
        return few
    if model_output in SCORE_OUTPUTS:
        score = (Term("exp", -1.0, np.full((1, 1), -1.0)),)
        offset = np.full(1, OFFSET if model_output == "decision_function" else 0.0)
        functions = {model_output: LinkSum(score, offset)}
        return replace(adapt(few), binary=None, link=None, functions=functions, predictions={})
    return replace(adapt(few), binary=None, link="exp", over_time=at_times)


def at_times(adapted: AdaptedModel, model_output: str, times: np.ndarray) -> AdaptedModel:
    if model_output == "survival":
        return by_link(adapted, times, -np.log(times), "gumbel", sign=-1)
    return by_link(adapted, times, np.log(times), "exp")


def groups_for(found: Results) -> dict[str, list[int]] | None:
    return {"a": [0, 2, 5], "b": [1, 4]} if OWEN_VALUES in found.kinds else None


def explainer_of(
    algorithm: Algorithm, device: str, interventional: bool, model_output: str, **options: Any
) -> TreeExplainer:
    return TreeExplainer(
        model(model_output),
        BACKGROUND if interventional else None,
        algorithm=algorithm.name,
        device=device,
        model_output=model_output,
        times=TIME if model_output in TIME_OUTPUTS else None,
        **options,
    )


def compute(explainer: TreeExplainer, kind: Kind, X: Any) -> np.ndarray:
    """Compute results of this kind; triples are in the order of ``occurring_interactions``."""
    if kind.order == 1:
        labels = LABELS if explainer.model_output == "log_loss" else None
        return explainer.explain(X, labels, index=kind.index).values
    interactions = explainer.explain_interactions(X, index=kind.index, order=kind.order)
    return interactions.matrices() if kind.order == 2 else interactions.values


# Results


@cache
def expected(kind: Kind, interventional: bool, model_output: str) -> np.ndarray:
    """Compute the result by the definition, which has no formula in common with the core."""
    ensemble = adapt(model()).ensemble
    if model_output != "raw":
        assert kind == SHAP_VALUES and interventional
        link, derivative = LINKS[model_output]
        return reference.rescaled(ensemble, X, BACKGROUND, link, derivative, labels=LABELS).values[:, 0]
    if kind.order == 3:
        assert not interventional
        values, _, triples = reference.path_dependent(ensemble, X, index=kind.index, order=3)
        found = {tuple(triple): values[:, 0, i] for i, triple in enumerate(triples.tolist())}
        occurring = TreeExplainer(model(), device="cpu").occurring_interactions(order=3)
        assert len(occurring) > 3
        return np.stack([found[tuple(triple)] for triple in occurring.tolist()], axis=1)
    groups = [0, 1, 0, 2, 1, 0] if kind == OWEN_VALUES else None
    if interventional:
        return reference.interventional(
            ensemble, X, BACKGROUND, index=kind.index, player_groups=groups
        ).values[:, 0]
    return reference.path_dependent(ensemble, X, index=kind.index, player_groups=groups).values[:, 0]


def sigmoid(margin: Any, y: float) -> Any:
    return 1 / (1 + np.exp(-margin))


#: Functions of a margin and a label, with their derivatives with respect to the margin.
LINKS: dict[str, Any] = {
    "probability": (sigmoid, lambda margin, y: sigmoid(margin, y) * sigmoid(-margin, y)),
    "log_loss": (
        lambda margin, y: np.logaddexp(0, margin) - y * margin,
        lambda margin, y: sigmoid(margin, y) - y,
    ),
    "response": (lambda margin, y: np.exp(margin), lambda margin, y: np.exp(margin)),
    "survival": (
        lambda margin, y: np.exp(-TIME * np.exp(margin)),
        lambda margin, y: -TIME * np.exp(margin - TIME * np.exp(margin)),
    ),
    "cumulative_hazard": (lambda margin, y: TIME * np.exp(margin), lambda margin, y: TIME * np.exp(margin)),
    "score_samples": (lambda margin, y: -np.exp(-margin), lambda margin, y: np.exp(-margin)),
    "decision_function": (lambda margin, y: OFFSET - np.exp(-margin), lambda margin, y: np.exp(-margin)),
}

CELLS = [
    pytest.param(
        algorithm,
        device,
        found,
        model_output,
        precision,
        id=f"{algorithm.name}-{device}-{i}-{model_output}-{precision}",
    )
    for algorithm in ALGORITHMS
    for i, found in enumerate(algorithm.results)
    for device in found.devices
    for model_output in found.model_outputs
    for precision in algorithm.precisions
]


@pytest.mark.parametrize("algorithm, device, found, model_output, precision", CELLS)
def test_all_that_the_table_has_is_exact(
    algorithm: Algorithm,
    device: str,
    found: Results,
    model_output: str,
    precision: str,
    request: pytest.FixtureRequest,
) -> None:
    if device == "cuda":
        request.getfixturevalue("gpu")
    options = {"precision": precision, "feature_groups": groups_for(found)}
    explainer = explainer_of(algorithm, device, found.interventional, model_output, **options)
    allowed = TOLERANCE[precision] * leaf_scale(adapt(model()).ensemble)[0]
    for kind in found.kinds:
        values, truth = compute(explainer, kind, X), expected(kind, found.interventional, model_output)
        assert values.shape == truth.shape, kind
        assert np.abs(truth).max() > 1e-3, kind
        assert (np.abs(values - truth) <= allowed).all(), (kind, np.abs(values - truth).max(), allowed)


@pytest.mark.parametrize("name", [row.name for row in ALGORITHMS if row.method != AUTO.method])
def test_each_uses_its_own_method(name: str) -> None:
    """All methods are exact; only the last bits show which method computed the values."""
    ensemble = adapt(model()).ensemble
    attributes = attributes_of(ensemble)
    values = np.full((len(X), 1, len(COLUMNS)), np.nan)
    _core.Plan(attributes, "double", method=named(name).method).explain(X, values, None, 1)
    found, walked = (
        TreeExplainer(model(), algorithm=algorithm, device="cpu", precision="double").shap_values(X)
        for algorithm in (name, "quadrature")
    )
    np.testing.assert_array_equal(found, values[:, 0])
    assert (found != walked).any()


@pytest.mark.parametrize(
    "algorithm", [row for row in ALGORITHMS if "cpu" in row.devices], ids=lambda row: row.name
)
def test_trees_have_the_tables_that_the_row_says(algorithm: Algorithm) -> None:
    """Path-dependent values of level-uniform trees, such as stumps, and of other trees."""
    stumps = HistGradientBoostingClassifier(max_iter=4, max_depth=1).fit(CANCER[:, COLUMNS], Y)
    alike = TreeExplainer(stumps, algorithm=algorithm.name, device="cpu")
    assert alike.model_info()["n_table_trees"] == (0 if algorithm.tables == "none" else 4)
    explainer = TreeExplainer(model(), algorithm=algorithm.name, device="cpu")
    assert explainer.model_info()["n_table_trees"] == (4 if algorithm.tables == "all" else 0)
    few, many = explainer.plan(1), explainer.plan(10**6)
    assert (many.build_seconds > 0) == (algorithm.tables == "worthwhile") and few.build_seconds == 0
    assert many.seconds > few.seconds > 0


# Refusals


class Untouched:
    """Model, or rows, that must not be inspected before the error."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"looked at {name}")


def computes(algorithm: Algorithm, device: str, kind: Kind, interventional: bool, model_output: str) -> bool:
    found = algorithm.find(kind, interventional, model_output)
    return found is not None and device in found.devices


def reason_of_options(algorithm: Algorithm, device: str, interventional: bool, model_output: str) -> str:
    """Return why an explainer with these options cannot compute anything, and what to do instead."""
    option = f"algorithm='{algorithm.name}'"
    if model_output in TIME_OUTPUTS:
        return f"model_output='{model_output}' is a function of time: give times="
    depends_on_model = model_output == "probability" and device not in algorithm.devices
    if model_output != "raw" and not interventional and not depends_on_model:
        asked = f"model_output='{model_output}' is defined against background rows only"
        return f"{asked}: give data= for interventional values, or use"
    if model_output in ("response", *SCORE_OUTPUTS) and device == "cuda":
        return f"model_output='{model_output}' is computed on the CPU only: use device='cpu' or 'auto'"
    if interventional and not algorithm.interventional:
        return f"{option} computes no interventional SHAP values: use 'auto'"
    if device == "cuda":
        return f"{option} is computed on the CPU only: use device='cpu' or 'auto'"
    return f"{option} runs on GPUs only, but device is 'cpu'"


def reason_of_call(
    algorithm: Algorithm, device: str, kind: Kind, interventional: bool, model_output: str
) -> str:
    """Return why this explainer does not compute these results, and what to do instead."""
    if kind == (3, "STII"):
        return "order=3 has index 'SII' or 'BII', not 'STII', which is of order 2"
    if model_output != "raw":
        return "are computed for the margin only: use model_output='raw'"
    if interventional and kind.order == 3:
        return "of triples are path-dependent only for now: use an explainer without data"
    if not any(computes(algorithm, name, kind, interventional, "raw") for name in DEVICES):
        names = "SHAP values and Banzhaf values" if algorithm.name == "fast_v2" else "SHAP values"
        return f"algorithm='{algorithm.name}' computes {names} only, not .*: use 'auto'"
    return "are computed on the CPU only: use device='cpu' or 'auto'"


@every_algorithm
@every_device
@pytest.mark.parametrize("interventional", [False, True])
@pytest.mark.parametrize("model_output", MODEL_OUTPUTS)
def test_all_else_is_refused_before_any_work(
    algorithm: Algorithm, device: str, interventional: bool, model_output: str
) -> None:
    case: tuple[bool, str] = (interventional, model_output)
    if not any(computes(algorithm, device, kind, *case) for kind in KINDS):
        # The margin of this model may be the probability, so only the model itself is read.
        depends_on_model = model_output == "probability" and not interventional
        with (
            devices.elsewhere(),
            pytest.raises(ValueError, match=reason_of_options(algorithm, device, *case)),
        ):
            TreeExplainer(
                model() if depends_on_model else Untouched(),
                Untouched() if interventional else None,
                algorithm=algorithm.name,
                device=device,
                model_output=model_output,
            )
        return
    with devices.elsewhere():  # no GPU is looked for
        explainer = explainer_of(algorithm, device, *case)
    compiled = dict(explainer._compiled.table_sizes)
    refused = [kind for kind in KINDS if not computes(algorithm, device, kind, *case)]
    assert Kind(3, "STII") in refused
    for kind in refused:
        with pytest.raises(ValueError, match=reason_of_call(algorithm, device, kind, *case)):
            compute(explainer, kind, Untouched())
        assert explainer._compiled.table_sizes == compiled


@every_algorithm
@every_device
def test_other_precisions_are_refused(algorithm: Algorithm, device: str) -> None:
    for precision in ("half", None, 64):
        with pytest.raises(ValueError, match="precision must be one of 'single', 'double', not"):
            TreeExplainer(Untouched(), algorithm=algorithm.name, device=device, precision=precision)  # type: ignore[arg-type]


def test_auto_takes_a_gpu_only_for_what_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        devices.Devices, "choose", lambda self, cpu, cuda: (0,) if self.auto else self.indices
    )
    for algorithm in ALGORITHMS:
        for found in algorithm.results:
            if "cpu" not in found.devices:
                continue
            for model_output in found.model_outputs:
                with devices.elsewhere():
                    explainer = explainer_of(
                        algorithm,
                        "auto",
                        found.interventional,
                        model_output,
                        feature_groups=groups_for(found),
                    )
                for kind in found.kinds:
                    chosen = plan_execution(explainer._compiled, kind, 100).indices
                    assert chosen == ((0,) if "cuda" in found.devices else ()), (algorithm.name, kind)


# The table itself


def test_auto_computes_all_that_any_algorithm_does() -> None:
    assert AUTO is ALGORITHMS[0] and AUTO.name == "auto" and len(set(NAMES)) == len(ALGORITHMS)
    assert set(AUTO.precisions) == set(TOLERANCE)
    for algorithm in ALGORITHMS:
        assert set(algorithm.precisions) <= set(AUTO.precisions)
        for found in algorithm.results:
            assert set(found.devices) <= set(DEVICES)
            for kind in found.kinds:
                for model_output in found.model_outputs:
                    case = kind, found.interventional, model_output
                    assert algorithm.find(*case) is found
                    for device in found.devices:
                        assert computes(AUTO, device, *case)


# Indices


def test_the_table_of_indices_has_what_users_may_pass() -> None:
    assert get_args(ValueIndex) == VALUE_INDICES == indices_of(1) == ("SV", "BV", "OV")
    assert get_args(InteractionIndex) == INTERACTION_INDICES == indices_of(2) == ("SII", "STII", "BII")
    assert indices_of(3) == ("SII", "BII")
    assert [*VALUE_INDICES, *INTERACTION_INDICES] == list(INDICES)


def test_kinds_carry_the_public_name_of_their_index() -> None:
    computed = {kind for found in AUTO.results for kind in found.kinds}
    assert computed == {Kind(order, name) for name, entry in INDICES.items() for order in entry.orders}
    with devices.elsewhere():
        explainer = explainer_of(AUTO, "cpu", False, "raw", feature_groups={"a": [0, 2, 5], "b": [1, 4]})
    for name in VALUE_INDICES:
        explanation = explainer.explain(X, index=name)
        assert explanation.index == name
        assert explainer.plan(40, index=name).result == Kind(1, name).values_name
        assert Kind(1, name).values_name in explanation._repr_html_()


def test_no_other_module_lists_the_names_of_indices() -> None:
    """Types must be written out; a test above compares them with the table. Two names may be a condition."""
    package = Path(skshapgpu.__file__).parent
    listing = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                elements: list[Any] = [*node.keys, *node.values]
            elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
                elements = node.elts
            else:
                continue
            names = [element.value for element in elements if isinstance(element, ast.Constant)]
            if len(set(INDICES) & {name for name in names if isinstance(name, str)}) > 2:
                listing.add(path.relative_to(package).as_posix())
    assert listing == {"_common/indices.py", "_common/types.py"}


@pytest.mark.parametrize("name", INDICES)
def test_the_core_is_called_by_its_own_names(name: str) -> None:
    kind = Kind(INDICES[name].orders[0], name)
    assert kind.adds_up == (name not in ("BV", "BII"))
    if name != "OV":  # the core has functions of their own for Owen values
        assert kind.core_index == {"SV": "SII", "BV": "BII"}.get(name, name)


# Documentation


def test_docstring_lists_the_values_of_the_options() -> None:
    # Long lists continue on the next line, after a backslash, which leaves its indentation within the line.
    lines = re.sub(r"(?<=\S) +", " ", inspect.cleandoc(str(TreeExplainer.__doc__))).splitlines()
    for option, values in (("algorithm", NAMES), ("model_output", MODEL_OUTPUTS)):
        listed = ", ".join(f'"{value}"' for value in values)
        assert f'{option} : {{{listed}}}, default="{values[0]}"' in lines


#: Rows of the table in docs/models.md, with the results of each.
TABLE_ROWS: dict[str, list[tuple[Kind, bool, str]]] = {
    "SHAP values, Banzhaf values": [(SHAP_VALUES, False, "raw"), (BANZHAF_VALUES, False, "raw")],
    "interventional SHAP values (background data)": [(SHAP_VALUES, True, "raw")],
    "interventional SHAP values of the probability or the loss (`model_output=`)": [
        (SHAP_VALUES, True, "probability"),
        (SHAP_VALUES, True, "log_loss"),
    ],
    (
        "interventional SHAP values of [responses, functions of time and "
        "scores](outputs.md#responses-and-functions-of-time), and of [means of "
        "probabilities](#means-of-probabilities)"
    ): [
        (SHAP_VALUES, True, "response"),
        *((SHAP_VALUES, True, model_output) for model_output in (*TIME_OUTPUTS, *SCORE_OUTPUTS)),
    ],
    "interventional Banzhaf values, and interactions of pairs": [
        (BANZHAF_VALUES, True, "raw"),
        *((Kind(2, index), True, "raw") for index in INTERACTION_INDICES),
    ],
    "[Owen values](groups.md#owen-values) of columns within groups, with and without background data": [
        (OWEN_VALUES, False, "raw"),
        (OWEN_VALUES, True, "raw"),
    ],
    "Shapley interactions of pairs: occurring, strongest, listed, matrices": [(Kind(2, "SII"), False, "raw")],
    "Shapley-Taylor and Banzhaf interactions of pairs": [
        (Kind(2, "STII"), False, "raw"),
        (Kind(2, "BII"), False, "raw"),
    ],
    "Shapley and Banzhaf interactions of triples": [
        (Kind(3, "SII"), False, "raw"),
        (Kind(3, "BII"), False, "raw"),
    ],
}
OTHERS = "SHAP values by [other algorithms](mathematics.md#other-algorithms), for comparison (`algorithm=`)"


def cell(cases: list[tuple[Kind, bool, str]], device: str) -> str:
    found = [AUTO.find(*case) for case in cases]
    has = {each is not None and device in each.devices for each in found}
    assert len(has) == 1, f"{cases} do not belong into one row of the table"
    if has == {False}:
        return ""
    return "yes"


def others(device: str) -> str:
    compared = [a for a in ALGORITHMS if a.results != AUTO.results and device in a.devices]
    return ", ".join(f'`"{algorithm.name}"`' for algorithm in compared)


def test_the_page_has_the_table() -> None:
    cases = [case for row in TABLE_ROWS.values() for case in row]
    assert len(set(cases)) == len(cases)
    assert set(cases) == {
        (kind, found.interventional, model_output)
        for found in AUTO.results
        for kind in found.kinds
        for model_output in found.model_outputs
    }
    rows = [(label, *(cell(row, device) for device in DEVICES)) for label, row in TABLE_ROWS.items()]
    rows.append((OTHERS, *(others(device) for device in DEVICES)))
    lines = ["| | CPU | GPU |", "| --- | --- | --- |"]
    lines += [re.sub(" +", " ", f"| {' | '.join(row)} |") for row in rows]
    page = (ROOT / "docs/models.md").read_text()
    table = page[page.index(lines[0]) :].partition("\n\n")[0]
    assert table.splitlines() == lines
