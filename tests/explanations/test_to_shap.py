"""Explanation.to_shap as input of shap's plots."""

from __future__ import annotations

import pickle
from collections.abc import Callable
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


def assert_rows_equal(row: Any, expected: Any) -> None:
    """Compare two explanations of shap, of one row each."""
    assert row.shape == expected.shape
    for name in ("values", "base_values", "data", "display_data"):
        ours, theirs = getattr(row, name), getattr(expected, name)
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            ours, theirs = np.asarray(ours), np.asarray(theirs)
            if ours.dtype == object:  # NumPy calls missing values in arrays of objects unequal
                ours, theirs = ours.astype(str), theirs.astype(str)
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
    assert list(row.feature_names) == list(expected.feature_names)
    assert (row.output_names is None) == (expected.output_names is None)


@pytest.mark.parametrize("make", [single, several, in_frames, of_base_values_of_rows])
def test_a_row_is_the_row_of_shap(make: Callable[[], Explanation]) -> None:
    explanation = make()
    rows = explanation.to_shap()
    for row in (3, -1, np.int64(7)):
        assert_rows_equal(explanation[row].to_shap(), rows[int(row)])
        assert_rows_equal(explanation[row][:].to_shap(), rows[int(row)])
        assert_rows_equal(explanation[row, [1, 0]].to_shap(), rows[int(row), [1, 0]])
    assert_rows_equal(next(iter(explanation)).to_shap(), rows[0])
    assert explanation[3].values.shape[0] == 1  # our own form keeps the axis
    assert_rows_equal(explanation[3].to_shap(), pickle.loads(pickle.dumps(explanation[3])).to_shap())


@pytest.mark.parametrize("make", [single, several, in_frames])
def test_several_rows_stay_rows_even_if_there_is_one(make: Callable[[], Explanation]) -> None:
    explanation = make()
    only = np.arange(len(explanation)) == 3
    for rows in (
        explanation[3:4],
        explanation[[3]],
        explanation[only],
        explanation[3][[0]],
        explanation[3][0:1],
    ):
        assert rows.to_shap().shape == (1, *explanation.shape[1:])
    assert explanation[3][1:].to_shap().shape == (0, *explanation.shape[1:])


def test_labels_select_a_row_as_in_pandas() -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(DIABETES[:N_ROWS]).rename(columns="x{}".format)
    X.index = [f"patient {i // 2 if i > 50 else i}" for i in range(N_ROWS)]
    model = RandomForestRegressor(10, max_depth=5, random_state=0).fit(X, PROGRESSION[:N_ROWS])
    explanation = explain(model, X)
    assert_rows_equal(explanation.loc["patient 4"].to_shap(), explanation.to_shap()[4])
    assert explanation.loc[["patient 4"]].to_shap().shape == (1, 10)
    assert explanation.loc["patient 27"].to_shap().shape == (3, 10)  # 27, 54 and 55


ROW_PLOTS = ("bar", "waterfall", "force")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("plot", ROW_PLOTS)
def test_plots_of_a_row_draw_what_shap_draws(plot: str) -> None:
    draw = getattr(shap.plots, plot)
    options = {"matplotlib": True} if plot == "force" else {}
    texts = []
    for row in (in_frames()[3].to_shap(), in_frames().to_shap()[3]):
        draw(row, show=False, **options)
        assert_drawn()
        texts.append([text.get_text() for ax in pyplot.gcf().axes for text in ax.texts])
        pyplot.close("all")
    assert texts[0] == texts[1] and texts[0]
