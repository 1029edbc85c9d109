"""Unknown options, and invalid values, raise errors that name the option, before any work starts."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

import skshapgpu
from skshapgpu import (
    ShapBarDisplay,
    ShapBeeswarmDisplay,
    ShapBoruta,
    ShapDependenceDisplay,
    ShapInteractionDisplay,
    ShapInteractionTransformer,
    ShapRFECV,
    ShapSelector,
    ShapTransformer,
    ShapWaterfallDisplay,
    TreeExplainer,
    cross_val_explain,
    distributed,
    explain,
    explain_batches,
    explain_interactions,
    friedman_h,
    partial_dependence,
    shap_importance,
)
from skshapgpu.batches import BatchExplainer

X, Y = load_diabetes(return_X_y=True)


@pytest.fixture(scope="module")
def forest() -> RandomForestRegressor:
    return RandomForestRegressor(3, max_depth=3, random_state=0).fit(X, Y)


class NeverFitted(RegressorMixin, BaseEstimator):
    """Model that must not be fitted."""

    def fit(self, X: Any, y: Any) -> NeverFitted:
        raise AssertionError("options are refused before any fit")


OF_FITTED = {
    "TreeExplainer": lambda model, n_jobs: TreeExplainer(model, n_jobs=n_jobs),
    "explain": lambda model, n_jobs: explain(model, X, n_jobs=n_jobs),
    "shap_importance": lambda model, n_jobs: shap_importance(model, X, n_jobs=n_jobs),
    "display": lambda model, n_jobs: ShapBarDisplay.from_estimator(model, X, n_jobs=n_jobs),
    "explain_batches": lambda model, n_jobs: explain_batches(model, [X], "no_such_folder/x", n_jobs=n_jobs),
}

NEEDED = {"display": "matplotlib", "explain_batches": "pyarrow"}

OF_FITS = {
    "cross_val_explain": lambda n_jobs: cross_val_explain(NeverFitted(), X, Y, n_jobs=n_jobs),
    "explain_params": lambda n_jobs: cross_val_explain(
        NeverFitted(), X, Y, explain_params={"n_jobs": n_jobs}
    ),
    "ShapSelector": lambda n_jobs: ShapSelector(NeverFitted(), cv=2, n_jobs=n_jobs).fit(X, Y),
    "ShapBoruta": lambda n_jobs: ShapBoruta(NeverFitted(), n_jobs=n_jobs).fit(X, Y),
    "ShapRFECV": lambda n_jobs: ShapRFECV(NeverFitted(), n_jobs=n_jobs).fit(X, Y),
    "ShapTransformer": lambda n_jobs: ShapTransformer(NeverFitted(), n_jobs=n_jobs).fit(X, Y),
    "ShapInteractionTransformer": lambda n_jobs: ShapInteractionTransformer(NeverFitted(), n_jobs=n_jobs).fit(
        X, Y
    ),
}

REFUSED = [
    ("2", TypeError, "n_jobs must be an int or None, not '2'"),
    (2.0, TypeError, "n_jobs must be an int or None, not 2.0"),
    (True, TypeError, "n_jobs must be an int or None, not True"),
    (0, ValueError, "n_jobs must not be 0: None or 1 is one thread"),
]


@pytest.mark.parametrize(("n_jobs", "error", "message"), REFUSED)
@pytest.mark.parametrize("way", OF_FITTED)
def test_threads_of_fitted_models(
    way: str, n_jobs: Any, error: type[Exception], message: str, forest: RandomForestRegressor
) -> None:
    if way in NEEDED:
        pytest.importorskip(NEEDED[way])
    with pytest.raises(error, match=message):
        OF_FITTED[way](forest, n_jobs)


@pytest.mark.parametrize(("n_jobs", "error", "message"), REFUSED)
@pytest.mark.parametrize("way", OF_FITS)
def test_threads_are_refused_before_fits(way: str, n_jobs: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        OF_FITS[way](n_jobs)


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "no such"},
        {"precision": "half"},
        {"memory_limit": "lots"},
        {"device": "tpu"},
        {"outputs": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("cls", [ShapTransformer, ShapInteractionTransformer])
def test_options_of_transformers_are_refused_before_the_fit(cls: type, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        cls(NeverFitted(), **options).fit(X, Y)


@pytest.mark.parametrize("n_jobs", [None, 1, np.int64(2), -1, -100])
def test_threads_that_joblib_counts(n_jobs: Any, forest: RandomForestRegressor) -> None:
    np.testing.assert_array_equal(
        TreeExplainer(forest, n_jobs=n_jobs).shap_values(X[:100]), TreeExplainer(forest).shap_values(X[:100])
    )
    assert skshapgpu.explain(forest, X[:5], n_jobs=n_jobs).shape == (5, 10)


#: Functions that pass other keyword arguments on as options of an explainer, with their required arguments.
CALLS: list[tuple[Any, int]] = [
    (explain, 2),
    (explain_interactions, 2),
    (explain_batches, 3),
    (BatchExplainer, 1),
    (distributed.explain_dask, 2),
    (distributed.explain_ray, 2),
    (distributed.explain_spark, 2),
    (ShapBarDisplay.from_estimator, 2),
    (ShapBeeswarmDisplay.from_estimator, 2),
    (ShapDependenceDisplay.from_estimator, 3),
    (ShapInteractionDisplay.from_estimator, 2),
    (ShapWaterfallDisplay.from_estimator, 2),
]


def message_about(call: Any, n_required: int, word: str) -> str:
    """Return the message about an unknown option, which comes before any other error."""
    with pytest.raises(TypeError) as caught:
        call(*[None] * n_required, **{word: 1})
    return str(caught.value)


@pytest.mark.parametrize("call", [cross_val_explain, shap_importance])
def test_options_that_belong_into_explain_params(call: Any) -> None:
    problem = f"{call.__name__}() got an unexpected keyword argument"
    advice = f"{problem} 'model_output'. Pass explain_params={{'model_output': ...}}"
    assert message_about(call, 2, "model_output") == advice
    assert (
        message_about(call, 2, "explain_param")
        == f"{problem} 'explain_param'. Did you mean 'explain_params'?"
    )
    assert message_about(call, 2, "unknown") == f"{problem} 'unknown'"


@pytest.mark.parametrize("call, n_required", CALLS)
def test_unknown_options_are_named_with_the_function(call: Any, n_required: int) -> None:
    problem = f"{call.__name__}() got an unexpected keyword argument"
    for word in ("unknown", "cat_features"):
        assert message_about(call, n_required, word) == f"{problem} {word!r}"
    for word, name in (
        ("groups", "feature_groups"),
        ("background", "data"),
        ("masker", "data"),
        ("presicion", "precision"),
        ("nthread", "n_jobs"),
    ):
        assert message_about(call, n_required, word) == f"{problem} {word!r}. Did you mean {name!r}?"
    assert message_about(call, n_required, "approximate").endswith(
        ". The values are always exact: leave it out"
    )
    for name, parameter in inspect.signature(call).parameters.items():
        if parameter.kind == parameter.KEYWORD_ONLY and len(name) > 3:
            misspelt = name[:1] + name[2:]
            assert message_about(call, n_required, misspelt).endswith(f"Did you mean {name!r}?")


@pytest.mark.parametrize(
    "call, word, name",
    [
        (explain_batches, "reason", "reasons"),
        (explain_batches, "if_exist", "if_exists"),
        (explain_batches, "overwrite", "if_exists"),
        (explain_batches, "group", "sum_by"),
        (explain, "indx", "index"),
        (explain, "group", "feature_groups"),
        (explain, "reason", None),
        (explain, "max_features", None),
        (distributed.explain_dask, "reasons", None),
        (distributed.explain_spark, "top", "reasons"),
        (ShapBarDisplay.from_estimator, "colors", "color"),
        (ShapBarDisplay.from_estimator, "max_feature", "max_features"),
        (ShapBarDisplay.from_estimator, "max_display", "max_features"),
        (ShapBeeswarmDisplay.from_estimator, "colors", "cmap"),
        (ShapDependenceDisplay.from_estimator, "color", "color_by"),
        (ShapInteractionDisplay.from_estimator, "color", "cmap"),
    ],
)
def test_hints_at_parameters_of_the_function(call: Any, word: str, name: str | None) -> None:
    message = message_about(call, dict(CALLS)[call], word)
    assert message.endswith(f"{word!r}" if name is None else f"{word!r}. Did you mean {name!r}?")


@pytest.mark.parametrize(
    "word, advice",
    [
        ("nsamples", "nothing is sampled: leave it out"),
        ("approximate", "always exact: leave it out"),
        ("link", "model_output='probability' the probability: leave it out"),
        ("feature_names", "pass X as a data frame"),
        ("tree_limit", r"cut the model, as in booster\[:50\]"),
        ("seed", "Nothing is random: leave it out"),
    ],
)
def test_arguments_of_shap_are_answered(word: str, advice: str, forest: RandomForestRegressor) -> None:
    explainer = TreeExplainer(forest)
    for call in (explainer, explainer.explain, explainer.shap_values, explainer.shap_interaction_values):
        with pytest.raises(TypeError, match=rf"{word!r}\. .*{advice}$"):
            call(X, **{word: 1})
    with pytest.raises(TypeError, match=rf"^TreeExplainer\(\) got an .*{word!r}\. .*{advice}$"):
        TreeExplainer(forest, **{word: 1})


def test_misspelt_arguments_of_calls_are_named(forest: RandomForestRegressor) -> None:
    explainer = TreeExplainer(forest)
    with pytest.raises(
        TypeError, match=r"shap_values\(\) got .*'chek_additivity'. Did you mean 'check_additivity'\?$"
    ):
        explainer.shap_values(X, chek_additivity=False)  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"'check_additivity'\. It is an option of TreeExplainer and of shap_values$"
    ):
        explainer.explain(X, check_additivity=False)  # type: ignore[call-arg]


def test_a_subclass_may_have_options_of_its_own(forest: RandomForestRegressor) -> None:
    class Named(TreeExplainer):
        def __init__(self, model: Any, *, link: str) -> None:
            super().__init__(model)
            self.__dict__["link"] = link

    assert Named(forest, link="mine").explain(X[:3]).shape == (3, 10)


@pytest.mark.parametrize("options", [{}, {"feature_perturbation": "tree_path_dependent"}])
def test_maskers_and_summaries_of_shap_are_answered(
    options: dict[str, Any], forest: RandomForestRegressor
) -> None:
    shap = pytest.importorskip("shap")
    for masker in (shap.maskers.Independent(X), shap.maskers.Partition(X)):
        message = rf"^data is shap's {type(masker).__name__}: pass its rows, data=masker\.data"
        with pytest.raises(TypeError, match=message):
            TreeExplainer(forest, masker, **options)
        assert TreeExplainer(forest, masker.data, **options).explain(X[:2]).shape == (2, 10)
    summary = shap.kmeans(X, 3)
    with pytest.raises(TypeError, match=r"shap's DenseData: pass data=summary\.data and data_weight="):
        TreeExplainer(forest, summary, **options)
    explainer = TreeExplainer(forest, summary.data, data_weight=summary.weights, **options)
    centres = forest.predict(summary.data)
    np.testing.assert_allclose(
        explainer.expected_value, np.average(centres, weights=summary.weights), rtol=1e-6
    )


@pytest.mark.parametrize("value", ["x", 2.5, 1, None, []])
def test_options_that_must_be_booleans(value: Any, forest: RandomForestRegressor, tmp_path: Any) -> None:
    explainer, path = TreeExplainer(forest), tmp_path / "explainer.npz"
    explainer.save(path)
    calls: list[tuple[str, Any]] = [
        ("check_additivity", lambda: TreeExplainer(forest, check_additivity=value)),
        ("check_additivity", lambda: TreeExplainer.load(path, check_additivity=value)),
        ("verify", lambda: TreeExplainer.load(path, verify=value)),
        ("tables", lambda: explainer.save(path, tables=value)),
        ("centered", lambda: partial_dependence(forest, X, 2, centered=value)),
        ("per_output", lambda: shap_importance(forest, X, per_output=value)),
        ("by_sign", lambda: explainer.explain(X[:5]).reasons(by_sign=value)),
    ]
    if value is not None:
        calls.append(("check_additivity", lambda: explainer.shap_values(X[:5], check_additivity=value)))
    for name, call in calls:
        with pytest.raises(TypeError, match=re.escape(f"{name} must be a bool, not {value!r}")):
            call()
    assert TreeExplainer(forest, check_additivity=np.bool_(False)).explain(X[:5]).additivity_error is None


def test_other_parameters_are_checked(forest: RandomForestRegressor) -> None:
    for call in (partial_dependence, friedman_h):
        with pytest.raises(TypeError, match="n_jobs must be an int or None, not 'x'"):
            call(forest, X, [2, 3], n_jobs="x")
    with pytest.raises(TypeError, match="custom_values must be a dict or None, not a list"):
        partial_dependence(forest, X, 2, custom_values=[1])
    with pytest.raises(TypeError, match="features must be a list of names or positions of columns, not 2"):
        friedman_h(forest, X, 2)
    for order in ("x", 2.5, 4, None):
        with pytest.raises(ValueError, match="order must be 2 or 3"):
            TreeExplainer(forest).plan(5, order=order)
    for argument in ("features", "keep"):
        with pytest.raises(TypeError, match=f"{argument} must be a sequence of names, not 3"):
            BatchExplainer(forest, **{argument: 3})


@pytest.mark.parametrize("params", ["x", [("n_jobs", 1)]])
def test_explain_params_are_a_dict(params: Any, forest: RandomForestRegressor) -> None:
    for call in (
        lambda: shap_importance(forest, X, explain_params=params),
        lambda: cross_val_explain(NeverFitted(), X, Y, explain_params=params),
        lambda: ShapBoruta(NeverFitted(), explain_params=params).fit(X, Y),
    ):
        with pytest.raises(TypeError, match="explain_params must be a dict or None, not a"):
            call()
