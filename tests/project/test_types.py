"""Options of explainers: their types and their list in docstrings agree with the signature."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import pytest

import skshapgpu
from skshapgpu import ShapInteractionTransformer, ShapTransformer, TreeExplainer, distributed
from skshapgpu._common.algorithms import MODEL_OUTPUTS, NAMES
from skshapgpu._common.types import (
    BATCH_OPTION_LINES,
    OPTION_LINES,
    BatchOptions,
    CsvOptions,
    ExplainerOptions,
    InteractionTransformerOptions,
    TransformerOptions,
    lists_options,
)
from skshapgpu.batches import BatchExplainer
from skshapgpu.batches.csv_files import CsvFormat

FUNCTIONS = [
    skshapgpu.explain,
    skshapgpu.explain_interactions,
    skshapgpu.explain_batches,
    BatchExplainer,
    distributed.explain_dask,
    distributed.explain_ray,
    distributed.explain_spark,
    skshapgpu.ShapBarDisplay.from_estimator,
    skshapgpu.ShapBeeswarmDisplay.from_estimator,
    skshapgpu.ShapDependenceDisplay.from_estimator,
    skshapgpu.ShapInteractionDisplay.from_estimator,
    skshapgpu.ShapWaterfallDisplay.from_estimator,
]


def test_options_are_the_parameters_of_an_explainer() -> None:
    parameters = list(inspect.signature(TreeExplainer).parameters)[1:]
    assert list(ExplainerOptions.__annotations__) == parameters == list(OPTION_LINES)
    own = [name for name in inspect.signature(BatchExplainer).parameters if name not in ("model", "options")]
    assert own == list(BATCH_OPTION_LINES)
    assert set(BatchOptions.__annotations__) == {*own, *parameters}
    assert list(CsvOptions.__annotations__) == list(CsvFormat.__dataclass_fields__)


@pytest.mark.parametrize(
    ("transformer", "options"),
    [(ShapTransformer, TransformerOptions), (ShapInteractionTransformer, InteractionTransformerOptions)],
)
def test_options_are_the_parameters_of_a_transformer(transformer: Any, options: Any) -> None:
    parameters = [*inspect.signature(transformer).parameters.values()][1:]
    assert {parameter.name: parameter.annotation for parameter in parameters} == {
        name: annotation.__forward_arg__ for name, annotation in options.__annotations__.items()
    }
    docstring = transformer.from_fitted.__doc__
    assert all(docstring.count(f"- ``{name}``: ") == 1 for name in options.__annotations__)
    assert options.__name__ in str(
        inspect.signature(transformer.from_fitted).parameters["options"].annotation
    )


def test_choices_are_those_that_are_accepted() -> None:
    options = typing.get_type_hints(ExplainerOptions)
    assert typing.get_args(options["model_output"]) == tuple(MODEL_OUTPUTS)
    assert typing.get_args(options["algorithm"]) == tuple(NAMES)
    assert typing.get_args(options["precision"]) == ("single", "double")


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_docstrings_list_the_options(function: Any) -> None:
    annotation = str(inspect.signature(function).parameters["options"].annotation)
    own_lines = BATCH_OPTION_LINES if "BatchOptions" in annotation else {}
    for name, line in {**own_lines, **OPTION_LINES}.items():
        assert function.__doc__.count(f"- ``{name}``: {line}\n") == 1
    assert own_lines or "ExplainerOptions" in annotation


def test_a_docstring_without_the_entry_is_refused() -> None:
    def function(**options: Any) -> None:
        """Do nothing."""

    with pytest.raises(ValueError, match=r"function has no entry for \*\*options"):
        lists_options(function)
