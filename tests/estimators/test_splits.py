"""Splits in all forms that cross_validate accepts, and in some invalid forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.families import forest
from helpers.importances import cross_validated_importance
from sklearn.datasets import load_diabetes
from sklearn.model_selection import KFold, PredefinedSplit, cross_validate
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import ShapSelector, ShapTransformer, TreeExplainer, cross_val_explain

DIABETES, PROGRESSION = (part[:200] for part in load_diabetes(return_X_y=True))
N_ROWS = len(DIABETES)

#: Interleaved, so that positions in a mask and numbers of rows cannot be confused.
SPLITS = list(KFold(3, shuffle=True, random_state=0).split(DIABETES))


def mask(rows: np.ndarray) -> np.ndarray:
    return np.isin(np.arange(N_ROWS), rows)


def pandas_of(make: Callable[[Any], Any]) -> Callable[[np.ndarray], Any]:
    return lambda rows: make(pytest.importorskip("pandas"))(rows)


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "list": lambda rows: rows.tolist(),
    "tuple": lambda rows: tuple(rows.tolist()),
    "small integers": lambda rows: rows.astype(np.uint8),
    "from the end": lambda rows: rows - N_ROWS,
    "mask": mask,
    "list of bool": lambda rows: mask(rows).tolist(),
    "pandas.Index": pandas_of(lambda pd: pd.Index),
    "pandas.Series": pandas_of(lambda pd: lambda rows: pd.Series(rows, index=rows[::-1])),
    "nullable": pandas_of(lambda pd: lambda rows: pd.array(rows, dtype="Int64")),
    "mask in a Series": pandas_of(lambda pd: lambda rows: pd.Series(mask(rows), index=range(N_ROWS, 0, -1))),
    "nullable mask": pandas_of(lambda pd: lambda rows: pd.array(mask(rows), dtype="boolean")),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_indices(form: str) -> None:
    cv = [(FORMS[form](train), FORMS[form](test)) for train, test in SPLITS]
    theirs = cross_validate(forest(2, 3), DIABETES, PROGRESSION, cv=cv)
    ours = cross_val_explain(forest(2, 3), DIABETES, PROGRESSION, cv=cv, return_indices=True)
    np.testing.assert_array_equal(ours["test_score"], theirs["test_score"])
    # A mask has its rows in ascending order, as KFold does; so do all other forms.
    for number, (train, test) in enumerate(SPLITS):
        model = forest(2, 3).fit(DIABETES[train], PROGRESSION[train])
        expected = TreeExplainer(model).shap_values(DIABETES[test])
        np.testing.assert_array_equal(ours["explanation"].values[test], expected)
        np.testing.assert_array_equal(ours["indices"]["train"][number], train)
        np.testing.assert_array_equal(ours["indices"]["test"][number], test)
        assert (ours["fold"][test] == number).all()


def test_ranges_generators_and_splitters() -> None:
    halves = [(range(100), range(100, N_ROWS)), (range(100, N_ROWS), range(100))]
    expected = cross_val_explain(forest(2, 3), DIABETES, PROGRESSION, cv=KFold(2))["explanation"].values
    for cv in (2, halves[::-1], iter(halves[::-1]), PredefinedSplit(np.repeat([0, 1], 100)), tuple(halves)):
        ours = cross_val_explain(forest(2, 3), DIABETES, PROGRESSION, cv=cv)["explanation"].values
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("kind", ["frame", "polars", "list", "sparse"])
def test_masks_of_kinds_of_rows(kind: str) -> None:
    X: Any = DIABETES.tolist()
    if kind == "frame":
        X = pytest.importorskip("pandas").DataFrame(DIABETES, index=range(N_ROWS, 0, -1))
    elif kind == "polars":
        X = pytest.importorskip("polars").DataFrame({f"f{i}": DIABETES[:, i] for i in range(10)})
    elif kind == "sparse":
        X = pytest.importorskip("scipy.sparse").csr_array(DIABETES)
    cv = [(mask(train).tolist(), tuple(test.tolist())) for train, test in SPLITS]
    ours = cross_val_explain(forest(2, 3), X, PROGRESSION.tolist(), cv=cv)["explanation"].values
    expected = cross_val_explain(forest(2, 3), DIABETES, PROGRESSION, cv=SPLITS)["explanation"].values
    np.testing.assert_array_equal(ours, expected)


def test_rows_left_out_repeated_and_both_trained_on_and_tested() -> None:
    first = np.arange(0, 80)
    splits = [([*first, 5, 5], [100, 7, 100, 120]), (range(50, 150), [100, 60])]
    results = cross_val_explain(forest(2, 3), DIABETES, PROGRESSION, cv=splits)
    explainers = []
    for train, _ in splits:
        rows = np.array(train)
        explainers.append(TreeExplainer(forest(2, 3).fit(DIABETES[rows], PROGRESSION[rows])))
    expected = {
        (7, 0): explainers[0].shap_values(DIABETES[[7]]),
        (120, 0): explainers[0].shap_values(DIABETES[[120]]),
        (60, 1): explainers[1].shap_values(DIABETES[[60]]),
    }
    for (row, number), values in expected.items():
        np.testing.assert_allclose(results["explanation"].values[row], values[0], rtol=1e-12)
        assert results["fold"][row].tolist() == [number, -1]
    both = np.mean([explainer.shap_values(DIABETES[[100]])[0] for explainer in explainers], axis=0)
    np.testing.assert_allclose(results["explanation"].values[100], both, rtol=1e-12)
    assert results["fold"][100].tolist() == [0, 1]
    assert np.flatnonzero(results["n_tests"]).tolist() == [7, 60, 100, 120]
    assert results["n_tests"][100] == 2  # though the first split has it twice
    untested = results["n_tests"] == 0
    assert np.isnan(results["explanation"].values[untested]).all()


def test_selectors_importances_and_transformers() -> None:
    masks = [(mask(train), mask(test).tolist()) for train, test in SPLITS]
    by_masks = cross_validated_importance(forest(2, 3), DIABETES, PROGRESSION, cv=masks)
    by_rows = cross_validated_importance(forest(2, 3), DIABETES, PROGRESSION, cv=SPLITS)
    np.testing.assert_array_equal(by_masks.importances, by_rows.importances)
    selector = ShapSelector(forest(2, 3), cv=masks).fit(DIABETES, PROGRESSION)
    np.testing.assert_array_equal(selector.importances_, by_rows.importances_mean)
    transformed = ShapTransformer(forest(2, 3), cv=masks).fit_transform(DIABETES, PROGRESSION)
    expected = ShapTransformer(forest(2, 3), cv=SPLITS).fit_transform(DIABETES, PROGRESSION)
    np.testing.assert_array_equal(transformed, expected)


class Unfittable(DecisionTreeRegressor):
    """Estimator that must not be fitted, because its splits are rejected beforehand."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Any:
        raise AssertionError("fitted")


BAD: list[tuple[Any, str]] = [
    ([(range(100), [100.0, 101.0])], "test rows of split 0 of cv must be given as whole numbers"),
    ([(range(100), {100, 101})], "test rows of split 0 of cv must be given as whole numbers"),
    ([(range(100), np.array([[100]]))], "in one dimension"),
    ([(range(100), 100)], "in one dimension"),
    ([(range(100), ["c100"])], "whole numbers"),
    ([(slice(0, 100), range(100, 200))], "training rows of split 0 of cv must be given as whole numbers"),
    (
        [SPLITS[0], (range(100), [N_ROWS])],
        "test rows of split 1 of cv include number 200, but X has 200",
    ),
    ([SPLITS[0], ([-N_ROWS - 1], range(9))], "training rows of split 1 of cv include number -201"),
    ([(range(100), np.ones(199, bool))], "test rows of split 0 of cv are given as a mask of 199 rows"),
    ([(range(100), [])], "no rows in the test rows of split 0"),
    ([(np.zeros(N_ROWS, bool), range(9))], "no rows in the training rows of split 0"),
    ([], "cv has no splits"),
    (iter([]), "a generator can be used only once"),
    ("five", "cv"),
    (1, "at least one train/test split"),
    ([(range(100),)], "not enough values to unpack"),
]


@pytest.mark.parametrize("cv, message", BAD)
def test_bad_splits_are_refused_before_any_fit(cv: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cross_val_explain(Unfittable(), DIABETES, PROGRESSION, cv=cv)
    if not hasattr(cv, "__next__"):
        with pytest.raises(ValueError, match=message):
            ShapTransformer(Unfittable(), cv=cv).fit_transform(DIABETES, PROGRESSION)
