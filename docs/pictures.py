"""Draw the pictures of README and docs/displays.md, at twice the usual resolution.

Run ``python docs/pictures.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor

from skshapgpu import (
    ShapBarDisplay,
    ShapBeeswarmDisplay,
    ShapComparisonDisplay,
    ShapDependenceDisplay,
    ShapInteractionDisplay,
    ShapWaterfallDisplay,
    cross_val_explain,
    explain,
)

FOLDER = Path(__file__).resolve().parent / "images"


def save(name: str, display: Any) -> None:
    display.figure_.savefig(FOLDER / f"{name}.png", dpi=200, bbox_inches="tight", metadata={"Software": None})
    plt.close(display.figure_)


def main() -> None:
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    model = HistGradientBoostingRegressor(random_state=0).fit(X, y)
    explanation = explain(model, X)
    results = cross_val_explain(HistGradientBoostingRegressor(random_state=0), X, y, cv=5)
    save("beeswarm", ShapBeeswarmDisplay.from_explanation(explanation))
    save("bar_cross_validation", ShapBarDisplay.from_cv_results(results, max_features=8))
    save("dependence", ShapDependenceDisplay.from_explanation(explanation, "bmi"))
    save("waterfall", ShapWaterfallDisplay.from_explanation(explanation, row=3))
    moved = explain(model, X.assign(bmi=X["bmi"] + 5))
    save("comparison", ShapComparisonDisplay.from_explanations(explanation, moved, max_features=5))
    save("interactions", ShapInteractionDisplay.from_estimator(model, X, max_features=6))


if __name__ == "__main__":
    main()
