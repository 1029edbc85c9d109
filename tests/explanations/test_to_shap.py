"""Explanation.to_shap as input of shap's plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor

from skshapgpu import Explanation, explain

shap = pytest.importorskip("shap", minversion="0.54")
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
WINE, CULTIVAR = load_wine(return_X_y=True)
N_ROWS = 60


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    pyplot.close("all")
    yield
    pyplot.close("all")


def single() -> Explanation:
    model = RandomForestRegressor(10, max_depth=5, random_state=0).fit(DIABETES, PROGRESSION)
    return explain(model, DIABETES[:N_ROWS])


def several() -> Explanation:
    return explain(RandomForestClassifier(10, random_state=0).fit(WINE, CULTIVAR), WINE[:N_ROWS])


def in_frames() -> Explanation:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"age": rng.normal(50, 10, 300), "city": pd.Categorical(rng.choice(["a", "b", "c"], 300))}
    )
    X.loc[::9, "age"] = np.nan
    X.loc[::11, "city"] = None
    y = X["age"].fillna(0) + 20 * (X["city"] == "b")
    model = HistGradientBoostingRegressor(max_iter=20, categorical_features="from_dtype").fit(X, y)
    return explain(model, X.iloc[:N_ROWS])


def of_base_values_of_rows() -> Explanation:
    rng = np.random.default_rng(0)
    return Explanation(
        values=rng.normal(size=(N_ROWS, 4)),
        base_values=rng.normal(size=N_ROWS),
        data=rng.normal(size=(N_ROWS, 4)),
        feature_names=("a", "b", "c", "d"),
    )


EXPLANATIONS: dict[str, Callable[[], Any]] = {
    "single": lambda: single().to_shap(),
    "one of several": lambda: several().to_shap()[..., 1],
    "selected": lambda: several()[:, :, "2"].to_shap(),
    "float32": lambda: explain(
        RandomForestRegressor(10, random_state=0).fit(DIABETES, PROGRESSION),
        DIABETES[:N_ROWS].astype(np.float32),
    ).to_shap(),
    "frame": lambda: in_frames().to_shap(),
    "base values of rows": lambda: of_base_values_of_rows().to_shap(),
}

PLOTS: dict[str, Callable[[Any], Any]] = {
    "bar": lambda e: shap.plots.bar(e, show=False),
    "bar of a row": lambda e: shap.plots.bar(e[0], show=False),
    "beeswarm": lambda e: shap.plots.beeswarm(e, show=False),
    "waterfall": lambda e: shap.plots.waterfall(e[0], show=False),
    "force": lambda e: shap.plots.force(e[0], matplotlib=True, show=False),
    "heatmap": lambda e: shap.plots.heatmap(e, show=False),
    "violin": lambda e: shap.plots.violin(e, show=False),
    "scatter": lambda e: shap.plots.scatter(e[:, 0], show=False),
    "scatter with colour": lambda e: shap.plots.scatter(e[:, 0], color=e, show=False),
    "decision": lambda e: shap.plots.decision(
        float(e.base_values[0]), e.values, features=e.data, feature_names=e.feature_names, show=False
    ),
    "group difference": lambda e: shap.plots.group_difference(
        e.values, np.arange(len(e.values)) % 2 == 0, e.feature_names, show=False
    ),
    "embedding": lambda e: shap.plots.embedding(0, e.values, e.feature_names, show=False),
    "monitoring": lambda e: shap.plots.monitoring(
        0, np.tile(e.values, (4, 1)), np.tile(e.data, (4, 1)), e.feature_names, show=False
    ),
    "summary": lambda e: shap.summary_plot(e.values, e.data, e.feature_names, show=False),
    "summary as bars": lambda e: shap.summary_plot(e, plot_type="bar", show=False),
    "dependence": lambda e: shap.dependence_plot(0, e.values, e.data, e.feature_names, show=False),
}


def assert_drawn() -> None:
    figure = pyplot.gcf()
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())
    assert (pixels[..., :3] < 250).any(axis=-1).mean() > 0.005


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize("kind", EXPLANATIONS)
def test_plots(plot: str, kind: str) -> None:
    PLOTS[plot](EXPLANATIONS[kind]())
    assert_drawn()


@pytest.mark.parametrize("kind", EXPLANATIONS)
def test_force_in_a_notebook(kind: str) -> None:
    explanation = EXPLANATIONS[kind]()
    assert "AdditiveForce" in shap.plots.force(explanation[0]).html()
    if kind != "base values of rows":  # shap draws rows together if they share their base value
        assert "AdditiveForceArray" in shap.plots.force(explanation).html()


def test_categories_are_numbers_with_names_beside_them() -> None:
    explanation = in_frames()
    given, frame = explanation.to_shap(), explanation.data
    np.testing.assert_array_equal(given.data[:, 0], frame["age"])
    codes = frame["city"].cat.codes
    np.testing.assert_array_equal(given.data[:, 1], np.where(codes < 0, np.nan, codes))
    assert list(given.display_data[:, 1][codes >= 0]) == list(frame["city"].dropna())
    assert single().to_shap().display_data is None


def test_columns_of_objects_that_are_numbers() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "b": [0.5, 1.5, 2.5]})
    explanation = Explanation(values=np.ones((3, 2)), base_values=0.0, data=frame, feature_names=("a", "b"))
    given = explanation.to_shap()
    np.testing.assert_array_equal(given.data, [[1, 0.5], [np.nan, 1.5], [3, 2.5]])
    assert given.display_data is None
