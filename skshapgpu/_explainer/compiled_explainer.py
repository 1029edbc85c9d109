"""The state of an explainer: its model, adapted and compiled, the reader of X, and its attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from .._common.algorithms import OWEN_VALUES, SHAP_VALUES, Kind
from .._common.digits import counted
from .._engine.agreement import Agreement
from .._engine.compiled_model import CompiledModel
from .._engine.covers import with_covers_of
from .._engine.execution import plan_execution
from .._engine.features import (
    Features,
    Group,
    features_of,
    have_positions,
    read_groups,
    two_levels,
)
from .._engine.links import Link, link_of, unit_of
from .._engine.options import Options
from .._engine.sharing import Sharing
from .._files.model_files import adapt_file
from .._rows.background import Background
from .._rows.inputs import Reader
from .._rows.origins import Origins
from .._rows.pipelines import copies_of, unwrap
from ..adapters.schema import AdaptedModel
from ..errors import UnsupportedModelError


class CompiledExplainer:
    """A model that was adapted and compiled, its options, and the reader of X; the base of the explainer."""

    def _build(
        self,
        model: Any,
        copies_steps: bool = True,
        *,
        data: Any = None,
        data_weight: Any = None,
        cover: Any = "auto",
        feature_groups: Any = None,
        **others: Any,
    ) -> None:
        """Read and compile a model, with options of the class; see also :func:`as_explainer`."""
        options = Options.parse(
            data=data, data_weight=data_weight, cover=cover, feature_groups=feature_groups, **others
        )
        steps, last = unwrap(model)
        steps = copies_of(steps) if copies_steps else steps
        adapted = adapt_file(last).with_output(options.model_output, options.times).with_cover(cover)
        link = link_of(adapted, options.model_output, options.outputs == "all", options.interventional)
        reader = self._reader = Reader(steps, adapted)
        groups = None
        if feature_groups is not None:
            underscores = adapted.schema.blank_as_underscore
            groups = read_groups(
                feature_groups, reader.default_names, reader.origins, blank_as_underscore=underscores
            )
            if have_positions(feature_groups):
                reader.fix_columns()
        background = None
        if options.interventional:
            background = Background.read(data, data_weight, reader.read_data, adapted.ensemble.x_dtype)
        elif data is not None:
            adapted = with_covers_of(adapted, data, data_weight, reader.read_data, options.n_jobs)
        self._agreement = Agreement.of(model, adapted, options.model_output, options.check_additivity)
        self._adapted = replace(adapted, predictions={})  # they may hold the model
        self._compile(options, link, background, groups, by_input=isinstance(feature_groups, str))

    def _read_again(self, model: Any, X: Any) -> tuple[AdaptedModel, np.ndarray]:
        """Return the model as it is now, adapted, and rows of X as its trees test them."""
        steps, last = unwrap(model)
        adapted = adapt_file(last).with_output(self.model_output, self._compiled.options.times)
        rows = Reader(steps, adapted).without_warnings().read_on_host(X)
        return adapted, rows.chunk(0, rows.n_rows)

    def _compile(
        self,
        options: Options,
        link: Link | None,
        background: Background | None,
        groups: tuple[Group, ...] | None,
        by_input: bool = False,
        tables: dict[str, np.ndarray] | None = None,
    ) -> None:
        """Compile the adapted model; ``tables``, if given, are a :meth:`CompiledModel.contents`."""
        adapted, self._groups = self._adapted, groups
        if background is None and not adapted.has_cover:
            raise UnsupportedModelError(
                f"this {adapted.family} model has no covers, the training weight at each node that "
                "path-dependent SHAP values depend on, or negative ones; give background rows as data=, for "
                "interventional values, or with feature_perturbation='tree_path_dependent', to count covers "
                "from them"
            )
        self._unit = unit_of(adapted, options.model_output)
        widen = options.outputs == "all" and adapted.binary is not None
        n_outputs = 2 if widen else adapted.n_outputs
        self._output_names: tuple[Any, ...] | None = None
        if widen:
            self._output_names = adapted.class_names or (0, 1)
        elif n_outputs > 1:
            self._output_names = adapted.output_names or tuple(range(n_outputs))
        game, self._features = features_of(adapted, groups, options.columns, by_input)
        n_features = game.ensemble.n_players - len(game.shared)
        sharing = Sharing(n_features, game.shared) if game.shared else None
        two_level_game = None
        if groups is not None and link is None:
            two_level_game, self._columns_in_groups = two_levels(adapted, groups, options.columns)
        self._compiled = CompiledModel(
            game.ensemble,
            options,
            widen,
            self._output_names,
            background,
            link,
            tables,
            sharing,
            two_level_game,
        )
        self._compiled.require(SHAP_VALUES, "", False)
        if link is not None and link.has_labels:
            return  # base values depend on them
        base = self._compiled.base_value(None)
        if widen:
            total = 0.0 if link is None and adapted.binary == "margin" else 1.0
            base = np.array([total - base[0], base[0]])
        self._base = base

    @property
    def expected_value(self) -> Any:
        """Base value: float, or float64 array of shape (n_outputs,) if there are several outputs.

        The base value of a loss depends on the label: then this is a function of a label or an array of them.
        """
        if self._has_labels:
            return self._base_values_of
        return float(self._base[0]) if len(self._base) == 1 else self._base.copy()

    @property
    def _has_labels(self) -> bool:
        link = self._compiled.link
        return link is not None and link.has_labels

    def _base_values_of(self, y: Any) -> Any:
        """Return the mean loss of the predictions for the background rows if all had the label ``y``."""
        assert self._compiled.link is not None
        labels = [y] if np.ndim(y) == 0 else y
        base = self._compiled.base_value(self._compiled.link.read_labels(labels, len(labels)))[:, 0]
        return float(base[0]) if np.ndim(y) == 0 else base

    @property
    def model_output(self) -> str:
        """Quantity that the values explain, a value of the option, such as "raw" or "probability"."""
        return self._compiled.options.model_output

    @property
    def times(self) -> tuple[float, ...] | None:
        """Times of the function of time that is explained, an output for each; None for other outputs."""
        times = self._compiled.options.times
        return None if times is None else tuple(times.tolist())

    @property
    def feature_perturbation(self) -> str:
        """Treatment of unknown features: "tree_path_dependent" or "interventional"."""
        return "tree_path_dependent" if self._compiled.background is None else "interventional"

    @property
    def output_names(self) -> tuple[Any, ...] | None:
        """Class labels or target names of the outputs; None if there is only one output."""
        return self._output_names

    @property
    def family(self) -> str:
        """Library of the model, or the name of a registered family."""
        return self._adapted.family

    @property
    def n_features(self) -> int:
        """Number of columns that the model expects, after the leading steps of a pipeline."""
        return self._adapted.schema.n_features

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Column names that X must have if it has any; None if unknown, or if a pipeline transforms X.

        LightGBM replaces blanks by underscores in the names that its models keep; X may have either.
        """
        return None if self._reader.steps else self._adapted.schema.feature_names

    @property
    def feature_indices(self) -> np.ndarray | None:
        """Positions of the columns that have values; None if all columns or groups have them.

        After the leading steps of a pipeline, these are columns that the last step receives.
        """
        columns = self._features.columns
        return None if columns is None else columns.copy()

    @property
    def group_columns(self) -> tuple[tuple[int, ...], ...] | None:
        """Columns of each feature of the results, by position; None without ``feature_groups``.

        After the leading steps of a pipeline, these are columns that the last step receives.
        """
        return self._features.group_columns

    @property
    def precision(self) -> str:
        """Precision of the arithmetic within a tree: "single", or "double", also for trees that cancel."""
        return self._compiled.options.precision

    @property
    def memory_limit(self) -> int | None:
        """Bytes that a call may allocate; None if there is no limit."""
        return self._compiled.options.memory_limit

    def model_info(self) -> dict[str, Any]:
        """Return counts and sizes of the compiled model; see also :meth:`plan`.

        Returns
        -------
        dict
            Counts of trees and leaves, sizes in bytes, and the groups of trees.
        """
        return dict(self._compiled.info)

    @property
    def _origins(self) -> Origins | None:
        """Origins of the features of the results, without data; None if they are of X."""
        return self._features.origins(self._reader.origins)

    def _names_explained(self, input_features: Any = None, index: str = "SV") -> tuple[str, ...]:
        """Return the names of the features of the results of an index; the names are distinct."""
        return self._features_of(index).names(self._reader.names_seen(input_features))

    def _features_of(self, index: str) -> Features:
        """Return the features of the results of an index."""
        return self._columns_in_groups if index == OWEN_VALUES.index else self._features

    @property
    def _features_are_columns(self) -> bool:
        """Whether each feature of the results is the column of X at its own position."""
        if (origins := self._origins) is not None:
            return origins.are_columns
        return self._features.groups is None and self._compiled.n_features == self.n_features

    def _require_values(self, index: str) -> None:
        """Reject values of single features that are not computed with the options."""
        kind = Kind(1, index)
        self._compiled.require(kind, kind.values_name, False)

    def _gpus(self, kind: Kind, n_rows: int) -> tuple[int, ...]:
        """Return the GPUs of a call with rows from the host; empty for the CPU."""
        return plan_execution(self._compiled, kind, n_rows).indices

    def _on_gpu(self, index: int) -> Self:
        """Return this explainer for calls on one of its GPUs; the values are the same."""
        return self._view(_compiled=self._compiled.on_gpu(index))

    @property
    def _without_warnings(self) -> Self:
        """This explainer, without its warnings about rows that have no names: it has given them before."""
        reader = self._reader.without_warnings()
        return self if reader is self._reader else self._view(_reader=reader)

    def _without_steps(self) -> Self:
        """Return the explainer of a pipeline's last step, which takes X as the other steps transform it."""
        return self._view(_reader=Reader([], self._adapted))

    def _behind(self, steps: Sequence[Any], grouped_by_input: bool) -> Self:
        """Return this explainer for rows that fitted steps transform first: undo :meth:`_without_steps`.

        ``grouped_by_input`` says whether the groups of features are those of ``feature_groups="input"``.
        """
        features = replace(self._features, by_input=grouped_by_input)
        return self._view(_reader=Reader(steps, self._adapted), _features=features)

    def _view(self, **attributes: Any) -> Self:
        """Return this explainer with other values of some attributes; the compiled model is shared."""
        view = object.__new__(type(self))
        view.__dict__ = vars(self) | attributes
        return view

    def _value_options(self) -> dict[str, Any]:
        """Return the options that affect the values, besides data and times, in a JSON-compatible form."""
        options = self._compiled.options
        return {
            "algorithm": options.algorithm.name,
            "precision": options.precision,
            "outputs": options.outputs,
            "columns": options.columns,
            "model_output": options.model_output,
            "feature_groups": self._groups and [list(group) for group in self._groups],
        }

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_agreement": self._agreement.result}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"_agreement": Agreement.restored(state["_agreement"])})

    def __copy__(self) -> Self:
        return self  # immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __repr__(self) -> str:
        ensemble, n_outputs = self._adapted.ensemble, self._compiled.n_outputs
        data = self._compiled.background
        background = "" if data is None else f", {len(data.rows)} background rows"
        if self._adapted.cover_kind == "data":
            background = ", covers counted from data"
        if self.model_output != "raw":
            background += f", {self.model_output}"
        if self._groups is not None:
            background = f", {self._compiled.n_features} groups of features{background}"
        return (
            f"<TreeExplainer of a {self.family} model: {counted(ensemble.n_trees, 'tree')}, "
            f"{counted(ensemble.n_leaves, 'leaf', 'leaves')}, {counted(self.n_features, 'feature')}, "
            f"{counted(n_outputs, 'output')}, {self._compiled.options.precision} precision"
            f"{background}>"
        )
