"""Explain one model of each library on data bundled with scikit-learn; ``./dev demo`` runs this.

The program prints a table, plots the most important features of each model to demo.png, and writes demo.html,
a page with the table, the plots and the code of each model that needs no other file. If shap is installed, it
explains the same rows, and the table compares the times. The additivity error is the largest difference
between a model's own raw prediction and the base value plus SHAP values. If a prediction exceeds 1 in
magnitude, the difference is divided by the prediction.
"""

from __future__ import annotations

import base64
import html
import inspect
import io
import os
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from skshapgpu import (
    Explanation,
    ShapBarDisplay,
    ShapBeeswarmDisplay,
    ShapInteractionDisplay,
    ShapWaterfallDisplay,
    TreeExplainer,
)

matplotlib.use("Agg")
import matplotlib.pyplot as plt

N_TOP = 3

#: Number of calls that are timed; the fastest counts, so that neither library pays for its first call.
N_CALLS = 3

PICTURE, PAGE = "demo.png", "demo.html"

#: Mark that each page contains, to tell the page from other files of the same name.
GENERATOR = '<meta name="generator" content="skshapgpu demo">'

STYLE = """
:root { color-scheme: light dark; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; }
h2 { margin-top: 3rem; }
table { border-collapse: collapse; }
th, td { padding: 0.3rem 0.8rem; text-align: left; border-bottom: 1px solid #8888; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
pre { padding: 0.8rem; overflow-x: auto; background: #8882; border-radius: 6px; }
img { max-width: 100%; background: #ffffff; border-radius: 6px; }
th, td:first-child { white-space: nowrap; }
.wide { overflow-x: auto; }
"""

#: A fitted model, the rows to explain, and the raw predictions to which base value and SHAP values must add
#: up.
Trained = tuple[Any, Any, np.ndarray]

# The page shows the code of these functions, so each function contains its imports.


def scikit_learn() -> Trained:
    from sklearn.datasets import load_breast_cancer
    from sklearn.ensemble import RandomForestClassifier

    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    model = RandomForestClassifier(100, max_depth=8, random_state=0).fit(X, y)
    return model, X, model.predict_proba(X)[:, 1]


def xgboost() -> Trained:
    from sklearn.datasets import load_diabetes
    from xgboost import XGBRegressor

    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = XGBRegressor(n_estimators=100, max_depth=6, learning_rate=0.1).fit(X, y)
    return model, X, model.predict(X, output_margin=True)


def lightgbm() -> Trained:
    from lightgbm import LGBMClassifier
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True, as_frame=True)
    model = LGBMClassifier(n_estimators=100, min_child_samples=5, verbose=-1).fit(X, y)
    return model, X, np.asarray(model.predict(X, raw_score=True))


def catboost() -> Trained:
    from catboost import CatBoostClassifier
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    model = CatBoostClassifier(100, depth=6, verbose=False, allow_writing_files=False, random_seed=0)
    model.fit(X, y)
    return model, X, model.predict(X, prediction_type="RawFormulaVal")


#: Library, task, data, and what trains the model.
CASES: tuple[tuple[str, str, str, Callable[[], Trained]], ...] = (
    ("scikit-learn", "binary", "breast cancer", scikit_learn),
    ("XGBoost", "regression", "diabetes", xgboost),
    ("LightGBM", "3 classes", "wine", lightgbm),
    ("CatBoost", "binary", "breast cancer", catboost),
)

#: For some libraries, one more picture: the class that draws it, and its code.
MORE = {
    "XGBoost": (
        "Which features act together? Numbers off the diagonal are mean magnitudes of interactions.",
        "ShapInteractionDisplay",
        "ShapInteractionDisplay.from_estimator(model, X, max_features=6)",
    ),
    "CatBoost": (
        "Why this prediction? The values of one row lead from the base value to its prediction.",
        "ShapWaterfallDisplay",
        "ShapWaterfallDisplay.from_explanation(explanation, row=0, max_features=8)",
    ),
}

NEXT = """
<h2>What to do next</h2>
<ul>
<li>Explain your own model: <code>explanation = skshapgpu.explain(model, X)</code>. The model is fitted, and
may be a pipeline that ends in a tree model. <code>docs/quickstart.md</code> goes on from there.</li>
<li>Compare with background data, or explain probabilities or groups of columns:
<code>docs/which_shap.md</code>.</li>
<li>Replace shap: <code>docs/migration.md</code> lists what differs.</li>
<li>Try the examples in the folder <code>examples</code>.</li>
</ul>
"""


@dataclass
class Result:
    """An explained model, as the demo shows it."""

    library: str
    task: str
    data: str
    train: Callable[[], Trained]
    explanation: Explanation
    seconds: float
    shap_seconds: float | None  # None: shap is not installed
    error: float
    model: Any
    X: Any

    @property
    def importance(self) -> np.ndarray:
        """Importance of each feature, summed over the classes."""
        by_output = self.explanation.importance().reshape(self.explanation.values.shape[1], -1)
        importance: np.ndarray = by_output.sum(axis=1)
        return importance

    def strongest(self, count: int) -> tuple[list[str], np.ndarray]:
        """Return the names and the importances of the most important features, the first one first."""
        order = np.argsort(self.importance)[::-1][:count]
        return [self.explanation.feature_names[i] for i in order], self.importance[order]

    def code(self) -> str:
        """Return the code that trains the model, explains it and draws the picture."""
        body = inspect.getsource(self.train).partition("\n")[2]
        training = textwrap.dedent(body).rpartition("return ")[0].rstrip()
        options = "max_features=8" + (", output=0" if self.explanation.values.ndim == 3 else "")
        _, name, drawing = MORE.get(self.library, ("", "", ""))
        classes = ", ".join(sorted({"ShapBeeswarmDisplay", "TreeExplainer", name} - {""}))
        return f"""{training}

from skshapgpu import {classes}

explanation = TreeExplainer(model).explain(X)
ShapBeeswarmDisplay.from_explanation(explanation, {options})
{drawing}""".rstrip()

    def cells(self) -> list[str]:
        n_rows, n_features = self.explanation.values.shape[:2]
        return [
            self.library,
            self.task,
            f"{n_rows}",
            f"{n_features}",
            f"{1_000 * self.seconds:.2g}",
            "" if self.shap_seconds is None else f"{1_000 * self.shap_seconds:,.3g}",
            "" if self.shap_seconds is None else f"{self.shap_seconds / self.seconds:,.0f}",
            f"{self.error:.1e}",
            ", ".join(self.strongest(N_TOP)[0]),
        ]


def explained(library: str, task: str, data: str, train: Callable[[], Trained]) -> Result:
    """Train a model, explain it, and compare the sums of its values with its predictions."""
    model, X, expected = train()
    explainer = TreeExplainer(model)
    rows = X.to_numpy()  # without the time in which a data frame is read
    seconds = fastest(lambda: explainer.explain(rows))
    explanation = explainer.explain(X)
    distance = np.abs(explanation.values.sum(axis=1) + explanation.base_values - expected)
    error = (distance / np.maximum(1, np.abs(expected))).max()
    return Result(
        library, task, data, train, explanation, seconds, time_of_shap(model, rows), float(error), model, X
    )


def fastest(call: Callable[[], Any]) -> float:
    """Return the time of the fastest of a few calls, in seconds."""
    times = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # arrays have no names of features
        for _ in range(N_CALLS):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return min(times)


def time_of_shap(model: Any, rows: np.ndarray) -> float | None:
    """Return the time in which shap explains the rows, in seconds; None if it is not installed."""
    if find_spec("shap") is None:
        return None
    import shap

    explainer = shap.TreeExplainer(model)
    return fastest(lambda: explainer.shap_values(rows))


def overview(results: list[Result]) -> Any:
    """Draw the most important features of all models."""
    figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(h_pad=0.15, w_pad=0.15)
    for result, ax in zip(results, axes.flat, strict=True):
        ShapBarDisplay.from_explanation(result.explanation, max_features=8, ax=ax)
        ax.set_title(f"{result.library}: {result.data} ({result.task})", pad=12)
    return figure


def beeswarm(result: Result) -> Any:
    """Draw the values of a model; of the first class if there are several."""
    output = 0 if result.explanation.values.ndim == 3 else None
    return ShapBeeswarmDisplay.from_explanation(result.explanation, output=output, max_features=8).figure_


def one_more(result: Result) -> Any:
    """Draw the picture of :data:`MORE`: interactions, or the values of one row."""
    if result.library == "XGBoost":
        return ShapInteractionDisplay.from_estimator(result.model, result.X, max_features=6).figure_
    return ShapWaterfallDisplay.from_explanation(result.explanation, row=0, max_features=8).figure_


def picture(figure: Any, description: str) -> str:
    """Return a figure as an image that holds its own data, at twice the usual resolution."""
    file = io.BytesIO()
    figure.savefig(file, dpi=160, bbox_inches="tight")
    width = 100 * figure.get_size_inches()[0]
    plt.close(figure)
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" width="{width:.0f}" alt="{html.escape(description)}">'


def page(results: list[Result], bars: str) -> str:
    """Return the page: commands, table, pictures and the code of each model."""
    heads = ("library", "task", "rows", "features", "ms", "ms, shap", "times", "additivity", "top features")
    table = ["<tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"]
    for result in results:
        cells = [f"<td>{html.escape(cell)}</td>" for cell in result.cells()]
        cells[2:8] = [cell.replace("<td>", '<td class="number">') for cell in cells[2:8]]
        table.append(f"<tr>{''.join(cells)}</tr>")
    packages = ["skshapgpu", "sklearn", "xgboost", "lightgbm", "catboost"]
    packages += ["shap"] if find_spec("shap") is not None else []
    # Their distributions may have other names, such as xgboost-cpu.
    versions = ", ".join(f"{name} {import_module(name).__version__}" for name in packages)
    without_shap = (
        ""
        if find_spec("shap") is not None
        else " To compare times here, install shap, and run the demo again."
    )
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{GENERATOR}',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>skshapgpu demo</title>\n<style>{STYLE}</style>\n</head>\n<body>",
        "<h1>skshapgpu demo</h1>",
        "<p>A model of each library, explained. The milliseconds are those of one call with a small NumPy "
        "array, measured just now on this machine, with the default settings of both libraries; "
        f"<i>times</i> says how many times as long shap takes for the same rows.{without_shap} Additivity is "
        "the largest difference between the model's raw prediction and the base value plus SHAP values.</p>",
        f'<div class="wide"><table>\n{chr(10).join(table)}\n</table></div>',
        f"<p>{versions}</p>",
        f"<p>Made by</p>\n<pre>./dev demo</pre>\n{bars}",
    ]
    for result in results:
        parts += [
            f"<h2>{result.library}: {result.data} ({result.task})</h2>",
            f"<pre>{html.escape(result.code())}</pre>",
            "<p>Which features move predictions, and in which direction? A point is a row of the data.</p>",
            picture(beeswarm(result), f"beeswarm of the {result.library} model"),
        ]
        if result.library in MORE:
            sentence, name, _ = MORE[result.library]
            parts += [
                f"<p>{sentence}</p>",
                picture(one_more(result), f"{name} of the {result.library} model"),
            ]
    return "\n".join([*parts, NEXT, "</body>\n</html>\n"])


def require_ours(path: Path) -> None:
    """Exit, before any work is done, if the file exists and is not a page of this demo."""
    is_ours = path.is_file() and GENERATOR in path.read_text(errors="replace")[:1_000]
    if os.path.lexists(path) and not is_ours:
        sys.exit(f"{path} is not a page of this demo, and is not replaced: move it away")


def main() -> None:
    destination = Path(PAGE)
    require_ours(destination)
    print("library      task         rows features      ms  ms, shap  times  additivity  top features")
    print("-" * 110)
    results = []
    for case in CASES:
        result = explained(*case)
        library, task, rows, features, ours, theirs, times, error, top = result.cells()
        print(
            f"{library:<13}{task:<11}{rows:>6}{features:>9}{ours:>8}{theirs or '-':>10}{times or '-':>7}"
            f"{error:>12}  {top}"
        )
        results.append(result)
    figure = overview(results)
    figure.savefig(PICTURE, dpi=120)
    destination.write_text(page(results, picture(figure, "the most important features of each model")))
    print("\nms: one call on a small dataset; times: shap's time over ours", end="")
    print("" if find_spec("shap") is not None else " (install shap to see it)")
    print(f"Plot: {PICTURE}")
    print(f"Open in a browser: {destination.resolve()}")


if __name__ == "__main__":
    main()
