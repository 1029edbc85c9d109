"""Feature selection by shadows: keep columns that are more important on unseen rows than permuted columns."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
from scipy.stats import rankdata
from sklearn.utils import check_random_state, check_scalar

from .._common.checks import require_count, require_one_of
from .._common.progress import require_progress, watched
from .._common.types import CrossValidation, ExplainerOptions, Progress, Table, Vector
from .._rows.tables import table
from ..adapters.step_origins import ONE_TO_ONE, selected
from .selecting import OutOfFoldSelector, TrainingRows
from .shadow_rounds import CONFIRMED, REJECTED, UNDECIDED, ShadowRounds, p_values
from .shadows import seeded, shadow_sources, with_shadows


class ShapBoruta(OutOfFoldSelector):
    """Feature selector that keeps the columns that are more important than shadows, after Boruta.

    In each round, shadows are added to X: copies of its columns, each in a random order of its own, so that
    they say nothing about y. The model is fitted on each split, and a column has a hit if the mean magnitude
    of its SHAP values, over rows that the models were not trained on, exceeds the mean magnitude of the most
    important shadow. A column with significantly more hits than misses is confirmed. A column with
    significantly fewer hits is rejected, and takes no part in later rounds. The rounds end when all columns
    are decided.

    :class:`ShapSelector` and :class:`ShapRFECV` look for few columns that predict well. This class looks for
    all columns that matter, also for columns whose information other columns have as well.

    Parameters
    ----------
    estimator : estimator
        A tree model, or a ``Pipeline``, search or :class:`ShapTransformer` around one; see
        :class:`TreeExplainer`. The steps of a pipeline must make each output column from one input column.
        If a ``ColumnTransformer`` is the first step, it treats a shadow like the column that the shadow is
        made from. Each ``random_state`` of the estimator that is None is set in each round, from the
        parameter ``random_state`` below.
    max_iter : int, default=100
        Largest number of rounds.
    alpha : float, default=0.05
        Level of significance of the decisions.
    percentile : float, default=100
        Percentile of the importances of the shadows that a column must exceed for a hit. 100 is the largest
        importance; a smaller percentile keeps more columns.
    correction : {"bonferroni", "fdr_bh"} or None, default="bonferroni"
        Correction of the p-values for the number of columns: "bonferroni" by Bonferroni, "fdr_bh" by
        Benjamini and Hochberg, which decides earlier.
    tentative : {"drop", "keep", "median"}, default="drop"
        Whether to select columns that are not decided after ``max_iter`` rounds. "median" selects such a
        column if its median importance over the rounds exceeds the median of ``thresholds_``. A change takes
        effect in the next ``fit``.
    cv : int, cross-validation generator or iterable, default=None
        Splits, which are the same in all rounds; None: 5 folds.
    n_jobs : int or None, default=None
        Number of concurrent fits, and of threads.
    random_state : int, RandomState instance or None, default=None
        Seed of the order of the shadows. With an int, all results are the same to the bit for any
        ``n_jobs``, if the results of the model are.
    warm_start : bool, default=False
        Whether ``fit`` adds rounds to the rounds of the previous ``fit``, up to ``max_iter`` in total, even
        if the previous ``fit`` was interrupted. The result is the same as after all rounds in one call. X, y
        and all other parameters must be the same; the splits of the first call are used.
    progress : bool or callable, default=False
        Whether to show a progress bar of the rounds, or a function to call after each round with the number
        of rounds that are done and ``max_iter``.
    explain_params : dict or None, default=None
        Options of :class:`TreeExplainer`. Background data (``data``) gets shadows of its own.

    Attributes
    ----------
    support_ : ndarray of bool, shape (n_features,)
        Selected columns.
    confirmed_, tentative_, rejected_ : ndarray of bool, shape (n_features,)
        The decision about each column.
    n_features_ : int
        Number of selected columns.
    ranking_ : ndarray of int64, shape (n_features,)
        1 for confirmed columns, 2 for tentative ones; rejected columns follow by mean importance.
    p_values_ : ndarray of float64, shape (n_features,)
        Corrected two-sided p-values of the exact binomial test of ``hits_`` against chance, 1/2.
    hits_ : ndarray of int64, shape (n_features,)
        Number of rounds, up to the decision about the column, in which the column exceeded the shadows.
    n_trials_ : ndarray of int64, shape (n_features,)
        Number of all rounds up to the decision about the column.
    n_iter_ : int
        Number of rounds.
    importances_ : ndarray of float64, shape (n_features,)
        Mean of the importances over the rounds in which the column took part.
    importances_history_ : ndarray of float64, shape (n_rounds, n_features)
        Importance of each column in each round; NaN after it was rejected.
    thresholds_ : ndarray of float64, shape (n_rounds,)
        Importance of the shadows, at ``percentile``, in each round.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        When X has string names.

    See Also
    --------
    ShapSelector : Keep columns by a threshold or their number, with a single fit for each split.
    ShapRFECV : Keep the columns with the best score.

    Notes
    -----
    A round needs a fit for each split. A model sees the columns that are not rejected and as many shadows, or
    five shadows if there are fewer columns. If ``fit`` is given ``sample_weight``, rows count by their
    weights in the importances. A column is tested in every round until it is decided, as in Boruta, and
    p-values are not corrected for the repeated tests.

    References
    ----------
    M. B. Kursa, W. R. Rudnicki: Feature Selection with the Boruta Package. Journal of Statistical Software
    36 (11), 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import ShapBoruta
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = RandomForestRegressor(20, max_depth=5, random_state=0)
    >>> selector = ShapBoruta(model, cv=3, max_iter=20, random_state=0).fit(X, y)
    >>> selector.get_feature_names_out()
    array(['bmi', 'bp', 's3', 's5', 's6'], dtype=object)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        max_iter: int = 100,
        alpha: float = 0.05,
        percentile: float = 100,
        correction: Literal["bonferroni", "fdr_bh"] | None = "bonferroni",
        tentative: Literal["drop", "keep", "median"] = "drop",
        cv: CrossValidation = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        progress: Progress = False,
        explain_params: ExplainerOptions | None = None,
    ) -> None:
        self.estimator = estimator
        self.max_iter = max_iter
        self.alpha = alpha
        self.percentile = percentile
        self.correction = correction
        self.tentative = tentative
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.progress = progress
        self.explain_params = explain_params

    def fit(self, X: Table, y: Vector | None = None, **params: Any) -> Self:
        """Compare the columns with shadows, round by round.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,), default=None
            Target of each row, in a form that the model's ``fit`` accepts.
        **params
            Parameters of the model's ``fit``, and ``groups`` for the splitter: routed if metadata routing
            is enabled, otherwise passed on.

        Returns
        -------
        ShapBoruta
            The selector itself.

        Raises
        ------
        UnsupportedModelError
            The model cannot be explained exactly; raised before any fit if its class shows that.
        ValueError
            A parameter is invalid, a parameter of the model has an entry for each column and cannot be
            extended to shadows, or a step before the model is not known to make each output column from one
            input column.
        """
        self._check_options()
        resumed = self.warm_start and hasattr(self, "_rounds")
        rows = self._rows(X, y, params, reset=not resumed)
        if not resumed:
            self._rounds = ShadowRounds.empty(rows.X.shape[1])
            self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._splits, self._n_rows = rows.splits, rows.X.shape[0]
        self._require_continuation(rows)
        rows = replace(rows, splits=self._splits)
        n_before = self._rounds.n_rounds
        with watched(self.progress, self.max_iter, n_before, title="selecting", unit="rounds") as tracker:
            while self._rounds.n_rounds < self.max_iter and not self._rounds.finished:
                self._rounds = self._next_round(rows)
                if tracker is not None:
                    tracker.done(self._rounds.n_rounds)
        self._conclude()
        return self

    def _check_options(self) -> None:
        """Reject invalid parameters before any work starts."""
        require_count("max_iter", self.max_iter)
        check_scalar(self.alpha, "alpha", Real, min_val=0, max_val=1, include_boundaries="neither")
        check_scalar(self.percentile, "percentile", Real, min_val=0, max_val=100, include_boundaries="right")
        if self.correction is not None:
            require_one_of("correction", self.correction, ("bonferroni", "fdr_bh"))
        require_one_of("tentative", self.tentative, ("drop", "keep", "median"))
        require_progress(self.progress)

    def _require_continuation(self, rows: TrainingRows) -> None:
        """Reject rows and parameters that cannot continue the previous rounds."""
        n_rounds, n_rows = self._rounds.n_rounds, rows.X.shape[0]
        if n_rows != self._n_rows:
            raise ValueError(
                f"warm_start=True continues with the same rows: there were {self._n_rows}, now X has {n_rows}"
            )
        if self.max_iter < n_rounds:
            raise ValueError(
                f"max_iter={self.max_iter} must be at least {n_rounds}, the number of rounds so far, with "
                "warm_start=True"
            )

    def _next_round(self, rows: TrainingRows) -> ShadowRounds:
        """Return the state after another round, whose random numbers depend on its number alone."""
        rng = np.random.default_rng([self._seed, self._rounds.n_rounds])
        columns = self._rounds.columns
        copied = shadow_sources(columns)
        options = dict(self.explain_params or {})
        X = with_shadows(rows.X, columns, copied, rng)
        model = seeded(self.estimator, rng)
        if options.get("data") is not None:
            options["data"] = with_shadows(table(options["data"]), columns, copied, rng)
        sources = np.concatenate([columns, copied])
        importances = self._importances(model, X, sources, rows, explain_params=options).mean
        shadow_importances = importances[len(columns) :]
        return self._rounds.after(
            importances[: len(columns)],
            float(np.percentile(shadow_importances, self.percentile)),
            alpha=self.alpha,
            correction=self.correction,
        )

    def _conclude(self) -> None:
        """Set the attributes of the result."""
        rounds = self._rounds
        self.confirmed_, self.tentative_, self.rejected_ = (
            rounds.decisions == decision for decision in (CONFIRMED, UNDECIDED, REJECTED)
        )
        self.n_iter_ = rounds.n_rounds
        self.hits_, self.n_trials_ = rounds.hits, rounds.trials
        self.p_values_ = p_values(rounds.hits, rounds.trials, self.correction)
        self.importances_history_, self.thresholds_ = rounds.importances, rounds.thresholds
        self.importances_ = rounds.mean_importances()
        self.ranking_ = np.where(self.confirmed_, 1, 2)
        self.ranking_[self.rejected_] = 2 + rankdata(-self.importances_[self.rejected_], "min")
        to_keep = {"drop": False, "keep": True, "median": rounds.above_in_the_median()}[self.tentative]
        self.support_ = self.confirmed_ | (self.tentative_ & to_keep)
        self.n_features_ = int(self.support_.sum())


ONE_TO_ONE[ShapBoruta] = selected
