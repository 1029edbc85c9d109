"""Predictions that are sums of functions of margins: means of probabilities, calibration, anomaly scores."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.families import classifier, forest_classifier, values_by_definition
from helpers.sums import FRAME, INDICATORS, RARE, THREE, TWO, boosting, histogram, in_float64, rows_only
from scipy.special import expit
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, IsolationForest, StackingClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import partial_dependence as brute_dependence
from sklearn.multiclass import OneVsRestClassifier

from skshapgpu import ShapTransformer, TreeExplainer, partial_dependence
from skshapgpu.adapters import adapt
from skshapgpu.adapters.link_sums import Isotonic, LinkSum, Sigmoid, Term
from skshapgpu.errors import UnsupportedModelError

pytestmark = [pytest.mark.filterwarnings("ignore::FutureWarning"), pytest.mark.usefixtures("on_cpu")]

ROWS, BACKGROUND = FRAME.iloc[5:9], FRAME.iloc[40:46]


def boosted() -> list[tuple[str, Any]]:
    libraries = [(name, classifier(name)) for name in ("xgboost", "lightgbm", "catboost", "sklearn")]
    return [*libraries, ("boosting", boosting()), ("forest", forest_classifier())]


def calibrated(model: Any, method: str, **options: Any) -> CalibratedClassifierCV:
    return CalibratedClassifierCV(model, method=method, cv=3, **options)


#: Classifiers of two classes, or more: each has probabilities that are no sum of margins.
MODELS: dict[str, Any] = {
    "voting": VotingClassifier(boosted(), voting="soft", weights=[1, 2, -0.5, 0, 1, 3]),
    "voting of calibrated": VotingClassifier(
        [
            ("isotonic", calibrated(boosting(), "isotonic")),
            ("forest", forest_classifier()),
            ("inner", VotingClassifier([("a", histogram()), ("b", boosting())], voting="soft")),
        ],
        voting="soft",
        weights=[2, 1, 1],
    ),
    "bag": BaggingClassifier(boosting(), 3, max_features=0.6, random_state=0),
    "isotonic": calibrated(boosting(), "isotonic", ensemble=False),
    "isotonic, averaged": calibrated(classifier("lightgbm"), "isotonic"),
    "isotonic of forests": calibrated(forest_classifier(), "isotonic"),
    "isotonic of probabilities": calibrated(classifier("catboost"), "isotonic"),
    "sigmoid, averaged": calibrated(boosting(), "sigmoid"),
    "sigmoid of probabilities": calibrated(classifier("catboost"), "sigmoid", ensemble=False),
}


@cache
def fitted(name: str, n_classes: int = 2) -> Any:
    return clone(MODELS[name]).fit(FRAME, TWO if n_classes == 2 else THREE)


def own_margin(model: Any) -> Callable[[Any], np.ndarray]:
    """Return the library's own margin of a fitted classifier, in float64."""
    module = type(model).__module__
    if module.startswith("xgboost"):
        return in_float64(model).predict
    if module.startswith("catboost"):
        return lambda X: model.predict(X, prediction_type="RawFormulaVal")
    if module.startswith("lightgbm"):
        return lambda X: model.predict(X, raw_score=True)
    if hasattr(model, "decision_function"):
        return model.decision_function
    return lambda X: model.predict_proba(X)[:, 1]


Parts = list[tuple[float, Callable[[Any], np.ndarray], Callable[[Any], np.ndarray]]]


def parts_of(model: Any, weight: float = 1.0, columns: Any = None) -> Parts:
    """Return the weight, the margin and the probability of each model inside, all by its own library."""
    if isinstance(model, VotingClassifier):
        weights = np.ones(len(model.estimators_)) if model.weights is None else np.array(model.weights)
        shares = (weight * weights / weights.sum()).tolist()
        return [p for share, m in zip(shares, model.estimators_) for p in parts_of(m, share)]
    if isinstance(model, BaggingClassifier):
        share = weight / len(model.estimators_)
        members = zip(model.estimators_, model.estimators_features_)
        return [p for m, own in members for p in parts_of(m, share, own)]
    if isinstance(model, CalibratedClassifierCV):
        pairs = model.calibrated_classifiers_
        return [
            (weight / len(pairs), own_margin(p.estimator), lambda X, p=p: p.predict_proba(X)[:, 1])
            for p in pairs
        ]
    margin, probability = own_margin(model), lambda X: model.predict_proba(X)[:, 1]
    if type(model).__module__.startswith("xgboost"):
        probability = lambda X: expit(margin(X))  # noqa: E731
    if columns is None:
        return [(weight, margin, probability)]

    def on_columns(function: Callable[[Any], np.ndarray]) -> Callable[[Any], np.ndarray]:
        return lambda X: function(X.to_numpy()[:, columns])

    return [(weight, on_columns(margin), on_columns(probability))]


def other_rows(parts: Parts) -> Any:
    """Return background rows whose margins differ from those of ROWS in all parts that have a weight.

    Two rows with the same margin have the derivative of a function as their slope, and no quotient.
    """
    others = FRAME.iloc[20:]
    differs = np.ones(len(others), bool)
    for weight, margin, _ in parts:
        distance = np.abs(margin(others)[:, np.newaxis] - margin(ROWS))
        differs &= (distance > 1e-3).all(axis=1) | (weight == 0)
    assert differs.sum() >= 6
    return others[differs].iloc[:6]


def rescaled_by_definition(parts: Parts, background: Any) -> np.ndarray:
    """Return the weighted sum of the values of each part, rescaled for each pair of rows."""
    values = np.zeros(ROWS.shape)
    for weight, margin, prediction in parts:
        if weight == 0:
            continue
        for i in range(len(background)):
            other = background.iloc[[i]]
            slopes = (prediction(ROWS) - prediction(other)) / (margin(ROWS) - margin(other))
            margin_values = values_by_definition(margin, ROWS, other)
            values += weight / len(background) * slopes[:, np.newaxis] * margin_values
    return values


def explained(model: Any, background: Any = BACKGROUND, **options: Any) -> Any:
    options = {"model_output": "probability", "precision": "double"} | options
    return TreeExplainer(model, background, **options).explain(ROWS)


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_of_two_classes(name: str) -> None:
    model = fitted(name)
    parts = parts_of(model)
    background = other_rows(parts)
    explanation = explained(model, background)
    assert explanation.checked_against == "model" and explanation.unit == "probability"
    expected = rescaled_by_definition(parts, background)
    assert np.abs(expected).max() > 1e-2
    np.testing.assert_allclose(explanation.values, expected, rtol=0, atol=1e-10)
    total = explanation.values.sum(axis=1) + explanation.base_values
    own = sum(weight * prediction(ROWS) for weight, _, prediction in parts)
    np.testing.assert_allclose(total, own, rtol=0, atol=1e-12)
    np.testing.assert_allclose(total, model.predict_proba(ROWS)[:, 1], rtol=0, atol=1e-6)


#: Models whose probabilities of three classes are a function of several margins.
JOINT = [name for name in MODELS if name not in ("voting", "voting of calibrated")]


@pytest.mark.parametrize("name", [*JOINT, "voting of float64", "one against the rest"])
def test_probabilities_of_three_classes(name: str) -> None:
    if name == "voting of float64":
        model = VotingClassifier(boosted()[1:], voting="soft", weights=[2, -0.5, 0, 1, 3]).fit(FRAME, THREE)
    elif name == "one against the rest":
        model = OneVsRestClassifier(boosting()).fit(FRAME, THREE)
    else:
        model = fitted(name, 3)
    explanation = explained(model)
    assert explanation.checked_against == "model" and explanation.output_names == ("a", "b", "c")
    expected = values_by_definition(model.predict_proba, ROWS, BACKGROUND)
    assert np.abs(expected).max() > 1e-2
    np.testing.assert_allclose(explanation.values, expected, rtol=0, atol=1e-10)
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total, model.predict_proba(ROWS), rtol=0, atol=1e-10)


def test_a_mean_has_the_mean_of_the_values_of_its_members() -> None:
    members = [*boosted(), ("isotonic", calibrated(forest_classifier(), "isotonic"))]
    model = VotingClassifier(members, voting="soft", weights=[3, 1, 2, 1, 1, 2, 4]).fit(
        FRAME, INDICATORS[:, 0]
    )
    expected = sum(
        weight / 14 * explained(member).values
        for weight, member in zip(model.weights, model.estimators_, strict=True)
    )
    np.testing.assert_allclose(explained(model).values, expected, rtol=0, atol=1e-12)
    weighted = explained(model, data_weight=[1, 0, 2, 1, 5, 1])
    assert np.abs(weighted.values - expected).max() > 1e-3
    assert weighted.checked_against == "model"


def test_members_that_have_not_seen_all_classes() -> None:
    model = BaggingClassifier(rows_only(boosting()), 6, max_samples=60, random_state=3).fit(FRAME, RARE)
    assert {len(member.classes_) for member in model.estimators_} == {3, 4}
    expected = values_by_definition(model.predict_proba, ROWS, BACKGROUND)
    np.testing.assert_allclose(explained(model).values, expected, rtol=0, atol=1e-10)
    rows = [(np.flatnonzero(RARE != "rare"), np.arange(240)), (np.arange(120), np.arange(120, 240))]
    model = CalibratedClassifierCV(boosting(), method="isotonic", cv=rows).fit(FRAME, RARE)
    with pytest.raises(UnsupportedModelError, match=r"only some of the 4 classes: use ensemble=False"):
        adapt(model)


def test_both_classes_and_groups() -> None:
    model = fitted("voting")
    both = explained(model, outputs="all")
    one = explained(model)
    assert both.output_names == ("no", "yes")
    np.testing.assert_allclose(both.values[..., 1], one.values, rtol=0, atol=1e-15)
    np.testing.assert_allclose(both.values[..., 0], -one.values, rtol=0, atol=1e-15)
    np.testing.assert_allclose(both.base_values.sum(), 1, rtol=1e-12)
    groups = {"both": ["age", "body mass"]}
    grouped = explained(fitted("sigmoid, averaged", 3), feature_groups=groups)
    names = [["age", "body mass"], ["c"], ["d"]]
    expected = values_by_definition(fitted("sigmoid, averaged", 3).predict_proba, ROWS, BACKGROUND, names)
    np.testing.assert_allclose(grouped.values, expected, rtol=0, atol=1e-10)


def test_single_precision_and_many_rows() -> None:
    """Slopes are computed for some rows at once."""
    model = fitted("isotonic, averaged")
    background = FRAME.iloc[:200]
    X = np.tile(FRAME.to_numpy(), (40, 1))  # 3 * 200 slopes of each of 9600 rows: several batches
    explainer = TreeExplainer(model, background.to_numpy(), model_output="probability", precision="double")
    values = explainer.shap_values(X)
    np.testing.assert_array_equal(values, np.tile(values[:240], (40, 1)))
    single = TreeExplainer(model, background.to_numpy(), model_output="probability")
    # Margins and slopes in float32 are off by 2^-18 of the leaves, which add up to less than 1 here.
    np.testing.assert_allclose(single.shap_values(X[:240]), values[:240], rtol=0, atol=2.0**-16)
    as_floats = single.explain(FRAME.astype(np.float32))
    assert as_floats.values.dtype == np.float32 and as_floats.checked_against == "model"


def test_what_is_explained_must_be_named() -> None:
    model = fitted("voting")
    with pytest.raises(UnsupportedModelError, match=r"VotingClassifier has no margin.*output='probability'"):
        TreeExplainer(model)
    with pytest.raises(UnsupportedModelError, match="this VotingClassifier has no margin"):
        partial_dependence(model, FRAME, ["age"])
    with pytest.raises(ValueError, match=r"give data= for interventional values$"):  # there is no margin
        TreeExplainer(model, model_output="probability")
    for output in ("log_loss", "response", "decision_function"):
        with pytest.raises(ValueError, match="is not defined for this model: use 'probability'"):
            TreeExplainer(model, BACKGROUND, model_output=output)
    explainer = TreeExplainer(model, BACKGROUND, model_output="probability")
    for call in (explainer.explain_interactions, partial(explainer.explain, index="BV")):
        with pytest.raises(
            ValueError, match=r"this model has no margin: explain.* SHAP values of the prob"
        ) as error:
            call(ROWS)
        assert "raw" not in str(error.value)
    with pytest.raises(ValueError, match=r"is a score of an IsolationForest.*use model_output='raw'"):
        TreeExplainer(boosting().fit(FRAME, TWO), BACKGROUND, model_output="decision_function")
    stack = StackingClassifier([("a", calibrated(boosting(), "isotonic"))], cv=2).fit(FRAME, TWO)
    with pytest.raises(UnsupportedModelError, match="takes probabilities"):
        TreeExplainer(stack)


def test_calibrators_that_are_not_known() -> None:
    frozen = FrozenEstimator(boosting().fit(FRAME, TWO))
    model = CalibratedClassifierCV(frozen, method="isotonic").fit(FRAME, TWO)
    calibrator = model.calibrated_classifiers_[0].calibrators[0]
    calibrator.out_of_bounds = "nan"
    with pytest.raises(UnsupportedModelError, match="calibrator of the class IsotonicRegression"):
        adapt(model)
    nested = calibrated(VotingClassifier([("a", boosting()), ("b", histogram())], voting="soft"), "sigmoid")
    with pytest.raises(UnsupportedModelError, match="means of functions themselves"):
        adapt(nested.fit(FRAME, TWO))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_files_and_pickles(tmp_path: Path, n_classes: int) -> None:
    for name in ("voting", "isotonic, averaged", "sigmoid of probabilities"):
        explainer = TreeExplainer(
            fitted(name, n_classes), BACKGROUND, model_output="probability", precision="double"
        )
        values = explainer.shap_values(ROWS)
        path = tmp_path / f"{name}.npz"
        explainer.save(path)
        for restored in (TreeExplainer.load(path), pickle.loads(pickle.dumps(explainer))):
            np.testing.assert_array_equal(restored.shap_values(ROWS), values)
            assert restored.output_names == explainer.output_names


def test_partial_dependence_and_transformers() -> None:
    model = fitted("isotonic, averaged", 3)
    own = partial_dependence(model, FRAME, ["age"], model_output="probability", grid_resolution=7)
    brute = brute_dependence(
        model, FRAME, ["age"], response_method="predict_proba", grid_resolution=7, method="brute"
    )
    np.testing.assert_allclose(own["average"], brute["average"], rtol=0, atol=1e-12)
    options: dict[str, Any] = {"model_output": "probability", "precision": "double"}
    transformer = ShapTransformer(FrozenEstimator(model), data=BACKGROUND, **options).fit(FRAME, THREE)
    values = explained(model).values
    np.testing.assert_array_equal(np.asarray(transformer.transform(ROWS)).reshape(values.shape), values)


def isolation() -> IsolationForest:
    """Return a forest whose trees take some rows and columns each, with an offset that is not -0.5."""
    options: dict[str, Any] = {"n_estimators": 20, "max_samples": 50, "max_features": 3}
    return IsolationForest(**options, contamination=0.1, random_state=0).fit(FRAME)


@pytest.mark.parametrize("output", ["score_samples", "decision_function"])
def test_scores_of_an_isolation_forest(output: str) -> None:
    model = isolation()
    score = getattr(model, output)
    typical = (
        2 * (np.log(49) + np.euler_gamma) - 2 * 49 / 50
    )  # path length of 50 rows, as scikit-learn has it
    parts: Parts = [(1.0, lambda X: -typical * np.log2(-model.score_samples(X)), score)]
    background = other_rows(parts)
    explanation = explained(model, background, model_output=output)
    expected = rescaled_by_definition(parts, background)
    assert np.abs(expected).max() > 1e-2 and explanation.unit == "score"
    assert explanation.checked_against == "model"
    np.testing.assert_allclose(explanation.values, expected, rtol=0, atol=1e-10)
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total, score(ROWS), rtol=0, atol=1e-12)
    np.testing.assert_allclose(explanation.base_values, score(background).mean(), rtol=0, atol=1e-12)


def test_scores_have_the_sign_of_the_path_length() -> None:
    """An outlier has a short path, a low score and negative values."""
    model, outlier = isolation(), FRAME.iloc[:1].assign(**{"age": 30.0, "body mass": -20.0})
    usual = FRAME.iloc[[int(np.argmax(model.score_samples(FRAME)))]]
    assert model.score_samples(outlier) < np.median(model.score_samples(FRAME))
    for output in ("raw", "score_samples", "decision_function"):
        explainer = TreeExplainer(model, FRAME, model_output=output)
        values = explainer.shap_values(outlier)[0]
        assert (values[:2] < 0).all() and np.abs(values[:2]).min() > np.abs(values[2:]).max()
        assert explainer.shap_values(usual).sum() > 0 > values.sum()
    for output in ("score_samples", "decision_function"):
        with pytest.raises(ValueError, match="give data= for"):
            TreeExplainer(model, model_output=output)
    one_row = IsolationForest(n_estimators=2, max_samples=1).fit(FRAME)
    with pytest.raises(ValueError, match="is a score of an IsolationForest"):
        TreeExplainer(one_row, BACKGROUND, model_output="score_samples")


def test_slopes_of_isotonic_functions() -> None:
    """Slopes equal exact quotients: within, across and beyond segments, and at points."""
    x, y = np.array([-1.0, 0.25, 0.5, 3.0]), np.array([0.0, 0.125, 0.5, 1.0])
    calibrator = Isotonic(x, y)

    def value(number: Fraction) -> Fraction:
        points = [(Fraction(a), Fraction(b)) for a, b in zip(x.tolist(), y.tolist())]
        if not points[0][0] < number < points[-1][0]:
            return points[0][1] if number <= points[0][0] else points[-1][1]
        (a, low), (b, high) = next(p for p in pairwise(points) if p[0][0] <= number <= p[1][0])
        return low + (high - low) * (number - a) / (b - a)

    numbers = np.array([-5, -1, -0.75, 0.25, 0.25 + 2.0**-40, 0.375, 0.5, 2.0, 3.0, 7.0])
    slopes = calibrator.slopes(numbers[:, np.newaxis], numbers)
    for i, first in enumerate(map(Fraction, numbers.tolist())):
        for j, second in enumerate(map(Fraction, numbers.tolist())):
            if i == j:
                step = Fraction(1, 2**60)  # across a point: the mean of both sides
                exact = (value(first + step) - value(first - step)) / (2 * step)
            else:
                exact = (value(first) - value(second)) / (first - second)
            assert slopes[i, j] == pytest.approx(float(exact), rel=1e-13, abs=1e-15), (first, second)
    np.testing.assert_allclose(calibrator.of(numbers), [float(value(Fraction(n))) for n in numbers])
    constant = Isotonic(np.array([0.5]), np.array([0.25]))
    assert not constant.slopes(numbers[:, np.newaxis], numbers).any() and (constant.of(numbers) == 0.25).all()


def test_slopes_at_points_do_not_depend_on_rounding() -> None:
    """A point is the margin of a training row; the margins of its copies may be rounded in other ways."""
    x, y = np.array([-1.0, 0.25, 0.5, 3.0]), np.array([0.0, 0.125, 0.5, 1.0])
    calibrator = Isotonic(x, y)
    rounded = np.nextafter(0.25, [-1.0, 0.25, 1.0])
    slopes = calibrator.slopes(rounded[:, np.newaxis], rounded)
    np.testing.assert_array_equal(slopes, (0.125 / 1.25 + 0.375 / 0.25) / 2)  # the mean of both sides
    # Two points that are as close are a step, which no single slope describes.
    step = Isotonic(rounded[1:], np.array([0.0, 1.0]))
    slopes = step.slopes(rounded[1:, np.newaxis], rounded[1:])
    assert slopes[0, 1] == slopes[1, 0] == 1 / (rounded[2] - rounded[1])


@pytest.mark.parametrize("link", ["identity", "logistic", "exp"])
def test_slopes_of_terms(link: Any) -> None:
    rng = np.random.default_rng(0)
    x, b = rng.normal(size=(2, 5, 1)) * 3, rng.normal(size=(2, 1, 6)) * 3
    sigmoids = Sigmoid(-1.5, 0.5), Sigmoid(2.0, -1.0)
    for term in (Term(link, -0.7, np.eye(2)), Term(link, 0.7, np.eye(2), sigmoids)):
        quotients = (term.of(x) - term.of(b)) / (x - b)
        # Each function value is rounded, and no two margins are closer than 1e-3.
        assert np.abs(x - b).min() > 1e-3
        np.testing.assert_allclose(term.slopes(x, b), quotients, rtol=1e-9, atol=1e-12)
        close = x + 1e-7
        derivative = (term.of(x + 1e-5) - term.of(x - 1e-5)) / 2e-5
        for other in (x, close):  # the derivative at a distance of 1e-7 differs by about as much
            np.testing.assert_allclose(term.slopes(x, other), derivative, rtol=1e-5, atol=1e-8)
        assert (
            np.abs(term.slopes(x, b))[:, 0, 0] <= term.steepest(np.zeros(2), np.full(2, 20.0)) + 1e-12
        ).all()


def test_functions_need_the_margins_of_the_ensemble() -> None:
    adapted = adapt(boosting().fit(FRAME, TWO))
    function = LinkSum((Term("logistic", 1.0, np.eye(2)),), np.zeros(2))
    with pytest.raises(ValueError, match="takes 2 margins, but the ensemble has 1 outputs"):
        type(adapted)(adapted.ensemble, adapted.schema, "own", functions={"probability": function})
