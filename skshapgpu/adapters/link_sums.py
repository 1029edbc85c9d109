"""Predictions that add up functions of several margins, such as the mean of the models' probabilities.

A :class:`LinkSum` computes each output of a model from the margins of an ensemble:

    output[o] = offset[o] + sum over terms of weights[o] @ function(margins of the term)

The function of a term is a link of each of its margins or, for a softmax, of all of them; then, for
calibrated classifiers, a calibrator of each number; and then, for three or more classes, a division by the
sum. A sum is *joint* if one of its functions mixes margins. Otherwise each function depends on one margin,
and has slopes between two margins, which are computed here without the cancellation in their definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import expit, softmax

#: Rounding error of outputs, relative to the weights of functions whose values are at most 1.
_ROUNDING = 2.0**-44

#: Distance of margins that may differ by rounding only, relative to the largest margin.
_SAME = 2.0**-47

#: Largest slope of each link with scale 1. The slope of "exp" has no bound.
_LARGEST_SLOPES = {"identity": 1.0, "logistic": 0.25, "softmax": 0.5}


def _is_number(value: Any) -> bool:
    return isinstance(value, (float, int)) and not isinstance(value, bool) and bool(np.isfinite(value))


def _are_numbers(value: Any, n_dimensions: int) -> bool:
    is_array = isinstance(value, np.ndarray) and value.dtype == np.float64 and value.ndim == n_dimensions
    return is_array and bool(np.isfinite(value).all())


def _logistic_slope(x: Any, b: Any) -> np.ndarray:
    """Return the slope of expit between numbers, or its derivative if they are equal."""
    low, high = np.minimum(x, b), np.maximum(x, b)
    return expit(high) * expit(-low) * _relative_rise(high - low)


def _relative_rise(d: np.ndarray) -> np.ndarray:
    """Return (1 - exp(-d)) / d, which is 1 for d = 0."""
    return np.divide(-np.expm1(-d), d, out=np.ones_like(d), where=d > 0)


@dataclass(frozen=True)
class Sigmoid:
    """Calibrator of ``method="sigmoid"``: the function 1 / (1 + exp(factor * x + shift))."""

    factor: float
    shift: float

    def __post_init__(self) -> None:
        if not (_is_number(self.factor) and _is_number(self.shift)):
            raise ValueError(f"{self!r:.200} has a factor or a shift that is not a finite number")

    def of(self, x: np.ndarray) -> np.ndarray:
        return expit(-(self.factor * x + self.shift))

    def slopes(self, x: np.ndarray, b: np.ndarray) -> np.ndarray:
        return -self.factor * _logistic_slope(*(-(self.factor * number + self.shift) for number in (x, b)))

    @property
    def steepest(self) -> float:
        return abs(self.factor) / 4


@dataclass(frozen=True, eq=False)
class Isotonic:
    """Calibrator of ``method="isotonic"``: linear between points, and constant beyond the first and last.

    Attributes
    ----------
    x, y : ndarray of float64, shape (n_points,)
        The points; ``x`` is ascending, and ``y`` does not descend.
    """

    x: np.ndarray
    y: np.ndarray

    def __post_init__(self) -> None:
        if not (_are_numbers(self.x, 1) and _are_numbers(self.y, 1) and len(self.x) == len(self.y) > 0):
            raise ValueError("the points of an isotonic calibrator are not pairs of finite float64 numbers")
        if not ((np.diff(self.x) > 0).all() and (np.diff(self.y) >= 0).all()):
            raise ValueError("the points of an isotonic calibrator are not in ascending order")

    def of(self, x: np.ndarray) -> np.ndarray:
        return np.interp(x, self.x, self.y)

    def slopes(self, x: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return slopes; the derivative at a point is the mean of the derivatives on both sides."""
        segments = self._segments
        low, high = np.minimum(x, b), np.maximum(x, b)
        after, before = np.searchsorted(self.x, low), np.searchsorted(self.x, high, "right") - 1
        # Without a point between the numbers, or on them, both are on the segment that ends at "after".
        is_alone = after > before
        first, last = np.minimum(after, len(self.x) - 1), np.maximum(before, 0)
        rise = segments[after] * (self.x[first] - low)
        rise += self.y[last] - self.y[first] + segments[before + 1] * (high - self.x[last])
        distance = high - low
        quotient = np.divide(rise, distance, out=np.zeros_like(distance), where=distance > 0)
        slopes = np.where(is_alone, segments[after], quotient)
        # Points are margins of training rows, whose rounding depends on the order of the trees.
        near = _SAME * np.abs(self.x).max()
        after = np.searchsorted(self.x, low - near)
        is_at_point = np.searchsorted(self.x, high + near, "right") - after == 1
        is_at_point &= distance <= near
        both_sides = (segments[after] + segments[np.minimum(after + 1, len(self.x))]) / 2
        return np.where(is_at_point, both_sides, slopes)

    @property
    def _segments(self) -> np.ndarray:
        """Slopes of the segments that end at each point, and of that after the last one."""
        return np.concatenate([[0.0], np.diff(self.y) / np.diff(self.x), [0.0]])

    @property
    def steepest(self) -> float:
        return float(self._segments.max())


@dataclass(frozen=True, eq=False)
class Term:
    """Function of some margins that a sum adds up.

    Attributes
    ----------
    link : {"identity", "logistic", "softmax", "exp"}
        Link of each margin; "softmax" is a link of all margins of the term.
    scale : float
        Factor of the margin in the link; it may be negative for "exp".
    weights : ndarray of float64, shape (n_outputs, n_margins)
        Weight of each number in each output.
    calibrators : tuple of Sigmoid or Isotonic
        Calibrator of the number of each margin, after the link; empty if there are none.
    is_normalised : bool
        Whether the numbers are divided by their sum. If the sum is 0, all are one nth instead.
    """

    link: Literal["identity", "logistic", "softmax", "exp"]
    scale: float
    weights: np.ndarray
    calibrators: tuple[Sigmoid | Isotonic, ...] = ()
    is_normalised: bool = False

    def __post_init__(self) -> None:
        if self.link not in _LARGEST_SLOPES and self.link != "exp":
            raise ValueError(f"the link of a function of margins is {self.link!r:.80}, which is unknown")
        if not _is_number(self.scale) or type(self.is_normalised) is not bool:
            raise ValueError("a function of margins has a scale or a division by the sum that is not valid")
        if not _are_numbers(self.weights, 2):
            raise ValueError("the weights of a function of margins are not a matrix of finite numbers")
        are_calibrators = isinstance(self.calibrators, tuple) and all(
            isinstance(calibrator, (Sigmoid, Isotonic)) for calibrator in self.calibrators
        )
        if not are_calibrators or len(self.calibrators) not in (0, self.n_margins):
            raise ValueError(f"there is not a calibrator for each of the {self.n_margins} margins of a term")

    @property
    def n_margins(self) -> int:
        return self.weights.shape[1]

    @property
    def is_joint(self) -> bool:
        return self.link == "softmax" or self.is_normalised

    def of(self, margins: np.ndarray) -> np.ndarray:
        """Return the numbers before weighting; the first axis of the array is that of the margins."""
        numbers = self._calibrated(margins)
        if not self.is_normalised:
            return numbers
        total = numbers.sum(axis=0)
        uniform = np.full_like(numbers, 1 / len(numbers))
        return np.divide(numbers, total, out=uniform, where=total != 0)

    def _calibrated(self, margins: np.ndarray) -> np.ndarray:
        numbers = self._linked(margins)
        if not self.calibrators:
            return numbers
        return np.stack([calibrator.of(x) for calibrator, x in zip(self.calibrators, numbers, strict=True)])

    def _linked(self, margins: np.ndarray) -> np.ndarray:
        scaled = self.scale * margins
        if self.link == "identity":
            return scaled
        if self.link == "exp":
            return np.exp(scaled)
        return softmax(scaled, axis=0) if self.link == "softmax" else expit(scaled)

    def slopes(self, x: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the slope of the function between x (n_margins, n, 1) and b (n_margins, 1, n_background)."""
        scaled = self.scale * x, self.scale * b
        if self.link == "logistic":
            slopes = self.scale * _logistic_slope(*scaled)
        elif self.link == "exp":
            high = np.maximum(*scaled)
            slopes = self.scale * np.exp(high) * _relative_rise(high - np.minimum(*scaled))
        else:
            slopes = np.full(np.broadcast_shapes(x.shape, b.shape), self.scale)
        if self.calibrators:
            ends = self._linked(x), self._linked(b)
            slopes *= np.stack([c.slopes(*numbers) for c, *numbers in zip(self.calibrators, *ends)])
        return slopes

    def steepest(self, center: np.ndarray, reach: np.ndarray) -> np.ndarray:
        """Return a bound of the slopes for margins that differ from ``center`` by at most ``reach``.

        It is that of the numbers before they are divided by their sum.
        """
        if self.link == "exp":
            highest = np.exp(self.scale * center + np.abs(self.scale) * reach)
            steepest = np.abs(self.scale) * highest
        else:
            steepest = np.full(self.n_margins, abs(self.scale) * _LARGEST_SLOPES[self.link])
        if self.calibrators:
            steepest = steepest * [calibrator.steepest for calibrator in self.calibrators]
        return steepest


@dataclass(frozen=True, eq=False)
class LinkSum:
    """Sum of functions of margins; see the top of this module.

    Attributes
    ----------
    terms : tuple of Term
        The margins of the terms follow each other in the outputs of the ensemble.
    offset : ndarray of float64, shape (n_outputs,)
    """

    terms: tuple[Term, ...]
    offset: np.ndarray

    def __post_init__(self) -> None:
        if not isinstance(self.terms, tuple) or not all(isinstance(term, Term) for term in self.terms):
            raise ValueError(f"the terms of a sum of functions are {self.terms!r:.80}")
        if not self.terms or not _are_numbers(self.offset, 1):
            raise ValueError("a sum of functions has no terms, or an offset that is not of float64 numbers")
        if any(len(term.weights) != self.n_outputs for term in self.terms):
            raise ValueError(f"the terms of a sum of functions do not all have {self.n_outputs} outputs")

    @property
    def n_outputs(self) -> int:
        """Number of outputs of the sum."""
        return len(self.offset)

    @property
    def n_margins(self) -> int:
        """Number of margins, the outputs of the ensemble."""
        return sum(term.n_margins for term in self.terms)

    @property
    def is_joint(self) -> bool:
        """Whether a function depends on several margins."""
        return any(term.is_joint for term in self.terms)

    @property
    def weights(self) -> np.ndarray:
        """Weights of the functions of all margins: (n_outputs, n_margins)."""
        return np.hstack([term.weights for term in self.terms])

    def of(self, margins: np.ndarray, outputs: int = 1) -> np.ndarray:
        """Return the outputs for an array of margins; ``outputs`` is the axis of the margins."""
        first = np.moveaxis(margins, outputs, 0)
        total = np.zeros((self.n_outputs, *first.shape[1:]))
        for term, own in self._split(first):
            total += np.tensordot(term.weights, term.of(own), 1)
        total += self.offset.reshape((-1,) + (1,) * (total.ndim - 1))
        return np.moveaxis(total, 0, outputs)

    def slopes(self, margins: np.ndarray, background: np.ndarray) -> np.ndarray:
        """Return the slopes of all functions between rows: (n_rows, n_margins, n_background).

        ``margins`` are those of rows, (n_rows, n_margins), and ``background`` those of background rows. No
        function may depend on several margins.
        """
        x, b = margins.T[:, :, np.newaxis], background.T[:, np.newaxis, :]
        parts = [term.slopes(own, other) for (term, own), (_, other) in zip(self._split(x), self._split(b))]
        return np.ascontiguousarray(np.concatenate(parts).swapaxes(0, 1))

    def allowed_gap(
        self, margin_gap: np.ndarray, center: np.ndarray, reach: np.ndarray, margins: np.ndarray
    ) -> np.ndarray:
        """Return the largest allowed gap of the outputs for ``margins`` (n_rows, n_margins).

        ``margin_gap`` is that of the margins, each of which differs from ``center`` by at most ``reach``.
        """
        total = np.zeros((len(margins), self.n_outputs))
        parts = [self._split(a) for a in (margin_gap, center, reach, margins.T)]
        for (term, own_gap), (_, own_center), (_, own_reach), (_, own) in zip(*parts):
            gaps = term.steepest(own_center, own_reach) * own_gap + _ROUNDING
            if term.link == "softmax":  # each number depends on all margins
                gaps = np.full_like(gaps, gaps.max())
            gap_of_rows = np.tile(gaps, (len(margins), 1))
            if term.is_normalised:
                with np.errstate(divide="ignore"):
                    total_of_row = term._calibrated(own).sum(axis=0)[:, np.newaxis]
                    gap_of_rows = (gaps + gaps.sum()) / total_of_row
            total += gap_of_rows @ np.abs(term.weights).T
        return total + _ROUNDING * np.abs(self.offset)

    def steepest(self, center: np.ndarray, reach: np.ndarray) -> float:
        """Return a bound of the slope of each output, apart from divisions by sums."""
        parts = zip(self._split(center), self._split(reach))
        slopes = [
            np.abs(term.weights) * term.steepest(own_center, own_reach)
            for (term, own_center), (_, own_reach) in parts
        ]
        return float(np.hstack(slopes).max())

    def scaled(self, weights: np.ndarray, offset: np.ndarray) -> LinkSum:
        """Return ``weights @ outputs + offset`` as a sum; ``weights`` is (n_outputs, own outputs)."""
        terms = tuple(replace(term, weights=weights @ term.weights) for term in self.terms)
        return LinkSum(terms, offset + weights @ self.offset)

    def _split(self, margins: np.ndarray) -> Iterator[tuple[Term, np.ndarray]]:
        """Yield each term with its margins, along the first axis."""
        start = 0
        for term in self.terms:
            yield term, margins[start : start + term.n_margins]
            start += term.n_margins


def added(sums: Sequence[LinkSum]) -> LinkSum:
    """Return the total of sums, whose margins follow each other."""
    terms: Iterable[Term] = (term for own in sums for term in own.terms)
    return LinkSum(tuple(terms), np.sum([own.offset for own in sums], axis=0))
