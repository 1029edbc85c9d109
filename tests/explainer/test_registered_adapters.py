"""Registered adapters: results of adapters, models and encoders are checked before any work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from skshapgpu import TreeExplainer, explain, partial_dependence, register_adapter
from skshapgpu.adapters import _REGISTERED, AdaptedModel, Column, Ensemble, InputSchema, Tree, adapt

X = np.array([[0.0, 1.0], [1.0, 5.0], [2.0, 0.0], [0.0, 2.0]])


class Toy:
    """Model of a library that is not known."""


PATH = f"{Toy.__module__}.{Toy.__qualname__}"


def stump(n_outputs: int = 1) -> Ensemble:
    trees = [
        Tree(
            left=[1, -1, -1],
            right=[2, -1, -1],
            feature=[0, 0, 0],
            threshold=[0.5, 0, 0],
            missing_left=[True] * 3,
            cover=[4, 3, 1],
            value=[0, -1 - output, 3],
            output=output,
        )
        for output in range(n_outputs)
    ]
    return Ensemble.from_trees(trees, n_features=2, intercept=np.zeros(n_outputs), x_dtype="float64")


@pytest.fixture
def register() -> Iterator[Callable[[Any], None]]:
    yield lambda adapter: register_adapter(PATH, adapter)
    _REGISTERED.pop(PATH, None)


def nothing(model: Any) -> Any:
    return None


@pytest.mark.parametrize(
    "adapter, returned",
    [
        (nothing, "NoneType"),
        (lambda model: {"ensemble": stump()}, "dict"),
        (lambda model: model, "Toy"),
        (lambda model: stump(), "Ensemble"),
        (lambda model: AdaptedModel, "type"),
    ],
)
def test_adapter_that_returns_something_else(register: Any, adapter: Any, returned: str) -> None:
    register(adapter)
    name = adapter.__qualname__[:20]
    for call in (
        adapt,
        TreeExplainer,
        lambda model: explain(model, X),
        lambda m: partial_dependence(m, X, 0),
    ):
        with pytest.raises(
            TypeError, match=f"the adapter {name}.* of Toy returned {returned}: .*AdaptedModel"
        ):
            call(Toy())


@pytest.mark.parametrize(
    "path, error, message",
    [
        (Toy, TypeError, f"must be the name of a class, '{PATH}', not the class itself"),
        (None, TypeError, "'package.module.Class', not NoneType"),
        (5, TypeError, "'package.module.Class', not int"),
        (Toy(), TypeError, "'package.module.Class', not Toy"),
        ("", ValueError, "of the form 'package.module.Class', not ''"),
        ("Toy", ValueError, "of the form 'package.module.Class', not 'Toy'"),
        (".Toy", ValueError, "of the form"),
        ("toys.", ValueError, "of the form"),
    ],
)
def test_register_adapter_takes_the_name_of_a_class(path: Any, error: type[Exception], message: str) -> None:
    before = dict(_REGISTERED)
    with pytest.raises(error, match=message):
        register_adapter(path, nothing)
    assert before == _REGISTERED


@pytest.mark.parametrize(
    "n_outputs, fields, message",
    [
        (2, {"output_names": ("a", "a")}, "output_names must differ from each other, but 'a' occurs twice"),
        (3, {"output_names": ("a", "b")}, r"output_names must be a tuple of 3 names, not \('a', 'b'\)"),
        (2, {"output_names": ["a", "b"]}, "output_names must be a tuple of 2 names, not \\['a', 'b'\\]"),
        (1, {"class_names": ("a", "a"), "binary": "margin"}, "class_names must differ from each other"),
        (1, {"class_names": ("a", "b", "c"), "binary": "margin"}, "class_names must be a tuple of 2"),
        (1, {"link": "probit"}, "link must be one of None, 'identity', 'logistic', .*, not 'probit'"),
        (1, {"link": np.exp}, "link must be one of None, 'identity', 'logistic', .*, not <ufunc"),
        (1, {"link": "logistic", "link_scale": 0.0}, "link_scale must be a positive number, not 0.0"),
        (1, {"link": "logistic", "link_scale": np.nan}, "link_scale must be a positive number, not nan"),
        (1, {"binary": "decision"}, "binary must be 'margin' or 'probability'.* not 'decision'"),
        (2, {"binary": "margin"}, "ensemble has one output, .*not 'margin' with 2 outputs"),
    ],
)
def test_outputs_of_a_model(register: Any, n_outputs: int, fields: dict[str, Any], message: str) -> None:
    register(lambda model: AdaptedModel(stump(n_outputs), InputSchema(2), "toy", **fields))
    with pytest.raises(ValueError, match=message):
        TreeExplainer(Toy())


class Answer:
    """Encoder that returns the result of a function."""

    def __init__(self, function: Callable[[np.ndarray], Any]) -> None:
        self.function = function

    def encode(self, column: Column) -> Any:
        return self.function(column.values)


@pytest.mark.parametrize(
    "function, returned",
    [
        (lambda values: None, "NoneType"),
        (lambda values: 1.0, "float"),
        (lambda values: values.astype(float).tolist(), "list"),
        (lambda values: np.zeros(1), r"float64 of shape \(1,\)"),
        (lambda values: np.zeros(len(values) - 1), r"float64 of shape \(3,\)"),
        (lambda values: np.zeros((len(values), 1)), r"float64 of shape \(4, 1\)"),
        (lambda values: np.full(len(values), "a"), r"<U1 of shape \(4,\)"),
        (lambda values: np.full(len(values), None), r"object of shape \(4,\)"),
    ],
)
@pytest.mark.parametrize("form", ["array", "frame", "sparse"])
def test_codes_of_an_encoder(register: Any, function: Any, returned: str, form: str) -> None:
    register(lambda model: AdaptedModel(stump(), InputSchema(2, encoders={1: Answer(function)}), "toy"))
    rows: Any = X
    if form == "frame":
        rows = pytest.importorskip("pandas").DataFrame(X, columns=["a", "b"])
    elif form == "sparse":
        rows = pytest.importorskip("scipy.sparse").csr_matrix(X)
    message = (
        f"the encoder Answer must return an array with a number for each of the 4 rows of .*, not {returned}"
    )
    with pytest.raises(TypeError, match=message):
        explain(Toy(), rows)
    with pytest.raises(TypeError, match=message):
        TreeExplainer(Toy(), rows)


def test_encoder_that_returns_codes(register: Any) -> None:
    register(
        lambda model: AdaptedModel(
            stump(), InputSchema(2, encoders={0: Answer(lambda values: (values > 0).astype(int))}), "toy"
        )
    )
    values = explain(Toy(), X).values[:, 0]
    np.testing.assert_allclose(values, np.where(X[:, 0] > 0, 3, -1))  # the base value is 0
