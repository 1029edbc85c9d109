"""Types of the public signatures, and a line for each option of an explainer.

The types describe what users may pass, so that a type checker reports misspelt options, choices that do not
exist and arguments in the wrong place. At run time nothing is checked here: the functions read and refuse
their arguments themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, Protocol, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from .algorithms import ALGORITHMS, AlgorithmName

F = TypeVar("F", bound=Callable[..., Any])  # a function or a class
T_co = TypeVar("T_co", covariant=True)

ValueIndex = Literal["SV", "BV", "OV"]
InteractionIndex = Literal["SII", "STII", "BII"]
FeaturePerturbation = Literal["auto", "tree_path_dependent", "interventional"]
Cover = Literal["auto", "count", "weight"]
ModelOutput = Literal[
    "raw",
    "probability",
    "log_loss",
    "response",
    "survival",
    "cumulative_hazard",
    "score_samples",
    "decision_function",
]
Precision = Literal["single", "double"]
Outputs = Literal["auto", "all"]
Columns = Literal["all", "used"]
Aggregation = Literal["mean_abs", "rms", "max_abs"]

#: "auto", "cpu", "cuda", a GPU such as "cuda:1", or a list of GPUs. Strings other than the listed ones are
#: accepted, because the number of a GPU is often made at run time, as in f"cuda:{rank}".
Device = (
    Literal["auto", "cpu", "cuda", "cuda:0", "cuda:1", "cuda:2", "cuda:3"] | str | list[str] | tuple[str, ...]
)


class ListOf(Protocol[T_co]):
    """List, tuple or range, but not a string, which would be a sequence of strings.

    ``str`` and ``bytes`` do not satisfy ``__contains__``, because they do not look for any object.
    """

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[T_co]: ...

    def __getitem__(self, position: int, /) -> T_co: ...

    def __contains__(self, item: object, /) -> bool: ...

    def __reversed__(self) -> Iterator[T_co]: ...


class SupportsArray(Protocol):
    """Array of NumPy, or an object that NumPy converts, such as a series or an index of pandas."""

    def __array__(self) -> npt.NDArray[Any]: ...


class LabelArray(Protocol):
    """Array of NumPy, or an index or a series of pandas, with names or positions."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def __array__(self) -> npt.NDArray[Any]: ...


class TwoDimensional(Protocol):
    """Array, matrix or data frame, as opposed to a series of labels.

    An array of NumPy whose number of dimensions the type checker does not know has this type, too.
    """

    @property
    def shape(self) -> tuple[int, int]: ...


class Exporting(Protocol):
    """Array of another library, which offers it by DLPack.

    The standard of arrays prescribes an enumeration for the kind of the device. NumPy returns a number, so
    that its arrays are only :class:`TwoDimensional`.
    """

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> tuple[Enum, int]: ...


class CudaArray(Protocol):
    """Array on a GPU, which offers it by the interface of CUDA."""

    @property
    def __cuda_array_interface__(self) -> Any: ...


class SparseMatrix(Protocol):
    """Sparse matrix or array of SciPy, whose ``shape`` has no type."""

    @property
    def tocsr(self) -> Callable[..., Any]: ...


class DMatrix(Protocol):
    """Container of rows of XGBoost."""

    @property
    def num_row(self) -> Callable[[], int]: ...

    @property
    def num_col(self) -> Callable[[], int]: ...


class Dataset(Protocol):
    """Container of rows of LightGBM."""

    @property
    def num_data(self) -> Callable[[], int]: ...

    @property
    def num_feature(self) -> Callable[[], int]: ...


class GuessedSeries(Protocol):
    """Series of pandas whose type a checker guesses from the code of pandas, without ``pandas-stubs``.

    The checker then takes ``frame[["age", "income"]]`` for a series or a data frame, so it cannot tell a
    series from the rows of a frame. ``pandas-stubs`` does not have this private attribute.
    """

    @property
    def _mgr(self) -> Any: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


class AvailableIf(Protocol):
    """Method that scikit-learn makes available if the last step of a ``Pipeline`` has it."""

    @property
    def check(self) -> Callable[..., Any]: ...

    @property
    def attribute_name(self) -> Any: ...


class Estimator(Protocol):
    """Model with a method ``predict``.

    The method takes one argument. The function of a class, which also takes ``self``, does not fit, so the
    class of a model is no model.
    """

    @property
    def predict(self) -> Callable[[Any], Any] | AvailableIf: ...


class Frozen(Protocol):
    """``FrozenEstimator`` of scikit-learn, which has the methods of its estimator at run time."""

    @property
    def estimator(self) -> Any: ...

    @property
    def __sklearn_is_fitted__(self) -> Callable[[], Any]: ...


class Explaining(Protocol):
    """Explainer."""

    @property
    def explain(self) -> Callable[[Any], Any]: ...


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


class Splitter(Protocol):
    """Splitter of scikit-learn."""

    @property
    def split(self) -> Callable[..., Any]: ...

    @property
    def get_n_splits(self) -> Callable[..., Any]: ...


class ArrowStream(Protocol):
    """Table that offers its rows as a stream of Arrow, such as a relation of DuckDB or a table of Ibis."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class Adapted(Protocol):
    """Model that an adapter has read, such as a sum of models."""

    @property
    def ensemble(self) -> Any: ...

    @property
    def schema(self) -> Any: ...


class ArrowSource(Protocol):
    """Dataset, table or reader of record batches of PyArrow."""

    @property
    def schema(self) -> Any: ...


#: The path or the URL of a file or a folder.
PathOrUrl = str | os.PathLike[str]

#: A fitted model, a dictionary of trees, a model file, an explainer, or an explainer file.
Model = (
    Estimator
    | Explaining
    | Frozen
    | SparkModel
    | OnnxModel
    | TreeliteModel
    | Adapted
    | dict[str, Any]
    | PathOrUrl
    | bytes
)

#: Rows: an array, a sparse matrix, a data frame, a stream of Arrow, a library's container, or a list of rows.
Table = (
    TwoDimensional
    | ArrowStream
    | Exporting
    | CudaArray
    | SparseMatrix
    | DMatrix
    | Dataset
    | GuessedSeries
    | Sequence[ListOf[Any] | SupportsArray]
)

#: Rows of any number: files, a table, or an iterator of tables.
BatchSource = PathOrUrl | Sequence[PathOrUrl] | Table | ArrowSource | Iterator[Any]

#: One value for each row: an array, a series or a list.
Vector = SupportsArray | Exporting | CudaArray | ListOf[Any]

#: Names of columns, as a list or an index of pandas.
ColumnNames = ListOf[str] | LabelArray

#: Names or positions of columns, as a list, an array or an index of pandas.
ColumnList = ListOf[str | int] | LabelArray

#: Groups of columns: names of features to lists of columns; "input" makes a group of each column of X.
FeatureGroups = Mapping[str, ColumnList] | Literal["input"]

#: Pairs or triples of features: a list of names or positions of columns, or an array of their positions.
ListedInteractions = Sequence[ListOf[str | int] | npt.NDArray[Any]] | npt.NDArray[Any]

#: Interactions to compute: all that occur in the trees, the number of the strongest ones, or a list.
Interactions = Literal["occurring"] | int | ListedInteractions

#: Number of features of an interaction.
Order = Literal[2, 3]

#: Cross-validation: the number of folds, a splitter, or pairs of training rows and test rows.
CrossValidation = int | Splitter | Iterable[tuple[Any, Any] | list[Any]] | None

#: True, or a function of the number of finished rows and the number of all rows.
Progress = bool | Callable[[int, int], object]

#: Times of a function of time.
Times = float | Sequence[float] | SupportsArray

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


class SharedOptions(TypedDict, total=False):
    """Parameters of every transformer that fits a model."""

    cv: CrossValidation
    data: Table | None
    feature_perturbation: FeaturePerturbation
    data_weight: Vector | None
    cover: Cover
    feature_groups: FeatureGroups | None
    algorithm: AlgorithmName
    device: Device
    precision: Precision
    outputs: Outputs
    n_jobs: int | None
    memory_limit: int | str | None
    check_additivity: bool


class TransformerOptions(SharedOptions, total=False):
    """Parameters of :class:`skshapgpu.ShapTransformer`."""

    model_output: ModelOutput
    times: Times | None
    columns: Columns


class InteractionTransformerOptions(SharedOptions, total=False):
    """Parameters of :class:`skshapgpu.ShapInteractionTransformer`."""

    interactions: Interactions
    index: InteractionIndex


class BatchOptions(ExplainerOptions, total=False):
    """Options of :class:`skshapgpu.batches.BatchExplainer`."""

    features: ColumnNames | None
    keep: ColumnNames
    reasons: int | None
    by_sign: bool
    sum_by: Literal["input"] | None
    interactions: Literal["occurring"] | ListedInteractions | None
    index: ValueIndex | InteractionIndex | None
    prefix: str
    dtype: Literal["auto", "float32", "float64"]


class CsvOptions(TypedDict, total=False):
    """How to read CSV files."""

    delimiter: str | None
    quote_char: str
    null_values: Sequence[str]
    decimal: Literal[".", ","]


def _names(for_comparison: bool) -> str:
    """Return the names of algorithms, in quotes."""
    return ", ".join(f'"{row.name}"' for row in ALGORITHMS if row.is_for_comparison == for_comparison)


#: The purpose of each option of an explainer, in one line.
OPTION_LINES = {
    "data": "background rows: compute interventional values, or count covers",
    "feature_perturbation": 'treatment of unknown features: "auto", "tree_path_dependent", "interventional"',
    "data_weight": "weight of each row of ``data``",
    "cover": 'covers of path-dependent values: "auto", "count", "weight"',
    "model_output": '"raw" (margin), "probability", "log_loss", "response", "survival", '
    '"cumulative_hazard", "score_samples", "decision_function"',
    "times": "times of the survival function or the cumulative hazard function",
    "algorithm": f"{_names(for_comparison=False)}; for comparison {_names(for_comparison=True)}",
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

#: The purpose of each parameter that only transformers have.
_TRANSFORMER_LINES = {
    "cv": "folds in which ``fit_transform`` refits the model, to explain the rows that were left out",
    "interactions": '"occurring", the number of the strongest pairs, or a list of pairs',
    "index": 'index of the interactions: "SII", "STII", "BII"',
}

#: The purpose of each option of a batch explainer that an explainer does not have, in one line.
BATCH_OPTION_LINES = {
    "features": "names of the columns that the model takes, in its order",
    "keep": "names of columns, such as row ids, to copy to the result, before the values",
    "reasons": "return only this many values of each row, the values of largest magnitude",
    "by_sign": "with ``reasons``, that many of the positive and of the negative values",
    "sum_by": '"input": add up the values of all columns that a pipeline makes from a column of X',
    "interactions": '"occurring" or a list of pairs: compute interactions instead of SHAP values',
    "index": '"SV", "BV" or "OV", for interactions "SII", "STII" or "BII"',
    "prefix": "beginning of the names of the columns of values",
    "dtype": 'type of the values: "auto", "float32" or "float64"',
}

#: The options that a docstring lists if it names a class, and the purposes of those that an explainer lacks.
_OPTIONS_OF: dict[str, tuple[Any, dict[str, str]]] = {
    "TreeExplainer": (ExplainerOptions, {}),
    "BatchExplainer": (BatchOptions, BATCH_OPTION_LINES),
    "ShapTransformer": (TransformerOptions, _TRANSFORMER_LINES),
    "ShapInteractionTransformer": (InteractionTransformerOptions, _TRANSFORMER_LINES),
}

#: The entry of a docstring below which the options are listed.
_ENTRY = re.compile(
    r"^ *\*\*options\n( *)(?:Options|Parameters) of :class:`\.?(\w+)`[^\n]*\n(?:\1[^\n]+\n)*", re.MULTILINE
)


def lists_options(function: F) -> F:
    """List the options of a class in the docstring of a function that takes them as ``**options``."""
    docstring = function.__doc__
    if docstring is None:  # Python runs without docstrings
        return function
    entry = _ENTRY.search(docstring)
    if entry is None:
        raise ValueError(f"the docstring of {function.__qualname__} has no entry for **options")
    options, purposes = _OPTIONS_OF[entry[2]]
    lines = "".join(
        f"{entry[1]}- ``{name}``: {purpose}\n"
        for name, purpose in (purposes | OPTION_LINES).items()
        if name in options.__annotations__
    )
    function.__doc__ = f"{docstring[: entry.end()]}\n{lines}{docstring[entry.end() :]}"
    return function
