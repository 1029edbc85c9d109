"""Recursive feature elimination by SHAP values of unseen rows, with cross-validated scores."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
from sklearn.metrics import check_scoring
from sklearn.utils import check_scalar
from sklearn.utils.metadata_routing import MetadataRouter

from .._common.checks import require_count, require_one_of
from .._common.progress import require_progress, watched
from .._common.types import CrossValidation, ExplainerOptions, Progress, Table, Vector
from .._rows.tables import select, table
from ..adapters.step_origins import ONE_TO_ONE, selected
from .selecting import OutOfFoldSelector, TrainingRows, mapping_to


class ShapRFECV(OutOfFoldSelector):
    """Feature selector that eliminates the least important columns, and keeps those with the best score.

    It works like :class:`sklearn.feature_selection.RFECV`, but by mean magnitudes of SHAP values of rows that
    the models were not trained on. In each step, the model is fitted and scored on each split; columns are
    eliminated by the mean of their importances over the splits, so that there is one order of elimination.

    Parameters
    ----------
    estimator : estimator
        A tree model, or a ``Pipeline``, search or :class:`ShapTransformer` around one; see
        :class:`TreeExplainer`. The steps of a pipeline must make each output column from one input column.
        If the first step is a ``ColumnTransformer``, columns that it names may be eliminated. Give the model
        a ``random_state`` for results that can be reproduced.
    step : int or float, default=1
        Number of columns to eliminate in each step. A number below 1 is a fraction of the columns of X, which
        is rounded down to whole columns, but is at least one column.
    min_features_to_select : int, default=1
        Smallest number of columns.
    cv : int, cross-validation generator or iterable, default=None
        Splits, which are the same in all steps; None: 5 folds.
    scoring : str, callable or None, default=None
        Score for choosing the number of columns; see :func:`sklearn.model_selection.cross_validate`. None:
        the score of the model.
    rule : {"best", "one_std_err"}, default="best"
        "best" selects the best mean score, with the fewest columns if several numbers of columns reach it.
        "one_std_err" selects the fewest columns whose mean score is at most one standard error below the best
        mean score. The standard error is that of the best mean over its splits.
    n_jobs : int or None, default=None
        Number of concurrent fits, and of threads.
    progress : bool or callable, default=False
        Whether to show a progress bar of the steps, or a function to call after each step with the number of
        steps that are done and the number of all steps.
    explain_params : dict or None, default=None
        Options of :class:`TreeExplainer`.

    Attributes
    ----------
    support_ : ndarray of bool, shape (n_features,)
        Selected columns.
    n_features_ : int
        Number of selected columns.
    ranking_ : ndarray of int64, shape (n_features,)
        1 for selected columns; the earlier a column was eliminated, the larger its rank.
    cv_results_ : dict of ndarray, shape (n_steps,)
        Numbers of columns ``n_features`` in ascending order, and for each number ``mean_test_score``,
        ``std_test_score``, ``split0_test_score``, ``split1_test_score`` and so on.
    importances_history_ : ndarray of float64, shape (n_steps, n_features)
        Importances for each number of columns, in the order of ``cv_results_``; NaN for columns that were
        eliminated before.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        When X has string names.

    See Also
    --------
    ShapBoruta : Keep all columns that are more important than permuted ones.

    Notes
    -----
    The scores are too optimistic: the rows that are scored also determined the order of elimination, and the
    best of several scores is chosen. For an honest score, put the selector into a ``Pipeline`` and
    cross-validate the pipeline. If ``fit`` is given ``sample_weight``, rows count by their weights in the
    importances.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import ShapRFECV
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = RandomForestRegressor(20, max_depth=5, random_state=0)
    >>> selector = ShapRFECV(model, rule="one_std_err").fit(X, y)
    >>> selector.get_feature_names_out()
    array(['bmi', 'bp', 's5'], dtype=object)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        step: int | float = 1,
        min_features_to_select: int = 1,
        cv: CrossValidation = None,
        scoring: Any = None,
        rule: Literal["best", "one_std_err"] = "best",
        n_jobs: int | None = None,
        progress: Progress = False,
        explain_params: ExplainerOptions | None = None,
    ) -> None:
        self.estimator = estimator
        self.step = step
        self.min_features_to_select = min_features_to_select
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.n_jobs = n_jobs
        self.progress = progress
        self.explain_params = explain_params

    def fit(self, X: Table, y: Vector | None = None, **params: Any) -> Self:
        """Eliminate columns step by step, and select the best of these steps.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,), default=None
            Target of each row, in a form that the model's ``fit`` accepts.
        **params
            Parameters of the model's ``fit``, ``groups`` for the splitter, and parameters of the score:
            routed if metadata routing is enabled, otherwise passed on to ``fit`` and the splitter.

        Returns
        -------
        ShapRFECV
            The selector itself.

        Raises
        ------
        UnsupportedModelError
            The model cannot be explained exactly; raised before any fit if its class shows that.
        ValueError
            A parameter is invalid, a score is not a finite number, a parameter of the model has an entry for
            each column and cannot be changed when columns are eliminated, or a step before the model is not
            known to make each output column from one input column.
        """
        self._check_options()
        rows = self._rows(X, y, params)
        n_features = rows.X.shape[1]
        sizes = self._sizes(n_features)
        remaining = np.arange(n_features)
        history = np.full((len(sizes), n_features), np.nan)
        scores = []
        with watched(self.progress, len(sizes), title="selecting", unit="steps") as tracker:
            for number, size in enumerate(sizes):
                if number:
                    # The first of several equally important columns remain.
                    order = np.argsort(-history[number - 1, remaining], kind="stable")
                    remaining = np.sort(remaining[order[:size]])
                history[number, remaining], split_scores = self._step(rows, remaining)
                scores.append(split_scores)
                if tracker is not None:
                    tracker.done(number + 1)
        self._conclude(np.array(sizes[::-1]), np.array(scores[::-1]), history[::-1])
        return self

    def _check_options(self) -> None:
        """Reject invalid parameters before any work starts."""
        if isinstance(self.step, Integral):
            require_count("step", self.step)
        else:
            check_scalar(self.step, "step", Real, min_val=0, max_val=1, include_boundaries="neither")
        require_count("min_features_to_select", self.min_features_to_select)
        require_one_of("rule", self.rule, ("best", "one_std_err"))
        require_progress(self.progress)
        if not (self.scoring is None or isinstance(self.scoring, str) or callable(self.scoring)):
            raise ValueError(f"scoring must be one score: a name, a function or None, not {self.scoring!r}")
        check_scoring(self.estimator, self.scoring)

    def _sizes(self, n_features: int) -> list[int]:
        """Return the number of columns in each step."""
        step = self.step if isinstance(self.step, Integral) else max(1, int(self.step * n_features))
        fewest = min(self.min_features_to_select, n_features)
        sizes = list(range(n_features, fewest, -step))
        return [*sizes, fewest]

    def _step(self, rows: TrainingRows, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the importances of columns, and the score of each split, of models of these columns."""
        options = dict(self.explain_params or {})
        if options.get("data") is not None:
            options["data"] = select(table(options["data"]), slice(None), columns)
        importances = self._importances(
            self.estimator,
            select(rows.X, slice(None), columns),
            columns,
            rows,
            scoring=self.scoring,
            explain_params=options,
        )
        scores = importances.scores
        assert scores is not None
        bad_splits = np.flatnonzero(~np.isfinite(scores))
        if len(bad_splits):
            raise ValueError(
                f"the score of split {bad_splits[0]} is {scores[bad_splits[0]]}: choose scoring= and cv= so "
                "that each split has a score; stratified splits have all classes"
            )
        return importances.mean, scores

    def _conclude(self, sizes: np.ndarray, scores: np.ndarray, history: np.ndarray) -> None:
        """Set the attributes of the result, from steps in ascending order of their number of columns."""
        means = scores.mean(axis=1)
        self.cv_results_ = {
            "n_features": sizes,
            "mean_test_score": means,
            "std_test_score": scores.std(axis=1),
            **{f"split{k}_test_score": split_scores for k, split_scores in enumerate(scores.T)},
        }
        best = int(np.argmax(means))
        if self.rule == "one_std_err" and scores.shape[1] > 1:
            error = scores[best].std(ddof=1) / np.sqrt(scores.shape[1])
            best = int(np.argmax(means >= means[best] - error))
        self.importances_history_ = history
        took_part = ~np.isnan(history)
        self.support_ = took_part[best]
        self.n_features_ = int(sizes[best])
        smallest = np.argmax(took_part, axis=0)  # the last step that a column took part in
        self.ranking_ = 1 + np.maximum(0, smallest - best)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return where ``fit`` sends its parameters.

        Returns
        -------
        MetadataRouter
            Routes to the model's ``fit``, to the splitter if ``cv`` is one, and to the score.
        """
        router = super().get_metadata_routing()
        scorer = check_scoring(self.estimator, self.scoring)
        return router.add(scorer=scorer, method_mapping=mapping_to("score"))


ONE_TO_ONE[ShapRFECV] = selected
