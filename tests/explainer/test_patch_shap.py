"""patch_shap against shap itself, and that shap is afterwards what it was before."""

from __future__ import annotations

import builtins
import copy
import gc
import inspect
import pickle
import sys
import threading
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.fixes import parse_version

from skshapgpu import ShapFallbackWarning, patch_shap
from skshapgpu._shap import patch as implementation

shap = pytest.importorskip("shap", minversion="0.45")

from shap import TreeExplainer  # noqa: E402

#: Earlier releases have fewer arguments and checks.
IS_NEW = parse_version(shap.__version__) >= parse_version("0.51")

pytestmark = [
    pytest.mark.filterwarnings("ignore:LightGBM binary classifier with TreeExplainer:UserWarning"),
    pytest.mark.filterwarnings("error::skshapgpu.ShapFallbackWarning"),
]


def on_a_grid(X: np.ndarray) -> np.ndarray:
    """Draw whole numbers; float32, to which shap narrows thresholds, holds those between them, too."""
    low, high = X.min(axis=0), X.max(axis=0)
    return np.round((X - low) / (high - low) * 1000)


DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
CANCER, MALIGNANT = load_breast_cancer(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
DIABETES, CANCER, IRIS = on_a_grid(DIABETES), on_a_grid(CANCER), on_a_grid(IRIS)
PROGRESSION = PROGRESSION + 1e4  # far from zero


def library(module: str, name: str, **options: Any) -> Any:
    return getattr(pytest.importorskip(module), name)(n_estimators=12, **options)


MODELS: dict[str, Any] = {
    "tree": lambda: (DecisionTreeRegressor(max_depth=6, random_state=0), DIABETES, PROGRESSION),
    "forest": lambda: (RandomForestRegressor(8, random_state=0), DIABETES, PROGRESSION),
    "extra trees": lambda: (ExtraTreesRegressor(8, max_depth=6, random_state=0), DIABETES, PROGRESSION),
    "binary forest": lambda: (RandomForestClassifier(8, random_state=0), CANCER, MALIGNANT),
    "multiclass forest": lambda: (RandomForestClassifier(8, random_state=0), IRIS, SPECIES),
    "vector leaves": lambda: (
        RandomForestRegressor(8, random_state=0),
        DIABETES,
        np.column_stack([PROGRESSION, -2 * PROGRESSION, DIABETES[:, 2]]),
    ),
    "boosting": lambda: (GradientBoostingClassifier(n_estimators=12, random_state=0), CANCER, MALIGNANT),
    "histogram boosting": lambda: (HistGradientBoostingRegressor(max_iter=12), DIABETES, PROGRESSION),
    "isolation forest": lambda: (IsolationForest(n_estimators=8, random_state=0), DIABETES, None),
    "xgboost": lambda: (library("xgboost", "XGBRegressor", max_depth=4), DIABETES, PROGRESSION),
    "xgboost binary": lambda: (library("xgboost", "XGBClassifier", max_depth=4), CANCER, MALIGNANT),
    "xgboost multiclass": lambda: (library("xgboost", "XGBClassifier", max_depth=3), IRIS, SPECIES),
    "lightgbm": lambda: (library("lightgbm", "LGBMRegressor", verbose=-1), DIABETES, PROGRESSION),
    "lightgbm binary": lambda: (library("lightgbm", "LGBMClassifier", verbose=-1), CANCER, MALIGNANT),
    "lightgbm multiclass": lambda: (library("lightgbm", "LGBMClassifier", verbose=-1), IRIS, SPECIES),
    "catboost": lambda: (library("catboost", "CatBoostRegressor", verbose=0), DIABETES, PROGRESSION),
    "catboost binary": lambda: (library("catboost", "CatBoostClassifier", verbose=0), CANCER, MALIGNANT),
    "catboost multiclass": lambda: (library("catboost", "CatBoostClassifier", verbose=0), IRIS, SPECIES),
}


def fitted(name: str) -> tuple[Any, np.ndarray, np.ndarray]:
    model, X, y = MODELS[name]()
    model.fit(X, y)
    return model, X, y


@pytest.fixture
def forest() -> Any:
    return RandomForestRegressor(4, max_depth=5, random_state=0).fit(DIABETES, PROGRESSION)


def state() -> list[tuple[int, str, int]]:
    """Return the identities of all attributes that the patch may touch."""
    owners = [shap, shap.explainers, TreeExplainer, shap.Explainer, shap.explainers._tree]
    if "GPUTreeExplainer" in vars(shap.explainers):
        owners.append(shap.explainers.GPUTreeExplainer)
    by_python = {"__warningregistry__", "__slotnames__"}  # that warnings and pickle leave
    return [
        (id(owner), name, id(value))
        for owner in owners
        for name, value in vars(owner).items()
        if name not in by_python
    ]


@pytest.fixture(autouse=True)
def unpatched_afterwards() -> Iterator[None]:
    before = state()
    yield
    assert state() == before
    assert implementation._SWITCH.n_active == 0


def assert_same(ours: Any, theirs: Any, digits: float = 1e-5) -> None:
    """Compare within the rounding errors of the libraries whose float32 values shap returns."""
    assert type(ours) is type(theirs)
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=digits * np.abs(theirs).max())


def assert_same_base(ours: Any, theirs: Any) -> None:
    """Compare values and forms of ``expected_value``; scalars may be of float32 or float64."""
    assert isinstance(ours, np.floating if isinstance(theirs, np.floating) else type(theirs))
    assert np.shape(ours) == np.shape(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make shap's own computations fail."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("shap computed")

    core = shap.explainers._tree._cext
    constructing = SimpleNamespace(compute_expectations=core.compute_expectations)
    monkeypatch.setattr(shap.explainers._tree, "_cext", constructing)
    for module, name, method in (
        ("xgboost", "Booster", "predict"),
        ("lightgbm", "Booster", "predict"),
        ("catboost", "CatBoost", "get_feature_importance"),
    ):
        if module in sys.modules:
            monkeypatch.setattr(getattr(sys.modules[module], name), method, fail)


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
        # shap reads other base scores of XGBoost and CatBoost, until they explain rows themselves
        assert isinstance(ours.expected_value, np.ndarray) == isinstance(bases[0], np.ndarray)
        assert_same_base(np.ravel(ours.expected_value), np.ravel(bases[1]))
        assert_same(ours.shap_values(rows), expected)
        assert_same_base(ours.expected_value, bases[1])
        found = ours(rows)
        assert_same(ours.shap_values(rows, check_additivity=False), expected)
    assert type(found) is shap.Explanation
    for attribute in ("values", "base_values", "data"):
        assert_same(getattr(found, attribute), getattr(explained, attribute))
    assert found.feature_names == explained.feature_names
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
        found = ours(X)
        single = ours.shap_values(X.iloc[5])
    assert_same(found.values, theirs.shap_values(X))
    assert_same(single, theirs.shap_values(X.iloc[5]))
    assert found.feature_names == list(X.columns)
    np.testing.assert_array_equal(found.data, X.values)


@pytest.mark.parametrize("kind", ["array", "frame", "Independent"])
def test_explainer_with_maskers(kind: str, forest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """shap.Explainer takes tree explainers for data and independent maskers, which may draw a sample."""
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
        found = ours(DIABETES[:4])
    assert type(ours) is type(theirs) is TreeExplainer
    assert type(ours.masker) is type(theirs.masker)
    for attribute in ("values", "base_values", "data"):
        assert_same(getattr(found, attribute), getattr(expected, attribute))
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


def test_categories_of_background_frames_of_histogram_boosting() -> None:
    """It reads categories of arrays by their values, so nothing is lost; shap takes them for numbers."""
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
            found = ours.shap_values(DIABETES[:5], check_additivity=False)
    assert np.abs(found - before).max() > 1
    assert_same(found, ours.shap_values(DIABETES[:5], check_additivity=False), 0)


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


def test_patches_nest_and_end_in_any_order() -> None:
    original = TreeExplainer.shap_values
    outer = patch_shap()
    patched = TreeExplainer.shap_values
    assert patched is not original
    with patch_shap() as inner:
        assert TreeExplainer.shap_values is patched
        outer.undo()
        outer.undo()
        assert (outer.active, inner.active) == (False, True)
        assert repr(outer) == "<ShapPatch: undone>"
        assert TreeExplainer.shap_values is patched
    assert TreeExplainer.shap_values is original
    with pytest.raises(RuntimeError, match=r"undone: call patch_shap\(\) again"), outer:
        pass


def test_an_exception_ends_the_patch() -> None:
    original = TreeExplainer.__init__
    with pytest.raises(ZeroDivisionError), patch_shap():
        assert TreeExplainer.__init__ is not original
        raise ZeroDivisionError
    assert TreeExplainer.__init__ is original


def test_wrappers_of_others_stay(forest: Any) -> None:
    """A function that was wrapped during the patch cannot be put back, but then calls shap's own."""
    original = TreeExplainer.shap_values
    expected = TreeExplainer(forest).shap_values(DIABETES[:5])
    try:
        with patch_shap():
            ours = TreeExplainer.shap_values

            def others(self: Any, X: Any) -> Any:
                return ours(self, X)

            TreeExplainer.shap_values = others
        assert TreeExplainer.shap_values is others
        assert_same(TreeExplainer(forest).shap_values(DIABETES[:5]), expected, 0)
        with patch_shap():
            assert_same(TreeExplainer(forest).shap_values(DIABETES[:5]), expected)
        assert TreeExplainer.shap_values is others
    finally:
        TreeExplainer.shap_values = original


def test_signatures_and_documentation_remain() -> None:
    def described() -> list[tuple[Any, str | None]]:
        methods = [TreeExplainer.__init__, TreeExplainer.shap_values, TreeExplainer.shap_interaction_values]
        return [(inspect.signature(method), method.__doc__) for method in methods]

    before = described()
    with patch_shap():
        assert described() == before


def test_threads(forest: Any) -> None:
    """Patches of several threads overlap; explainers of all of them are right."""
    expected = TreeExplainer(forest).shap_values(DIABETES[:20])
    errors: list[BaseException] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            start.wait()
            for _ in range(10):
                with patch_shap():
                    assert_same(TreeExplainer(forest).shap_values(DIABETES[:20]), expected)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_patch_covers_all_threads(forest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    expected = TreeExplainer(forest).shap_values(DIABETES[:5])
    with monkeypatch.context() as context, patch_shap():
        only_ours(context)
        thread = threading.Thread(
            target=lambda: found.append(TreeExplainer(forest).shap_values(DIABETES[:5]))
        )
        thread.start()
        thread.join()
    assert_same(found[0], expected)


def test_nothing_is_kept_of_explainers(forest: Any) -> None:
    gc.collect()
    n_entries = len(implementation._ENTRIES)
    with patch_shap():
        explainer = TreeExplainer(forest)
        explainer.shap_values(DIABETES[:5])
        assert len(implementation._ENTRIES) == n_entries + 1
    del explainer
    gc.collect()
    assert len(implementation._ENTRIES) == n_entries


def test_pickles_are_those_of_shap(forest: Any) -> None:
    theirs = TreeExplainer(forest, DIABETES[:20])
    with patch_shap():
        ours = TreeExplainer(forest, DIABETES[:20])
        ours.shap_values(DIABETES[:5])
        again = pickle.loads(pickle.dumps(ours))
        assert b"skshapgpu" not in pickle.dumps(ours)
        with pytest.warns(ShapFallbackWarning, match="unpickled: make it again"):
            values = again.shap_values(DIABETES[:5])
    assert_same(values, theirs.shap_values(DIABETES[:5]), 0)
    assert_same(pickle.loads(pickle.dumps(ours)).shap_values(DIABETES[:5]), values, 0)


@pytest.mark.parametrize("name", ["xgboost binary", "lightgbm", "catboost"])
def test_explainers_from_elsewhere_that_know_their_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, X, _ = fitted(name)
    earlier = TreeExplainer(model)
    expected = earlier.shap_values(X[:9])
    with monkeypatch.context() as context, patch_shap():
        others = [copy.copy(earlier), pickle.loads(pickle.dumps(earlier)), earlier]
        only_ours(context)
        for explainer in others:
            assert_same(explainer.shap_values(X[:9]), expected)


def test_a_model_that_is_fitted_again_and_background_that_is_changed(forest: Any) -> None:
    data = DIABETES[:20].copy()
    with patch_shap():
        explainers = [TreeExplainer(forest), TreeExplainer(forest, data)]
        before = [explainer.shap_values(DIABETES) for explainer in explainers]
        forest.fit(DIABETES[::-1], -PROGRESSION)
        data[:] = 1000.0
        for explainer, expected in zip(explainers, before, strict=True):
            np.testing.assert_array_equal(explainer.shap_values(DIABETES, check_additivity=False), expected)


def test_calls_that_are_refused_go_to_shap_with_one_warning(forest: Any) -> None:
    theirs = TreeExplainer(forest)
    expected = [
        theirs.shap_values(DIABETES[:5], approximate=True),
        theirs.shap_values(DIABETES[:5], tree_limit=2),
        theirs.shap_interaction_values(DIABETES[:5], tree_limit=2),
    ]
    with warnings.catch_warnings(record=True) as caught, patch_shap():
        warnings.simplefilter("always")
        ours = TreeExplainer(forest)
        for _ in range(3):
            found = [
                ours.shap_values(DIABETES[:5], approximate=True),
                ours.shap_values(DIABETES[:5], tree_limit=2),
                ours.shap_interaction_values(DIABETES[:5], tree_limit=2),
            ]
            if IS_NEW:
                assert_same(ours(DIABETES[:5], approximate=True).values, expected[0], 0)
    for values, wanted in zip(found, expected, strict=True):
        assert_same(values, wanted, 0)
    assert [warning.category for warning in caught] == [ShapFallbackWarning] * 2
    assert "approximate=True is for shap" in str(caught[0].message)
    assert "not tree_limit=2" in str(caught[1].message)
    assert {warning.filename for warning in caught} == {__file__}


def test_models_that_are_refused_go_to_shap_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    leaf = {
        "children_left": np.array([1, -1, -1]),
        "children_right": np.array([2, -1, -1]),
        "children_default": np.array([1, -1, -1]),
        "features": np.array([0, -2, -2]),
        "thresholds": np.array([0.5, 0, 0]),
        "values": np.array([[0.0], [1.0], [3.0]]),
        "node_sample_weight": np.array([4.0, 1.0, 3.0]),
    }
    with warnings.catch_warnings(record=True) as caught, patch_shap():
        warnings.simplefilter("always")
        explainer = TreeExplainer({"trees": [leaf]})
        values = [explainer.shap_values(np.array([[0.0, 1.0], [1.0, 1.0]])) for _ in range(2)]
    np.testing.assert_allclose(values, [[[-1.5, 0], [0.5, 0]]] * 2)
    assert [warning.category for warning in caught] == [ShapFallbackWarning]
    assert caught[0].filename == __file__


@pytest.mark.skipif(not IS_NEW, reason="shap has no covers for such nodes")
def test_covers_of_data_that_does_not_reach_all_nodes_are_those_of_shap(forest: Any) -> None:
    options = {"data": DIABETES[:5], "feature_perturbation": "tree_path_dependent"}
    expected = TreeExplainer(forest, **options).shap_values(DIABETES[:5], check_additivity=False)
    with patch_shap(), pytest.warns(ShapFallbackWarning, match="no row of data reaches some node"):
        explainer = TreeExplainer(forest, **options)
        values = explainer.shap_values(DIABETES[:5], check_additivity=False)
    assert_same(values, expected, 0)


def test_data_of_libraries_goes_to_shap() -> None:
    xgboost = pytest.importorskip("xgboost")
    model, X, _ = fitted("xgboost")
    expected = TreeExplainer(model).shap_values(xgboost.DMatrix(X))
    with patch_shap(), pytest.warns(ShapFallbackWarning, match="X is a DMatrix"):
        values = TreeExplainer(model).shap_values(xgboost.DMatrix(X))
    assert_same(values, expected, 0)


def test_errors_are_those_of_shap(forest: Any) -> None:
    from sklearn.linear_model import LinearRegression

    with patch_shap():
        with pytest.raises(Exception, match="not yet supported by TreeExplainer"):
            TreeExplainer(LinearRegression().fit(DIABETES, PROGRESSION))
        with pytest.warns(ShapFallbackWarning), pytest.raises(TypeError, match="shap_values"):
            TreeExplainer(forest).shap_values()
        if IS_NEW:
            with pytest.raises(Exception, match="must be 'auto', 'interventional', or 'tree_path_dependent'"):
                TreeExplainer(forest, feature_perturbation="other")


def test_without_shap_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "shap":
            raise ImportError("No module named 'shap'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"patch_shap\(\) needs shap: pip install shap"):
        patch_shap()


def test_old_releases_of_shap_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shap, "__version__", "0.44.1")
    with pytest.raises(ImportError, match=r"needs shap 0\.45 or newer, not 0\.44\.1"):
        patch_shap()
