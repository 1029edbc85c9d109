"""Extent of patches of shap: beginning and end, other threads and processes, fallbacks to shap."""

from __future__ import annotations

import builtins
import copy
import gc
import inspect
import pickle
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import ShapFallbackWarning, patch_shap
from skshapgpu._shap import patch as implementation

shap = pytest.importorskip("shap", minversion="0.45")

from helpers.shap_models import (  # noqa: E402
    DIABETES,
    IS_NEW,
    PROGRESSION,
    assert_same,
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
    """A function that was wrapped during the patch stays wrapped, but calls shap's own after the patch."""
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
    """Patches of several threads overlap; the explainers of all threads are right."""
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
    results: list[Any] = []
    expected = TreeExplainer(forest).shap_values(DIABETES[:5])
    with monkeypatch.context() as context, patch_shap():
        only_ours(context)
        thread = threading.Thread(
            target=lambda: results.append(TreeExplainer(forest).shap_values(DIABETES[:5]))
        )
        thread.start()
        thread.join()
    assert_same(results[0], expected)


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
            result = [
                ours.shap_values(DIABETES[:5], approximate=True),
                ours.shap_values(DIABETES[:5], tree_limit=2),
                ours.shap_interaction_values(DIABETES[:5], tree_limit=2),
            ]
            if IS_NEW:
                assert_same(ours(DIABETES[:5], approximate=True).values, expected[0], 0)
    for values, wanted in zip(result, expected, strict=True):
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
