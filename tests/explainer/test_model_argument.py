"""One meaning of "model": a fitted model, a model file, an explainer, or an explainer file."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.families import library
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skshapgpu
from skshapgpu import (
    ShapBarDisplay,
    ShapBeeswarmDisplay,
    ShapDependenceDisplay,
    ShapInteractionDisplay,
    ShapInteractionTransformer,
    ShapSelector,
    ShapTransformer,
    ShapWaterfallDisplay,
    TreeExplainer,
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
FEW = X[:40]

#: Results of functions that take a model, as arrays.
RESULTS: dict[str, Callable[[Any], np.ndarray]] = {
    "explain": lambda model: explain(model, FEW).values,
    "explain_interactions": lambda model: explain_interactions(model, FEW).values,
    "TreeExplainer": lambda model: TreeExplainer(model).shap_values(FEW),
    "partial_dependence": lambda model: partial_dependence(model, FEW, 2).average,
    "friedman_h": lambda model: friedman_h(model, FEW, [2, 3]).h_squared,
    "shap_importance": lambda model: shap_importance(model, FEW).importances_mean,
    "ShapTransformer": lambda model: ShapTransformer.from_fitted(model).transform(FEW),
    "ShapInteractionTransformer": lambda model: ShapInteractionTransformer.from_fitted(model).transform(FEW),
}

#: Functions that take a model or an estimator, whose docstrings say so in the same words.
FUNCTIONS: list[Any] = [
    explain,
    explain_interactions,
    explain_batches,
    partial_dependence,
    friedman_h,
    shap_importance,
    ShapTransformer.from_fitted,
    ShapInteractionTransformer.from_fitted,
    BatchExplainer,
    distributed.explain_dask,
    distributed.explain_ray,
    distributed.explain_spark,
    ShapBarDisplay.from_estimator,
    ShapBeeswarmDisplay.from_estimator,
    ShapDependenceDisplay.from_estimator,
    ShapInteractionDisplay.from_estimator,
    ShapWaterfallDisplay.from_estimator,
]


@pytest.fixture(scope="module")
def fitted() -> Any:
    return RandomForestRegressor(5, max_depth=4, random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def path(fitted: Any, tmp_path_factory: Any) -> str:
    place = tmp_path_factory.mktemp("model") / "explainer.npz"
    TreeExplainer(fitted).save(place)
    return str(place)


@pytest.mark.parametrize("name", RESULTS)
def test_an_explainer_and_its_file_are_models(name: str, fitted: Any, path: str) -> None:
    result = RESULTS[name]
    right = result(fitted)
    assert np.abs(right).max() > 0
    np.testing.assert_array_equal(result(TreeExplainer(fitted)), right)
    np.testing.assert_array_equal(result(path), right)


@pytest.mark.parametrize(
    "cls",
    [
        ShapBarDisplay,
        ShapBeeswarmDisplay,
        ShapDependenceDisplay,
        ShapInteractionDisplay,
        ShapWaterfallDisplay,
    ],
)
def test_displays_take_them(cls: Any, fitted: Any, path: str) -> None:
    pytest.importorskip("matplotlib").use("agg")
    feature = [2] if cls is ShapDependenceDisplay else []
    right, *pictures = (
        picture(cls.from_estimator(model, FEW, *feature)) for model in (fitted, TreeExplainer(fitted), path)
    )
    assert len(np.unique(right)) > 10
    for drawn in pictures:
        np.testing.assert_array_equal(drawn, right)


def picture(display: Any) -> np.ndarray:
    """Return the pixels of a display."""
    import matplotlib.pyplot as plt

    display.figure_.canvas.draw()
    pixels = np.asarray(display.figure_.canvas.buffer_rgba()).copy()
    plt.close(display.figure_)
    return pixels


def test_batches_take_them(fitted: Any, path: str, tmp_path: Any) -> None:
    right = explain(fitted, X).values
    for number, model in enumerate((TreeExplainer(fitted), path)):
        explain_batches(model, X, tmp_path / f"{number}.npy", batch_size=100)
        np.testing.assert_array_equal(np.load(tmp_path / f"{number}.npy"), right)


def test_a_file_of_a_model_may_be_given_by_path_and_by_content(tmp_path: Any) -> None:
    lgb = library("lightgbm")
    fitted = lgb.LGBMRegressor(n_estimators=5, n_jobs=1, verbose=-1).fit(X, Y)
    place = tmp_path / "model.txt"
    fitted.booster_.save_model(place)
    for name in ("explain", "explain_interactions", "TreeExplainer", "partial_dependence", "friedman_h"):
        right = RESULTS[name](fitted)
        for model in (place, str(place), place.read_bytes()):
            np.testing.assert_array_equal(RESULTS[name](model), right)


def test_an_explainer_keeps_its_own_options(fitted: Any, tmp_path: Any) -> None:
    place = tmp_path / "explainer.npz"
    explainer = TreeExplainer(fitted, data=X[:5], precision="double")
    explainer.save(place)
    right = explainer.shap_values(FEW)
    assert np.abs(right - explain(fitted, FEW).values).max() > 1
    for model in (explainer, place):
        np.testing.assert_array_equal(explain(model, FEW).values, right)
        again = TreeExplainer(model)
        assert again.precision == "double" and again.feature_perturbation == "interventional"
        np.testing.assert_array_equal(again.shap_values(FEW), right)
        for options in ({"data": X[:3]}, {"outputs": "all"}, {"data": X[:3], "n_jobs": 2}):
            refusal = f"has its own options: pass {next(iter(options))}"
            with pytest.raises(TypeError, match=refusal):
                explain(model, FEW, **options)
            with pytest.raises(TypeError, match=refusal):
                TreeExplainer(model, **options)
        # Options that have their defaults are refused, too: the explainer may have others.
        for options in (
            {"precision": "single"},
            {"data": None},
            {"columns": "all"},
            {"feature_groups": None},
        ):
            refusal = f"has its own options: pass {next(iter(options))}"
            for function in (
                lambda **options: explain(model, FEW, **options),  # noqa: B023
                lambda **options: TreeExplainer(model, **options),  # noqa: B023
                lambda **options: ShapTransformer.from_fitted(model, **options),  # noqa: B023
                lambda **options: shap_importance(model, FEW, explain_params=options),  # noqa: B023
            ):
                with pytest.raises(TypeError, match=refusal):
                    function(**options)
        with pytest.raises(TypeError, match="has its own options: pass data when you create it"):
            TreeExplainer(model, X[:5])
    for option in ({"check_additivity": True}, {"feature_perturbation": "interventional"}):
        with pytest.raises(TypeError, match=f"has its own options: pass {next(iter(option))}"):
            TreeExplainer(explainer, **option)
    with pytest.raises(TypeError, match="has its own options: pass n_jobs when you create it"):
        explain(explainer, FEW, n_jobs=2)
    with pytest.raises(TypeError, match="has its own options: pass precision"):
        explain(place, FEW, precision="single")  # although it is the default
    for model in (TreeExplainer(place, n_jobs=2, memory_limit="1GiB"), place):
        np.testing.assert_array_equal(explain(model, FEW).values, right)
    assert TreeExplainer(place, memory_limit="1GiB").memory_limit == 2**30


def test_what_has_no_fit_is_a_step_of_a_pipeline(fitted: Any, path: str) -> None:
    steps = make_pipeline(ShapTransformer.from_fitted(fitted), LinearRegression()).fit(FEW, Y[:40])
    expected = steps.predict(X)
    for model in (TreeExplainer(fitted), path, Path(path)):
        pipeline = make_pipeline(ShapTransformer.from_fitted(model), LinearRegression()).fit(FEW, Y[:40])
        np.testing.assert_array_equal(pipeline.predict(X), expected)
        pairs = ShapInteractionTransformer.from_fitted(model).fit(FEW)
        np.testing.assert_array_equal(pairs.transform(FEW), explain_interactions(fitted, FEW).values)
        selector = ShapSelector(FrozenEstimator(model)).fit(X, Y)
        np.testing.assert_array_equal(
            selector.get_support(), ShapSelector(FrozenEstimator(fitted)).fit(X, Y).get_support()
        )
        transformer = ShapTransformer(FrozenEstimator(model), n_jobs=None, precision="single").fit(FEW)
        np.testing.assert_array_equal(transformer.transform(FEW), explain(fitted, FEW).values)
        with pytest.raises(TypeError, match=r"ShapTransformer fits its model, but .* use .*from_fitted"):
            ShapTransformer(model).fit(FEW, Y[:40])
    with pytest.raises(NotFittedError):
        ShapTransformer(FrozenEstimator(RandomForestRegressor())).fit(FEW)


def test_the_explainer_of_a_pipeline_transforms_x() -> None:
    pipeline = make_pipeline(StandardScaler(), RandomForestRegressor(5, max_depth=4, random_state=0))
    pipeline.fit(10 * X + 3, Y)
    explainer = TreeExplainer(pipeline)
    rows = 10 * FEW + 3
    for result in (
        lambda model: explain(model, rows).values,
        lambda model: partial_dependence(model, rows, "x2").average,
        lambda model: ShapTransformer.from_fitted(model).transform(rows),
    ):
        np.testing.assert_array_equal(result(explainer), result(pipeline))


def test_a_transformer_of_an_explainer_knows_the_columns_of_x() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[f"column {i}" for i in range(10)])
    for pipeline in (
        make_pipeline(StandardScaler(), RandomForestRegressor(5, max_depth=4, random_state=0)),
        RandomForestRegressor(5, max_depth=4, random_state=0),
    ):
        pipeline.fit(frame, Y)
        transformer = ShapTransformer.from_fitted(TreeExplainer(pipeline))
        assert transformer.n_features_in_ == 10
        assert transformer.feature_names_in_.tolist() == list(frame.columns)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            transformer.transform(frame)
        with pytest.raises(ValueError, match=r"order|names"):
            transformer.transform(frame[frame.columns[::-1]])


@pytest.mark.usefixtures("on_cpu")
def test_functions_of_time_are_no_model() -> None:
    xgb = library("xgboost")
    rows = xgb.DMatrix(X, label_lower_bound=Y, label_upper_bound=Y)
    booster = xgb.train({"objective": "survival:aft", "nthread": 1}, rows, 5)
    explainer = TreeExplainer(booster, data=X[:5], model_output="survival", times=[100.0, 200.0])
    with pytest.raises(ValueError, match="an output for each time: pass the model"):
        partial_dependence(explainer, FEW, 2)


def test_another_archive_is_no_explainer(tmp_path: Any) -> None:
    place = tmp_path / "arrays.npz"
    np.savez(place, X=X)
    for call in (TreeExplainer, lambda model: explain(model, FEW), lambda model: friedman_h(model, FEW)):
        with pytest.raises(ValueError, match=r"arrays\.npz"):
            call(place)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_docstrings_say_what_a_model_is_in_the_same_words(function: Any) -> None:
    lines = [line.strip() for line in function.__doc__.splitlines()]
    names = [f"{name} : fitted model, str, path, bytes or TreeExplainer" for name in ("model", "estimator")]
    entry = next((lines.index(name) for name in names if name in lines), None)
    if entry is None:  # of a method that lists its parameters together with others
        assert "model, X" in lines and "As for :func:`partial_dependence`." in lines
        return
    said = lines[entry + 1].replace("`.TreeExplainer", "`TreeExplainer")
    assert said == "A fitted model or its file, or an explainer or its file: see :class:`TreeExplainer`."


def test_all_public_functions_of_a_model_are_tested() -> None:
    import inspect

    tested = {function.__qualname__ for function in FUNCTIONS}
    for name in skshapgpu.__all__:
        value = getattr(skshapgpu, name)
        if inspect.isfunction(value) and "model" in inspect.signature(value).parameters:
            assert name in tested


@pytest.mark.parametrize("name", RESULTS)
def test_an_explainer_file_may_be_given_by_its_content(name: str, fitted: Any, path: str) -> None:
    np.testing.assert_array_equal(RESULTS[name](Path(path).read_bytes()), RESULTS[name](fitted))


def test_the_content_of_an_explainer_file_has_the_options_of_the_explainer(
    fitted: Any, tmp_path: Any
) -> None:
    TreeExplainer(fitted, data=X[:5]).save(tmp_path / "explainer.npz")
    content = (tmp_path / "explainer.npz").read_bytes()
    loaded = TreeExplainer(content, n_jobs=2, memory_limit="1GiB")
    assert loaded.memory_limit == 2**30 and loaded.feature_perturbation == "interventional"
    right = explain(fitted, FEW, data=X[:5]).values
    for explainer in (loaded, pickle.loads(pickle.dumps(loaded))):
        np.testing.assert_array_equal(explainer.shap_values(FEW), right)
    explain_batches(content, X, tmp_path / "values.npy", batch_size=100)
    np.testing.assert_array_equal(np.load(tmp_path / "values.npy"), explain(content, X).values)
    with pytest.raises(
        TypeError, match=r"^an explainer has its own options: pass precision when you create it"
    ):
        explain(content, FEW, precision="double")
    for damaged in (content[:-100], content[:2000], content[:64]):
        with pytest.raises(ValueError, match=r"^the content is not an explainer file, or it is damaged"):
            TreeExplainer(damaged)
    with pytest.raises(TypeError, match=r"path must not be bytes: TreeExplainer\(content\) reads"):
        TreeExplainer.load(content)
    with pytest.raises(TypeError, match="path must be a str or path, not an int"):
        TreeExplainer.load(3)


@pytest.mark.parametrize(
    "options", [{"feature_perturbation": "interventional"}, {"data_weight": [1.0] * 5}], ids=str
)
def test_an_explainer_with_data_says_that_it_has_options(options: Any, fitted: Any) -> None:
    explainer = TreeExplainer(fitted, data=X[:5])
    for call in (TreeExplainer, lambda model, **options: explain(model, FEW, **options)):
        with pytest.raises(TypeError, match=f"an explainer has its own options: pass {next(iter(options))}"):
            call(explainer, **options)


def test_messages_about_files_name_both_kinds(tmp_path: Any) -> None:
    (tmp_path / "other").write_text("neither")
    for model in ("no such file", tmp_path, b"", b"neither", tmp_path / "other", "x" * 5000):
        with pytest.raises(ValueError, match=r"(a model file or|or) an explainer file"):
            TreeExplainer(model)
    with pytest.raises(ValueError, match="is a ZIP archive, but not an explainer file; if skops wrote it"):
        TreeExplainer(b"PK\x03\x04rest")
