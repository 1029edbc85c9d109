"""InteractionExplanation: selection, strengths, main effects, tables and display in notebooks."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from skshapgpu import InteractionExplanation
from skshapgpu._explanations.interactions import set_names

N_ROWS, NAMES, CLASSES = 5, ("a", "b", "c", "d"), ("no", "yes", "maybe")
PAIRS = np.array([[0, 1], [0, 3], [1, 2], [2, 3]], np.int32)


def common(n_outputs: int) -> dict[str, Any]:
    several = n_outputs > 1
    return {
        "base_values": np.arange(n_outputs) / 2 if several else 0.5,
        "data": 1000.0 + np.arange(20).reshape(5, 4),
        "feature_names": NAMES,
        "output_names": CLASSES[:n_outputs] if several else None,
        "seconds": 0.25,
        "additivity_error": 1e-7,
    }


def dense(n_outputs: int = 3, **changes: Any) -> InteractionExplanation:
    """Make symmetric matrices that identify their row, features and output."""
    row, i, j, output = np.indices((N_ROWS, 4, 4, n_outputs))
    values = 1000.0 * row + 100 * np.minimum(i, j) + 10 * np.maximum(i, j) + output
    values = values if n_outputs > 1 else values[..., 0]
    return InteractionExplanation(**common(n_outputs) | {"values": values} | changes)


def sparse(n_outputs: int = 3, **changes: Any) -> InteractionExplanation:
    """Make indices of pairs and feature values that identify their row, position and output."""
    row, pair, output = np.indices((N_ROWS, 4, n_outputs))
    values = 100.0 * row + 10 * pair + output
    values = values if n_outputs > 1 else values[..., 0]
    own = {
        "values": values,
        "interactions": PAIRS,
        "strength": np.array([4.0, 3.0, 2.0, 1.0]),
        "feature_values": -7 * values,
    }
    return InteractionExplanation(**common(n_outputs) | own | changes)


# Selection


@pytest.mark.parametrize(
    ("key", "rows", "features", "outputs"),
    [
        (2, [2], [0, 1, 2, 3], [0, 1, 2]),
        (slice(1, 4), [1, 2, 3], [0, 1, 2, 3], [0, 1, 2]),
        ((slice(None), "c"), [0, 1, 2, 3, 4], [2], [0, 1, 2]),
        ((slice(None), ["d", "a"]), [0, 1, 2, 3, 4], [3, 0], [0, 1, 2]),
        ((slice(0, 2), slice(1, None), [2, 0]), [0, 1], [1, 2, 3], [2, 0]),
        ((Ellipsis, ["yes", "no"]), [0, 1, 2, 3, 4], [0, 1, 2, 3], [1, 0]),
        (([True, False, True, False, False], [3, 1], ["maybe", "no"]), [0, 2], [3, 1], [2, 0]),
    ],
)
def test_selection_of_matrices(key: Any, rows: list[int], features: list[int], outputs: list[int]) -> None:
    whole, part = dense(), dense()[key]
    np.testing.assert_array_equal(part.values, whole.values[np.ix_(rows, features, features, outputs)])
    assert part.feature_names == tuple(NAMES[i] for i in features)
    assert part.output_names == tuple(CLASSES[i] for i in outputs)
    np.testing.assert_array_equal(part.base_values, whole.base_values[outputs])
    np.testing.assert_array_equal(part.data, whole.data[np.ix_(rows, features)])


@pytest.mark.parametrize(
    ("key", "rows", "pairs", "outputs"),
    [
        (-1, [4], [0, 1, 2, 3], [0, 1, 2]),
        ((slice(1, 3), slice(0, 2)), [1, 2], [0, 1], [0, 1, 2]),
        ((slice(None), "b x c"), [0, 1, 2, 3, 4], [2], [0, 1, 2]),
        ((slice(None), ["c x d", "a x b"], "yes"), [0, 1, 2, 3, 4], [3, 0], 1),
        (([3, 0], [True, False, False, True], [0, 1]), [3, 0], [0, 3], [0, 1]),
    ],
)
def test_selection_of_pairs(key: Any, rows: list[int], pairs: list[int], outputs: Any) -> None:
    whole, part = sparse(), sparse()[key]
    expected = whole.values[np.ix_(rows, pairs)][..., outputs]
    np.testing.assert_array_equal(part.values, expected)
    np.testing.assert_array_equal(part.interactions, PAIRS[pairs])
    np.testing.assert_array_equal(part.strength, whole.strength[pairs])
    assert part.feature_names == NAMES
    np.testing.assert_array_equal(part.data, whole.data[rows])
    if pairs == [0, 1, 2, 3]:
        np.testing.assert_array_equal(part.feature_values, whole.feature_values[rows][..., outputs])
    else:
        assert part.feature_values is None


def test_one_of_several_outputs_follows_the_shape_rule() -> None:
    for explanation, shape in ((dense(), (5, 4, 4)), (sparse(), (5, 4))):
        part = explanation[..., "yes"]
        assert part.values.shape == shape and part.base_values == 0.5 and part.output_names == ("yes",)
    assert sparse()[..., 1].feature_values.shape == (5, 4)
    assert sparse()[..., 1].dense().shape == (5, 4, 4)


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ((slice(None), "a x c"), KeyError, "'a x c' is none of a x b, a x d"),
        ((slice(None), 4), IndexError, "out of range"),
        ((0, 0, 0, 0), IndexError, "at most 3 indices"),
        ("a", IndexError, "cannot select by 'a'"),
    ],
)
def test_bad_selections(key: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sparse()[key]


def test_row_labels_follow() -> None:
    pd = pytest.importorskip("pandas")
    index = pd.Index(list("vwxyz"))
    for explanation in (dense(row_labels=index), sparse(row_labels=index)):
        assert list(explanation[[3, 1]].row_labels) == ["y", "w"]
        assert list(explanation[[3, 1]].to_frame().index) == ["y", "w"]


def test_immutable_and_picklable() -> None:
    with pytest.raises(AttributeError):
        dense().values = np.zeros(3)
    other = pickle.loads(pickle.dumps(sparse()))
    np.testing.assert_array_equal(other.interactions, PAIRS)
    np.testing.assert_array_equal(other.values, sparse().values)


# Names and strengths


def test_names() -> None:
    assert dense().interaction_names == ("a x b", "a x c", "a x d", "b x c", "b x d", "c x d")
    assert sparse().interaction_names == ("a x b", "a x d", "b x c", "c x d")
    triples = sparse(interactions=np.array([[0, 1, 2], [3, 1, 0]]), values=np.zeros((5, 2)), strength=None)
    assert triples.order == 3 and triples.interaction_names == ("a x b x c", "d x b x a")


def test_names_that_would_collide_are_positions() -> None:
    assert set_names(["a", "b x c", "a x b", "c"], np.array([[0, 1], [2, 3]])) == ("0 x 1", "2 x 3")


def test_importance() -> None:
    values = np.array([[[1.0, -4.0], [-4.0, 0.0]], [[-3.0, 0.0], [0.0, 0.0]]])
    one = dense(1, values=values, feature_names=("a", "b"))
    np.testing.assert_array_equal(one.importance(), [[2, 2], [2, 0]])
    assert one.strongest() == [("a x b", 4.0)]
    assert np.isnan(dense()[[]].importance()).all() and dense()[[]].importance().shape == (4, 4, 3)
    assert sparse().importance().shape == (4, 3)


def test_strongest() -> None:
    assert sparse().strongest(2) == [("c x d", 3 * 230.0 + 3), ("b x c", 3 * 220.0 + 3)]
    assert [name for name, _ in dense().strongest(2)] == ["c x d", "b x d"]
    assert len(dense().strongest()) == 6 and sparse().strongest(0) == []
    whole = dict(dense()[:, :, 0].strongest())
    assert whole["a x b"] == 2 * (2000 + 10)


# Main effects and other forms


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_main_effects(n_outputs: int) -> None:
    explanation = sparse(n_outputs)
    main = explanation.main_effects()
    v, f = explanation.values, explanation.feature_values
    np.testing.assert_array_equal(main[:, 0], f[:, 0] - v[:, 0] / 2 - v[:, 1] / 2)
    np.testing.assert_array_equal(main[:, 2], f[:, 2] - v[:, 2] / 2 - v[:, 3] / 2)
    np.testing.assert_allclose(main.sum(axis=1) + v.sum(axis=1), f.sum(axis=1))
    banzhaf = sparse(n_outputs, index="BII")
    np.testing.assert_array_equal(banzhaf.main_effects(), f)
    np.testing.assert_array_equal(
        dense(n_outputs).main_effects(), np.moveaxis(dense(n_outputs).values.diagonal(0, 1, 2), -1, 1)
    )


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_dense_of_pairs(n_outputs: int) -> None:
    explanation = sparse(n_outputs)
    matrices = explanation.dense()
    assert matrices.interactions is None and matrices.shape[:3] == (5, 4, 4)
    np.testing.assert_array_equal(matrices.values[:, 3, 0], explanation.values[:, 1] / 2)
    assert (matrices.values == matrices.values.swapaxes(1, 2)).all()
    assert (matrices.values[:, 0, 2] == 0).all()
    np.testing.assert_allclose(matrices.values.sum(axis=2), explanation.feature_values)
    assert matrices.dense() is matrices
    assert matrices.strongest() == [*explanation.strongest(), ("a x c", 0.0), ("b x d", 0.0)]


def test_main_effects_need_all_pairs() -> None:
    for part in (sparse(feature_values=None), sparse()[:, :2]):
        for method in (part.main_effects, part.dense):
            with pytest.raises(
                ValueError, match="not all pairs are available: use interactions='occurring' or 'all'"
            ):
                method()
    triples = sparse(interactions=np.array([[0, 1, 2]]), values=np.zeros((5, 1)), strength=None)
    with pytest.raises(ValueError, match="these are triples"):
        triples.dense()


# Tables and text


def test_to_frame() -> None:
    pytest.importorskip("pandas")
    frame = sparse(1).to_frame()
    assert list(frame.columns) == ["a x b", "a x d", "b x c", "c x d"]
    np.testing.assert_array_equal(frame.to_numpy(), sparse(1).values)
    frame = sparse().to_frame()
    assert list(frame.columns)[:4] == ["a x b__no", "a x b__yes", "a x b__maybe", "a x d__no"]
    assert sparse()[[]].to_frame().shape == (0, 12)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_table_of_matrices_adds_up(n_outputs: int) -> None:
    pytest.importorskip("pandas")
    explanation = dense(n_outputs)
    frame = explanation.to_frame()
    assert frame.shape == (5, 10 * n_outputs)
    total = frame.to_numpy().reshape(5, 10, n_outputs).sum(axis=1)
    np.testing.assert_array_equal(total.ravel(), explanation.values.sum(axis=(1, 2)).ravel())
    assert list(dense(1).to_frame().columns) == [*NAMES, *dense(1).interaction_names]


def test_repr_says_what_matters() -> None:
    text = repr(sparse())
    for fact in (
        "InteractionExplanation",
        "index: SHAP interaction values",
        "rows: 5",
        "features: 4",
        "pairs: 4",
        "outputs: no, yes, maybe",
        "base value: 0, 0.5, 1",
        "CPU",
        "additivity error: at most 1e-07",
    ):
        assert fact in text
    assert text.index("  c x d: ") < text.index("  a x b: ")
    assert "pairs: all, as matrices" in repr(dense())
    assert "Banzhaf interaction values" in repr(dense(index="BII"))


def test_html() -> None:
    nasty = ("<script>", "a&b", '"q"', "d")
    html = sparse(feature_names=nasty, index="STII")._repr_html_()
    assert "<script>" not in html and "&lt;script&gt; x a&amp;b" in html
    assert html.count("<tr>") == 5 and "Shapley-Taylor interaction values" in html
    assert "nan" in sparse()[[]]._repr_html_()
