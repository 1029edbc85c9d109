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
    """Positions of the rows on which a model is fitted, and of the rows that it then explains."""

    train: np.ndarray
    test: np.ndarray


def folds_of(
    cv: Any, X: Any, n_rows: int, y: Any, *, classifier: bool, split_params: dict[str, Any]
) -> list[Fold]:
    """Return the folds of a splitter, a number or an iterable of splits.

    For ``cv``, X and y, see ``sklearn.model_selection.check_cv`` and the ``split`` method of the splitter
    that it returns, which also gets ``split_params``, such as ``groups``. For a classifier, the training rows
    of every fold must have all classes.

    Raise ``ValueError`` if the folds do not test each row exactly once, or the training rows of a fold lack a
    class.
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
                    "so that its values would have other outputs: use StratifiedKFold, and leave out classes "
                    "of a single row"
                )
    return folds


def params_of_rows(params: dict[str, Any], rows: np.ndarray, n_rows: int) -> dict[str, Any]:
    """Return parameters of ``fit`` for some rows: select in each value that has an entry for each row."""
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


def positions_of_columns(
    names: tuple[str, ...], fold_names: tuple[str, ...], number: int, has_names: bool
) -> np.ndarray | None:
    """Return the position of each column of a fold's model among the columns of the model of all rows.

    The result is None if the columns are the same. ``names`` and ``fold_names`` are the names of the columns
    that the model of all rows sees, and of the columns that the fold's model sees; ``has_names`` says whether
    the fold's names are more than positions. Raise ``ValueError`` if the model of all rows lacks a column, or
    the columns have no names to align them by.
    """
    if names == fold_names:
        return None
    if not has_names:
        raise ValueError(
            f"the model of fold {number} sees {len(fold_names)} columns and the model of all rows "
            f"{len(names)} columns, which have no names to align them by: give the steps before the model a "
            "get_feature_names_out, put them before the transformer in a pipeline, or use cv=None"
        )
    positions = {name: i for i, name in enumerate(names)}
    unknown_names = [name for name in fold_names if name not in positions]
    if unknown_names:
        raise ValueError(
            f"the steps before the model make a column {unknown_names[0]!r} in fold {number}, but not when "
            "they are fitted on all rows: put them before the transformer in a pipeline, or use cv=None"
        )
    return np.array([positions[name] for name in fold_names], int)
