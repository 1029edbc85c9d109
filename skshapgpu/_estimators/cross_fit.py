"""Cross-fitting: folds in which a model is refitted, to explain rows that it was not fitted on."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing

from .splits import checked_splits

#: Seed for shuffling the rows if ``cv`` is a number, so that the same rows give the same folds.
_SEED = 0


class Fold(NamedTuple):
    """Positions of the rows that a model is fitted on, and of those that it then explains."""

    train: np.ndarray
    test: np.ndarray


def folds_of(
    cv: Any, X: Any, n_rows: int, y: Any, *, classifier: bool, split_params: dict[str, Any]
) -> list[Fold]:
    """Return the folds of a splitter, a number or an iterable of splits.

    Parameters
    ----------
    cv, X, y
        See ``sklearn.model_selection.check_cv`` and the ``split`` method of the splitter that it returns.
    n_rows : int
    classifier : bool
        Whether y holds classes; the training rows of every fold must then contain all of them.
    split_params : dict
        Parameters of ``split``, such as ``groups``.

    Raises
    ------
    ValueError
        The folds do not test each row exactly once, or the training rows of a fold lack a class.
    """
    splitter = check_cv(cv, y, classifier=classifier)
    if cv is None or isinstance(cv, Integral):
        splitter = type(splitter)(splitter.n_splits, shuffle=True, random_state=_SEED)
    folds = [Fold(*split) for split in checked_splits(splitter.split(X, y, **split_params), n_rows)]
    tested = np.concatenate([fold.test for fold in folds])
    if len(tested) != n_rows or not np.array_equal(np.sort(tested), np.arange(n_rows)):
        raise ValueError(
            f"cv={cv!r} must test each of the {n_rows} rows once, so that each has values: use a number, "
            "KFold, StratifiedKFold, GroupKFold or the like"
        )
    if classifier:
        targets = np.asarray(y).reshape(n_rows, -1).T
        for number, fold in enumerate(folds):
            missing = [label for y in targets for label in np.setdiff1d(y, y[fold.train]).tolist()]
            if missing:
                raise ValueError(
                    f"fold {number} of cv={cv!r} has no row of class {missing[0]!r} to fit on, "
                    "so that its values would have other outputs: use StratifiedKFold, or fewer folds"
                )
    return folds


def params_of(params: dict[str, Any], rows: np.ndarray, n_rows: int) -> dict[str, Any]:
    """Return parameters of ``fit`` for some rows; values with an entry for each row are subset."""
    return {
        name: _safe_indexing(value, rows) if _has_rows(value, n_rows) else value
        for name, value in params.items()
    }


def _has_rows(value: Any, n_rows: int) -> bool:
    if value is None or isinstance(value, (str, bytes, dict)):
        return False
    shape = getattr(value, "shape", None)
    if shape is not None:
        return len(shape) > 0 and shape[0] == n_rows
    return isinstance(value, (list, tuple)) and len(value) == n_rows


def places_of(
    names: tuple[str, ...], names_in_fold: tuple[str, ...], number: int, known: bool
) -> np.ndarray | None:
    """Return the positions of a fold's model columns among those of the model fitted on all rows.

    The result is None if the columns are the same. ``known`` says whether the names are more than positions.

    Raises
    ------
    ValueError
        Some columns are not among them, or their positions are not known.
    """
    if names == names_in_fold:
        return None
    if not known:
        raise ValueError(
            f"the model of fold {number} sees {len(names_in_fold)} columns, that of all rows {len(names)}, "
            "which have no names to align them by: give the steps before the model a get_feature_names_out, "
            "put them before the transformer in a pipeline, or use cv=None"
        )
    place = {name: i for i, name in enumerate(names)}
    others = [name for name in names_in_fold if name not in place]
    if others:
        raise ValueError(
            f"the steps before the model make a column {others[0]!r} in fold {number} that they do not make "
            "of all rows: put them before the transformer in a pipeline, or use cv=None"
        )
    return np.array([place[name] for name in names_in_fold], int)
