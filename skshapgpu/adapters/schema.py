"""The result of an adapter: the trees of a model, and how the model's own library reads X.

An adapter returns an :class:`AdaptedModel`: the :class:`~skshapgpu.adapters.Ensemble` plus an
:class:`InputSchema` that says which columns X must have, which values count as missing and how
categories become the codes that the trees test. ``inputs.py`` applies the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

from .._common.positions import repeated_names
from ..errors import UnsupportedModelError
from .ensemble import Ensemble, Tree
from .link_sums import LinkSum

#: Values of ``AdaptedModel.link``.
_LINKS = (None, "identity", "logistic", "softmax", "exp", "gumbel", "normal")

#: Up to this many rows, looking up the category of each row is faster than looking up distinct categories.
FEW_ROWS = 8


@dataclass(frozen=True)
class Column:
    """One column of X, the input of a :class:`ColumnEncoder`.

    Attributes
    ----------
    name : str
        Name of the column in error messages.
    values : ndarray
        Decoded values: numbers, or objects (``None`` or NaN where missing).
    codes : ndarray of int64 or None
        Dictionary codes of a categorical column of a data frame, -1 where missing.
    package : str or None
        Package that the data frame X comes from, such as "pandas"; None if X is an array.
    is_text : bool
        Whether this is a column of strings of a data frame. Its ``codes`` number the strings in the order of
        their first appearance.
    category_number : int
        Number of categorical columns before this one in the data frame.
    kept : dict of str to ndarray
        Results that the column's encoder stores here, for use by :class:`DerivedColumns`.
    """

    name: str
    values: np.ndarray
    codes: np.ndarray | None = None
    package: str | None = None
    is_text: bool = False
    category_number: int = 0
    kept: dict[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)


class ColumnEncoder(Protocol):
    """Interface of objects that encode a categorical column as the codes that the trees test; picklable.

    An encoder that reads ``Column.codes`` has the attribute ``takes_codes``. It says whether the result
    depends on the codes themselves, not only on the categories that they stand for. If it does, columns that
    have no codes are rejected; batches of rows are rejected as well, as each batch has its own dictionary.
    """

    def encode(self, column: Column) -> np.ndarray:
        """Turn a column into codes.

        Parameters
        ----------
        column : Column
            The column, as X has it.

        Returns
        -------
        ndarray of float64
            Codes: NaN where missing, negative where the category is unknown.

        Raises
        ------
        ValueError
            The model's own library refuses a value; the message names the column and the value.
        """


def category_codes(encoder: ColumnEncoder, column: Column) -> np.ndarray:
    """Return the codes of a column.

    Raise ``ValueError`` if the encoder refuses a value, ``TypeError`` if the encoder returns something other
    than a number for each row.
    """
    codes = encoder.encode(column)
    n_rows = len(column.values)
    if not isinstance(codes, np.ndarray) or codes.shape != (n_rows,) or codes.dtype.kind not in "fiub":
        result = (
            f"{codes.dtype} of shape {codes.shape}" if isinstance(codes, np.ndarray) else type(codes).__name__
        )
        raise TypeError(
            f"the encoder {type(encoder).__qualname__} must return an array with a number for each of the "
            f"{n_rows} rows of column {column.name!r}, not {result}"
        )
    return codes


def numbers_of_categories(column: Column, reason: str, dtype: str = "float64") -> np.ndarray:
    """Return a categorical column of a model that knows categories only by numbers, as float64.

    Numbers are first rounded to ``dtype``. If there are none, raise ``ValueError`` with the reason.
    """
    try:
        objects = column.values.tolist() if column.values.dtype.kind == "O" else ()
        if column.codes is not None or any(isinstance(item, (str, bytes)) for item in objects):
            raise TypeError
        with np.errstate(over="ignore"):
            return np.array(column.values, dtype).astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"column {column.name!r} is categorical or text, but {reason}") from None


class DerivedColumns(Protocol):
    """Columns that are computed from columns of X and appended to them, for the trees to test; picklable.

    Attributes
    ----------
    n_features : int
        Number of columns of X.
    n_columns : int
        Number of derived columns.
    encoded : set of int
        Columns of X that have an encoder, and that derived columns are computed from.
    sources : sequence of set of int
        Columns of X from which each derived column is computed.
    row_bytes : int
        Approximate number of bytes that :meth:`fill` allocates for each row.
    """

    @property
    def n_features(self) -> int: ...
    @property
    def n_columns(self) -> int: ...
    @property
    def encoded(self) -> Set[int]: ...
    @property
    def sources(self) -> Sequence[Set[int]]: ...
    @property
    def row_bytes(self) -> int: ...

    def fill(self, block: np.ndarray, columns: Mapping[int, Column]) -> None:
        """Write the derived columns, which are the last ``n_columns`` columns of ``block``.

        Parameters
        ----------
        block : ndarray of shape (n_rows, n_features + n_columns)
            Rows, changed in place. The first columns are the columns of X, already encoded.
        columns : mapping of int to Column
            The columns of X in ``encoded``, after their encoders have read them.
        """


@dataclass(frozen=True)
class InputSchema:
    """The columns and values that the model's library accepts as X, and how it reads them.

    Attributes
    ----------
    n_features : int
        Number of columns that X must have.
    feature_names : tuple of str or None
        Names seen in training; a data frame must have the same names in the same order.
    known_names : mapping of int to str
        Names of some columns, by column number, if there are no ``feature_names``. A data frame must have
        these names at these positions.
    allow_nan, allow_inf : bool
        Whether the library itself accepts NaN and infinite values. Values that it refuses are rejected here,
        too. In the schema of a model with linear leaves, ``allow_inf`` is always changed to False.
    allow_sparse : bool
        Whether sparse matrices are accepted.
    allow_sparse_nan : bool
        Whether the library reads NaN in a sparse matrix as it reads NaN in an array. Without ``allow_nan``,
        it has no effect.
    adds_repeated_entries : bool
        Whether the library adds up the numbers that a sparse matrix stores for the same entry, as SciPy does.
    allow_categories : bool
        Whether a categorical column without an encoder is accepted in a data frame: its categories are then
        read as numbers. False for a library that would compare the codes of the categories instead.
    blank_as_underscore : bool
        Whether ``feature_names`` have underscores where the names in training had blanks.
    array_dtype : str or None
        Dtype to which the library rounds arrays other than float32 and float64 in native byte order.
    object_dtype : str or None
        Dtype to which the library rounds arrays of objects.
    also_float32 : bool
        Whether some trees of a model that reads float64 are from a library that reads float32, as in a sum of
        models. Numbers that such a library rejects, or may round in two ways, are then rejected here, too.
    exact_arrays : bool
        Whether arrays other than float32 and float64 may only have numbers that float32 can hold, because
        members of a sum round other numbers in different ways.
    frames_are_arrays : bool
        Whether the model itself turns a data frame into an array, whose dtype then depends on all columns.
    missing_value : float
        A number that means missing, besides NaN, in columns without an encoder.
    sparse_zero_missing : bool
        Whether entries that a sparse X does not store are missing instead of zero.
    encoders : mapping of int to ColumnEncoder
        Encoder of each categorical column, by column number.
    frame_encoder : ColumnEncoder or None
        Encoder of the categorical columns of a data frame that have no encoder in ``encoders``. If None,
        ``allow_categories`` says what happens to these columns.
    n_categorical : int or None
        Number of categorical columns that a data frame must have; None if the library accepts any number.
    derived : DerivedColumns or None
        Columns that the trees test in addition to the columns of X.
    inputs : tuple of StepInput
        What steps of their own make of X for some members of a sum. These columns follow the columns of X.
    reads_x : bool
        Whether any tree tests columns of X themselves; otherwise X may hold anything that the steps accept.
    warns_as : str or None
        Name of the model's class if its ``predict`` warns, as scikit-learn's do, when X has names of columns
        and the training data had none, or the reverse. None if it does not warn.
    frames_have_names : bool
        Whether the library regards every data frame as one that has names of columns. If False, as in
        scikit-learn, a data frame only counts as one with names if the names are strings.
    """

    n_features: int
    feature_names: tuple[str, ...] | None = None
    known_names: Mapping[int, str] = field(default_factory=dict)
    blank_as_underscore: bool = False
    array_dtype: str | None = None
    object_dtype: str | None = None
    also_float32: bool = False
    exact_arrays: bool = False
    frames_are_arrays: bool = False
    allow_nan: bool = True
    allow_inf: bool = True
    allow_sparse: bool = True
    allow_sparse_nan: bool = True
    adds_repeated_entries: bool = True
    allow_categories: bool = True
    missing_value: float = np.nan
    sparse_zero_missing: bool = False
    encoders: Mapping[int, ColumnEncoder] = field(default_factory=dict)
    frame_encoder: ColumnEncoder | None = None
    n_categorical: int | None = None
    derived: DerivedColumns | None = None
    inputs: tuple[StepInput, ...] = ()
    reads_x: bool = True
    warns_as: str | None = None
    frames_have_names: bool = False

    def __post_init__(self) -> None:
        derived = self.derived
        if derived is not None and (
            derived.n_features != self.n_features or not derived.encoded <= set(self.encoders)
        ):
            raise ValueError(
                "the derived columns need an X with other columns, or encoders that the schema does not have"
            )

    @property
    def n_columns(self) -> int:
        """Number of columns that the trees may test: of X, derived from it, and made by steps of members."""
        n_derived = 0 if self.derived is None else self.derived.n_columns
        return self.n_features + n_derived + sum(own.schema.n_columns for own in self.inputs)

    @property
    def takes_codes(self) -> bool:
        """Whether the category codes of a data frame are used as they are."""
        encoders = [*self.encoders.values(), self.frame_encoder]
        return any(getattr(encoder, "takes_codes", False) for encoder in encoders)

    def require_one_input(self, problem: str, instead: str) -> None:
        """Raise an error if members of a sum have steps of their own.

        Parameters
        ----------
        problem : str
            What is then not computed.
        instead : str
            What the user can do.

        Raises
        ------
        UnsupportedModelError
            A member has steps of its own.
        """
        if self.inputs:
            raise UnsupportedModelError(
                f"{problem} for a sum with members that have steps of their own: put the steps before the "
                f"sum, as in make_pipeline(step, VotingRegressor(...)), or {instead}"
            )

    @property
    def has_encoders(self) -> bool:
        """Whether any column may be categorical."""
        return bool(self.encoders) or self.frame_encoder is not None


@dataclass(frozen=True, eq=False)
class StepInput:
    """Input of a member of a sum that is a pipeline: its leading steps, and how its model reads their result.

    Attributes
    ----------
    steps : tuple of transformers
        Copies of the fitted steps, which transform X.
    schema : InputSchema
    x_dtype : str
        Precision in which the member's library reads the transformed X.
    """

    steps: tuple[Any, ...]
    schema: InputSchema
    x_dtype: str


@dataclass(frozen=True)
class AdaptedModel:
    """A fitted model as the explainer sees it.

    Attributes
    ----------
    ensemble : Ensemble
    schema : InputSchema
    family : str
        Name of the family, such as "xgboost".
    output_names : tuple or None
        Names of the outputs if there are several: class labels, or target names.
    binary : {None, "margin", "probability"}
        Set for a binary classifier whose single output is the positive class. With "margin", the margin of
        the negative class is -1 times the output; with "probability", its probability is 1 minus the output.
        None for other models.
    class_names : tuple or None
        Both class labels of a binary classifier, negative first.
    link : {None, "identity", "logistic", "softmax", "exp", "gumbel", "normal"}
        How the library computes its prediction of an output from the margin.

        - "identity": the probability is the margin.
        - "logistic": the probability is 1 / (1 + exp(-link_scale * margin)).
        - "softmax": the probability is exp(link_scale * margin) divided by the sum of this over all outputs.
        - "exp": the prediction is exp(link_scale * margin).
        - "gumbel", "normal": a function of time, from :meth:`with_output`, is
          exp(-exp(-link_scale * margin)), or the standard normal distribution function of
          link_scale * margin.
        - None: the library computes the prediction in another way.
    link_scale : float
        Factor of the margin in the link.
    squared_error : bool
        Whether the single output is a prediction trained to minimize the squared error.
    has_cover : bool
        Whether the ensemble has covers. Without them, SHAP values are computed against background data,
        or with covers counted from data.
    cover_kind : {None, "count", "weight", "data"}
        Kind of the covers: numbers of training rows ("count"); weights of training rows, which in boosting
        are sums of hessians ("weight"); or counted from data ("data"). None if the kind is unknown.
    other_covers : mapping of str to callable
        If the model has covers of a second kind, "count" or "weight": a function that returns them for all
        nodes, by that kind; picklable.
    over_time : callable or None
        If the model has a survival function or a cumulative hazard function: a function that returns the
        model whose outputs are this function at some times; picklable. It takes this model and the arguments
        of :meth:`with_output`, and raises the same errors.
    shared : tuple of tuple of int
        Players whose value several columns of X share evenly: for each player that comes after the columns of
        X, these columns.
    functions : mapping of str to LinkSum
        Outputs that are sums of functions of the margins, by the value of ``model_output`` that they are.
    no_margin : str or None
        If the outputs are such sums only, so that the margins, the outputs of the ensemble, are no outputs of
        the model: the message of the error for ``model_output="raw"``. None: the margins are outputs.
    constant_magnitude : ndarray of shape (n_outputs,) or None
        Sum of the magnitudes of the constants that the library adds up to each intercept, from which the
        rounding of its sums follows; None if the intercept is a single constant. It is not saved.
    predictions : mapping of str to callable
        The library's own functions for predictions, by the value of ``model_output`` that they compute. A
        function takes a few rows in any form that the model takes, and returns an array of shape (n_rows,) or
        (n_rows, n_outputs). "raw" is the margin; the margin of a binary classifier is that of the positive
        class. The first call of an explainer compares the explanation with the function for its
        ``model_output``, or with the trees alone if there is no such function. Functions may refer to the
        model, and are not pickled.
    """

    ensemble: Ensemble
    schema: InputSchema
    family: str
    output_names: tuple[Any, ...] | None = None
    binary: Literal["margin", "probability"] | None = None
    class_names: tuple[Any, ...] | None = None
    link: Literal["identity", "logistic", "softmax", "exp", "gumbel", "normal"] | None = None
    link_scale: float = 1.0
    squared_error: bool = False
    has_cover: bool = True
    cover_kind: Literal["count", "weight", "data"] | None = None
    other_covers: Mapping[str, Callable[[], np.ndarray]] = field(default_factory=dict, repr=False)
    over_time: Callable[[AdaptedModel, str, np.ndarray], AdaptedModel] | None = field(
        default=None, repr=False
    )
    shared: tuple[tuple[int, ...], ...] = ()
    functions: Mapping[str, LinkSum] = field(default_factory=dict, repr=False)
    no_margin: str | None = field(default=None, repr=False)
    constant_magnitude: np.ndarray | None = field(default=None, repr=False, compare=False)
    predictions: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"predictions": {}}

    @property
    def n_outputs(self) -> int:
        """Number of outputs: those of the ensemble, unless ``functions`` compute them."""
        if self.no_margin is None:
            return self.ensemble.n_outputs
        return next(iter(self.functions.values())).n_outputs

    def __post_init__(self) -> None:
        if self.ensemble.has_linear_leaves and self.schema.allow_inf:  # infinity times 0 is not a number
            object.__setattr__(self, "schema", replace(self.schema, allow_inf=False))
        self._require_valid_outputs()
        if not isinstance(self.predictions, Mapping) or not all(map(callable, self.predictions.values())):
            raise TypeError(f"predictions must map model outputs to functions, not {self.predictions!r:.80}")
        n_features, n_players = self.schema.n_features, self.ensemble.n_players
        if self.ensemble.n_features != self.schema.n_columns:
            raise ValueError(
                f"the trees test {self.ensemble.n_features} features, but the schema has "
                f"{self.schema.n_columns} columns"
            )
        if n_players != n_features + len(self.shared):
            raise ValueError(
                f"the ensemble has {n_players} players, but there are {n_features} columns of X and "
                f"{len(self.shared)} players after them"
            )
        for columns in self.shared:
            are_features = all(column in range(n_features) for column in columns)
            if not columns or not are_features or len(set(columns)) < len(columns):
                raise ValueError(f"{columns!r} are not distinct columns of X that can share a value")

    def _require_valid_outputs(self) -> None:
        """Raise ``ValueError`` unless each output has its own name, and the link is known."""
        if self.no_margin is not None and not self.functions:
            raise ValueError("the model has neither a margin nor functions of margins")
        for name, function in self.functions.items():
            if function.n_margins != self.ensemble.n_outputs:
                raise ValueError(
                    f"the function {name!r} takes {function.n_margins} margins, but the ensemble has "
                    f"{self.ensemble.n_outputs} outputs"
                )
        n_outputs = self.n_outputs
        for name, n in (("output_names", n_outputs), ("class_names", 2)):
            names = getattr(self, name)
            if names is None:
                continue
            if not isinstance(names, tuple) or len(names) != n:
                raise ValueError(f"{name} must be a tuple of {n} names, not {names!r:.80}")
            if repeated := repeated_names(names):
                raise ValueError(f"{name} must differ from each other, but {repeated[0]!r:.80} occurs twice")
        if self.binary not in (None, "margin", "probability") or (self.binary and n_outputs > 1):
            raise ValueError(
                f"binary must be 'margin' or 'probability' for a binary classifier, whose ensemble has one "
                f"output, and None for other models, not {self.binary!r:.80} with {n_outputs} outputs"
            )
        if self.link not in _LINKS:
            links = ", ".join(map(repr, _LINKS))
            raise ValueError(f"link must be one of {links}, not {self.link!r:.80}")
        if not 0 < self.link_scale < np.inf:
            raise ValueError(f"link_scale must be a positive number, not {self.link_scale!r:.80}")

    def with_output(self, model_output: str, times: np.ndarray | None) -> AdaptedModel:
        """Return the model whose outputs ``model_output`` is computed from.

        Parameters
        ----------
        model_output : str
            Value of the explainer's option.
        times : ndarray of shape (n_times,) or None
            Times at which a function of time is explained; None if ``model_output`` is no function of time.

        Returns
        -------
        AdaptedModel
            The model, without ``over_time``. For a function of time, it has an output for each time, and the
            link turns the margin into the value of the function.

        Raises
        ------
        ValueError
            The model has no such function of time, or the function has no value at one of the times.
        """
        if times is None:
            return replace(self, over_time=None) if self.over_time else self
        if self.over_time is None:
            raise ValueError(
                f"model_output={model_output!r} needs a model of survival over time: a forest of "
                "scikit-survival, its gradient boosting with loss='coxph', or XGBoost with the objective "
                "'survival:aft'"
            )
        return replace(self.over_time(self, model_output, times), over_time=None)

    def with_cover(self, asked: str) -> AdaptedModel:
        """Return the model with covers of one kind.

        Parameters
        ----------
        asked : {"auto", "count", "weight"}
            Kind of the covers; "auto" keeps the covers of the ensemble.

        Returns
        -------
        AdaptedModel
            The model, without ``other_covers``.

        Raises
        ------
        UnsupportedModelError
            The model has no covers of this kind.
        """
        if asked in ("auto", self.cover_kind):
            return replace(self, other_covers={}) if self.other_covers else self
        if asked not in self.other_covers:
            phrases = {
                "count": "counts of training rows",
                "weight": "weights of training rows",
                "data": "covers counted from data",
            }
            has = f"but {phrases[self.cover_kind]}" if self.cover_kind else "and no others"
            raise UnsupportedModelError(
                f"cover={asked!r}: this {self.family} model has no {phrases[asked]}, {has}; use cover='auto'"
            )
        ensemble = replace(self.ensemble, cover=self.other_covers[asked]())
        return replace(self, ensemble=ensemble, cover_kind=asked, other_covers={})  # type: ignore[arg-type]


def pair_names(pairs: Iterable[tuple[int, Any]]) -> tuple[str, ...]:
    """Name outputs that are pairs of a target and one of its classes: "0_a" is class "a" of target 0."""
    return tuple(f"{target}_{label}" for target, label in pairs)


def predictions_of_mean(predict: Callable[[Any], Any]) -> dict[str, Callable[[Any], Any]]:
    """Return ``AdaptedModel.predictions`` of a model whose ``predict`` is the exponential of its margin."""
    return {"raw": partial(_log_of, predict), "response": predict}


def _log_of(predict: Callable[[Any], Any], X: Any) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(predict(X))


def counts_of(trees: Sequence[Tree]) -> dict[str, Callable[[], np.ndarray]]:
    """Return ``AdaptedModel.other_covers`` if covers are weights: the counts, if all trees have them."""
    if not trees or any(tree.count is None for tree in trees):
        return {}
    return {"count": partial(_counts, trees)}


def _counts(trees: Sequence[Tree]) -> np.ndarray:
    return np.concatenate([np.asarray(tree.count, np.float64) for tree in trees])
