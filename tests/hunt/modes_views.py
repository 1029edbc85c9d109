"""Modes that compute the same values in other ways: importances, tables, selections, command line."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from skshapgpu import explain, shap_importance
from skshapgpu.command_line import main

from . import games, readers_sklearn, trees, wrappers
from .case import N_DEFINED, Case
from .modes import adds_up, adds_up_probabilities, explainer_of, of_kept, outputs_last, widened_base
from .refusals import refusal
from .report import NotDrawnError, Report


def importances(case: Case, report: Report) -> None:
    """Check means over rows and over parts of them against means of the values."""
    options: Any = {"device": case.device, **case.draw.options}
    options.pop("columns", None)  # importances belong to all columns
    values = outputs_last(explain(case.fitted.top, case.X, **options).values.astype(float), 3)
    how: Any = ["mean_abs", "rms", "max_abs"][case.draw.background % 3]
    aggregate = {
        "mean_abs": lambda part: np.abs(part).mean(axis=0),
        "rms": lambda part: np.sqrt((part**2).mean(axis=0)),
        "max_abs": lambda part: np.abs(part).max(axis=0),
    }[how]
    result = shap_importance(case.fitted.top, case.X, aggregation=how, n_parts=3, explain_params=options)
    scale = 1e-6 * np.abs(values).max(initial=0)
    report.close("importances of all rows", result.importances_mean, aggregate(values).sum(axis=1), scale)
    parts = np.stack([aggregate(values[i::3]).sum(axis=1) for i in range(3)], axis=1)
    report.close("importances of parts", result.importances, parts, scale)
    adds_up(case, report, explain(case.fitted.top, case.X, **options))


def views(case: Case, report: Report) -> None:
    """Check slices, tables and arrays of an explanation against its values, and main effects."""
    explainer = explainer_of(case)
    explanation = explainer.explain(case.X)
    adds_up(case, report, explanation)
    values = explanation.values
    report.equal("as an array", np.asarray(explanation), values)
    frame = explanation.to_frame()
    report.equal("as a frame", frame.to_numpy(), values.reshape(len(values), -1))
    some = case.rng.permutation(len(values))[:4]
    report.equal("rows", explanation[some].values, values[some])
    name = explanation.feature_names[-1]
    report.equal("a column", explanation[:, name].values, values[:, -1:])
    if values.ndim == 3:
        assert explanation.output_names is not None
        last = explanation.output_names[-1]
        label = last if isinstance(last, str) else -1  # numbers are positions
        report.equal("an output", explanation[..., label].values, values[..., -1])
    direct = explainer.shap_values(case.X)
    report.equal("shap_values", direct, values)
    pairs = explainer.explain_interactions(case.X, interactions="occurring", index="SII")
    from_pairs = outputs_last(pairs.matrices().astype(float), 4)
    matrices = outputs_last(explainer.shap_interaction_values(case.X).astype(float), 4)
    report.close("matrices", from_pairs, matrices, case.allowed(matrices, factor=2))
    main_effects = outputs_last(np.asarray(pairs.main_effects(), float), 3)
    diagonal = np.einsum("nppk->npk", matrices)
    report.close("main effects", main_effects, diagonal, case.allowed(matrices, factor=3))


def covers(case: Case, report: Report) -> None:
    """Check scikit-learn's trees with counts of rows in place of weights."""
    model = case.fitted.last
    if type(model).__module__.partition(".")[0] != "sklearn" or type(model).__name__.startswith("Hist"):
        raise NotDrawnError("covers: of trees of scikit-learn only")
    explainer = explainer_of(case, cover="count")
    explanation = explainer.explain(case.X)
    adds_up(case, report, explanation)
    if case.trees is None:
        return
    _, rows = case.trees
    counted = list(readers_sklearn.trees(model, counts=True))
    right = of_kept(case, games.values(trees.coalition_values(counted, rows, case.n_outputs)))
    if case.draw.options.get("outputs") == "all":
        right = np.concatenate([-right, right], axis=-1)
    got = outputs_last(explanation.values, 3)
    report.close("values by counts", got[:N_DEFINED], right, case.allowed(right, exact=True))


def command_line(case: Case, report: Report) -> None:
    """Check ``skshapgpu explain`` of a model file or an explainer file, from a file to a file."""
    folder = Path(wrappers.FOLDER or ".")
    X = case.converted.plain
    if case.fitted.steps or not isinstance(X, (pd.DataFrame, np.ndarray)):
        raise NotDrawnError("command line: no steps, no sparse X")
    model = case.fitted.top
    if not isinstance(model, Path):
        explainer = explainer_of(case)
        if explainer._reader.steps:
            raise NotDrawnError("command line: no steps, no sparse X")
        explainer.save(folder / "explainer.npz")
        model = folder / "explainer.npz"
    frame = (
        X if isinstance(X, pd.DataFrame) else pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    )
    frame = frame.assign(**{"row number": np.arange(len(frame))})
    kind = "csv" if case.draw.form in ("matrices", "list") and not case.data.categorical else "parquet"
    source, sink = folder / f"rows.{kind}", folder / "values.parquet"
    frame.to_csv(source, index=False) if kind == "csv" else frame.to_parquet(source, index=False)
    arguments = ["explain", str(model), str(source), "-o", str(sink), "--keep", "row number", "--json"]
    out, err = io.StringIO(), io.StringIO()
    if model.suffix != ".npz":
        arguments += ["--precision", case.draw.options.get("precision", "single")]
        arguments += ["--columns", case.draw.options.get("columns", "all")]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([*arguments, "--device", "cpu", "--batch-size", "5"])
    if status:
        text = out.getvalue() + err.getvalue()
        report.true(
            "the command line explains", refusal(case.draw, case.accepted, text, "file") is not None, text
        )
        return
    table = pd.read_parquet(sink)
    report.equal("kept column", table.pop("row number").tolist(), list(range(len(frame))))
    answer = json.loads(out.getvalue())
    report.equal("rows written", answer["rows"] if "rows" in answer else len(table), len(frame))
    saved = model.suffix == ".npz"
    k = case.n_outputs * (2 if saved and case.draw.options.get("outputs") == "all" else 1)
    got = table.to_numpy(float).reshape(len(table), -1, k)
    report.equal("columns written", got.shape[1], len(case.kept))
    base = np.reshape(_base_values(sink), (1, -1))
    margins = case.library("predict", case.margin, X)
    right = widened_base(case, margins, adds_up_probabilities(case)) if k > case.n_outputs else margins
    scale = np.abs(got).sum(axis=1).max(axis=0, initial=0)
    allowed = case.allowed(right * 0 + scale, whole=True, factor=2)
    report.close("additivity of the command line", base + got.sum(axis=1), right, allowed)


def _base_values(path: Path) -> Any:
    import pyarrow.parquet

    return json.loads(pyarrow.parquet.read_schema(path).metadata[b"skshapgpu"])["base_values"]


VIEWS = {"importances": importances, "views": views, "covers": covers, "command line": command_line}
