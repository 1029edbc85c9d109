"""The additivity check: how far the sum of a row's values may be from its margin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._common.algorithms import SHAP_VALUES
from ..adapters.ensemble import Ensemble
from ..errors import UnsupportedModelError
from .cancellation import TypicalMargins, typical_margins, with_added_copies

if TYPE_CHECKING:
    from .compiled_model import CompiledModel

#: Largest additivity gap of values computed (or, as float32, stored) in each precision, relative to the sum
#: over the trees of their largest centered leaf. The gap is the sum of the rounding errors at a tree's nodes,
#: each of which is a few units in the last place of that leaf. 2^-18 is 32 units of float32, and 1 to 3 are
#: observed in practice. A wrong path changes the sum by a good part of a leaf, which is far above the limit.
_RELATIVE_GAP = {"single": 2.0**-18, "double": 2.0**-40}

#: Largest additivity gap relative to a typical difference between margins. Single precision is used where the
#: limit above is the smaller one: where the leaves are at most 2^12 times as large as such a difference. The
#: gaps observed in practice are then below 2^-9 of a typical difference.
_RELATIVE_TO_DIFFERENCES = 2.0**-6

#: Additivity gap of float32 values that is always allowed, relative to the margin: 16 units of float32.
_RESOLUTION_OF_FLOATS = 2.0**-20

#: Differences between margins, relative to the sum over the trees of the largest leaf, that count as none.
_NO_DIFFERENCE = 2.0**-40


#: Largest ratio of the leaves of two outputs. Outputs share a scale, and float32 has no numbers below 2^-149.
_LARGEST_RATIO_OF_OUTPUTS = 2.0**100

#: The largest ratio of a value to the sum of the largest leaves: a value is a mean of differences of two
#: margins, the value of a pair of four, that of a triple of eight.
_LARGEST_RATIO_TO_LEAVES = 8

#: Exponent up to which sums of a thousand exponentials fit into float32.
_LARGEST_EXPONENT = float(np.log(np.finfo(np.float32).max / 1000))


def allowed_gap(
    model: CompiledModel,
    dtype: Any,
    labels: np.ndarray | None = None,
    margin: np.ndarray | None = None,
    reach: np.ndarray | None = None,
    extra: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Return the largest allowed additivity gap of each output.

    The allowed gap differs from row to row in three cases: with a link, which needs the ``margin`` of each
    row and, for a loss, its label; with linear leaves, whose magnitude ``reach`` bounds for each row; and for
    float32 values, if ``margin`` is passed. Margins may also differ by ``extra``.
    """
    # Each value of a row, and what each tree adds to its margin, is rounded to a multiple of this number.
    smallest = float(np.finfo(dtype).smallest_subnormal)
    if model.link is not None and model.link.sum is not None:
        extra = np.max(extra)  # it belongs to outputs, and gaps to margins
    extra = extra + (model.n_features + model.ensemble.n_trees) * smallest
    precision = "single" if dtype == np.float32 else model.options.precision
    if reach is not None:
        return _RELATIVE_GAP[precision] * reach + rounding(model, reach) + extra
    largest = model.largest_gap_of_floats if dtype == np.float32 else model.largest_gap
    if dtype == np.float32 and model.link is None and margin is not None:
        # The margin of a row may be far larger than a typical one, on which the limit is based; or it is NaN.
        largest = np.fmax(largest, _RESOLUTION_OF_FLOATS * np.abs(margin))
    allowed = np.minimum(_RELATIVE_GAP[precision] * model.leaf_magnitude, largest)
    allowed = allowed + model.rounding + extra
    if model.link is None:
        return allowed
    assert margin is not None
    if model.link.sum is not None:
        return model.link.sum.allowed_gap(allowed, model.constant, model.leaf_magnitude, margin)
    highest = np.maximum(margin, model.of(SHAP_VALUES).plan().background_margin.max(axis=0))
    return model.link.allowed_gap(allowed, model.constant, model.leaf_magnitude, labels, highest)


def check(
    model: CompiledModel,
    values: np.ndarray,
    margin: np.ndarray,
    index: Any,
    start: int,
    labels: np.ndarray | None = None,
    reach: np.ndarray | None = None,
) -> float:
    """Return the largest additivity gap of rows from ``start`` on.

    ``index`` holds the row labels of all rows, as in pandas. The link compares the margins of the checked
    rows with ``labels``; ``reach`` bounds the magnitude of linear leaves. Raise ``RuntimeError`` if the gap
    is larger than rounding can explain. Raise ``ValueError`` if a linear leaf overflows.
    """
    if reach is not None and not np.isfinite(reach).all():
        row = int(np.argmin(np.isfinite(reach).all(axis=1)))
        raise ValueError(f"row {start + row} of X has numbers so large that a linear leaf overflows")
    total = values.sum(axis=2, dtype=np.float64) + model.base_value(labels)
    explained = margin if model.link is None else model.link.of(margin, labels)
    gap = np.abs(total - explained)
    worst = float(gap.max())
    allowed = allowed_gap(model, values.dtype, labels, margin, reach)
    if worst <= allowed.min() or (gap <= allowed).all():
        return worst
    row, output = np.argwhere(~(gap <= allowed))[0]
    label = "" if index is None else f" (index {index[start + row]!r})"
    name = "" if model.output_names is None or model.widen else f", output {model.output_names[output]!r}"
    noun = "margin" if model.link is None else model.link.noun
    bound = np.broadcast_to(allowed, gap.shape)[row, output]
    algorithm = model.options.algorithm
    if algorithm.is_for_comparison:
        cause = f"algorithm={algorithm.name!r} loses digits on paths with many features: use algorithm='auto'"
    else:
        cause = (
            "rounding in trees whose leaves differ hugely in magnitude, if precision='double' with float64 X "
            "helps; otherwise an error in skshapgpu, worth a report"
        )
    raise RuntimeError(
        f"additivity check failed at row {start + row}{label}{name}: base value plus SHAP values is "
        f"{total[row, output]:.9g}, the {noun} is {explained[row, output]:.9g}; they differ by "
        f"{gap[row, output]:.3g}, but may differ by {bound:.3g} at most. The values were computed in "
        f"{model.options.precision} precision and are {values.dtype}. Likely cause: {cause}. "
        "check_additivity=False returns the values as they are"
    )


class LargestGaps(NamedTuple):
    """The largest gaps that :func:`allowed_gap` may allow, of each output."""

    gap: np.ndarray
    gap_of_floats: np.ndarray  # of values in float32
    #: Whether margins of an output are equal although leaves differ. Its limits are relative to margins then.
    cancel: bool


def largest_gaps(model: CompiledModel) -> LargestGaps:
    """Return limits of the additivity gap of each output, above which it would hide differences of margins.

    The first array is for float64 values, the second for float32 values, whose limit is at least the
    resolution of float32 at a margin. With a link, a gap must not hide differences of the link's values
    either. Linear leaves have no limit, because they are always explained in double precision. An
    ``UnsupportedModelError`` says that rounding errors of margins hide the differences.
    """
    if model.has_linear_leaves:
        unlimited = np.full(len(model.leaf_magnitude), np.inf)
        return LargestGaps(unlimited, unlimited, cancel=False)
    margins = require_resolved(model.ensemble, model.leaf_magnitude)
    largest, cancel = _RELATIVE_TO_DIFFERENCES * margins.difference, bool(margins.cancel.any())
    largest_of_floats = np.maximum(largest, _RESOLUTION_OF_FLOATS * margins.magnitude)
    if model.link is None:
        return LargestGaps(largest, largest_of_floats, cancel)
    limit = model.link.largest_margin_gap(model.constant, model.leaf_magnitude)
    if (model.rounding > limit).any():
        raise UnsupportedModelError(
            f"the margins are so large, up to {model.leaf_magnitude.max():.2g}, that sums in float64 may be "
            f"off by {model.rounding.max():.2g}, which changes the {model.link.noun} completely: leave out "
            "trees whose leaves cancel, train the model with smaller leaf values, or explain the margin"
        )
    return LargestGaps(np.minimum(largest, limit), np.minimum(largest_of_floats, limit), cancel)


def needs_double(model: CompiledModel) -> bool:
    """Return whether rounding errors of single precision could hide differences between margins.

    Exponentials of large margins, which single precision may not hold, need double precision, too.
    """
    if model.link is not None and model.link.name == "exp":
        exponent = model.link.scale * (model.constant + model.leaf_magnitude)
        if (exponent > _LARGEST_EXPONENT).any():
            return True
    gap = _RELATIVE_GAP["single"] * model.leaf_magnitude
    if (gap > model.largest_gap).any():
        return True
    # Drawn rows do not show that trees of columns and of scaled columns cancel. Trees of the columns of a
    # group that are equal by chance do not cancel, but double precision does them no harm.
    copies = None if model.has_linear_leaves else with_added_copies(model.ensemble)
    if copies is None:
        return False
    least = _least_difference(model.ensemble, model.leaf_magnitude)
    margins = typical_margins(model.ensemble, least, copies)
    return bool((margins.cancel | (gap > _RELATIVE_TO_DIFFERENCES * margins.difference)).any())


def problem_with_float32(model: CompiledModel) -> str | None:
    """Return why float32 cannot hold the values of this model, as the end of a sentence; None if it can.

    Functions of the margin and linear leaves are as large as rows make them.
    """
    if model.link is not None or model.has_linear_leaves:
        return None
    floats = np.finfo(np.float32)
    for magnitude in model.leaf_magnitude[model.leaf_magnitude > 0]:
        if not floats.tiny <= magnitude <= floats.max / _LARGEST_RATIO_TO_LEAVES:
            extreme = "small" if magnitude < 1 else "large"
            return f"the leaves of its trees add up to {magnitude:.2g}, too {extreme} for values in float32"
    return None


def require_resolved(ensemble: Ensemble, leaf_magnitude: np.ndarray) -> TypicalMargins:
    """Return typical margins of an ensemble.

    The trees have no linear leaves; ``leaf_magnitude`` is the sum over the trees of their largest leaf, for
    each output. Raise ``UnsupportedModelError`` if rounding errors of float64 hide the differences, or the
    sums overflow.
    """
    if not (4 * (leaf_magnitude + np.abs(ensemble.intercept)) < np.inf).all():
        raise UnsupportedModelError(
            "the leaves are so large that their sums overflow in float64: training diverged, or the model is "
            "damaged; train the model with smaller leaf values"
        )
    positive = leaf_magnitude[leaf_magnitude > 0]
    if len(positive) and positive.max() > _LARGEST_RATIO_OF_OUTPUTS * positive.min():
        raise UnsupportedModelError(
            f"the leaves of one output add up to {positive.min():.2g}, those of another to "
            f"{positive.max():.2g}: float32 cannot hold numbers so different on one scale; scale the "
            "targets, and train the model again"
        )
    rounding_of_sums = _rounding_of_sums(ensemble) * leaf_magnitude
    margins = typical_margins(ensemble, _least_difference(ensemble, leaf_magnitude))
    difference = margins.difference
    hidden = rounding_of_sums > _RELATIVE_TO_DIFFERENCES * difference
    if hidden.any():
        output = int(np.argmax(hidden))
        raise UnsupportedModelError(
            f"the trees cancel: the largest leaves add up to {leaf_magnitude[output]:.2g}, so sums in "
            f"float64 may be off by {rounding_of_sums[output]:.2g}, but the margins of the model typically "
            f"differ by {difference[output]:.2g} only. Leave out trees whose leaves cancel, such as models "
            "that are added with large weights of both signs, or train the model with smaller leaf values"
        )
    return margins


def _least_difference(ensemble: Ensemble, leaf_magnitude: np.ndarray) -> np.ndarray:
    # Leaves of trees in which training found no difference differ in their last digits.
    return np.maximum(_rounding_of_sums(ensemble), _NO_DIFFERENCE) * leaf_magnitude


def _rounding_of_sums(ensemble: Ensemble) -> float:
    # Margins are sums in float64, of chunks of trees that are added to the constant. No number takes part
    # in more additions than there are trees, plus one.
    return (ensemble.n_trees + 4) * 2.0**-53


def rounding(model: CompiledModel, leaf_magnitude: np.ndarray) -> np.ndarray:
    """Return the rounding of a margin and of the base value.

    ``leaf_magnitude`` is the sum over the trees of their largest leaf.
    """
    return 2 * _rounding_of_sums(model.ensemble) * (np.abs(model.constant) + leaf_magnitude)
