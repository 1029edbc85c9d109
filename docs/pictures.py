"""Draw the pictures of README and docs/displays.md, at twice the usual resolution.

Run ``python docs/pictures.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor

from skshapgpu import (
    Explanation,
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

#: Inches of the pictures on the cards of the first page.
CARD = (4.0, 2.8)


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
    with plt.rc_context({"figure.figsize": CARD, "figure.constrained_layout.use": True}):
        cards(model, X, explanation, results, moved)


def cards(
    model: HistGradientBoostingRegressor,
    X: pd.DataFrame,
    explanation: Explanation,
    results: dict[str, Any],
    moved: Explanation,
) -> None:
    """Draw the small pictures of the first page: few features, in letters that can be read at that size."""

    def axes() -> Any:
        return plt.subplots()[1]

    save(
        "card_waterfall", ShapWaterfallDisplay.from_explanation(explanation, row=3, max_features=4, ax=axes())
    )
    save("card_bars", ShapBarDisplay.from_cv_results(results, max_features=4, ax=axes()))
    save("card_dependence", ShapDependenceDisplay.from_explanation(explanation, "bmi", ax=axes()))
    save("card_interactions", ShapInteractionDisplay.from_estimator(model, X, max_features=4, ax=axes()))
    comparison = ShapComparisonDisplay.from_explanations(explanation, moved, max_features=3, ax=axes())
    comparison.sample_names = ("May", "June")
    save("card_comparison", comparison.plot(ax=axes(), max_features=3))


if __name__ == "__main__":
    main()
