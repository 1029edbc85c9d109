"""Weighted sums of models: exact comparisons, X that all members read alike, and all that a model can do."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.checks import hard_rows
from helpers.families import (
    forest,
    frame_with_categories,
    library,
    regressor,
    values_by_definition,
    with_categories,
)
from helpers.sums_data import FRAME, NUMBERS
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import ShapTransformer, TreeExplainer, explain, explain_interactions, reference
from skshapgpu.adapters import AdaptedModel, Ensemble, InputSchema, Tree, adapt
from skshapgpu.adapters.comparisons import at_most
from skshapgpu.adapters.sums import Member, weighted_sum
from skshapgpu.errors import UnsupportedModelError

X, Y = FRAME.to_numpy(), NUMBERS

# Comparisons


def thresholds() -> np.ndarray:
    """Draw thresholds of all magnitudes: float32 numbers, numbers next to them, and others."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 2000, dtype=np.uint32).view(np.float32)
    special = [0.0, 1e-45, 1e-38, 1.1754944e-38, 3.4028235e38, np.inf, 1.0, 2.0, 16777216.0, 0.1]
    singles = np.concatenate([bits[~np.isnan(bits)], special, np.negative(special)]).astype(np.float32)
    doubles = singles.astype(np.float64)
    others = np.concatenate([rng.normal(size=500), [1e39, -1e39, 1e-46, -1e-46, 5e-324, -5e-324, 2.0**-150]])
    return np.concatenate([doubles, np.nextafter(doubles, np.inf), np.nextafter(doubles, -np.inf), others])


def numbers_near(threshold: np.ndarray) -> np.ndarray:
    """Return numbers, for each threshold, on both sides of every place where its comparison may change."""
    with np.errstate(over="ignore"):
        single = threshold.astype(np.float32)
    near = [threshold, *(np.nextafter(single, np.float32(side)) for side in (np.inf, -np.inf)), single]
    near = [numbers.astype(np.float64) for numbers in near]
    ends = [np.clip(numbers, -(2.0**128), 2.0**128) for numbers in near]
    near += [first / 2 + second / 2 for first in ends for second in ends]
    near += [np.nextafter(numbers, side) for numbers in near for side in (np.inf, -np.inf)]
    special = [0.0, -0.0, 5e-324, -5e-324, 2.0**-150, -(2.0**-150), np.inf, -np.inf, 1e308, 3.5e38, -3.5e38]
    return np.array([*near, *(np.full_like(threshold, number) for number in special)])


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "x_dtype, dtype", [("float32", "float32"), ("float32", "float64"), ("float64", "float64")]
)
def test_thresholds_are_equivalent(x_dtype: str, dtype: str, strict: bool) -> None:
    threshold = thresholds()
    x = numbers_near(threshold).astype(dtype).astype(np.float64)
    rounded = x.astype(x_dtype).astype(np.float64)
    expected = rounded < threshold if strict else rounded <= threshold
    actual = x <= at_most(threshold, x_dtype, strict, dtype)
    is_below_all = strict & np.isneginf(threshold) & np.isneginf(rounded)  # no number is less than -inf
    np.testing.assert_array_equal(actual | is_below_all, expected | is_below_all)
    assert expected.any(axis=0).mean() > 0.9 and (~expected).any(axis=0).mean() > 0.9
    assert not (np.nan <= at_most(threshold, x_dtype, strict, dtype)).any()


def members() -> list[Any]:
    """Fit models that compare in three ways, one of them with NaN in the training data."""
    with_gaps = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
    return [
        regressor("xgboost").fit(with_gaps, Y),
        regressor("lightgbm").fit(with_gaps, Y),
        regressor("sklearn").fit(with_gaps, Y),
        forest().fit(with_gaps, Y),
        regressor("catboost").fit(with_gaps, Y),
    ]


@pytest.mark.parametrize("numbers", [[0, 1, 2, 3, 4], [0, 3], [0, 4], [3, 4], [1, 2], [0, 2], [4, 1]])
def test_margins_on_every_threshold(numbers: list[int]) -> None:
    """The sum is compared with its members on and next to all thresholds, and all midpoints of float32."""
    models = [adapt(members()[number]) for number in numbers]
    weights = [1.0, -2.0, 0.5, 3.0, -1.0][: len(models)]
    total = weighted_sum(
        "sum", [Member(m, np.full((1, 1), w)) for m, w in zip(models, weights)], np.array([7.0])
    )
    rows = []
    for seed, ensemble in enumerate([total.ensemble, *(model.ensemble for model in models)]):
        hard = hard_rows(ensemble, 600, seed, inf=False).astype(np.float64)
        rows += [hard, np.nextafter(hard, np.inf), np.nextafter(hard, -np.inf)]
    rows = np.concatenate(rows)
    expected = 7 + sum(w * model.ensemble.margin(rows) for w, model in zip(weights, models))
    np.testing.assert_allclose(total.ensemble.margin(rows), expected, rtol=0, atol=1e-9)
    dtypes = {model.ensemble.x_dtype for model in models}
    assert total.ensemble.x_dtype == ("float64" if "float64" in dtypes else "float32")


def test_predictions_next_to_thresholds() -> None:
    """scikit-learn itself rounds some of these numbers to float32, and others not."""
    model = VotingRegressor([("forest", forest()), ("sklearn", regressor("sklearn"))]).fit(X, Y)
    adapted = adapt(model)
    hard = hard_rows(adapt(model.estimators_[0]).ensemble, 500, nan=False, inf=False).astype(np.float64)
    midpoints = (hard + np.nextafter(hard.astype(np.float32), np.float32(9e9)).astype(np.float64)) / 2
    for rows in (hard, midpoints, np.nextafter(midpoints, np.inf), np.nextafter(midpoints, -np.inf)):
        np.testing.assert_allclose(adapted.ensemble.margin(rows)[:, 0], model.predict(rows), rtol=1e-12)
        explanation = explain(model, rows, precision="double")
        total = explanation.values.sum(axis=1) + explanation.base_values
        np.testing.assert_allclose(total, model.predict(rows), rtol=1e-12)


def test_members_that_compare_alike_keep_their_thresholds() -> None:
    model = MultiOutputRegressor(regressor("xgboost")).fit(X, np.stack([Y, -Y], axis=1))
    first = adapt(model.estimators_[0]).ensemble
    total = adapt(model).ensemble
    assert total.strict and total.x_dtype == "float32"
    np.testing.assert_array_equal(total.threshold[: first.n_nodes], first.threshold)


def one_node(threshold: float, output: int = 0, allow_inf: bool = True, **options: Any) -> AdaptedModel:
    tree = Tree(
        left=[1, -1, -1], right=[2, -1, -1], feature=[0, 0, 0], threshold=[threshold, 0, 0],
        missing_left=[False] * 3, cover=[3, 1, 2], value=[0.0, 1.0, 2.0],
    )  # fmt: skip
    ensemble = Ensemble.from_trees([tree], n_features=1, intercept=0.5, **options)
    return AdaptedModel(ensemble, InputSchema(1, allow_inf=allow_inf), "toy")


def test_no_number_is_less_than_minus_infinity() -> None:
    strict, other = one_node(-np.inf, strict=True), one_node(0.0)
    with pytest.raises(UnsupportedModelError, match="x < -inf"):
        weighted_sum("sum", [Member(strict, np.eye(1)), Member(other, np.eye(1))], np.zeros(1))
    finite = one_node(-np.inf, strict=True, allow_inf=False)
    total = weighted_sum("sum", [Member(finite, np.eye(1)), Member(other, np.eye(1))], np.zeros(1))
    np.testing.assert_array_equal(total.ensemble.margin([[-3e38], [0.0]])[:, 0], [4.0, 4.0])


# Outputs, weights and covers


@pytest.mark.parametrize("is_vector", [False, True])
def test_outputs_are_linear_functions_of_the_margins(is_vector: bool) -> None:
    targets = np.stack([Y, X[:, 0], X[:, 1] ** 2], axis=1)
    first = adapt(RandomForestRegressor(3, max_depth=4, random_state=0).fit(X, targets))
    second = adapt(regressor("sklearn").fit(X, Y))
    rng = np.random.default_rng(0)
    own = [rng.normal(size=(4, 3)), rng.normal(size=(4, 1))]
    if not is_vector:
        own = [np.zeros((4, 3)), np.array([[0.0], [0.0], [-2.0], [0.0]])]
        own[0][1] = [1.0, 0.0, -3.0]
    offset = np.array([1.0, 2.0, -3.0, 0.0])
    total = weighted_sum("sum", [Member(m, w) for m, w in zip((first, second), own)], offset)
    assert (total.ensemble.value.shape[1] == 4) == is_vector
    expected = offset + sum(m.ensemble.margin(X) @ w.T for m, w in zip((first, second), own))
    np.testing.assert_allclose(total.ensemble.margin(X), expected, rtol=1e-13, atol=1e-9)
    values = reference.path_dependent(total.ensemble, X[:5]).values
    parts = [reference.path_dependent(m.ensemble, X[:5]).values for m in (first, second)]
    expected = sum(np.einsum("ko,nof->nkf", w, part) for w, part in zip(own, parts))
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9)
    # The core computes what the reference does.
    explained = TreeExplainer(total, precision="double").explain(X[:5]).values
    np.testing.assert_allclose(np.moveaxis(explained, 2, 1), values, rtol=0, atol=1e-9)


def test_path_dependent_values_are_the_sum_of_those_of_the_members() -> None:
    models, weights = members(), [1.0, -2.0, 0.5, 3.0, -1.0]
    sum_of_models = weighted_sum(
        "sum", [Member(adapt(m), np.full((1, 1), w)) for m, w in zip(models, weights)], np.zeros(1)
    )
    options: dict[str, Any] = {"precision": "double"}
    total = TreeExplainer(sum_of_models, **options).explain(X[:6])
    parts = [TreeExplainer(model, **options).explain(X[:6]) for model in models]
    np.testing.assert_allclose(
        total.values, sum(w * p.values for w, p in zip(weights, parts)), rtol=0, atol=1e-9
    )
    base_value = sum(w * p.base_values for w, p in zip(weights, parts))
    np.testing.assert_allclose(total.base_values, base_value, rtol=1e-12)


def test_weights_of_zero_leave_out_trees() -> None:
    models = [adapt(forest(3).fit(X, Y)), adapt(forest(5).fit(X, -Y))]
    total = weighted_sum(
        "sum", [Member(models[0], np.zeros((1, 1))), Member(models[1], np.eye(1))], np.zeros(1)
    )
    assert total.ensemble.n_trees == 5
    nothing = weighted_sum("sum", [Member(models[0], np.zeros((2, 1)))], np.array([1.0, 2.0]))
    np.testing.assert_array_equal(nothing.ensemble.margin(X[:2]), [[1.0, 2.0]] * 2)


def test_covers_of_both_kinds() -> None:
    weight = np.random.default_rng(0).uniform(0.5, 2, len(Y))
    first, second = forest().fit(X, Y, weight), regressor("lightgbm").fit(X, Y, weight)
    model = VotingRegressor([("a", first), ("b", second)]).fit(X, Y, sample_weight=weight)
    adapted = adapt(model)
    assert adapted.cover_kind is None and set(adapted.other_covers) == {"count", "weight"}
    for kind in ("count", "weight"):
        covers = [adapt(member).with_cover(kind).ensemble.cover for member in model.estimators_]
        np.testing.assert_array_equal(adapted.with_cover(kind).ensemble.cover, np.concatenate(covers))
        again = pickle.loads(pickle.dumps(adapted)).with_cover(kind)
        np.testing.assert_array_equal(again.ensemble.cover, np.concatenate(covers))
        parts = [explain(m, X[:4], cover=kind, precision="double") for m in model.estimators_]
        values = explain(model, X[:4], cover=kind, precision="double").values
        np.testing.assert_allclose(values, (parts[0].values + parts[1].values) / 2, rtol=0, atol=1e-9)
    boosted = adapt(VotingRegressor([("a", first), ("b", regressor("xgboost"))]).fit(X, Y))
    assert boosted.cover_kind == "weight" and not boosted.other_covers


# X


def voting(*models: Any) -> VotingRegressor:
    return VotingRegressor([(str(number), model) for number, model in enumerate(models)])


@pytest.mark.parametrize(
    "families", [("lightgbm", "sklearn"), ("xgboost", "lightgbm"), ("sklearn", "forest")]
)
def test_integers_that_members_round_differently(families: tuple[str, str]) -> None:
    """Numbers are explained as predict reads them, or rejected."""
    rng = np.random.default_rng(0)
    integers = rng.integers(2**24, 2**24 + 40, (200, 2))
    y = (integers[:, 0] % 3 == 0) * 5.0 + integers[:, 1] % 2
    options = {"lightgbm": {"min_child_samples": 2}, "xgboost": {}, "sklearn": {"min_samples_leaf": 2}}
    models = [regressor(f, **options[f]) if f in options else forest(20, None) for f in families]
    model = voting(*models).fit(integers.astype(float), y)
    n_rejected = 0
    for rows in (
        integers,
        integers.astype(np.int32),
        pd.DataFrame(integers),
        pd.DataFrame(integers.astype(float)),
        integers.astype(float),
        integers.astype(np.float32),
        integers.astype(object),
    ):
        explainer = TreeExplainer(model, precision="double", check_additivity=True)
        try:
            explanation = explainer.explain(rows)
        except ValueError as error:
            assert "round in different ways" in str(error)
            n_rejected += 1
            continue
        total = explanation.values.sum(axis=1) + explanation.base_values
        np.testing.assert_allclose(total, model.predict(rows), rtol=1e-5)
    assert n_rejected == (3 if families == ("lightgbm", "sklearn") else 0)


def test_frames_of_integers_that_bagging_turns_into_arrays() -> None:
    """LightGBM rounds an array of integers to float32, but not a data frame."""
    integers = np.random.default_rng(0).integers(2**24, 2**24 + 40, (200, 2))
    y = (integers[:, 0] % 3 == 0) * 5.0
    model = BaggingRegressor(regressor("lightgbm", min_child_samples=2), 2, random_state=0)
    model.fit(integers.astype(float), y)
    frame = pd.DataFrame(integers, columns=["a", "b"])
    integer_frames = [
        frame,
        frame.astype("int32"),
        frame.astype({"b": "uint32"}),
        frame.assign(b=frame["b"] > 0),
    ]
    for rows in (integers, *integer_frames):
        with pytest.raises(ValueError, match="round in different ways"):
            explain(model, rows)
    with_floats = [frame.assign(b=b) for b in (frame["b"] * 1.0, frame["b"].astype("Float64"))]
    for rows in (integers.astype(float), *with_floats, with_floats[0].assign(b=frame["b"] > 0, a=0.1)):
        explanation = explain(model, rows, precision="double")
        total = explanation.values.sum(axis=1) + explanation.base_values
        np.testing.assert_allclose(total, model.predict(rows), rtol=1e-10)


def test_sums_of_sums_read_rows_as_strictly_as_their_members() -> None:
    integers = np.random.default_rng(0).integers(2**24, 2**24 + 40, (200, 2))
    y = (integers[:, 0] % 3 == 0) * 5.0
    lightgbm, histogram = regressor("lightgbm", min_child_samples=2), regressor("sklearn", min_samples_leaf=2)
    bag = BaggingRegressor(lightgbm, 2, random_state=0)
    for model, rows in (
        (voting(voting(lightgbm, histogram), histogram), [integers]),
        (voting(bag, histogram), [integers, pd.DataFrame(integers)]),
        (MultiOutputRegressor(bag), [integers, pd.DataFrame(integers)]),
    ):
        model.fit(integers.astype(float), np.stack([y, -y], axis=1) if hasattr(model, "estimator") else y)
        for inexact in rows:
            with pytest.raises(ValueError, match="round in different ways"):
                explain(model, inexact)
    model = voting(voting(forest(), histogram), histogram).fit(X, Y)
    rows = X[:3].copy()
    rows[1, 2] = 1e39
    with pytest.raises(ValueError, match="infinity or a value too large"):
        explain(model, rows)


def test_integers_beyond_float64() -> None:
    model = voting(forest(), regressor("sklearn")).fit(X, Y)
    rows = np.zeros((2, 4), np.int64)
    rows[1, 2] = 2**60 + 2**36 + 1  # next to the midpoint of two float32 numbers
    for wide in (rows, pd.DataFrame(rows, columns=None)):
        with pytest.raises(ValueError, match="which the model reads as float32"):
            explain(model, wide)


def test_numbers_that_a_member_refuses() -> None:
    model = voting(forest(), regressor("sklearn")).fit(X, Y)
    for number in (1e39, -np.inf):
        rows = X[:3].copy()
        rows[1, 2] = number
        with pytest.raises(ValueError, match="infinity or a value too large"):
            model.predict(rows)
        # One member rounds X to float32, and the others take float64.
        with pytest.raises(ValueError, match="infinity or a value too large for float32"):
            explain(model, rows)
    boosted = voting(regressor("sklearn"), regressor("lightgbm")).fit(X, Y)
    explanation = explain(boosted, rows, precision="double")
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total, boosted.predict(rows), rtol=1e-10)


def test_missing_values() -> None:
    gaps = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X)
    model = voting(*members()[:4]).fit(gaps, Y)
    explanation = explain(model, gaps, precision="double")
    assert explanation.checked_against == "model"
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total, model.predict(gaps), rtol=1e-6)
    without = voting(
        regressor("xgboost"), ExtraTreesRegressor(3, criterion="absolute_error", max_depth=3)
    ).fit(X, Y)
    accepts = adapt(without.estimators_[1]).schema.allow_nan
    assert adapt(without).schema.allow_nan == accepts


def test_sparse_rows() -> None:
    sparse = sp.random(200, 4, 0.5, random_state=0, format="csr")
    y = 3 * sparse.toarray()[:, 0] + sparse.toarray()[:, 1] ** 2 + 10
    model = voting(forest(), regressor("lightgbm")).fit(sparse, y)
    explanation = explain(model, sparse, precision="double")
    assert explanation.checked_against == "model"
    np.testing.assert_allclose(
        explanation.values.sum(axis=1) + explanation.base_values, model.predict(sparse), rtol=1e-9
    )
    model = voting(forest(), regressor("xgboost")).fit(sparse.toarray(), y)
    with pytest.raises(ValueError, match="X is sparse"):
        explain(model, sparse)
    boosted = voting(regressor("xgboost"), regressor("xgboost", learning_rate=0.5)).fit(sparse, y)
    explanation = explain(boosted, sparse, precision="double")
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total, boosted.predict(sparse), rtol=1e-6)


def test_names_of_columns() -> None:
    model = voting(regressor("lightgbm"), forest()).fit(FRAME, Y)
    assert adapt(model).schema.feature_names == ("age", "body_mass", "c", "d")
    explain(model, FRAME[:3])
    with pytest.raises(ValueError, match="body_mass"):
        explain(model, FRAME[:3].rename(columns={"body mass": "other"}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        explain(model, X[:3])
    other = FRAME.rename(columns={"c": "e"})
    mixed = [Member(adapt(forest().fit(frame, Y)), np.eye(1)) for frame in (FRAME, other)]
    with pytest.raises(UnsupportedModelError, match="columns of different names"):
        weighted_sum("sum", mixed, np.zeros(1))


@pytest.mark.parametrize("family", ["sklearn", "xgboost", "lightgbm"])
def test_categories_that_members_encode_alike(family: str) -> None:
    frame, y = frame_with_categories()
    model = MultiOutputRegressor(with_categories(family, frame, y)).fit(frame, np.stack([y, -2 * y], axis=1))
    rows, background = frame[:3], frame[20:24]
    explanation = TreeExplainer(model, background, precision="double").explain(rows)
    expected = values_by_definition(model.predict, rows, background)
    np.testing.assert_allclose(
        explanation.values, expected, rtol=0, atol=1e-5 if family == "xgboost" else 1e-10
    )
    assert explanation.checked_against == "model"


def test_categories_that_members_encode_differently() -> None:
    frame, y = frame_with_categories()
    model = voting(with_categories("xgboost", frame, y), with_categories("lightgbm", frame, y)).fit(frame, y)
    with pytest.raises(UnsupportedModelError, match="encode"):
        adapt(model)


@pytest.mark.parametrize(
    "models, reason",
    [
        (lambda: (regressor("xgboost", missing=-1.0), forest()), "a number means missing to one member only"),
        (lambda: (regressor("xgboost"), regressor("lightgbm", zero_as_missing=True)), "zeros are missing"),
        (
            lambda: (
                forest(),
                library("lightgbm").LGBMRegressor(n_estimators=3, objective="poisson", verbose=-1),
            ),
            "takes predict",
        ),
        (
            lambda: (forest(), regressor("xgboost", objective="reg:gamma")),
            "takes predict",
        ),
        (
            lambda: (forest(), regressor("lightgbm", reg_sqrt=True)),
            "takes predict",
        ),
    ],
)
def test_members_that_cannot_be_added(models: Callable[[], tuple[Any, ...]], reason: str) -> None:
    model = voting(*models()).fit(np.round(X), Y)
    with pytest.raises(UnsupportedModelError, match=reason):
        adapt(model)


def test_numbers_that_are_missing_to_all_members() -> None:
    rows = np.round(X)
    model = voting(
        regressor("xgboost", missing=-1.0), regressor("xgboost", missing=-1.0, learning_rate=0.5)
    ).fit(rows, Y)
    explanation = explain(model, rows, precision="double")
    assert explanation.checked_against == "model" and (rows == -1).any()
    zeros = voting(
        regressor("lightgbm", zero_as_missing=True), regressor("lightgbm", zero_as_missing=True, max_depth=2)
    ).fit(rows, Y)
    explanation = explain(zeros, rows, precision="double")
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total, zeros.predict(rows), rtol=1e-10)
    assert len(adapt(zeros).ensemble.zero_missing)


@pytest.mark.usefixtures("on_cpu")
def test_linear_leaves() -> None:
    linear = library("lightgbm").LGBMRegressor(
        n_estimators=4, linear_tree=True, num_leaves=4, verbose=-1, n_jobs=1
    )
    model = VotingRegressor([("linear", linear), ("forest", forest())], weights=[3, -1]).fit(FRAME, Y)
    rows, background = FRAME[:3], FRAME[30:35]
    explanation = TreeExplainer(model, background, precision="double").explain(rows)
    expected = values_by_definition(model.predict, rows, background)
    np.testing.assert_allclose(explanation.values, expected, rtol=0, atol=1e-7)
    assert adapt(model).ensemble.has_linear_leaves and explanation.checked_against == "model"


def test_a_difference_of_two_models() -> None:
    """The intercepts cancel; the rounding of float32 sums is that of the models, not of the difference."""
    rng = np.random.default_rng(0)
    y = 1e6 + rng.normal(size=len(X))
    models = [regressor("xgboost"), regressor("xgboost", learning_rate=0.5)]
    model = VotingRegressor([("a", models[0]), ("b", models[1])], weights=[1, -0.999]).fit(X, y)
    assert explain(model, X, precision="double").checked_against == "model"


# All that a model can do


def test_interactions_groups_saving_and_transformer(tmp_path: Any) -> None:
    model = voting(regressor("lightgbm"), forest(), regressor("sklearn")).fit(FRAME, Y)
    adapted, rows = adapt(model), FRAME[:5]
    options: dict[str, Any] = {"precision": "double"}
    explainer = TreeExplainer(model, **options)
    values = explainer.explain(rows).values
    expected = reference.path_dependent(adapted.ensemble, rows).values[:, 0]
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9)
    pairs = reference.path_dependent(adapted.ensemble, rows, index="SII").values[:, 0]
    np.testing.assert_allclose(explainer.shap_interaction_values(rows), pairs, rtol=0, atol=1e-9)
    interactions = explain_interactions(model, rows, **options)
    assert interactions.values.shape[0] == 5
    groups = {"body": ["age", "body mass"]}
    grouped = explain(model, rows, feature_groups=groups, **options)
    expected = values_by_definition(model.predict, rows, FRAME[50:54], [["age", "body mass"], ["c"], ["d"]])
    by_data = TreeExplainer(model, FRAME[50:54], feature_groups=groups, **options).explain(rows)
    np.testing.assert_allclose(by_data.values, expected, rtol=0, atol=1e-9)
    assert grouped.values.shape == (5, 3)
    explainer.save(tmp_path / "sum.npz")
    for again in (TreeExplainer(tmp_path / "sum.npz"), pickle.loads(pickle.dumps(explainer))):
        np.testing.assert_array_equal(again.explain(rows).values, values)
    transformer = ShapTransformer(model, precision="double").fit(FRAME, Y)
    np.testing.assert_allclose(np.asarray(transformer.transform(rows)), values, rtol=0, atol=1e-9)
    bag = BaggingRegressor(DecisionTreeRegressor(max_depth=2), 3, random_state=0)
    total = voting(bag, HistGradientBoostingRegressor(max_iter=3)).fit(FRAME, Y)
    assert explain(total, rows).checked_against == "model"
