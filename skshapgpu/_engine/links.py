"""Model outputs that can be explained: the margin, or a function of it.

Probabilities, losses, responses and functions of time are functions of the margin, called links. The core
computes their slopes between two margins (``csrc/background/rescaled.cpp``), and this module evaluates the
functions themselves, so that the additivity check compares two independent computations. A softmax is a
function of the margins of all outputs, which have no such slope (``softmax.py``). A sum of functions of
several margins is a link, too (``adapters/link_sums.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, softmax
from sklearn.utils.validation import column_or_1d

from .._common.algorithms import AUTO, MODEL_OUTPUTS, SCORE_OUTPUTS, SHAP_VALUES, TIME_OUTPUTS
from .._common.checks import require_one_of, require_unmasked
from .._common.devices import require_cpu
from .._common.distinct import distinct_numbers
from .._rows.tables import require_same_rows
from ..adapters.ensemble import Ensemble
from ..adapters.link_sums import LinkSum
from ..adapters.schema import AdaptedModel
from ..errors import UnsupportedModelError
from .linear_leaves import require_explainable_leaves

#: Rounding error of a link's values and their mean, relative to their largest possible magnitude.
_ROUNDING = 2.0**-48

#: Rounding error of a Shapley value that is computed as a sum, over coalitions, of numbers up to 1.
_ROUNDING_OF_SUMS = 2.0**-44

#: A bound on values of exp, so that an infinite gap is never allowed.
_LARGEST = 1e300

#: Names in messages of the values of functions of time.
_OVER_TIME = dict(zip(TIME_OUTPUTS, ("survival probability", "cumulative hazard")))

#: Units of values, by ``model_output``.
_UNIT_OF_OUTPUT = {
    "probability": "probability",
    "log_loss": "loss",
    "response": "response",
    **_OVER_TIME,
    **dict.fromkeys(SCORE_OUTPUTS, "score"),
}

#: The steepest slope of some links.
_STEEPEST = {"gumbel": np.exp(-1), "normal": 1 / np.sqrt(2 * np.pi)}

#: Largest magnitude of a label: twice a label is a factor in the core, and must be finite in float32.
_LARGEST_LABEL = 1e30


@dataclass(frozen=True)
class Link:
    """Function of the margin of each output, and of a label if it is a loss.

    A softmax is a function of the margins of all outputs together. A sum has other outputs than the margins.
    """

    #: "logistic", "log_loss", "squared_error", "exp", "gumbel", "normal", "softmax" or "sum": the link's name
    #: in the core, which has neither of the last two.
    name: str
    noun: str  # name of the link's values in error messages
    model_output: str  # value of the option that selects the link
    scale: float = 1.0  # factor by which the margin is multiplied first; 1 for a squared error
    classes: tuple[Any, ...] | None = None  # class labels of a log loss, the negative class first
    sum: LinkSum | None = None
    has_margin: bool = True  # whether the margin can be explained, too

    @property
    def has_labels(self) -> bool:
        """Whether the link is a loss, which compares the margin with a label."""
        return self.model_output == "log_loss"

    @property
    def is_joint(self) -> bool:
        """Whether the link is a function of the margins of all outputs together."""
        return self.name == "softmax" or (self.sum is not None and self.sum.is_joint)

    def n_outputs(self, ensemble: Ensemble) -> int:
        """Return the number of outputs of the link."""
        return ensemble.n_outputs if self.sum is None else self.sum.n_outputs

    def largest_margin_gap(self, center: np.ndarray, reach: np.ndarray) -> float:
        """Return the largest additivity gap of margins that leaves the link's values six correct bits.

        The values of a link between 0 and 1 then differ by at most 2^-6, and exponentials by this fraction. A
        loss is as large as the margins are, so the limits of margins suffice. Each margin differs from
        ``center`` by at most ``reach``.
        """
        if self.sum is not None:
            slope = self.sum.steepest(center, reach)
            return 2.0**-6 / slope if slope > 0 else np.inf
        steepest = {"softmax": 0.5, "logistic": 0.25, "exp": 1.0, **_STEEPEST}
        return 2.0**-6 / (steepest[self.name] * self.scale) if self.name in steepest else np.inf

    def of(self, margin: np.ndarray, labels: np.ndarray | None = None, outputs: int = 1) -> np.ndarray:
        """Return the link's values for margins (n_rows, n_outputs) and labels (n_rows,).

        Without labels, margins may have any shape; ``outputs`` is the axis of the outputs.
        """
        if self.sum is not None:
            return self.sum.of(margin, outputs)
        if self.name == "softmax":
            return softmax(self.scale * margin, axis=outputs)
        if self.name == "logistic":
            return np.exp(-np.logaddexp(0, -self.scale * margin))
        if self.name == "normal":
            return ndtr(self.scale * margin)
        if self.name in ("exp", "gumbel"):
            with np.errstate(over="ignore"):  # the additivity check rejects infinite values
                power = np.exp(self.scale * margin if self.name == "exp" else -self.scale * margin)
            return power if self.name == "exp" else np.exp(-power)
        assert labels is not None
        if self.name == "log_loss":
            return np.logaddexp(0, np.where(labels[:, np.newaxis] > 0, -1, 1) * self.scale * margin)
        return np.square(margin - labels[:, np.newaxis])

    def base_value(
        self, margin: np.ndarray, weights: np.ndarray, labels: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the mean of the values over background rows: (n_outputs,), or (n_rows, 1) with labels."""
        if labels is None:
            return weights @ self.of(margin)
        if self.name == "log_loss":
            negative, positive = (weights @ self.of(margin, np.full(len(margin), y)) for y in (0, 1))
            return np.where(labels[:, np.newaxis] > 0, positive, negative)
        # The spread is added separately, for accuracy: the square of a label may be much larger.
        mean = weights @ margin
        return weights @ np.square(margin - mean) + np.square(mean - labels[:, np.newaxis])

    def allowed_gap(
        self,
        margin_gap: np.ndarray,
        center: np.ndarray,
        reach: np.ndarray,
        labels: np.ndarray | None,
        highest: np.ndarray,
    ) -> np.ndarray:
        """Return the largest allowed additivity gap, given ``margin_gap``, the allowed gap of margins.

        Each margin differs from ``center`` by at most ``reach``; ``highest`` is the largest of the margin of
        a row and the margins of the background rows. For each pair of an explained row and a background row,
        the values of the margin are multiplied by a slope, so a bound on the slope bounds the gap.
        """
        if self.name == "softmax":
            return margin_gap.max() * self.scale / 2 + _ROUNDING_OF_SUMS
        if self.name == "logistic":
            return margin_gap * self.scale / 4 + _ROUNDING
        if self.name in _STEEPEST:
            slope = _STEEPEST[self.name] * self.scale
            return slope * (margin_gap + _ROUNDING * (np.abs(center) + reach)) + _ROUNDING
        if self.name == "exp":
            with np.errstate(over="ignore"):
                largest = np.minimum(np.exp(self.scale * highest), _LARGEST)
            return largest * (self.scale * (margin_gap + _ROUNDING * (np.abs(center) + reach)) + _ROUNDING)
        if self.name == "log_loss":
            return margin_gap * self.scale + _ROUNDING * (1 + self.scale * (np.abs(center) + reach))
        assert labels is not None
        error = np.abs(center - labels[:, np.newaxis]) + reach
        return margin_gap * 2 * error + _ROUNDING * np.square(error)

    def read_labels(self, y: Any, n_rows: int, index: Any = None) -> np.ndarray:
        """Return labels as float64 numbers; for a log loss, as 0 and 1.

        ``index`` has the row labels of X, or is None if X has none. The row labels of a pandas series ``y``
        must equal them. Raise ``ValueError`` or ``TypeError`` if there are no labels, or not as many as rows,
        or the labels are labels of other rows, or the model does not know one of the labels.
        """
        if y is None:
            raise ValueError("model_output='log_loss' compares predictions with labels: give y=")
        require_unmasked("y", y, "leave out the rows without labels")
        label_array = column_or_1d(y)
        labels = label_array.tolist()
        if len(labels) != n_rows:
            raise ValueError(f"y has {len(labels)} labels, but X has {n_rows} rows")
        require_same_rows(y, index, "y", "X", "X.index")
        if self.classes is None:
            try:
                numbers = np.array(labels, np.float64)
            except (TypeError, ValueError) as error:
                raise type(error)(f"y must hold numbers: {error}") from error
            wrong = np.flatnonzero(~(np.abs(numbers) < _LARGEST_LABEL))
            if len(wrong):
                raise ValueError(
                    f"y must be finite, and smaller than {_LARGEST_LABEL:g} in magnitude, but entry "
                    f"{wrong[0]} is {numbers[wrong[0]]}"
                )
            return numbers
        negative, positive = self.classes
        # NumPy compares numbers with numbers, and strings with strings, like Python.
        class_kind = np.isscalar(positive) and np.asarray(self.classes).dtype.kind
        if label_array.dtype.kind in "biuf" and class_kind and class_kind in "biuf":
            is_positive = label_array == positive
            if (is_positive | (label_array == negative)).all():
                return is_positive.astype(np.float64)
        for i, label in enumerate(labels):
            if label not in self.classes:
                raise ValueError(
                    f"y must hold the classes of the model, {negative!r} and {positive!r}, but entry {i} is "
                    f"{label!r}"
                )
        return np.fromiter((label == positive for label in labels), np.float64, n_rows)


def require_model_output(model_output: Any, times: Any, interventional: bool, device: Any) -> None:
    """Raise ``ValueError`` for a value of ``model_output`` that is invalid or contradicts other options.

    Whether a probability or a function of time needs background rows depends on the model: see
    :func:`link_of`.
    """
    require_one_of("model_output", model_output, MODEL_OUTPUTS)
    if model_output in TIME_OUTPUTS:
        if times is None:
            raise ValueError(f"model_output={model_output!r} is a function of time: give times=")
        return
    if times is not None:
        raise ValueError(
            f"times= are for model_output='survival' and 'cumulative_hazard', not {model_output!r}"
        )
    if model_output == "probability" and not interventional:
        return
    results = AUTO.find(SHAP_VALUES, interventional, model_output)
    if results is None:
        raise _needs_background(model_output)
    if "cuda" not in results.devices:
        require_cpu(device, f"model_output={model_output!r}")


def read_times(times: Any) -> np.ndarray | None:
    """Return the times at which a function of time is explained, as a one-dimensional array, or None.

    Raise ``ValueError`` or ``TypeError`` if the times are not different finite numbers.
    """
    if times is None:
        return None
    numbers = np.atleast_1d(np.asarray(times))
    if numbers.dtype.kind not in "iuf":
        raise TypeError(f"times must be numbers, not {times!r:.80}")
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise ValueError(f"times must be one or more finite numbers, not {times!r:.80}")
    if len(distinct_numbers(numbers)) < len(numbers):
        raise ValueError(f"times must differ from each other, unlike {times!r:.80}")
    return numbers


def _needs_background(model_output: str, has_margin: bool = True) -> ValueError:
    alternative = ", or use model_output='raw'" if has_margin else ""
    return ValueError(
        f"model_output={model_output!r} is defined against background rows only: give data= for "
        f"interventional values{alternative}"
    )


def unit_of(adapted: AdaptedModel, model_output: str) -> str:
    """Return the unit of the values of a model output, as users read it; "margin" if it has no name."""
    if model_output != "raw":
        return _UNIT_OF_OUTPUT[model_output]
    if adapted.link in ("logistic", "softmax", "exp") and adapted.link_scale != 1:
        return "margin"
    if adapted.squared_error:
        return "prediction"
    return {
        "identity": "probability",
        "logistic": "log-odds",
        "softmax": "softmax score",
        "exp": "log of the prediction",
    }.get(adapted.link or "", "margin")


def link_of(adapted: AdaptedModel, model_output: str, all_outputs: bool, interventional: bool) -> Link | None:
    """Return the link for a model output; None if the output is the margin.

    Raise ``ValueError`` if the model has no such output, or the output needs background rows, or the model
    has linear leaves, for which the output is not computed. Raise ``UnsupportedModelError`` if the model has
    linear leaves, and the values would be path-dependent.
    """
    link = _link_of(adapted, model_output, all_outputs, interventional)
    require_explainable_leaves(adapted, interventional, None if link is None else model_output)
    return link


def _sum_of(adapted: AdaptedModel, model_output: str, interventional: bool) -> Link | None:
    """Return the link of an output that is a sum of functions of margins; None for other outputs."""
    function = adapted.functions.get(model_output)
    if function is not None:
        if not interventional:
            raise _needs_background(model_output, adapted.no_margin is None)
        has_margin = adapted.no_margin is None
        return Link("sum", _UNIT_OF_OUTPUT[model_output], model_output, sum=function, has_margin=has_margin)
    if adapted.no_margin is not None:
        if model_output == "raw":
            raise UnsupportedModelError(adapted.no_margin)
        outputs = " or ".join(map(repr, adapted.functions))
        raise ValueError(f"model_output={model_output!r} is not defined for this model: use {outputs}")
    if model_output in SCORE_OUTPUTS:
        raise ValueError(
            f"model_output={model_output!r} is a score of an IsolationForest: for other models, use "
            "model_output='raw', the margin, which is the decision_function of boosting"
        )
    return None


def _link_of(
    adapted: AdaptedModel, model_output: str, all_outputs: bool, interventional: bool
) -> Link | None:
    link = _sum_of(adapted, model_output, interventional)
    if link is not None or model_output == "raw":
        return link
    if adapted.link == "identity" and model_output in ("probability", *TIME_OUTPUTS):
        return None
    if model_output in TIME_OUTPUTS:
        if adapted.link is None:
            raise ValueError(
                f"model_output={model_output!r} needs a model that predicts functions of time, such as a "
                "survival model"
            )
        if not interventional:
            raise _needs_background(model_output)
        return Link(adapted.link, _OVER_TIME[model_output], model_output, adapted.link_scale)
    if model_output == "response":
        if adapted.link == "exp":
            return Link("exp", "response", model_output, adapted.link_scale)
        raise ValueError(
            "model_output='response' needs a model whose prediction is known to be the exponential of its "
            "margin, such as a time, a hazard ratio or a mean with a log link: use model_output='raw'"
        )
    if model_output == "probability":
        if adapted.link in ("logistic", "softmax") and not interventional:
            raise _needs_background(model_output)
        if adapted.link == "logistic":
            return Link("logistic", "probability", model_output, adapted.link_scale)
        if adapted.link == "softmax":
            return Link("softmax", "probability", model_output, adapted.link_scale)
        if adapted.output_names is not None:
            raise ValueError(
                "model_output='probability' needs a probability that is known to be a logistic function of "
                "the margin of its own output, or the softmax of the margins of all outputs: use "
                "model_output='raw'"
            )
        raise ValueError(
            "model_output='probability' needs a classifier whose probability is the logistic function of its "
            "margin, or is its margin: use model_output='raw'"
        )
    if all_outputs:
        raise ValueError("outputs='all' is for margins and probabilities: there is one log loss")
    if adapted.squared_error:
        return Link("squared_error", "squared error", model_output)
    if adapted.link == "logistic" and adapted.binary is not None:
        return Link("log_loss", "log loss", model_output, adapted.link_scale, adapted.class_names or (0, 1))
    if adapted.link == "identity":
        raise ValueError(
            "model_output='log_loss' needs a model whose margin is log-odds: this one adds up probabilities, "
            "which may be 0, so the log loss may be infinite"
        )
    raise ValueError(
        "model_output='log_loss' needs a binary classifier with a logistic link, or a regressor "
        "trained with the squared error: use model_output='raw'"
    )
