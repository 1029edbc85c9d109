"""Model outputs that can be explained: the margin, the probability, or the loss of predictions.

The last two are functions of the margin, called links. The core computes their slopes between two margins
(``csrc/background/rescaled.cpp``), and this module evaluates the functions themselves, so that the additivity
check compares two independent computations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from .._common.devices import require_cpu
from ..adapters.schema import AdaptedModel
from ..errors import require_one_of
from .algorithms import AUTO, MODEL_OUTPUTS, SHAP_VALUES

#: Rounding error of a link's values and their mean, relative to their largest possible magnitude.
_ROUNDING = 2.0**-48

#: Largest magnitude of a label: twice a label is a factor in the core, and must be finite in float32.
_LARGEST_LABEL = 1e30


@dataclass(frozen=True)
class Link:
    """Function of the margin of each output, and of a label.

    Attributes
    ----------
    name : {"logistic", "log_loss", "squared_error"}
        Name in the core.
    noun : str
        Name of its values in error messages.
    scale : float
        Factor by which the margin is multiplied first; 1 for a squared error.
    classes : tuple or None
        Class labels of a log loss, the negative class first.
    """

    name: str
    noun: str
    scale: float = 1.0
    classes: tuple[Any, ...] | None = None

    @property
    def model_output(self) -> str:
        """Value of the option ``model_output`` that selects this link."""
        return "log_loss" if self.has_labels else "probability"

    @property
    def has_labels(self) -> bool:
        """Whether it is a loss, which compares the margin with a label."""
        return self.name != "logistic"

    def of(self, margin: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
        """Return the link's values for margins (n_rows, n_outputs) and labels (n_rows,)."""
        if self.name == "logistic":
            return np.exp(-np.logaddexp(0, -self.scale * margin))
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
        mean = weights @ margin  # the spread is added, for accuracy: the square of a label may be much larger
        return weights @ np.square(margin - mean) + np.square(mean - labels[:, np.newaxis])

    def allowed_gap(
        self, of_margin: np.ndarray, center: np.ndarray, reach: np.ndarray, labels: np.ndarray | None
    ) -> np.ndarray:
        """Return the largest acceptable additivity gap, given that of the margin.

        The margin lies within ``reach`` of ``center``. For each pair of an explained row and a background
        row, the values are those of the margin times a slope, so a bound on the slope bounds the gap.
        """
        if self.name == "logistic":
            return of_margin * self.scale / 4 + _ROUNDING
        if self.name == "log_loss":
            return of_margin * self.scale + _ROUNDING * (1 + self.scale * (np.abs(center) + reach))
        assert labels is not None
        error = np.abs(center - labels[:, np.newaxis]) + reach
        return of_margin * 2 * error + _ROUNDING * np.square(error)

    def read_labels(self, y: Any, n_rows: int) -> np.ndarray:
        """Return labels as float64 numbers; for a log loss, 0 and 1.

        Raises
        ------
        ValueError, TypeError
            There are no labels, there is not one for each row, or the model does not know one of them.
        """
        if y is None:
            raise ValueError("model_output='log_loss' compares predictions with labels: give y=")
        given = column_or_1d(y)
        labels = given.tolist()
        if len(labels) != n_rows:
            raise ValueError(f"y has {len(labels)} labels, but X has {n_rows} rows")
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
        of_class = np.isscalar(positive) and np.asarray(self.classes).dtype.kind
        if given.dtype.kind in "biuf" and of_class and of_class in "biuf":
            is_positive = given == positive
            if (is_positive | (given == negative)).all():
                return is_positive.astype(np.float64)
        for i, label in enumerate(labels):
            if label not in self.classes:
                raise ValueError(
                    f"y must hold the classes of the model, {negative!r} and {positive!r}, but entry {i} is "
                    f"{label!r}"
                )
        return np.fromiter((label == positive for label in labels), np.float64, n_rows)


def require_model_output(model_output: Any, interventional: bool, device: Any) -> None:
    """Reject a value of ``model_output`` that is invalid or contradicts other options.

    Raises
    ------
    ValueError
    """
    require_one_of("model_output", model_output, MODEL_OUTPUTS)
    found = AUTO.find(SHAP_VALUES, interventional, model_output)
    if found is None:
        raise ValueError(
            f"model_output={model_output!r} is defined against background rows only: give data= for "
            "interventional values, or use model_output='raw'"
        )
    if "cuda" not in found.devices:
        require_cpu(device, f"model_output={model_output!r}")


def link_of(adapted: AdaptedModel, model_output: str, all_outputs: bool) -> Link | None:
    """Return the link for a model output; None for the margin.

    Raises
    ------
    ValueError
        The model has no such output.
    """
    if model_output == "raw" or (model_output == "probability" and adapted.link == "identity"):
        return None
    if model_output == "probability":
        if adapted.link == "logistic":
            return Link("logistic", "probability", adapted.link_scale)
        if adapted.output_names is not None:
            raise ValueError(
                "model_output='probability' needs a probability that depends on the margin of its own output "
                "alone; that of this model depends on those of all outputs, or it has none: use "
                "model_output='raw'"
            )
        raise ValueError(
            "model_output='probability' needs a classifier whose probability is the logistic function of its "
            "margin, or is its margin: use model_output='raw'"
        )
    if all_outputs:
        raise ValueError("outputs='all' is for margins and probabilities: there is one log loss")
    if adapted.squared_error:
        return Link("squared_error", "squared error")
    if adapted.link == "logistic" and adapted.binary is not None:
        return Link("log_loss", "log loss", adapted.link_scale, adapted.class_names or (0, 1))
    if adapted.link == "identity":
        raise ValueError(
            "model_output='log_loss' needs a model whose margin is log-odds: this one adds up probabilities, "
            "which may be 0, so the log loss may be infinite"
        )
    raise ValueError(
        "model_output='log_loss' needs a binary classifier with a logistic link, or a regressor "
        "trained with the squared error: use model_output='raw'"
    )
