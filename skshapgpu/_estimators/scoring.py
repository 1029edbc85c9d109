"""Scorer for cross-validation that keeps the rows that the steps of a pipeline transformed for the score."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline

from .._rows.pipelines import prepare, unwrap
from ..adapters.wrappers import nest, overridden


class KeepingScorer:
    """Scorer like scikit-learn's for ``scoring=None`` or a metric name, for the last step of a pipeline.

    A named metric depends on predictions alone, and a pipeline's own score is that of its last step. So the
    score is the same if the leading steps transform the rows beforehand. The scorer keeps the transformed
    rows, which are then explained, in ``transformed``, by the ``id`` of the pipeline. If another process
    scores, its rows are lost, and are transformed again.
    """

    def __init__(self, scoring: str | None) -> None:
        self._scoring = scoring
        self.transformed: dict[int, Any] = {}

    @staticmethod
    def fits(estimator: Any, scoring: Any, params: Any) -> bool:
        """Return whether this scorer applies: to pipelines that end with a plain model, without metadata."""
        from sklearn.metrics import get_scorer_names

        if params or not isinstance(estimator, Pipeline) or len(estimator.steps) < 2:
            return False
        layers = list(nest(estimator))
        if len(layers) != 2 or overridden(estimator, ("score",)) is not None:
            return False
        is_metric = scoring is None or (isinstance(scoring, str) and scoring in get_scorer_names())
        return hasattr(layers[1], "score") and is_metric

    def __call__(self, estimator: Any, X: Any, *y: Any) -> Any:
        steps, model = unwrap(estimator)
        rows = prepare(steps, X).transformed
        self.transformed[id(estimator)] = rows
        if self._scoring is None:
            return model.score(rows, *y)
        from sklearn.metrics import get_scorer

        return get_scorer(self._scoring)(model, rows, *y)
