"""A weighted sum of models as one model, whose trees are the trees of all members.

All that a model can do, the sum can do, since it is an ordinary :class:`~skshapgpu.adapters.AdaptedModel`:

- Leaves and intercepts are multiplied by the member's weight. A path-dependent value uses each tree's own
  cover.
- Members that compare in different ways are brought to one comparison, ``x <= threshold``, by exact
  equivalents of their thresholds (``comparisons.py``). If one member reads float64, the sum does.
- A member with leading steps has columns of its own in the ensemble, which follow the columns of X. A column
  that its steps make from one column of X belongs to the player of this column.
- X is accepted if all members accept it. Members that read the same X as different numbers, such as members
  with different category encoders, cannot be added up: the model is rejected, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..errors import UnsupportedModelError
from .comparisons import at_most
from .copies import copying
from .ensemble import Ensemble
from .schema import AdaptedModel, ColumnEncoder, InputSchema, StepInput
from .step_origins import UnknownOriginError, columns_through, sources_of


@dataclass(frozen=True, eq=False)
class Member:
    """A model that a sum adds up.

    Attributes
    ----------
    model : AdaptedModel
    weights : ndarray of float64, shape (n_outputs, n_outputs of the model)
        The outputs of the sum are the sums over the members of ``weights @ margin``.
    columns : ndarray of int or None
        Columns of the sum's X that the model takes; None if it takes all of them.
    steps : tuple of transformers
        Fitted steps that transform X for the model, which then takes all columns that they make.
    """

    model: AdaptedModel
    weights: np.ndarray
    columns: np.ndarray | None = None
    steps: tuple[Any, ...] = ()

    def column_numbers(self) -> np.ndarray:
        """Return the column of the sum's X for each column of the model."""
        return np.arange(self.model.schema.n_features) if self.columns is None else self.columns


def weighted_sum(
    name: str, members: Sequence[Member], offset: np.ndarray, n_features: int | None = None
) -> AdaptedModel:
    """Return the weighted sum of models.

    Parameters
    ----------
    name : str
        Class of the sum, for error messages.
    members : sequence of Member
        At least one.
    offset : ndarray of float64, shape (n_outputs,)
        Constant that is added to the weighted margins of the members.
    n_features : int or None
        Number of columns of X; None if it is that of the first member.

    Returns
    -------
    AdaptedModel
        The sum, without names of outputs, without a link and without predictions.

    Raises
    ------
    UnsupportedModelError
        The members read X in different ways, or derive columns from X.
    """
    models = [member.model for member in members]
    for member in members:
        model = member.model
        if model.schema.inputs or (member.steps and member.columns is not None):
            raise UnsupportedModelError(
                f"cannot explain a {name} with steps inside the members of a member, or before a member that "
                f"takes only some columns: put the steps before the {name}, make_pipeline(step, {name}(...))"
            )
        if model.schema.derived is not None or len(model.ensemble.player):
            raise UnsupportedModelError(
                f"cannot explain a {name} of a {model.family} model that computes numbers from categories, "
                "such as target statistics: explain each of its members, or encode the categories first"
            )
    schema, members, player = _with_steps(name, members, n_features)
    ensemble, nodes = _joined(name, members, offset, schema)
    ensemble = replace(ensemble, player=player)
    has_cover = all(model.has_cover for model in models)
    kinds = {model.cover_kind for model in models}
    cover_kind = kinds.pop() if has_cover and len(kinds) == 1 else None
    return AdaptedModel(
        ensemble=ensemble,
        schema=schema,
        family="sklearn",
        squared_error=all(model.squared_error for model in models) and ensemble.n_outputs == 1,
        has_cover=has_cover,
        cover_kind=cover_kind,
        other_covers={
            kind: partial(_covers, models, nodes, kind)
            for kind in ("count", "weight")
            if kind != cover_kind and all(kind == m.cover_kind or kind in m.other_covers for m in models)
        },
        constant_magnitude=np.abs(offset) + sum(np.abs(m.weights) @ _constant_magnitude(m) for m in members),
    )


def _with_steps(
    name: str, members: Sequence[Member], n_features: int | None
) -> tuple[InputSchema, list[Member], np.ndarray]:
    """Return the schema, the members with the columns that they take, and the player of each column.

    There are no players, but an empty array, if no member has steps.
    """
    plain = [member for member in members if not member.steps]
    with_steps = [member for member in members if member.steps]
    made = [(*_made_columns(name, member), member) for member in with_steps]
    if n_features is None:
        n_features = plain[0].model.schema.n_features if plain else len(made[0][0])
    if plain:
        schema = _Schemas(name, plain, n_features).merged()
    else:
        names = getattr(with_steps[0].steps[0], "feature_names_in_", None)
        names = None if names is None else tuple(map(str, names))
        schema = InputSchema(n_features, feature_names=names, reads_x=False)
    if not made:
        return schema, list(members), np.empty(0, np.int32)
    inputs, players, moved = [], [np.arange(n_features)], {}
    for names_of_x, sources, member in made:
        seen = names_of_x
        if schema.blank_as_underscore:
            seen = [column.replace(" ", "_") for column in names_of_x]
        has_names = schema.feature_names and hasattr(member.steps[0], "feature_names_in_")
        if len(seen) != n_features or (has_names and tuple(seen) != schema.feature_names):
            raise UnsupportedModelError(
                f"cannot explain a {name} whose members take different columns: all must be trained on the "
                "same X, with the same names"
            )
        first = sum(map(len, players))
        moved[id(member)] = replace(member, columns=first + np.arange(len(sources)), steps=())
        players.append(sources)
        own = member.model
        inputs.append(StepInput(_copies(name, member.steps), own.schema, own.ensemble.x_dtype))
    schema = replace(schema, inputs=tuple(inputs))
    return schema, [moved.get(id(member), member) for member in members], np.concatenate(players)


def _made_columns(name: str, member: Member) -> tuple[list[str], np.ndarray]:
    """Return the names of the columns of X, and the column from which each column of the model was made."""
    try:
        names, columns = columns_through(member.steps, member.model.schema.n_features)
    except UnknownOriginError as error:
        raise UnsupportedModelError(
            f"cannot explain a {name} with a member whose steps mix columns of X: {error}; put the steps "
            f"before the {name}, make_pipeline(step, {name}(...)), or explain each of its members"
        ) from error
    return names, sources_of(columns)


def _copies(name: str, steps: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return copies of steps, which do not change if the members are fitted again."""
    problem = f"cannot explain a {name} with a member whose steps cannot be copied"
    with copying(problem, f"Put the steps before the {name}, or explain each of its members"):
        return deepcopy(steps)


@dataclass(frozen=True)
class Rounded:
    """A prediction of a sum, in the dtype of the least precise of its members.

    A comparison infers from the dtype how a library rounds. NumPy adds up float32 and float64 as float64, but
    the result is as inexact as float32.
    """

    predict: Callable[[Any], Any]
    members: tuple[Callable[[Any], Any], ...]

    def __call__(self, X: Any) -> np.ndarray:
        result: np.ndarray = np.asarray(self.predict(X))
        if any(np.asarray(predict(X)).dtype == np.float32 for predict in self.members):
            return result.astype(np.float32)
        return result


def _constant_magnitude(member: Member) -> np.ndarray:
    magnitude = member.model.constant_magnitude
    return np.abs(member.model.ensemble.intercept) if magnitude is None else magnitude


def _covers(models: Sequence[AdaptedModel], nodes: np.ndarray, kind: str) -> np.ndarray:
    return np.concatenate([model.with_cover(kind).ensemble.cover for model in models])[nodes]


def _joined(
    name: str, members: Sequence[Member], offset: np.ndarray, schema: InputSchema
) -> tuple[Ensemble, np.ndarray]:
    """Return the ensemble, and the node of the concatenated members from which each of its nodes was made."""
    ensembles = [member.model.ensemble for member in members]
    dtypes, strictness = {e.x_dtype for e in ensembles}, {e.strict for e in ensembles}
    x_dtype = "float64" if "float64" in dtypes else "float32"
    strict = strictness == {True} and len(dtypes) == 1
    is_vector = _needs_vectors(members)
    parts = [_Part.of(member, is_vector) for member in members]

    def join(arrays: Iterable[Any], dtype: Any) -> np.ndarray:
        return np.concatenate([np.empty(0, dtype), *arrays])

    def gather(attribute: str) -> np.ndarray:
        arrays = [getattr(e, attribute)[part.nodes] for e, part in zip(ensembles, parts)]
        return join(arrays, arrays[0].dtype)

    thresholds, features = [], []
    for member, e, part in zip(members, ensembles, parts):
        threshold = e.threshold[part.nodes]
        if not strict and (e.strict or e.x_dtype != x_dtype):
            is_numeric = _is_numeric(e)[part.nodes]
            if e.strict and member.model.schema.allow_inf and (threshold[is_numeric] == -np.inf).any():
                raise UnsupportedModelError(
                    f"cannot explain a {name} with a node that tests x < -inf if its members accept infinity"
                )
            threshold = np.where(is_numeric, at_most(threshold, e.x_dtype, e.strict, x_dtype), threshold)
        thresholds.append(threshold)
        columns, leaf = member.column_numbers(), e.left[part.nodes] < 0
        features.append(columns[np.where(leaf, 0, e.feature[part.nodes])] if len(columns) else e.feature[:0])

    first_nodes = np.cumsum([0, *(e.n_nodes for e in ensembles)])
    values = [part.values for part in parts]
    ensemble = Ensemble(
        n_features=schema.n_columns,
        tree_offsets=np.concatenate([[0], np.cumsum(join((part.sizes for part in parts), np.int64))]),
        tree_output=join((part.outputs for part in parts), np.int32),
        left=gather("left"),
        right=gather("right"),
        feature=join(features, np.int32),
        threshold=join(thresholds, np.float64),
        missing_left=gather("missing_left"),
        cover=gather("cover"),
        value=np.concatenate(values),
        intercept=offset + sum(m.weights @ e.intercept for m, e in zip(members, ensembles)),
        x_dtype=x_dtype,
        strict=strict,
        zero_missing=_zero_missing(name, members, schema.n_columns, x_dtype),
        **_joined_categories(name, ensembles, parts, x_dtype),
        **_joined_linear_leaves(members, parts),
    )
    return ensemble, join((part.nodes + n for part, n in zip(parts, first_nodes)), np.int64)


def _needs_vectors(members: Sequence[Member]) -> bool:
    """Return whether leaves hold all outputs of the sum, instead of a tree being repeated for each output."""
    n_outputs = len(members[0].weights)
    if n_outputs == 1 or any(member.model.ensemble.has_linear_leaves for member in members):
        return False
    n_additions = n_trees = 0
    for member in members:
        outputs_of_tree = _adds(member).sum(axis=0)
        n_additions += int(outputs_of_tree.sum())
        n_trees += int(np.count_nonzero(outputs_of_tree))
    return 2 * n_additions > n_outputs * n_trees


def _adds(member: Member) -> np.ndarray:
    """Return to which outputs of the sum each tree of a member adds: bool, (n_outputs, n_trees)."""
    adds, e = member.weights != 0, member.model.ensemble
    if e.value.shape[1] > 1:
        return np.repeat(adds.any(axis=1)[:, np.newaxis], e.n_trees, axis=1)
    return adds[:, np.maximum(e.tree_output, 0)]


@dataclass(frozen=True, eq=False)
class _Part:
    """The trees of a member as the sum has them: without those that add nothing, repeated for each output."""

    nodes: np.ndarray  # the member's node for each node of the part
    sizes: np.ndarray  # number of nodes of each tree
    outputs: np.ndarray  # output of each tree; -1 if its leaves hold all outputs
    values: np.ndarray  # leaf values, weighted
    factors: np.ndarray  # factor of each node's leaf, if leaves have one output

    @classmethod
    def of(cls, member: Member, is_vector: bool) -> _Part:
        e, weights = member.model.ensemble, member.weights
        if is_vector:
            trees = np.flatnonzero(_adds(member).any(axis=0))
            outputs = np.full(len(trees), -1)
        else:
            trees, outputs = np.nonzero(_adds(member).T)
        starts, sizes = e.tree_offsets[trees], np.diff(e.tree_offsets)[trees]
        nodes = _ranges(starts, sizes)
        tree_output = np.repeat(np.maximum(e.tree_output[trees], 0), sizes)
        output = np.repeat(outputs, sizes)
        factors = np.ones(len(nodes)) if is_vector else weights[output, tree_output]
        value = e.value[nodes]
        if value.shape[1] > 1:
            weighted = value @ weights.T
            values = weighted if is_vector else weighted[np.arange(len(nodes)), output][:, np.newaxis]
        else:
            values = value * (weights[:, tree_output].T if is_vector else factors[:, np.newaxis])
        return cls(nodes, sizes, outputs, values, factors)


def _ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the numbers of all ranges one after the other, each from its start on."""
    return np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)


def _is_numeric(ensemble: Ensemble) -> np.ndarray:
    """Return which nodes compare numbers."""
    inner = ensemble.left >= 0
    return inner & (ensemble.category_set < 0) if len(ensemble.category_set) else inner


def _joined_categories(
    name: str, ensembles: Sequence[Ensemble], parts: Sequence[_Part], x_dtype: str
) -> dict[str, np.ndarray]:
    """Return the attributes of categorical nodes; none if there are no such nodes."""
    if not any(len(e.category_set) for e in ensembles):
        return {}
    sets, offsets, n_sets, n_values = [], [np.zeros(1, np.int64)], 0, 0
    for e, part in zip(ensembles, parts):
        if len(e.category_set) and e.x_dtype != x_dtype:
            raise UnsupportedModelError(
                f"cannot explain a {name} with categories whose members read X as float32 and as float64: "
                "encode the categories before training, or explain each member"
            )
        has_sets = len(e.category_set) > 0
        numbers = e.category_set[part.nodes] if has_sets else np.full(len(part.nodes), -1)
        sets.append(np.where(numbers < 0, -1, numbers + n_sets))
        if has_sets:
            offsets.append(e.category_offsets[1:] + n_values)
        n_sets += len(e.category_listed_left)
        n_values += len(e.category_values)
    return {
        "category_set": np.concatenate(sets).astype(np.int64),
        "category_offsets": np.concatenate(offsets),
        "category_values": np.concatenate([e.category_values for e in ensembles]),
        "category_listed_left": np.concatenate([e.category_listed_left for e in ensembles]),
    }


def _joined_linear_leaves(members: Sequence[Member], parts: Sequence[_Part]) -> dict[str, np.ndarray]:
    """Return the attributes of linear leaves; none if there are no such leaves."""
    if not any(member.model.ensemble.has_linear_leaves for member in members):
        return {}
    counts, features, coefficients, intercepts = [], [], [], []
    for member, part in zip(members, parts):
        e = member.model.ensemble
        if not e.has_linear_leaves:
            counts.append(np.zeros(len(part.nodes), np.int64))
            intercepts.append(np.zeros(len(part.nodes)))
            continue
        n_terms = np.diff(e.linear_offsets)[part.nodes]
        terms = _ranges(e.linear_offsets[part.nodes], n_terms)
        counts.append(n_terms)
        features.append(member.column_numbers()[e.linear_feature[terms]])
        coefficients.append(e.linear_coefficient[terms] * np.repeat(part.factors, n_terms))
        intercepts.append(e.linear_intercept[part.nodes] * part.factors)
    return {
        "linear_offsets": np.concatenate([[0], np.cumsum(np.concatenate(counts))]),
        "linear_feature": np.concatenate(features),
        "linear_coefficient": np.concatenate(coefficients),
        "linear_intercept": np.concatenate(intercepts),
    }


def _zero_missing(name: str, members: Sequence[Member], n_features: int, x_dtype: str) -> np.ndarray:
    """Return the columns in which zeros are missing; empty if there are none."""
    if not any(len(member.model.ensemble.zero_missing) for member in members):
        return np.empty(0, bool)
    joined = np.zeros(n_features, bool)
    for member in members:
        e = member.model.ensemble
        if len(e.zero_missing):
            joined[member.column_numbers()[e.zero_missing]] = True
    for member in members:
        e = member.model.ensemble
        is_tested = np.zeros(e.n_features, bool)
        is_tested[e.feature[e.left >= 0]] = True
        own = e.zero_missing if len(e.zero_missing) else np.zeros(e.n_features, bool)
        differs = is_tested & joined[member.column_numbers()] & ~own
        if differs.any() or (own.any() and e.x_dtype != x_dtype):
            raise UnsupportedModelError(
                f"cannot explain a {name} in which zeros are missing to one member, and numbers to another: "
                "train LightGBM with zero_as_missing=False, or explain each member"
            )
    return joined


class _Schemas:
    """The schemas of the members, by which they read the same X."""

    def __init__(self, name: str, members: Sequence[Member], n_features: int) -> None:
        self._name, self._members, self._n_features = name, members, n_features
        self._schemas = [member.model.schema for member in members]
        for member, schema in zip(members, self._schemas):
            if len(member.column_numbers()) != schema.n_features or (
                member.columns is None and schema.n_features != n_features
            ):
                raise UnsupportedModelError(
                    f"cannot explain a {name} whose members take {n_features} and {schema.n_features} "
                    "columns: all must be trained on the same X"
                )

    def merged(self) -> InputSchema:
        """Return the schema of the sum: X is accepted if all members accept it."""
        schemas = self._schemas
        ensembles = [member.model.ensemble for member in self._members]
        x_dtypes = {e.x_dtype for e in ensembles}
        self._require_same("missing_value", "a number means missing to one member only")
        if schemas[0].missing_value == schemas[0].missing_value and len(x_dtypes) > 1:
            raise self._refusal("a number means missing, and members read X as float32 and float64")
        # Members that read float32 round all numbers to it, whatever their array_dtype.
        doubles = [s for s, e in zip(schemas, ensembles) if e.x_dtype == "float64"]
        array_dtypes = {s.array_dtype for s in doubles} or {None}
        object_dtypes = {s.object_dtype for s in doubles} or {None}
        one_reading = len(array_dtypes) == len(object_dtypes) == 1
        warning = next((s for s in schemas if s.warns_as is not None), schemas[0])
        return InputSchema(
            n_features=self._n_features,
            feature_names=self._names(),
            known_names=self._known_names(),
            blank_as_underscore=any(s.blank_as_underscore and s.feature_names for s in schemas),
            array_dtype=array_dtypes.pop() if one_reading else None,
            object_dtype=object_dtypes.pop() if one_reading else None,
            also_float32=len(x_dtypes) > 1 or any(s.also_float32 for s in schemas),
            exact_arrays=not one_reading or any(s.exact_arrays for s in schemas),
            frames_are_arrays=any(s.frames_are_arrays for s in schemas),
            allow_nan=all(s.allow_nan for s in schemas),
            allow_inf=all(s.allow_inf for s in schemas),
            allow_sparse=all(s.allow_sparse for s in schemas)
            and len({s.sparse_zero_missing for s in schemas}) == 1,
            allow_sparse_nan=all(s.allow_sparse_nan for s in schemas),
            adds_repeated_entries=all(s.adds_repeated_entries for s in schemas),
            missing_value=schemas[0].missing_value,
            sparse_zero_missing=all(s.sparse_zero_missing for s in schemas),
            encoders=self._encoders(),
            warns_as=warning.warns_as,
            frames_have_names=warning.frames_have_names,
            **self._frame_encoder(),
        )

    def _refusal(self, reason: str) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"cannot explain a {self._name} whose members read X in different ways: {reason}. Explain each "
            "member"
        )

    def _require_same(self, attribute: str, reason: str) -> None:
        values = [getattr(schema, attribute) for schema in self._schemas]
        if not all(_equal(value, values[0]) for value in values):
            raise self._refusal(reason)

    def _names(self) -> tuple[str, ...] | None:
        """Return the names of the columns; LightGBM has underscores where the names have blanks."""
        named = [m.model.schema for m in self._members if m.columns is None and m.model.schema.feature_names]
        if not named:
            return None
        names = [s.feature_names or () for s in named]
        if any(s.blank_as_underscore for s in named):
            names = [tuple(name.replace(" ", "_") for name in labels) for labels in names]
        if len(set(names)) > 1:
            raise self._refusal("they were trained on columns of different names")
        return names[0]

    def _known_names(self) -> dict[int, str]:
        known_names: dict[int, str] = {}
        for schema in self._schemas:
            for column, name in schema.known_names.items():
                if known_names.setdefault(column, name) != name:
                    raise self._refusal("they were trained on columns of different names")
        return known_names

    def _encoders(self) -> dict[int, ColumnEncoder]:
        """Return the encoder of each categorical column, which all members that take the column must have."""
        encoders: dict[int, ColumnEncoder | None] = {}
        for member in self._members:
            for column, number in enumerate(member.column_numbers().tolist()):
                encoder = member.model.schema.encoders.get(column)
                if not _equal(encoders.setdefault(number, encoder), encoder):
                    raise self._refusal(
                        f"column {number} is categorical, and they encode its categories in different ways"
                    )
        return {column: encoder for column, encoder in encoders.items() if encoder is not None}

    def _frame_encoder(self) -> dict[str, Any]:
        """Return how categorical columns of a data frame are read that have no encoder of their own."""
        schemas = self._schemas
        allow_categories = all(s.allow_categories for s in schemas)
        if all(
            _equal(s.frame_encoder, schemas[0].frame_encoder) and s.n_categorical == schemas[0].n_categorical
            for s in schemas
        ):
            return {
                "frame_encoder": schemas[0].frame_encoder,
                "n_categorical": schemas[0].n_categorical,
                "allow_categories": allow_categories,
            }
        for schema in schemas:
            encoder = schema.frame_encoder
            takes_numbers = getattr(encoder, "takes_codes", False) or schema.n_categorical == 0
            if encoder is not None and not takes_numbers:
                raise self._refusal("one of them encodes categories of data frames")
        return {"allow_categories": False}


def _equal(first: Any, second: Any) -> bool:
    """Return whether two values are equal; NaN equals itself, and encoders are compared by their fields."""
    if type(first) is not type(second):
        return False
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and _equal(first.tolist(), second.tolist())
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(_equal, first, second))
    if is_dataclass(first):
        return all(_equal(getattr(first, f.name), getattr(second, f.name)) for f in fields(first))
    return bool(first == second) or first is second or bool(first != first and second != second)
