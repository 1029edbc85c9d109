"""InteractionExplanation: selection, strengths, main effects, matrices, tables and display in notebooks."""

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


def listed(n_outputs: int = 3, **changes: Any) -> InteractionExplanation:
    """Make indices of pairs and feature values that identify their row, position and output."""
    row, pair, output = np.indices((N_ROWS, 4, n_outputs))
    values = 100.0 * row + 10 * pair + output
    values = values if n_outputs > 1 else values[..., 0]
    own = {
        "values": values,
        "interactions": PAIRS,
        "strength": np.array([4.0, 3.0, 2.0, 1.0]),
        "single_values": -7 * values,
    }
    return InteractionExplanation(**common(n_outputs) | own | changes)


# Selection


@pytest.mark.parametrize(
    ("key", "rows", "pairs", "outputs"),
    [
        (2, [2], [0, 1, 2, 3], [0, 1, 2]),
        (-1, [4], [0, 1, 2, 3], [0, 1, 2]),
        (slice(1, 4), [1, 2, 3], [0, 1, 2, 3], [0, 1, 2]),
        ((slice(1, 3), slice(0, 2)), [1, 2], [0, 1], [0, 1, 2]),
        ((slice(0, 2), slice(1, None), [2, 0]), [0, 1], [1, 2, 3], [2, 0]),
        ((Ellipsis, ["yes", "no"]), [0, 1, 2, 3, 4], [0, 1, 2, 3], [1, 0]),
        (([True, False, True, False, False], [3, 1], ["maybe", "no"]), [0, 2], [3, 1], [2, 0]),
        ((slice(None), "b x c"), [0, 1, 2, 3, 4], [2], [0, 1, 2]),
        ((slice(None), ["c x d", "a x b"], "yes"), [0, 1, 2, 3, 4], [3, 0], 1),
        (([3, 0], [True, False, False, True], [0, 1]), [3, 0], [0, 3], [0, 1]),
    ],
)
def test_selection_of_pairs(key: Any, rows: list[int], pairs: list[int], outputs: Any) -> None:
    whole, part = listed(), listed()[key]
    expected = whole.values[np.ix_(rows, pairs)][..., outputs]
    np.testing.assert_array_equal(part.values, expected)
    np.testing.assert_array_equal(part.interactions, PAIRS[pairs])
    np.testing.assert_array_equal(part.strength, whole.strength[pairs])
    np.testing.assert_array_equal(part.base_values, whole.base_values[outputs])
    assert part.feature_names == NAMES
    np.testing.assert_array_equal(part.data, whole.data[rows])
    if pairs == [0, 1, 2, 3]:
        np.testing.assert_array_equal(part.single_values, whole.single_values[rows][..., outputs])
    else:
        assert part.single_values is None


def test_one_of_several_outputs_follows_the_shape_rule() -> None:
    part = listed()[..., "yes"]
    assert part.values.shape == (5, 4) and part.base_values == 0.5 and part.output_names == ("yes",)
    assert listed()[..., 1].single_values.shape == (5, 4)
    assert listed()[..., 1].matrices().shape == (5, 4, 4)


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ((slice(None), "a x c"), KeyError, "there is no interaction 'a x c', only 'a x b', 'a x d'"),
        ((slice(None), 4), IndexError, "out of range"),
        ((0, 0, 0, 0), IndexError, "at most 3 indices"),
        ("a", IndexError, "rows are selected by position, and the explanation has no values of 'a'"),
        ("a x b", IndexError, r"rows are selected by position: write explanation\[:, 'a x b'\]$"),
    ],
)
def test_bad_selections(key: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        listed()[key]


def test_row_labels_follow() -> None:
    pd = pytest.importorskip("pandas")
    index = pd.Index(list("vwxyz"))
    part = listed(row_labels=index)[[3, 1]]
    assert list(part.row_labels) == list(part.to_frame().index) == ["y", "w"]


def test_immutable_and_picklable() -> None:
    with pytest.raises(AttributeError):
        listed().values = np.zeros(3)
    other = pickle.loads(pickle.dumps(listed()))
    np.testing.assert_array_equal(other.interactions, PAIRS)
    np.testing.assert_array_equal(other.values, listed().values)


# Names and strengths


def test_pairs_are_always_listed() -> None:
    with pytest.raises(TypeError, match="interactions"):
        InteractionExplanation(**common(1), values=np.zeros((5, 4, 4)))


def test_names() -> None:
    assert listed().interaction_names == ("a x b", "a x d", "b x c", "c x d")
    triples = listed(interactions=np.array([[0, 1, 2], [3, 1, 0]]), values=np.zeros((5, 2)), strength=None)
    assert triples.order == 3 and triples.interaction_names == ("a x b x c", "d x b x a")


def test_names_that_would_collide_are_positions() -> None:
    assert set_names(["a", "b x c", "a x b", "c"], np.array([[0, 1], [2, 3]])) == ("0 x 1", "2 x 3")


def test_importance() -> None:
    one = listed(1, values=np.array([[-8.0], [0.0]]), interactions=PAIRS[:1])
    np.testing.assert_array_equal(one.importance(), [4])
    assert one.strongest() == [("a x b", 4.0)]
    assert np.isnan(listed()[[]].importance()).all() and listed()[[]].importance().shape == (4, 3)
    assert listed().importance().shape == (4, 3)


def test_strongest() -> None:
    assert listed().strongest(2) == [("c x d", 3 * 230.0 + 3), ("b x c", 3 * 220.0 + 3)]
    assert len(listed().strongest()) == 4
    with pytest.raises(ValueError, match="n must be at least 1, not -1"):
        listed().strongest(-1)
    assert dict(listed()[..., 0].strongest())["a x d"] == 200 + 10


# Main effects and matrices


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_main_effects(n_outputs: int) -> None:
    explanation = listed(n_outputs)
    main = explanation.main_effects()
    v, f = explanation.values, explanation.single_values
    np.testing.assert_array_equal(main[:, 0], f[:, 0] - v[:, 0] / 2 - v[:, 1] / 2)
    np.testing.assert_array_equal(main[:, 2], f[:, 2] - v[:, 2] / 2 - v[:, 3] / 2)
    np.testing.assert_allclose(main.sum(axis=1) + v.sum(axis=1), f.sum(axis=1))
    banzhaf = listed(n_outputs, index="BII")
    np.testing.assert_array_equal(banzhaf.main_effects(), f)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_matrices(n_outputs: int, dtype: type) -> None:
    explanation = listed(n_outputs)
    explanation = listed(
        n_outputs,
        values=explanation.values.astype(dtype),
        single_values=explanation.single_values.astype(dtype),
    )
    matrices = explanation.matrices()
    assert type(matrices) is np.ndarray and matrices.dtype == dtype
    assert matrices.shape == (5, 4, 4, *explanation.values.shape[2:])
    np.testing.assert_array_equal(matrices[:, 3, 0], explanation.values[:, 1] / 2)
    assert (matrices == matrices.swapaxes(1, 2)).all()
    assert (matrices[:, 0, 2] == 0).all() and (matrices[:, 1, 3] == 0).all()
    main = explanation.main_effects()
    np.testing.assert_array_equal(np.moveaxis(matrices.diagonal(0, 1, 2), -1, 1), main)
    np.testing.assert_allclose(matrices.sum(axis=2), explanation.single_values)
    total = explanation.values.sum(axis=1) + main.sum(axis=1)
    np.testing.assert_allclose(total, explanation.single_values.sum(axis=1))
    banzhaf = listed(n_outputs, index="BII").matrices()
    np.testing.assert_array_equal(np.moveaxis(banzhaf.diagonal(0, 1, 2), -1, 1), explanation.single_values)


def test_main_effects_need_all_pairs() -> None:
    for part in (listed(single_values=None), listed()[:, :2]):
        with pytest.raises(ValueError, match=r"not all pairs are available: use interactions='occurring'$"):
            part.main_effects()
        matrices = part.matrices()
        assert np.isnan(matrices.diagonal(0, 1, 2)).all()
        np.testing.assert_array_equal(matrices[:, 1, 0], part.values[:, 0] / 2)
    assert (matrices[:, 1, 2] == 0).all()
    triples = listed(interactions=np.array([[0, 1, 2]]), values=np.zeros((5, 1)), strength=None)
    with pytest.raises(ValueError, match="matrices hold interactions of pairs; these are triples"):
        triples.matrices()
    with pytest.raises(ValueError, match="main effects need interactions of pairs; these are triples"):
        triples.main_effects()


# Tables and text


def test_to_frame() -> None:
    pytest.importorskip("pandas")
    frame = listed(1).to_frame()
    assert list(frame.columns) == ["a x b", "a x d", "b x c", "c x d"]
    np.testing.assert_array_equal(frame.to_numpy(), listed(1).values)
    frame = listed().to_frame()
    assert list(frame.columns)[:4] == ["a x b__no", "a x b__yes", "a x b__maybe", "a x d__no"]
    assert listed()[[]].to_frame().shape == (0, 12)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_table_and_main_effects_add_up(n_outputs: int) -> None:
    pytest.importorskip("pandas")
    explanation = listed(n_outputs)
    total = explanation.to_frame().to_numpy().reshape(5, 4, n_outputs).sum(axis=1)
    total += explanation.main_effects().reshape(5, 4, n_outputs).sum(axis=1)
    np.testing.assert_allclose(total, explanation.single_values.reshape(5, 4, n_outputs).sum(axis=1))


def test_repr_says_what_matters() -> None:
    text = repr(listed())
    for fact in (
        "InteractionExplanation",
        "index: Shapley interactions",
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
    assert "Banzhaf interactions" in repr(listed(index="BII"))


def test_html() -> None:
    nasty = ("<script>", "a&b", '"q"', "d")
    html = listed(feature_names=nasty, index="STII")._repr_html_()
    assert "<script>" not in html and "&lt;script&gt; x a&amp;b" in html
    assert html.count("<tr>") == 5 and "Shapley-Taylor interactions" in html
    assert "nan" in listed()[[]]._repr_html_()
