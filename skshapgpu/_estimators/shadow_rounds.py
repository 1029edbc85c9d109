"""State and tests of a selection by shadows: which columns were above the shadows in each round."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import binom, false_discovery_control

CONFIRMED, UNDECIDED, REJECTED = 1, 0, -1


@dataclass(frozen=True, eq=False)
class ShadowRounds:
    """Rounds of a selection by shadows."""

    decisions: np.ndarray  # int8, (n_features,): 1 is confirmed, -1 rejected, 0 not decided yet
    #: int64, (n_features,): number of rounds, up to the decision about the column, in which the column was
    #: above the shadows.
    hits: np.ndarray
    trials: np.ndarray  # int64, (n_features,): number of all rounds up to the decision about the column
    #: float64, (n_rounds, n_features): importances in each round; NaN for rejected columns, which no longer
    #: take part.
    importances: np.ndarray
    thresholds: np.ndarray  # float64, (n_rounds,): importance that a column had to exceed for a hit

    @classmethod
    def empty(cls, n_features: int) -> ShadowRounds:
        """Return the state before the first round."""
        return cls(
            np.zeros(n_features, np.int8),
            np.zeros(n_features, np.int64),
            np.zeros(n_features, np.int64),
            np.empty((0, n_features)),
            np.empty(0),
        )

    @property
    def n_rounds(self) -> int:
        """Number of rounds."""
        return len(self.thresholds)

    @property
    def columns(self) -> np.ndarray:
        """Positions of the columns that take part in the next round."""
        return np.flatnonzero(self.decisions != REJECTED)

    @property
    def finished(self) -> bool:
        """Whether all columns are confirmed or rejected."""
        return not (self.decisions == UNDECIDED).any()

    def after(
        self, importances: np.ndarray, threshold: float, *, alpha: float, correction: str | None
    ) -> ShadowRounds:
        """Return the state after one more round, with importances of :attr:`columns`.

        For ``alpha`` and ``correction``, see :func:`p_values` and :class:`ShapBoruta`.
        """
        row = np.full(len(self.decisions), np.nan)
        row[self.columns] = importances
        tested = self.decisions == UNDECIDED
        hits = self.hits + (tested & (row > threshold))
        trials = self.trials + tested
        significant = tested & (p_values(hits, trials, correction) <= alpha)
        side = np.where(2 * hits > trials, CONFIRMED, REJECTED)
        return replace(
            self,
            decisions=np.where(significant, side, self.decisions).astype(np.int8),
            hits=hits,
            trials=trials,
            importances=np.vstack([self.importances, row]),
            thresholds=np.append(self.thresholds, threshold),
        )

    def above_in_the_median(self) -> np.ndarray:
        """Return which columns have a median importance, over the rounds, above the median threshold."""
        medians = np.median(self.importances, axis=0)  # NaN for rejected columns, and NaN is not above
        return medians > np.median(self.thresholds)

    def mean_importances(self) -> np.ndarray:
        """Return the mean importance of each column over the rounds in which it took part."""
        return np.nanmean(self.importances, axis=0)


def p_values(hits: np.ndarray, trials: np.ndarray, correction: str | None) -> np.ndarray:
    """Return two-sided p-values of the binomial test, corrected for the number of columns.

    The null hypothesis is that a column is above the shadows with probability 1/2.
    """
    # The distribution is symmetric, so twice the smaller tail is the two-sided p-value.
    uncorrected = np.minimum(1.0, 2 * binom.cdf(np.minimum(hits, trials - hits), trials, 0.5))
    if correction == "bonferroni":
        return np.minimum(1.0, uncorrected * len(uncorrected))
    return false_discovery_control(uncorrected) if correction == "fdr_bh" else uncorrected
