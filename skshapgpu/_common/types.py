"""Types of the public signatures, and a line for each option of an explainer.

The types describe what users may pass, so that a type checker reports misspelt options, choices that do not
exist and arguments in the wrong place. At run time nothing is checked here: the functions read and refuse
their arguments themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

F = TypeVar("F", bound=Callable[..., Any])  # a function or a class

ValueIndex = Literal["SV", "BV", "OV"]
InteractionIndex = Literal["SII", "STII", "BII"]
FeaturePerturbation = Literal["auto", "tree_path_dependent", "interventional"]
Cover = Literal["auto", "count", "weight"]
ModelOutput = Literal["raw", "probability", "log_loss", "response", "survival", "cumulative_hazard"]
AlgorithmName = Literal["auto", "quadrature", "fast_v2", "gputreeshap", "treeshap", "fast_v1"]
Precision = Literal["single", "double"]
Outputs = Literal["auto", "all"]
Columns = Literal["all", "used"]
Aggregation = Literal["mean_abs", "rms", "max_abs"]

#: A device, or a list of GPUs. GPUs with larger numbers are passed in a list.
Device = Literal["auto", "cpu", "cuda", "cuda:0", "cuda:1", "cuda:2", "cuda:3"] | list[str] | tuple[str, ...]


class TwoDimensional(Protocol):
    """Array, matrix or data frame, as opposed to a series of labels."""

    @property
    def shape(self) -> tuple[int, int]: ...


class Exporting(Protocol):
    """Array of another library, which offers it by DLPack."""

    def __dlpack__(self) -> Any: ...


class Estimator(Protocol):
    """Model with a method ``predict``, which a ``Pipeline`` has only if its last step has it."""

    @property
    def predict(self) -> Any: ...


class Explaining(Protocol):
    """Explainer."""

    @property
    def explain(self) -> Callable[..., Any]: ...


class SparkModel(Protocol):
    """Model of Spark ML."""

    @property
    def uid(self) -> Any: ...

    @property
    def transform(self) -> Callable[..., Any]: ...


class OnnxModel(Protocol):
    """Model of ONNX."""

    @property
    def SerializeToString(self) -> Callable[..., Any]: ...


class TreeliteModel(Protocol):
    """Model of treelite."""

    @property
    def dump_as_json(self) -> Callable[..., Any]: ...


#: A fitted model, a model file, an explainer, or an explainer file.
Model = (
    Estimator
    | Explaining
    | SparkModel
    | OnnxModel
    | TreeliteModel
    | str
    | os.PathLike[str]
    | bytes
    | bytearray
    | memoryview
)

#: Rows: an array, a sparse matrix, a data frame or a list of lists.
Table = TwoDimensional | Exporting | Sequence[Sequence[Any]]

#: One value for each row: an array, a series or a list.
Vector = npt.ArrayLike | Sequence[Any]

#: Groups of columns: names of features to lists of columns, or a feature for each column of X.
FeatureGroups = Mapping[str, Sequence[str | int]] | Literal["input"]

#: True, or a function of the number of finished rows and the number of all rows.
Progress = bool | Callable[[int, int], object]

#: Times of a function of time.
Times = float | Sequence[float] | npt.NDArray[Any]

#: Numbers that a call returns, such as SHAP values: a NumPy array. If X was on a GPU, the call returns an
#: array of the library of X, CuPy or PyTorch, which a type checker takes for an array of NumPy.
Values = npt.NDArray[np.floating[Any]]


class ExplainerOptions(TypedDict, total=False):
    """Options of :class:`skshapgpu.TreeExplainer`."""

    data: Table | None
    feature_perturbation: FeaturePerturbation
    data_weight: Vector | None
    cover: Cover
    model_output: ModelOutput
    times: Times | None
    algorithm: AlgorithmName
    device: Device
    precision: Precision
    outputs: Outputs
    columns: Columns
    feature_groups: FeatureGroups | None
    n_jobs: int | None
    memory_limit: int | str | None
    expected_rows: int | None
    check_additivity: bool


class CsvOptions(TypedDict, total=False):
    """How to read CSV files."""

    delimiter: str | None
    quote_char: str
    null_values: Sequence[str]
    decimal: Literal[".", ","]


#: The purpose of each option of an explainer, in one line.
OPTION_LINES = {
    "data": "background rows: compute interventional values, or count covers",
    "feature_perturbation": 'treatment of unknown features: "auto", "tree_path_dependent", "interventional"',
    "data_weight": "weight of each row of ``data``",
    "cover": 'covers of path-dependent values: "auto", "count", "weight"',
    "model_output": '"raw" (margin), "probability", "log_loss", "response", "survival", "cumulative_hazard"',
    "times": "times of the survival function or the cumulative hazard function",
    "algorithm": '"auto", "quadrature", "fast_v2"; for comparison "gputreeshap", "treeshap", "fast_v1"',
    "device": '"auto", "cpu", "cuda", "cuda:N" or a list of GPUs',
    "precision": 'arithmetic within a tree: "single" or "double"',
    "outputs": '"all": an output for each class of a binary classifier',
    "columns": '"used": leave out columns that no tree uses',
    "feature_groups": 'columns that form one feature each, or "input"',
    "n_jobs": "number of threads; -1: all processors",
    "memory_limit": 'bytes that a call may allocate, such as "2GiB"',
    "expected_rows": "rows that all calls together will explain: tables may then pay off",
    "check_additivity": "check sums against the margins, and the first call against the model's prediction",
}

#: The entry of a docstring below which the options are listed.
_ENTRY = re.compile(
    r"^ *\*\*options\n( *)Options of :class:`\.?TreeExplainer`[^\n]*\n(?:\1[^\n]+\n)*", re.MULTILINE
)


def lists_options(function: F) -> F:
    """List the options of an explainer in the docstring of a function that takes them as ``**options``."""
    docstring = function.__doc__
    if docstring is None:  # Python runs without docstrings
        return function
    entry = _ENTRY.search(docstring)
    if entry is None:
        raise ValueError(f"the docstring of {function.__qualname__} has no entry for **options")
    lines = "".join(f"{entry[1]}- ``{name}``: {line}\n" for name, line in OPTION_LINES.items())
    function.__doc__ = f"{docstring[: entry.end()]}\n{lines}{docstring[entry.end() :]}"
    return function
