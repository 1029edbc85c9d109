"""patch_shap against shap itself: values, shapes and attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from skshapgpu import ShapFallbackWarning, explain, patch_shap
from skshapgpu._shap import patch as implementation

shap = pytest.importorskip("shap", minversion="0.45")

from helpers.shap_models import (  # noqa: E402
    DIABETES,
    MODELS,
    PROGRESSION,
    assert_same,
    assert_same_base,
    fitted,
    only_ours,
    state,
)
from shap import TreeExplainer  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:LightGBM binary classifier with TreeExplainer:UserWarning"),
    pytest.mark.filterwarnings("error::skshapgpu.ShapFallbackWarning"),
]


@pytest.fixture
def forest() -> Any:
    return RandomForestRegressor(4, max_depth=5, random_state=0).fit(DIABETES, PROGRESSION)


@pytest.fixture(autouse=True)
def unpatched_afterwards() -> Iterator[None]:
    before = state()
    yield
    assert state() == before
    assert implementation._SWITCH.n_active == 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n_background", [0, 60])
def test_values_and_attributes_are_those_of_shap(
    name: str, n_background: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, X, _ = fitted(name)
    data, rows = X[:n_background] if n_background else None, X[::9]
    if "catboost" in name and n_background:
        pytest.skip("shap narrows CatBoost's borders")
    theirs = TreeExplainer(model, data)
    bases = [theirs.expected_value]
    expected = theirs.shap_values(rows)
    bases.append(theirs.expected_value)
    explained = theirs(rows)
    with monkeypatch.context() as context, patch_shap():
        ours = TreeExplainer(model, data)
        only_ours(context)
        # shap reads other base scores for XGBoost and CatBoost until the libraries themselves explain rows
        assert isinstance(ours.expected_value, np.ndarray) == isinstance(bases[0], np.ndarray)
        assert_same_base(np.ravel(ours.expected_value), np.ravel(bases[1]))
        assert_same(ours.shap_values(rows), expected)
        assert_same_base(ours.expected_value, bases[1])
        result = ours(rows)
        assert_same(ours.shap_values(rows, check_additivity=False), expected)
    assert type(result) is shap.Explanation
    for attribute in ("values", "base_values", "data"):
        assert_same(getattr(result, attribute), getattr(explained, attribute))
    assert result.feature_names == explained.feature_names
    assert vars(ours).keys() == vars(theirs).keys()
    for attribute in ("model_output", "feature_perturbation"):
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    np.testing.assert_array_equal(ours.data, theirs.data)
    assert type(ours.model) is type(theirs.model)
    assert_same(ours.shap_values(rows), expected, 0)  # computed by shap again


@pytest.mark.parametrize(
    "name", ["forest", "binary forest", "xgboost", "xgboost multiclass", "lightgbm", "catboost multiclass"]
)
def test_interactions_are_those_of_shap(name: str) -> None:
    model, X, _ = fitted(name)
    theirs = TreeExplainer(model)
    expected = theirs.shap_interaction_values(X[:6])
    with patch_shap():
        ours = TreeExplainer(model)
        assert_same(ours.shap_interaction_values(X[:6]), expected)
        if not isinstance(expected, list):  # those of CatBoost, of whose outputs shap reads one base value
            assert_same_base(ours.expected_value, theirs.expected_value)
            assert_same(ours(X[:6], interactions=True).values, expected)


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("boosting", "probability"),
        ("xgboost binary", "probability"),
        ("xgboost binary", "predict_proba"),
        ("xgboost binary", "log_loss"),
        ("lightgbm binary", "log_loss"),
    ],
)
def test_other_outputs(name: str, output: str) -> None:
    model, X, y = fitted(name)
    theirs = TreeExplainer(model, X[:40], model_output=output)
    labels = y[::9] if output == "log_loss" else None
    expected = theirs.shap_values(X[::9], labels)
    with patch_shap():
        ours = TreeExplainer(model, X[:40], model_output=output)
        assert_same(ours.shap_values(X[::9], labels), expected, 1e-4)
    if output == "log_loss":
        assert_same(ours.expected_value(1), theirs.expected_value(1))
    else:
        assert_same_base(ours.expected_value, theirs.expected_value)


def test_covers_of_data() -> None:
    model = RandomForestRegressor(8, max_leaf_nodes=4, random_state=0).fit(DIABETES, PROGRESSION)
    data = DIABETES[::2]
    theirs = TreeExplainer(model, data, feature_perturbation="tree_path_dependent")
    assert theirs.model.fully_defined_weighting
    expected = theirs.shap_values(DIABETES[::9])
    assert np.abs(expected - TreeExplainer(model).shap_values(DIABETES[::9])).max() > 0.1
    with patch_shap():
        ours = TreeExplainer(model, data, feature_perturbation="tree_path_dependent")
        assert_same(ours.shap_values(DIABETES[::9]), expected)
        assert_same_base(ours.expected_value, theirs.expected_value)


def test_explainers_of_all_names(forest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = TreeExplainer(forest).shap_values(DIABETES[:5])
    with monkeypatch.context() as context, patch_shap():
        only_ours(context)
        for name in ("TreeExplainer", "Tree", "GPUTreeExplainer", "GPUTree"):
            explainer = getattr(shap.explainers, name)(forest)
            assert isinstance(explainer, TreeExplainer)
            assert_same(explainer.shap_values(DIABETES[:5]), expected)
        assert_same(shap.GPUTreeExplainer(forest).shap_values(DIABETES[:5]), expected)
        explainer = shap.Explainer(forest, algorithm="tree")
        assert type(explainer) is TreeExplainer
        assert_same(explainer(DIABETES[:5]).values, expected)
        assert_same(shap.Explainer(model=forest).shap_values(DIABETES[:5]), expected)
    assert type(shap.Explainer(lambda X: X[:, 0], DIABETES)) is not TreeExplainer


def test_subclasses(forest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubled(TreeExplainer):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

        def shap_values(self, X: Any, *args: Any, **kwargs: Any) -> Any:
            return 2 * super().shap_values(X, *args, **kwargs)

    expected = Doubled(forest).shap_values(DIABETES[:5])
    with monkeypatch.context() as context, patch_shap():
        explainer = Doubled(model=forest)
        other = Doubled(RandomForestRegressor(2, random_state=1).fit(DIABETES, PROGRESSION))
        only_ours(context)
        assert_same(explainer.shap_values(DIABETES[:5]), expected)
        assert np.abs(other.shap_values(DIABETES[:5]) - expected).max() > 1
    assert isinstance(explainer, shap.TreeExplainer)


def test_frames_and_single_rows(forest: Any) -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(DIABETES, columns=[f"f{i}" for i in range(10)])
    model = RandomForestRegressor(4, random_state=0).fit(X, PROGRESSION)
    theirs = TreeExplainer(model, X[:30], feature_names=None)
    with patch_shap():
        ours = TreeExplainer(model, X[:30])
        assert ours.data_feature_names == theirs.data_feature_names == list(X.columns)
        result = ours(X)
        single = ours.shap_values(X.iloc[5])
    assert_same(result.values, theirs.shap_values(X))
    assert_same(single, theirs.shap_values(X.iloc[5]))
    assert result.feature_names == list(X.columns)
    np.testing.assert_array_equal(result.data, X.values)


@pytest.mark.parametrize("kind", ["array", "frame", "Independent"])
def test_explainer_with_maskers(kind: str, forest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """shap.Explainer chooses tree explainers for data and for independent maskers, which may sample."""
    pd = pytest.importorskip("pandas")
    make_masker = {
        "array": lambda: DIABETES[:40],
        "frame": lambda: pd.DataFrame(DIABETES[:40], columns=[f"f{i}" for i in range(10)]),
        "Independent": lambda: shap.maskers.Independent(DIABETES, max_samples=30),
    }[kind]
    theirs = shap.Explainer(forest, make_masker())
    expected = theirs(DIABETES[:4])
    with monkeypatch.context() as context, patch_shap():
        ours = shap.Explainer(forest, make_masker())
        only_ours(context)
        result = ours(DIABETES[:4])
    assert type(ours) is type(theirs) is TreeExplainer
    assert type(ours.masker) is type(theirs.masker)
    for attribute in ("values", "base_values", "data"):
        assert_same(getattr(result, attribute), getattr(expected, attribute))
    assert_same_base(ours.expected_value, theirs.expected_value)


def test_explainers_of_functions_are_not_those_of_trees(forest: Any) -> None:
    masker = shap.maskers.Partition(DIABETES[:20])
    with patch_shap():
        explainer = shap.Explainer(forest.predict, masker)
        values = explainer(DIABETES[:2]).values
    assert not isinstance(explainer, TreeExplainer)
    assert_same(values, shap.Explainer(forest.predict, masker)(DIABETES[:2]).values, 0)


def test_values_of_float32_rows_are_float64(forest: Any) -> None:
    pd = pytest.importorskip("pandas")
    X = DIABETES[:9].astype(np.float32)
    with patch_shap():
        ours = TreeExplainer(forest)
        for rows in (X, pd.DataFrame(X)):
            assert_same(ours.shap_values(rows), ours.shap_values(DIABETES[:9]), 0)
            assert ours.shap_values(rows).dtype == np.float64
            assert ours.shap_interaction_values(rows).dtype == np.float64
        assert ours.shap_values(X[0]).dtype == np.float64


@pytest.mark.parametrize("name", ["forest", "lightgbm", "catboost"])
def test_columns_in_another_order_go_to_shap(name: str) -> None:
    pd = pytest.importorskip("pandas")
    model, X, y = fitted(name)
    X = pd.DataFrame(X, columns=[f"f{i}" for i in range(10)])
    model.fit(X, y)
    other = X[X.columns[::-1]][:9]
    expected = TreeExplainer(model).shap_values(other, check_additivity=False)
    with patch_shap(), pytest.warns(ShapFallbackWarning, match="feature names should match"):
        values = TreeExplainer(model).shap_values(other, check_additivity=False)
    assert_same(values, expected, 0)


def frame_with_categories() -> Any:
    """Return rows with a column of categories that are numbers, but not their codes."""
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(DIABETES, columns=[f"f{i}" for i in range(10)])
    return X.assign(f1=pd.Categorical((X["f2"] // 250 * 10 + 30).astype(int)))


def test_categories_of_background_frames_go_to_shap() -> None:
    """shap keeps the values of the frame, which the library would take for codes."""
    lightgbm, X = pytest.importorskip("lightgbm"), frame_with_categories()
    model = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(X, PROGRESSION)
    expected = TreeExplainer(model).shap_values(X)
    with patch_shap():
        assert_same(TreeExplainer(model).shap_values(X), expected)
        with pytest.warns(ShapFallbackWarning, match="the model has categorical columns"):
            TreeExplainer(model, X[:40])


@pytest.mark.parametrize("family", ["xgboost", "lightgbm", "sklearn"])
def test_errors_of_shap_at_background_frames_with_strings_say_what_takes_them(family: str) -> None:
    X = frame_with_categories()
    X["f1"] = X["f1"].astype(str).astype("category")
    assert X["f1"].nunique() > 2
    if family == "sklearn":
        model: Any = HistGradientBoostingRegressor(max_iter=5, categorical_features="from_dtype")
    elif family == "xgboost":
        model = pytest.importorskip("xgboost").XGBRegressor(n_estimators=5, enable_categorical=True)
    else:
        model = pytest.importorskip("lightgbm").LGBMRegressor(n_estimators=5, verbose=-1)
    model.fit(X, PROGRESSION)
    with pytest.raises(Exception) as without:
        TreeExplainer(model, X[:40])
    assert not hasattr(without.value, "__notes__")
    with patch_shap(), pytest.raises(type(without.value)) as under_patch:
        TreeExplainer(model, X[:40])
    assert str(under_patch.value) == str(without.value)
    assert "skshapgpu.TreeExplainer(model, data)" in under_patch.value.__notes__[0]
    with patch_shap(), pytest.raises(Exception) as numbers:
        TreeExplainer(object(), X[["f2"]])
    assert not hasattr(numbers.value, "__notes__")
    explanation = explain(model, X[:9], data=X[:40])
    np.testing.assert_allclose(
        explanation.base_values + explanation.values.sum(axis=1), model.predict(X[:9]), rtol=1e-5
    )


def test_background_frames_of_lightgbm_without_categories_are_explained() -> None:
    pd, lightgbm = pytest.importorskip("pandas"), pytest.importorskip("lightgbm")
    X = pd.DataFrame(DIABETES, columns=[f"f{i}" for i in range(10)])
    y = PROGRESSION - 1e4  # shap sums leaves in float32
    model = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(X, y)
    expected = TreeExplainer(model, X[:40]).shap_values(X)
    with patch_shap():
        ours = TreeExplainer(model, X[:40])
        values = ours.shap_values(X)
    assert_same(values, expected)
    np.testing.assert_allclose(ours.expected_value, model.predict(X[:40]).mean(), rtol=1e-9)
    np.testing.assert_allclose(ours.expected_value + values.sum(axis=1), model.predict(X), rtol=1e-9)


def test_categories_of_background_frames_of_histogram_boosting() -> None:
    """The model reads categories of arrays by value, so nothing is lost; shap takes them for numbers."""
    X = frame_with_categories()
    model = HistGradientBoostingRegressor(max_iter=5, categorical_features="from_dtype").fit(X, PROGRESSION)
    with patch_shap():
        ours = TreeExplainer(model, X[:40])
        values = ours.shap_values(X)
    np.testing.assert_allclose(ours.expected_value, model.predict(X[:40]).mean(), rtol=1e-9)
    np.testing.assert_allclose(ours.expected_value + values.sum(axis=1), model.predict(X), rtol=1e-9)


@pytest.mark.parametrize("attribute", ["model", "data"])
def test_explainers_whose_attributes_were_replaced_go_to_shap(attribute: str, forest: Any) -> None:
    other = RandomForestRegressor(2, random_state=1).fit(DIABETES, PROGRESSION)
    theirs = TreeExplainer(other, DIABETES[40:60])
    with patch_shap():
        ours = TreeExplainer(forest, DIABETES[:40])
        before = ours.shap_values(DIABETES[:5])
        setattr(ours, attribute, getattr(theirs, attribute))
        with pytest.warns(ShapFallbackWarning, match="attributes of the explainer have been replaced"):
            values = ours.shap_values(DIABETES[:5], check_additivity=False)
    assert np.abs(values - before).max() > 1
    assert_same(values, ours.shap_values(DIABETES[:5], check_additivity=False), 0)


def test_models_of_which_shap_explains_another_output_go_to_shap(
    forest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skshapgpu._shap import stand_in

    expected = TreeExplainer(forest).shap_values(DIABETES[:5])
    other = RandomForestRegressor(4, max_depth=5, random_state=0).fit(DIABETES, 2 * PROGRESSION)
    adapt = stand_in.adapt
    monkeypatch.setattr(stand_in, "adapt", lambda model: adapt(other))
    with patch_shap(), pytest.warns(ShapFallbackWarning, match="they explain different outputs of the model"):
        values = TreeExplainer(forest).shap_values(DIABETES[:5])
    assert_same(values, expected, 0)


def test_methods_that_were_bound_during_the_patch_are_those_of_shap_afterwards(forest: Any) -> None:
    expected = TreeExplainer(forest).shap_values(DIABETES[:5])
    with patch_shap():
        bound, construct = TreeExplainer(forest).shap_values, TreeExplainer.__init__
    assert_same(bound(DIABETES[:5]), expected, 0)
    assert_same(bound(DIABETES[:5], tree_limit=4), expected, 0)  # which would warn under a patch
    explainer = TreeExplainer.__new__(TreeExplainer)
    construct(explainer, forest)
    assert_same(explainer.shap_values(DIABETES[:5]), expected, 0)
    assert id(explainer) not in implementation._ENTRIES
