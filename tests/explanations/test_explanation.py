"""Explanation: selection, grouping, tables, and conversion for shap and notebooks."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from skshapgpu import Explanation, explain
from skshapgpu._explanations.values import column_names

N_ROWS, NAMES, CLASSES = 5, ("a", "b", "c", "d"), ("no", "yes", "maybe")


def explanation(n_outputs: int = 3, **changes: Any) -> Explanation:
    """Make values that tell their row, feature and output: 100 row + 10 feature + output."""
    row, feature, output = np.indices((N_ROWS, 4, n_outputs))
    values = 100.0 * row + 10 * feature + output
    several = n_outputs > 1
    attributes: dict[str, Any] = {
        "values": values if several else values[..., 0],
        "base_values": np.arange(n_outputs) / 2 if several else 0.5,
        "data": 1000.0 + np.arange(20).reshape(5, 4),
        "feature_names": NAMES,
        "output_names": CLASSES[:n_outputs] if several else None,
        "seconds": 0.25,
        "additivity_error": 1e-7,
    }
    return Explanation(**attributes | changes)


# Selection


@pytest.mark.parametrize(
    ("key", "rows", "features", "outputs"),
    [
        (2, [2], [0, 1, 2, 3], [0, 1, 2]),
        (-1, [4], [0, 1, 2, 3], [0, 1, 2]),
        (slice(1, 4), [1, 2, 3], [0, 1, 2, 3], [0, 1, 2]),
        (slice(None, None, -2), [4, 2, 0], [0, 1, 2, 3], [0, 1, 2]),
        ([3, 0, 3], [3, 0, 3], [0, 1, 2, 3], [0, 1, 2]),
        (np.array([True, False, True, False, False]), [0, 2], [0, 1, 2, 3], [0, 1, 2]),
        ([], [], [0, 1, 2, 3], [0, 1, 2]),
        ((slice(None), "c"), [0, 1, 2, 3, 4], [2], [0, 1, 2]),
        ((slice(None), ["d", "a"]), [0, 1, 2, 3, 4], [3, 0], [0, 1, 2]),
        ((slice(None), [False, True, True, False]), [0, 1, 2, 3, 4], [1, 2], [0, 1, 2]),
        ((slice(0, 2), slice(1, None), [2, 0]), [0, 1], [1, 2, 3], [2, 0]),
        (([1, 2], [3, 1], ["maybe", "no"]), [1, 2], [3, 1], [2, 0]),
        ((Ellipsis, ["yes", "no"]), [0, 1, 2, 3, 4], [0, 1, 2, 3], [1, 0]),
        ((1, Ellipsis), [1], [0, 1, 2, 3], [0, 1, 2]),
        ((slice(None), slice(None), slice(0, 2)), [0, 1, 2, 3, 4], [0, 1, 2, 3], [0, 1]),
        (np.int64(3), [3], [0, 1, 2, 3], [0, 1, 2]),
    ],
)
@pytest.mark.parametrize("data", ["array", "csr", "pandas", "polars", "pyarrow"])
def test_selection_keeps_everything_aligned(
    key: Any, rows: list[int], features: list[int], outputs: list[int], data: str
) -> None:
    whole = explanation()
    changes: dict[str, Any] = {}
    if data == "csr":
        changes["data"] = sp.csr_array(whole.data)
    elif data == "pandas":
        pd = pytest.importorskip("pandas")
        changes["row_labels"] = pd.Index([f"row {i}" for i in range(5)])
        changes["data"] = pd.DataFrame(whole.data, columns=list(NAMES), index=changes["row_labels"])
    elif data != "array":
        module = pytest.importorskip(data)
        make = module.table if data == "pyarrow" else module.DataFrame
        changes["data"] = make({name: whole.data[:, i] for i, name in enumerate(NAMES)})
    part = explanation(**changes)[key]
    np.testing.assert_array_equal(part.values, whole.values[np.ix_(rows, features, outputs)])
    np.testing.assert_array_equal(part.base_values, whole.base_values[outputs])
    assert part.feature_names == tuple(NAMES[i] for i in features)
    assert part.output_names == tuple(CLASSES[i] for i in outputs)
    assert len(part) == len(rows)
    result = part.data
    if data == "csr":
        result = result.toarray()
    elif data == "pyarrow":
        result = result.to_pandas()
    np.testing.assert_array_equal(np.asarray(result), whole.data[np.ix_(rows, features)])
    if data == "pandas":
        assert list(part.row_labels) == list(part.data.index) == [f"row {i}" for i in rows]


def test_strongest() -> None:
    whole = explanation()
    means = np.abs(whole.values).mean(axis=0).sum(axis=1)
    order = np.argsort(-means)
    assert [name for name, _ in whole.strongest()] == [NAMES[i] for i in order]
    np.testing.assert_allclose([mean for _, mean in whole.strongest(2)], means[order[:2]], rtol=1e-12)
    assert whole.strongest(np.int64(100)) == whole.strongest()
    for method in (whole.strongest, whole.reasons, whole.groupby([0, 1, 0, 1, 1]).strongest):
        for n in (0, -1):
            with pytest.raises(ValueError, match=f"n must be at least 1, not {n}"):
                method(n)
        for n in ("x", 2.5, True, None):
            with pytest.raises(TypeError, match=f"n must be an int, not {n!r}"):
                method(n)


@pytest.mark.parametrize(
    "key", [(Ellipsis, "yes"), (Ellipsis, 1), (Ellipsis, ["yes"]), (slice(None), slice(None), -2)]
)
def test_one_of_several_outputs_follows_the_shape_rule(key: Any) -> None:
    part = explanation()[key]
    np.testing.assert_array_equal(part.values, explanation().values[..., 1])
    assert part.base_values == 0.5 and isinstance(part.base_values, float)
    assert part.output_names == ("yes",)
    assert part.to_frame().shape == (5, 4) if pytest.importorskip("pandas") else True


def test_selection_of_one_output() -> None:
    part = explanation(1)[1:3, "b"]
    np.testing.assert_array_equal(part.values, [[110], [210]])
    np.testing.assert_array_equal(part.data, [[1005], [1009]])
    assert part.base_values == 0.5


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint64"])
def test_positions_of_a_type_that_is_too_small_for_the_number_of_rows(dtype: str) -> None:
    whole = explanation()
    many = replace(whole, values=np.repeat(whole.values, 100, axis=0), data=None)
    rows = np.array([3, 0, 127], dtype)
    np.testing.assert_array_equal(many[rows].values, many.values[[3, 0, 127]])


def test_rows_can_be_iterated() -> None:
    assert [row.values[0, 0, 0] for row in explanation()] == [0, 100, 200, 300, 400]


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (5, IndexError, "out of range"),
        (-6, IndexError, "out of range"),
        ([0, 9], IndexError, "out of range"),
        ((0, 0, 0, 0), IndexError, "at most 3 indices"),
        ((Ellipsis, Ellipsis), IndexError, "at most 3"),
        ((slice(None), "z"), KeyError, "there is no feature 'z', only 'a', 'b', 'c', 'd'"),
        ((Ellipsis, "perhaps"), KeyError, "there is no output 'perhaps', only 'no', 'yes', 'maybe'"),
        ("a", IndexError, r"rows are selected by position: write explanation\[:, 'a'\]$"),
        (
            "yes",
            IndexError,
            r"rows are selected by position: write explanation\[\.\.\., 'yes'\] for this output",
        ),
        ("z", IndexError, "rows are selected by position, and the explanation has no values of 'z'"),
        (1.0, IndexError, "cannot select by 1.0$"),
        ([True, False], IndexError, "mask of 2 entries does not fit 5"),
        ([[0, 1], [2, 3]], IndexError, "cannot select by"),
        ((0, [[0, 1]]), IndexError, "cannot select by"),
    ],
)
def test_bad_selections(key: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        explanation()[key]


def test_output_axis_is_refused_where_there_is_none() -> None:
    with pytest.raises(IndexError, match="at most 2 indices"):
        explanation(1)[:, :, 0]


def test_explanation_is_immutable() -> None:
    with pytest.raises(AttributeError):
        explanation().values = np.zeros(3)


def test_pickle() -> None:
    other = pickle.loads(pickle.dumps(explanation()))
    np.testing.assert_array_equal(other.values, explanation().values)
    assert other.feature_names == NAMES


# Importance and groups


def test_importance() -> None:
    values = np.array([[1.0, -4.0], [-3.0, 0.0]])
    one = explanation(1, values=values, feature_names=("a", "b"))
    np.testing.assert_array_equal(one.importance(), [2, 2])
    several = explanation(values=np.stack([values, 2 * values, values * 0], axis=2), feature_names=("a", "b"))
    np.testing.assert_array_equal(several.importance(), [[2, 4, 0], [2, 4, 0]])
    assert explanation(1, values=values.astype(np.float32)).importance().dtype == np.float64


def test_importance_without_rows() -> None:
    assert np.isnan(explanation()[[]].importance()).all()
    assert explanation()[[]].importance().shape == (4, 3)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_group(n_outputs: int) -> None:
    whole = explanation(n_outputs)
    part = whole.sum_by({"both": ["d", "b"]})
    assert part.feature_names == ("a", "both", "c")
    np.testing.assert_array_equal(part.values[:, 1], whole.values[:, 1] + whole.values[:, 3])
    np.testing.assert_array_equal(part.values[:, 2], whole.values[:, 2])
    np.testing.assert_array_equal(part.values.sum(axis=1), whole.values.sum(axis=1))
    assert part.data is None
    assert part[1].data is None and part[1].feature_names == part.feature_names


def test_groups_may_take_the_name_of_a_member() -> None:
    part = explanation(1).sum_by({"b": ["b", "c"], "rest": ["a", "d"]})
    assert part.feature_names == ("rest", "b")
    np.testing.assert_array_equal(part.values[0], [30, 30])


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"g": ["a", "z"]}, "mapping, 'g': there is no feature 'z', only 'a'"),
        ({"g": ["a"], "h": ["a"]}, "mapping: feature 'a' is in 'g' and in 'h'"),
        ({"g": "a"}, "must be a list of features, not 'a'"),
        ({"g": []}, "must be a list of features"),
        ({"c": ["a"]}, "mapping: 'c' is the name of a feature that is not in the group"),
    ],
)
def test_bad_groups(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explanation().sum_by(mapping)


# Tables


def test_to_frame() -> None:
    pd = pytest.importorskip("pandas")
    index = pd.Index(list("vwxyz"), name="key")
    frame = explanation(1, row_labels=index).to_frame()
    assert list(frame.columns) == list(NAMES)
    assert frame.index.equals(index) and frame.index.name == "key"
    np.testing.assert_array_equal(frame.to_numpy(), explanation(1).values)
    frame = explanation().to_frame()
    assert list(frame.columns)[:4] == ["a__no", "a__yes", "a__maybe", "b__no"]
    np.testing.assert_array_equal(frame["c__yes"], explanation().values[:, 2, 1])
    assert list(frame.index) == [0, 1, 2, 3, 4]
    assert explanation()[[]].to_frame().shape == (0, 12)


def test_column_names() -> None:
    assert column_names(["a", "b"], None) == ["a", "b"]
    assert column_names(["a", "b"], [0, 1]) == ["a__0", "a__1", "b__0", "b__1"]


def test_column_names_are_unique() -> None:
    features, outputs = ["a", "a__x"], ["x__y", "y"]
    assert "a__x__y" in {f"{f}__{o}" for f in features for o in outputs}
    names = column_names(features, outputs)
    assert names == ["a__0", "a__1", "a__x__0", "a__x__1"]


# shap


@pytest.fixture(scope="module")
def fitted() -> tuple[Any, Any, Any]:
    iris = load_iris()
    classifier = RandomForestClassifier(4, max_depth=3, random_state=0).fit(iris.data, iris.target)
    regressor = RandomForestRegressor(4, max_depth=3, random_state=0).fit(iris.data, iris.target)
    return iris.data, classifier, regressor


def test_to_shap(fitted: Any) -> None:
    pytest.importorskip("shap")
    X, classifier, regressor = fitted
    one = explain(regressor, X).to_shap()
    assert one.values.shape == X.shape and one.base_values.shape == (150,)
    assert one.feature_names == ["x0", "x1", "x2", "x3"]
    np.testing.assert_array_equal(one.data, X)
    several = explain(classifier, X).to_shap()
    assert several.base_values.shape == (150, 3)
    assert several.output_names == ["0", "1", "2"]
    np.testing.assert_allclose(
        several.base_values + several.values.sum(axis=1), classifier.predict_proba(X), atol=1e-6
    )
    np.testing.assert_array_equal(several[..., 1].values, explain(classifier, X)[..., 1].to_shap().values)


@pytest.mark.parametrize("kind", ["array", "csr", "pandas", "polars", "pyarrow", "grouped"])
def test_to_shap_of_every_data(fitted: Any, kind: str) -> None:
    pytest.importorskip("shap")
    X, _, regressor = fitted
    names = [f"n{i}" for i in range(4)]
    data: Any = X
    if kind == "csr":
        data = sp.csr_array(X)
    elif kind == "pyarrow":
        data = pytest.importorskip(kind).table(dict(zip(names, X.T, strict=True)))
    elif kind in ("pandas", "polars"):
        data = pytest.importorskip(kind).DataFrame(dict(zip(names, X.T, strict=True)))
    explanation = explain(regressor, data)
    if kind == "grouped":
        assert explanation.sum_by({"g": ["x0", "x1"]}).to_shap().data is None
        return
    np.testing.assert_array_equal(explanation.to_shap().data, X)
    assert isinstance(explanation.to_shap().data, np.ndarray)


@pytest.mark.parametrize("plot", ["bar", "beeswarm", "waterfall", "scatter"])
def test_plots_of_shap(fitted: Any, plot: str) -> None:
    shap = pytest.importorskip("shap")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    X, _, regressor = fitted
    explanation = explain(regressor, X).to_shap()
    part = {"waterfall": lambda: explanation[0], "scatter": lambda: explanation[:, "x2"]}.get(
        plot, lambda: explanation
    )()
    plt.figure()
    getattr(shap.plots, plot)(part, show=False)
    assert plt.gcf().axes


# Notebook


def test_repr_says_what_matters() -> None:
    text = repr(explanation(row_labels=None))
    for fact in (
        "rows: 5",
        "features: 4",
        "outputs: no, yes, maybe",
        "base value: 0, 0.5, 1",
        "CPU",
        "0.25 s",
        "single precision",
        "additivity error: at most 1e-07",
    ):
        assert fact in text
    assert text.index("  d: ") < text.index("  a: ")
    assert "not checked" in repr(explanation(additivity_error=None))


def test_html_escapes_names() -> None:
    nasty = ("<script>alert(1)</script>", "a&b", '"q"', "d")
    html = explanation(feature_names=nasty, output_names=("<b>", "<i>", "x"))._repr_html_()
    assert "<script>" not in html and "<i>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html and "a&amp;b" in html and "&lt;i&gt;" in html
    assert html.count("<tr>") == 5
    assert "width:10.00em" in html


def test_html_of_nothing() -> None:
    assert "nan" in explanation()[[]]._repr_html_()
    assert "width:0.00em" in explanation(1, values=np.zeros((5, 4)))._repr_html_()


def test_only_the_top_features_are_shown() -> None:
    wide = explanation(
        1, values=np.arange(60.0).reshape(2, 30), feature_names=tuple(f"f{i}" for i in range(30))
    )
    html = wide._repr_html_()
    assert "f29" in html and "f18" in html and "f17" not in html
    assert "and 18 more" in html and repr(wide).endswith("\n  and 18 more")
    twelve = replace(wide, data=None)[:, :12]
    assert "more" not in repr(twelve) and "more" not in twelve._repr_html_()


def test_units_of_values() -> None:
    text, html = repr(explanation(unit="log-odds")), explanation(unit="log-odds")._repr_html_()
    assert "base value: 0, 0.5, 1 (log-odds)" in text and "base value: 0, 0.5, 1 (log-odds)" in html
    assert "\nmean |SHAP value| (log-odds):\n" in text and "<th>mean |SHAP value| (log-odds)</th>" in html


def test_values_within_the_additivity_error_are_zero() -> None:
    tiny = explanation(1, values=np.array([[2.0, 7.31e-18, -1e-7, 3e-7]] * 5), additivity_error=1e-7)
    lines = repr(tiny).splitlines()[-4:]
    assert lines == ["  a: 2", "  d: 3e-07", "  c: 0", "  b: 0"]
    assert ">0<" in tiny._repr_html_() and "e-18" not in tiny._repr_html_()
    assert "7.31e-18" in repr(replace(tiny, additivity_error=None)), "without a check, the error is unknown"


@pytest.mark.parametrize("mapping", [None, 3, ["a"]])
def test_what_sum_by_takes(mapping: Any) -> None:
    with pytest.raises(TypeError, match="mapping must be 'input' or map names to lists of features, not a"):
        explanation().sum_by(mapping)
