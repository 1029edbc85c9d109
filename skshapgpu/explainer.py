"""The explainer of a fitted model: adapt the model, compile it once, explain many rows.

The model passes through ``pipelines.unwrap`` (pipelines, searches, frozen estimators), ``adapters.adapt`` and
``_core.Plan``. X passes through ``inputs.Reader``, which applies the leading steps of a pipeline, and then in
batches through ``runs.py``, which runs the plan on the CPU or on GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
import numpy.typing as npt
from sklearn.frozen import FrozenEstimator

from ._common.checks import require_bool, require_count, require_one_of, require_options, with_article
from ._common.indices import VALUE_INDICES
from ._common.progress import require_progress
from ._common.types import (
    AlgorithmName,
    Columns,
    Cover,
    Device,
    ExplainerOptions,
    FeatureGroups,
    FeaturePerturbation,
    InteractionIndex,
    Interactions,
    Model,
    ModelOutput,
    Order,
    Outputs,
    Precision,
    Progress,
    Table,
    Times,
    ValueIndex,
    Values,
    Vector,
    lists_options,
)
from ._engine import agreement
from ._engine.agreement import Agreement, Explained, Sums
from ._engine.algorithms import OWEN_VALUES, SHAP_VALUES, TIME_OUTPUTS, Kind
from ._engine.call_plans import CallPlan, call_plan
from ._engine.compiled_model import CompiledModel
from ._engine.covers import with_covers_of
from ._engine.execution import plan_execution, plan_on_cpu
from ._engine.features import (
    Features,
    Group,
    features_of,
    have_positions,
    read_groups,
    saved_groups,
    two_levels,
)
from ._engine.interactions import (
    MATRICES,
    Request,
    compute_interactions,
    interaction_matrices,
    require_order,
)
from ._engine.links import Link, link_of, read_times, unit_of
from ._engine.options import Options
from ._engine.runs import HostRun, Run, execute, shap_values
from ._engine.sharing import Sharing
from ._explanations.interactions import InteractionExplanation
from ._explanations.values import Explanation
from ._files import saving
from ._files.locations import Content, Place, is_path, locate, quoted
from ._files.model_files import adapt_file
from ._files.saving import Saved
from ._rows import gpu_arrays
from ._rows.background import Background
from ._rows.given_arrays import results_view
from ._rows.inputs import HostRows, Reader
from ._rows.origins import Origins
from ._rows.pipelines import copies_of, unwrap
from ._rows.rows import Rows
from .adapters.schema import AdaptedModel
from .errors import UnsupportedModelError


@lists_options
def explain(
    model: Model,
    X: Table,
    y: Vector | None = None,
    *,
    index: ValueIndex = "SV",
    progress: Progress = False,
    **options: Unpack[ExplainerOptions],
) -> Explanation:
    """Compute exact SHAP values of a tree model in one call.

    Parameters
    ----------
    model : fitted model, str, path, bytes or TreeExplainer
        A fitted model or its file, or an explainer or its file: see :class:`TreeExplainer`.
    X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
        Rows to explain, in any form that ``model.predict`` accepts.
    y, index, progress
        As for :meth:`TreeExplainer.explain`.
    **options
        Options of :class:`TreeExplainer`.

    Returns
    -------
    Explanation
        SHAP values with names, data, row labels and base values.

    See Also
    --------
    explain_interactions : Compute interactions of features.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import explain
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> explain(model, X).shape
    (442, 10)
    """
    require_options(explain, options)
    kind = _value_kind(index)
    require_progress(progress)
    return as_explainer(model, options, copies_steps=False)._explain(X, y, kind, progress)


@lists_options
def explain_interactions(
    model: Model,
    X: Table,
    *,
    interactions: Interactions = "occurring",
    index: InteractionIndex = "SII",
    order: Order = 2,
    progress: Progress = False,
    **options: Unpack[ExplainerOptions],
) -> InteractionExplanation:
    """Compute exact interactions of the features of a tree model in one call.

    Parameters
    ----------
    model : fitted model, str, path, bytes or TreeExplainer
        A fitted model or its file, or an explainer or its file: see :class:`TreeExplainer`.
    X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
        Rows to explain, in any form that ``model.predict`` accepts.
    interactions, index, order, progress
        As for :meth:`TreeExplainer.explain_interactions`.
    **options
        Options of :class:`TreeExplainer`.

    Returns
    -------
    InteractionExplanation
        Interactions with names, data, row labels and base values.

    See Also
    --------
    explain : Compute SHAP values.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import explain_interactions
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> explain_interactions(model, X).shape
    (442, 45)
    >>> explain_interactions(model, X, interactions=5).shape
    (442, 5)
    """
    require_options(explain_interactions, options)
    request = Request.parse(interactions, index, order)
    require_progress(progress)
    return as_explainer(model, options, copies_steps=False)._explain_interactions(X, request, progress)


def as_explainer(model: Any, options: Mapping[str, Any], *, copies_steps: bool = True) -> TreeExplainer:
    """Return the explainer of a model with these options; an explainer is returned as it is.

    Parameters
    ----------
    model : Model
        A fitted model or its file, an explainer or its file.
    options : dict
        Options of ``TreeExplainer``; of ``TreeExplainer.load`` for an explainer file, and none for an
        explainer.
    copies_steps : bool, default=True
        Whether the explainer has copies of the steps of a pipeline. It needs none if the pipeline is not
        refitted while the explainer is in use.

    Raises
    ------
    TypeError
        An option is unknown, or an explainer has it already.
    """
    require_options(TreeExplainer, options)
    existing = _existing(model)
    if existing is not None:
        return _reopened(existing, options)
    explainer = object.__new__(TreeExplainer)
    explainer._build(model, copies_steps, **options)
    return explainer


def model_of(model: Any) -> tuple[Sequence[Any], AdaptedModel]:
    """Return the leading steps and the adapted model of a model, its file, an explainer or its file.

    Raises
    ------
    ValueError
        An explainer explains a function of time, so that it no longer has the model itself.
    """
    steps: Sequence[Any]
    model_output: Any
    existing = _existing(model)
    if existing is None:
        steps, last = unwrap(model)
        return steps, adapt_file(last)
    if isinstance(existing, TreeExplainer):
        steps, adapted, model_output = existing._reader.steps, existing._adapted, existing.model_output
    else:
        saved = saving.load(existing)
        steps, adapted, model_output = [], saved.adapted, saved.options.get("model_output")
    if model_output in TIME_OUTPUTS:
        raise ValueError(
            f"the explainer explains model_output={model_output!r}, an output for each time: pass the model"
        )
    return steps, adapted


def _existing(model: Any) -> TreeExplainer | Place | Content | None:
    """Return the explainer that ``model`` is, or the explainer file of which it is the path or the content.

    None means that ``model`` is a model or a model file.
    """
    while isinstance(model, FrozenEstimator):
        model = model.estimator
    return model if isinstance(model, TreeExplainer) else saving.explainer_file(model)


def is_explainer(model: Any) -> bool:
    """Return whether a model is an explainer or an explainer file."""
    return _existing(model) is not None


def _reopened(existing: TreeExplainer | Place | Content, options: Mapping[str, Any]) -> TreeExplainer:
    """Return an explainer, or load one from its file, where only options of ``load`` can be chosen.

    Raises
    ------
    TypeError
        The explainer has one of the options already.
    """
    is_file = not isinstance(existing, TreeExplainer)
    settled = [name for name in options if not is_file or name not in _CHOSEN_LATER]
    if settled:
        has_path = not isinstance(existing, TreeExplainer | Content)
        whose = f"the explainer in {str(existing)!r}" if has_path else "an explainer"
        raise TypeError(f"{whose} has its own options: pass {', '.join(settled)} when you create it")
    if isinstance(existing, TreeExplainer):
        return existing
    place: Any = existing  # users pass strings and paths, but ``load`` reads the package's own places, too
    return TreeExplainer.load(place, **options)


class TreeExplainer:
    """Exact SHAP values and interactions of a tree model, compiled once for many calls.

    An explainer is immutable, can be used from several threads at once, and can be pickled and unpickled
    without the model's library.

    For one output (regression, ranking, or the positive class of a binary classifier), values have the shape
    (n_rows, n_features) and the base value is a scalar; for k > 1 outputs, the shapes are (n_rows,
    n_features, k) and (k,). Values are float32 for float32 X, else float64. They explain the margin, the raw
    score to which the trees add up (the log-odds of a boosted classifier, the probability of a forest),
    unless ``model_output`` says otherwise: the base value plus the values of a row is its margin.

    SHAP values are path-dependent, or by default interventional if ``data`` is given. Both are described by
    Lundberg et al. (2020, doi:10.1038/s42256-019-0138-9), interventional values also by Janzing, Minorics &
    Blöbaum (2020, arXiv:1910.13413).

    Parameters
    ----------
    model : fitted model, str, path, bytes or TreeExplainer
        A fitted model of scikit-learn, XGBoost, LightGBM, CatBoost, treelite, ONNX, Spark ML, cuML, NGBoost,
        scikit-survival or quantile-forest, or of a class with a registered adapter. Of a ``Pipeline``, the
        last step is explained, in terms of the columns that it receives, and copies of the other steps
        transform X. Of a fitted search, ``best_estimator_`` is explained; docs/models.md lists all wrappers.

        Or a model file: its path or URL, such as "s3://bucket/model.ubj", or its content as bytes.

        Or an explainer, or an explainer file, which its :meth:`save` wrote: the path, URL or content. It has
        its own options; from a file, only ``device``, ``n_jobs``, ``memory_limit``, ``expected_rows`` and
        ``check_additivity`` can be chosen, as in :meth:`load`.
    data : array-like, sparse matrix or data frame of shape (n_background, n_features), default=None
        Background rows, in any form that X may have on the host. For interventional values, the value of a
        coalition is the mean margin over the background rows, with the coalition's features replaced by
        those of the explained row. For path-dependent values, covers are counted from these rows.
    feature_perturbation : {"auto", "tree_path_dependent", "interventional"}, default="auto"
        How unknown features are treated. "tree_path_dependent" averages branches by their covers, and with
        ``data`` counts the covers anew: the cover of a node is the weight of the background rows that reach
        it. "interventional" takes unknown features from the rows of ``data``. "auto" is "interventional" if
        ``data`` is given, and otherwise "tree_path_dependent".
    data_weight : array-like of shape (n_background,), default=None
        Non-negative weight of each row of ``data``. None gives all rows the same weight. A pandas series must
        have the index of ``data``, in the same order.
    cover : {"auto", "count", "weight"}, default="auto"
        Which covers path-dependent values use if the model stores both: the number of training rows at each
        node, or their total weight, which in boosting is the sum of the hessians. "auto" uses the covers that
        the model's library uses itself.
    model_output : {"raw", "probability", "log_loss", "response", "survival", "cumulative_hazard"}, \
            default="raw"
        What is explained. "raw" is the margin. "probability" is the probability that a classifier predicts.
        "log_loss" is the loss of the prediction for a row with the label ``y``: the log loss of a binary
        classifier, or the squared error of a regressor that was trained with it. "response" is the
        exponential of the margin, such as the mean of a Poisson regression. "survival" and
        "cumulative_hazard" are functions of time, with an output for each of ``times``. All but "raw" need
        ``data``, unless the trees themselves add up to the output, as the probabilities of a forest and the
        functions of time of survival forests do. See docs/which_shap.md.
    times : float or array-like of shape (n_times,), default=None
        Times of the survival function or the cumulative hazard function, in the unit of the training data,
        within the domain of the model's own functions.
    algorithm : {"auto", "quadrature", "fast_v2", "gputreeshap", "treeshap", "fast_v1"}, default="auto"
        "auto" computes by exact quadrature, and by lookup tables where they are faster. "quadrature" uses no
        tables. "fast_v2" has a table for each leaf, as Fast TreeSHAP v2 (Yang, 2021, arXiv:2109.09847). The
        others are published algorithms, slower and less accurate, for comparison. docs/mathematics.md
        describes all of them and their limits.
    device : {"auto", "cpu", "cuda", "cuda:N"} or list of "cuda:N", default="auto"
        Where to compute. "cuda" is the first GPU; a list splits the rows among its GPUs. "auto" uses the
        first GPU if there is one and the call is large enough, and otherwise the CPU; the environment
        variable ``SKSHAPGPU_DEVICE`` overrides "auto". X on a GPU is explained there.
    precision : {"single", "double"}, default="single"
        Precision of the arithmetic within a tree; sums over trees are float64 in both cases. "single" becomes
        "double" by itself for models whose trees cancel each other, see docs/exactness.md.
    outputs : {"auto", "all"}, default="auto"
        "all" gives a binary classifier an output for each of its two classes.
    columns : {"all", "used"}, default="all"
        Which columns get values: "used" leaves out the columns that no tree uses, whose values are zero. X
        has all columns in both cases. ``feature_indices`` has the positions of the used columns.
    feature_groups : mapping of str to list, "input" or None, default=None
        Columns that form one feature each, such as the dummy columns of a category, by name, or by position
        in X. A group is known or unknown as a whole: its value is the Shapley value of the game in which the
        group is one player. It takes the place of its first column, and all results are about groups. Columns
        in no group are features of their own. "input" forms a group of the columns that the leading steps of
        a pipeline make from each column of X.
    n_jobs : int or None, default=None
        Number of threads, as in joblib: None means 1 unless a ``joblib.parallel_config`` sets another number,
        and -1 means all processors.
    memory_limit : int, str or None, default=None
        Bytes that a call may allocate, result included, as a number or a string such as "500MB" or "2GiB".
        To stay within the limit, X is processed in batches of rows, and fewer tables are built. None: the
        memory of the machine. See docs/memory.md.
    expected_rows : int, default=None
        Number of rows that all calls together are expected to explain. Tables are then built if they pay off
        over that many rows, and may take a quarter of the machine's memory. None: they must pay off within
        two calls on the CPU, or one on a GPU. It has no effect with a ``memory_limit``.
    check_additivity : bool, default=True
        Compare the base value plus the SHAP values of each row with its margin, and in the first call up to
        16 rows with the prediction of the model itself, see ``Explanation.checked_against``. Values that do
        not add up raise an error; docs/exactness.md has the limits.

    Raises
    ------
    UnsupportedModelError
        The model cannot be explained exactly, or a step of a pipeline cannot be copied.
    NotFittedError
        The model is not fitted.
    ValueError, TypeError
        An option has an invalid value, options contradict each other, an explainer has an option already,
        ``data`` has a type, shape or dtype that the model does not accept, a string or path is not that of a
        file, or a path through a tree has more features than interventional values (64) or "fast_v2" (16)
        allow.
    ImportError
        A model file can only be read by its library, which is not installed.
    MemoryError
        The tables of "fast_v2" need more memory than they may take.
    RuntimeError
        The requested GPU is not available.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skshapgpu import TreeExplainer
    >>> X, y = load_iris(return_X_y=True)
    >>> explainer = TreeExplainer(RandomForestClassifier(10, random_state=0).fit(X, y))
    >>> explainer.shap_values(X).shape
    (150, 4, 3)
    >>> explainer.expected_value.shape
    (3,)
    """

    def __init__(
        self,
        model: Model,
        data: Table | None = None,
        *,
        feature_perturbation: FeaturePerturbation = "auto",
        data_weight: Vector | None = None,
        cover: Cover = "auto",
        model_output: ModelOutput = "raw",
        times: Times | None = None,
        algorithm: AlgorithmName = "auto",
        device: Device = "auto",
        precision: Precision = "single",
        outputs: Outputs = "auto",
        columns: Columns = "all",
        feature_groups: FeatureGroups | None = None,
        n_jobs: int | None = None,
        memory_limit: int | str | None = None,
        expected_rows: int | None = None,
        check_additivity: bool = True,
    ) -> None:
        options = {name: value for name, value in locals().items() if name not in ("self", "model")}
        passed = vars(self).pop("_passed")
        existing = _existing(model)
        if existing is None:
            self._build(model, **options)
        else:
            own = _reopened(existing, {name: options[name] for name in passed})
            self.__dict__ = vars(own).copy()

    if not TYPE_CHECKING:  # type checkers read the arguments of __init__

        @wraps(__init__)
        def __new__(cls, *arguments: Any, **options: Any) -> TreeExplainer:
            # An explainer has its own options. Here alone an option that has its default can be told from an
            # option that was not passed.
            self = super().__new__(cls)
            self._passed = [*("data" for _ in arguments[1:]), *(name for name in options if name != "model")]
            return self

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
        background, read = None, partial(reader.read_on_host, argument="data")
        if options.interventional:
            background = Background.read(data, data_weight, read, adapted.ensemble.x_dtype)
        elif data is not None:
            adapted = with_covers_of(adapted, data, data_weight, read, options.n_jobs)
        self._agreement = Agreement.of(model, adapted, options.model_output, options.check_additivity)
        self._adapted = replace(adapted, predictions={})  # they may hold the model
        self._compile(options, link, background, groups, by_input=isinstance(feature_groups, str))

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
        widen = options.outputs == "all" and adapted.binary is not None
        n_outputs = 2 if widen else adapted.ensemble.n_outputs
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
        """Column names that X must have if it has any; None if unknown, or if a pipeline transforms X."""
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

    def plan(
        self,
        n_rows: int,
        *,
        dtype: Literal["float64", "float32"] = "float64",
        interactions: Interactions | Literal["matrices"] | None = None,
        index: ValueIndex | InteractionIndex | None = None,
        order: Order = 2,
    ) -> CallPlan:
        """Plan a call for a number of rows from the host, and estimate its time and memory.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        dtype : {"float64", "float32"}, default="float64"
            Type of the values: float32 for float32 X.
        interactions : None, {"occurring", "matrices"}, int or list, default=None
            None plans a call of :meth:`explain`, "matrices" one of :meth:`shap_interaction_values`; anything
            else one of :meth:`explain_interactions` with this argument.
        index : str or None, default=None
            Index of that call; None means "SV", or for interactions "SII".
        order : {2, 3}, default=2
            Order of the interactions.

        Returns
        -------
        CallPlan
            The device, how each group of trees is explained, bytes and seconds; ``print`` shows it. The call
            will do exactly this, because the choices of ``algorithm="auto"`` and ``device="auto"`` depend
            only on the model, the options and the number of rows. If the call would raise ``MemoryError``,
            ``refusal`` holds its message.

        Raises
        ------
        ValueError, TypeError
            An argument is invalid, or requests what the requested device does not compute.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from skshapgpu import TreeExplainer
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = RandomForestRegressor(10, max_depth=4, random_state=0).fit(X, y)
        >>> explainer = TreeExplainer(model, device="cpu")
        >>> {group.algorithm for group in explainer.plan(10).tree_groups}
        {'quadrature'}
        >>> {group.algorithm for group in explainer.plan(1_000_000).tree_groups}
        {'tables'}
        >>> explainer.plan(1000, interactions="matrices").result_bytes
        800000
        """
        require_count("n_rows", n_rows, at_least=0)
        require_one_of("dtype", dtype, ("float64", "float32"))
        kind, request = self._requested(interactions, index, order)
        return call_plan(self._compiled, self._reader.count(int(n_rows), dtype), kind, request)

    def _requested(self, interactions: Any, index: str | None, order: int) -> tuple[Kind, Request | None]:
        """Return the kind of results and the requested interactions, or raise the error of such a call."""
        if interactions is None:
            kind = _value_kind("SV" if index is None else index)
            require_order(order)
            self._require_values(kind.index)
            return kind, None
        index = "SII" if index is None else index
        if isinstance(interactions, str) and interactions == "matrices":
            if (index, order) != ("SII", 2):
                raise ValueError(
                    "interactions='matrices' plans shap_interaction_values(X), which has index='SII' and "
                    f"order=2, not index={index!r} and order={order!r}"
                )
            request = MATRICES
        else:
            request = Request.parse(interactions, index, order)
        self._compiled.require(request.kind, request.title, False)
        if request.form == "listed":
            request.positions(self._names_explained(), self._features_are_columns)
        return request.kind, request

    def occurring_interactions(self, order: Order = 2) -> npt.NDArray[np.int32]:
        """Return the pairs of features that occur together on a path; no other pairs interact.

        Parameters
        ----------
        order : {2, 3}, default=2
            3 returns triples instead.

        Returns
        -------
        ndarray of int32, shape (n_interactions, order)
            Positions among the features of the results, in ascending order.
        """
        request = Request.parse("occurring", "SII", order)
        return self._compiled.of(request.kind).sets(request.result)

    def explain(
        self, X: Table, y: Vector | None = None, *, index: ValueIndex = "SV", progress: Progress = False
    ) -> Explanation:
        """Compute SHAP values, with names, data, row labels and base values.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            Rows to explain, in any form that the model's ``predict`` accepts. A data frame must have the
            columns of the training data in the same order. A ``DMatrix`` of XGBoost, a ``Dataset`` of
            LightGBM and a ``Pool`` of CatBoost are accepted if they hold all numbers; see docs/models.md.
            An array on a GPU (of CuPy or PyTorch, or with ``__cuda_array_interface__`` or DLPack) is
            explained there, on its library's current stream, and the values are an array of that library.
            A data frame of cuDF is read like one of pandas, and the values are an array of CuPy. Leading
            steps of a pipeline must leave X on the GPU.
        y : array-like of shape (n_rows,), default=None
            Label of each row, for ``model_output="log_loss"``: a class of the model, or a number for a
            regressor. A pandas series must have the index of X, in its order.
        index : {"SV", "BV", "OV"}, default="SV"
            "SV" computes SHAP values, that is, Shapley values. "BV" computes Banzhaf values, in which every
            coalition of the other features has the same weight (Hammer & Holzman, Approximations of
            pseudo-Boolean functions; applications to game theory, ZOR 36, 1992). They do not add up to the
            margin, so additivity is not checked. "OV" computes Owen values, for an explainer with
            ``feature_groups`` (Owen, Values of games with a priori unions, 1977,
            doi:10.1007/978-3-642-45494-3_7): one for each column, which add up to the Shapley value of its
            group.
        progress : bool or callable, default=False
            True draws a progress bar with tqdm or rich. A function is called periodically with the number of
            finished rows and the total number of rows; an exception that it raises ends the call. Neither
            affects the values.

        Returns
        -------
        Explanation
            SHAP values, of shape (n_rows, n_features[, n_outputs]); float32 for float32 X, else float64.

        Raises
        ------
        ValueError, TypeError
            X has a type, shape or value that the model does not accept; for a value, the message names its
            row and column. Or labels are missing, too many or unknown, or ``index`` is invalid, or not
            available on the requested device or for the model output.
        MemoryError
            The result alone exceeds ``memory_limit`` or the memory of the machine, or a GPU has too little
            memory.
        RuntimeError
            The values of a row do not add up to its margin, or in the first call not to the model's own
            prediction (:class:`PredictionMismatchError`).
        """
        kind = _value_kind(index)
        require_progress(progress)
        return self._explain(X, y, kind, progress)

    __call__ = explain

    def _explain(self, X: Any, y: Any, kind: Kind, progress: Any) -> Explanation:
        """Do the work of :meth:`explain`."""
        start = perf_counter()
        rows = self._read(X, kind, kind.values_name)
        labels = self._read_labels(y, rows)
        values, run = execute(self._compiled, rows, kind, shap_values, labels, progress)
        if self._agreement.is_open:
            self._compare_with_model(X, rows, labels, values if kind.adds_up else None)
        facts = self._facts(X, rows, run, self._features_of(kind.index))
        if labels is not None:
            facts["base_values"] = self._compiled.base_value(labels)[:, 0]
        return Explanation(
            values=_shaped(values),
            index=kind.index,
            model_output=self.model_output,
            seconds=perf_counter() - start,
            **facts,
        )

    @property
    def _origins(self) -> Origins | None:
        """Origins of the features of the results, without data; None if they are of X."""
        return self._features.origins(self._reader.origins)

    def explain_interactions(
        self,
        X: Table,
        *,
        interactions: Interactions = "occurring",
        index: InteractionIndex = "SII",
        order: Order = 2,
        progress: Progress = False,
    ) -> InteractionExplanation:
        """Compute interactions of features, with names, data, row labels and base values.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            As for :meth:`explain`.
        interactions : "occurring", int or list, default="occurring"
            Which interactions to return. The result has each pair (or triple) once, with its whole index.
            "occurring" returns all pairs that occur together on a path; the others are zero. A number n
            returns the n strongest pairs, by mean magnitude over the rows of X, summed over the outputs, the
            strongest first; the rows then pass through the trees twice. A list of pairs of names or positions
            returns these pairs, in the order of the list. A position is that of a column of X. If the
            features are not the columns of X, because of steps of a pipeline, ``columns="used"`` or
            ``feature_groups``, list names, or pass an array of positions of features, as
            :meth:`occurring_interactions` returns. For matrices, see :meth:`shap_interaction_values` and
            :meth:`InteractionExplanation.matrices`.
        index : {"SII", "STII", "BII"}, default="SII"
            "SII" is the Shapley interaction index (Grabisch & Roubens, 1999, doi:10.1007/s001820050125); its
            halves are the SHAP interaction values of Lundberg et al. (2020,
            doi:10.1038/s42256-019-0138-9). "STII" is the Shapley-Taylor interaction index (Sundararajan,
            Dhamdhere & Agarwal, 2020, arXiv:1902.05622). "BII" is the Banzhaf interaction index (Grabisch &
            Roubens, 1999), in which every coalition of the other features has the same weight; it does not
            add up to the margin, so additivity is not checked, and its main effects are Banzhaf values.
        order : {2, 3}, default=2
            3 computes interactions of triples: index "SII" or "BII", path-dependent.
        progress : bool or callable, default=False
            As for :meth:`explain`. For the strongest, a row counts as done after the second pass.

        Returns
        -------
        InteractionExplanation
            Interactions, of shape (n_rows, n_interactions[, n_outputs]); float32 for float32 X, else float64.

        Raises
        ------
        ValueError, TypeError
            X has a type, shape or value that the model does not accept; or an argument is invalid, names an
            unknown feature or a pair twice, or requests interactions that the requested device does not
            compute.
        MemoryError
            The result exceeds ``memory_limit`` or the memory of the machine; the message says what to
            request instead.
        RuntimeError
            The values of a row do not add up to its margin, or in the first call not to the model's own
            prediction (:class:`PredictionMismatchError`).
        """
        request = Request.parse(interactions, index, order)
        require_progress(progress)
        return self._explain_interactions(X, request, progress)

    def _explain_interactions(self, X: Any, request: Request, progress: Any) -> InteractionExplanation:
        """Do the work of :meth:`explain_interactions`."""
        start = perf_counter()
        rows = self._read(X, request.kind, request.title)
        positions = None
        if request.form == "listed":
            names = self._features.names(rows.names or self._reader.default_names)
            positions = request.positions(names, self._features_are_columns)
        work = partial(compute_interactions, request=request, positions=positions)
        results, run = execute(self._compiled, rows, request.kind, work, progress=progress)
        if self._agreement.is_open:
            self._compare_with_model(X, rows)
        single_values = results.single_values
        return InteractionExplanation(
            values=_shaped(results.values),
            index=request.kind.index,
            interactions=results.sets,
            strength=results.strength,
            single_values=None if single_values is None else _shaped(single_values),
            seconds=perf_counter() - start,
            **self._facts(X, rows, run, self._features),
        )

    def shap_values(
        self, X: Table, y: Vector | None = None, *, out: Any = None, check_additivity: bool | None = None
    ) -> Values:
        """Compute SHAP values, and return the array alone.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            As for :meth:`explain`, which also lists the errors.
        y : array-like of shape (n_rows,), default=None
            As for :meth:`explain`.
        out : array of float32 or float64, shape (n_rows, n_features[, n_outputs]), default=None
            Array to which the values are written without an intermediate copy; it is also returned. It must
            have the shape and the dtype of the values, must not share memory with X, and must be C-contiguous
            or, with several outputs, have the layout of the arrays that this method returns: make it by
            ``np.empty((n_rows, n_outputs, n_features), dtype).swapaxes(1, 2)``. For X on a GPU, it is an
            array of CuPy or PyTorch there. It does not count towards ``memory_limit``. If an error is raised
            after the work has begun, some of its rows may have been written, with values that may be wrong.
        check_additivity : bool, default=None
            Whether this call compares the sums of the values with the margins; None: as the explainer does.

        Returns
        -------
        array of float32 or float64, shape (n_rows, n_features[, n_outputs])
            SHAP values: an array of NumPy, or of the library of X if X is on a GPU; or ``out``.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from skshapgpu import TreeExplainer
        >>> X, y = load_diabetes(return_X_y=True)
        >>> explainer = TreeExplainer(RandomForestRegressor(10, random_state=0).fit(X, y))
        >>> values = np.empty(X.shape)
        >>> explainer.shap_values(X, out=values) is values
        True
        """
        if check_additivity is not None:
            require_bool("check_additivity", check_additivity)
        rows = self._read(X, SHAP_VALUES)
        labels = self._read_labels(y, rows)
        output = self._core_view(out, rows, 1, labels)
        compiled = self._compiled if check_additivity is None else self._compiled.checking(check_additivity)
        values, _ = execute(compiled, rows, SHAP_VALUES, partial(shap_values, out=output), labels)
        if self._agreement.is_open and compiled.checked_kinds:
            self._compare_with_model(X, rows, labels, values)
        return _shaped(values) if out is None else out

    def shap_interaction_values(self, X: Table, *, out: Any = None) -> Values:
        """Compute SHAP interaction values of all pairs of features, and return the array alone.

        Each row and output has a symmetric matrix. Its elements off the diagonal are half of the Shapley
        interaction index of two features. A diagonal element is the main effect of a feature: its SHAP value
        minus the other elements in its row (Lundberg et al., 2020, doi:10.1038/s42256-019-0138-9). Each row
        of the matrix thus adds up to a SHAP value, and the whole matrix to the margin without the base value.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            As for :meth:`explain_interactions`, which also lists the errors, and whose results need less
            memory.
        out : array of float32 or float64, shape (n_rows, n_features, n_features[, n_outputs]), default=None
            Array for the values, as for :meth:`shap_values`. With several outputs, make it by
            ``np.empty((n_rows, n_outputs, n_features, n_features), dtype).swapaxes(1, 3)``.

        Returns
        -------
        array of float32 or float64, shape (n_rows, n_features, n_features[, n_outputs])
            SHAP interaction values: an array of NumPy, or of the library of X if X is on a GPU; or ``out``.
        """
        rows = self._read(X, MATRICES.kind, MATRICES.title)
        work = partial(interaction_matrices, out=self._core_view(out, rows, 2))
        matrices, _ = execute(self._compiled, rows, MATRICES.kind, work)
        if self._agreement.is_open:
            self._compare_with_model(X, rows)
        return _shaped(matrices) if out is None else out

    def _compare_with_model(
        self, X: Any, rows: Rows, labels: np.ndarray | None = None, values: Any = None
    ) -> None:
        """Compare what is explained with the model's own prediction: once, in the first call.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame
            As passed by the user.
        rows : Rows
            X as it was read.
        labels : ndarray or None
        values : array of shape (n_rows, n_outputs, n_features) or None
            Values of the call, which add up to the prediction. None: SHAP values are computed for the rows
            that are compared.

        Raises
        ------
        PredictionMismatchError
            They differ by more than rounding.
        """
        if not rows.n_rows:
            return
        positions = agreement.few_rows(rows.n_rows)
        few_labels = None if labels is None else labels[positions]

        def compare(model: Any, predictions: Any) -> tuple[str, str | None]:
            try:
                few = agreement.rows_of(X, positions)
            except MemoryError:
                raise
            except Exception as error:  # the library of X may raise errors of its own
                return agreement.TREES, f"some rows of X cannot be taken alone: {error}"
            return agreement.compare(
                Explained(self._adapted, self._compiled, predictions),
                model,
                few,
                self._sums(few, rows, positions, few_labels, values),
                self._reader.without_warnings().read_on_host,
                partial(self._read_again, model),
            )

        self._agreement.compare(compare)

    def _sums(
        self, few: Any, rows: Rows, positions: np.ndarray, labels: np.ndarray | None, values: Any
    ) -> Sums:
        """Return the sums of the base value and the values of ``few`` rows of X."""
        compiled = self._compiled
        if values is None:
            few_rows = self._reader.without_warnings().read_on_host(few)
            on_cpu = plan_on_cpu(compiled.of(SHAP_VALUES), few_rows.n_rows)
            run = HostRun(compiled.checking(False), SHAP_VALUES, few_rows, on_cpu, labels)
            run.compile()
            few_values = shap_values(run)
        else:
            few_values = np.stack([gpu_arrays.to_host(values[row]) for row in positions.tolist()])
        base = self._base if labels is None else compiled.base_value(labels)
        return Sums(
            positions=positions,
            total=few_values.sum(axis=2, dtype=np.float64) + base,
            read=lambda: np.vstack([_block(rows, row) for row in positions.tolist()]),
            dtype=few_values.dtype,
            labels=labels,
        )

    def _read_again(self, model: Any, X: Any) -> tuple[AdaptedModel, np.ndarray]:
        """Return the model as it is now, adapted, and rows of X as its trees test them."""
        steps, last = unwrap(model)
        adapted = adapt_file(last).with_output(self.model_output, self._compiled.options.times)
        rows = Reader(steps, adapted).without_warnings().read_on_host(X)
        return adapted, rows.chunk(0, rows.n_rows)

    def _read(self, X: Any, kind: Kind, what: str = "") -> Rows:
        """Read X, after checking that results of this kind, called ``what``, can be computed where X is."""
        on_gpu = gpu_arrays.on_gpu(X)
        self._compiled.require(kind, what, on_gpu)
        if on_gpu:
            return self._reader.read_on_gpu(X, self._compiled.options.devices)
        return self._reader.read_on_host(X)

    def _core_view(self, out: Any, rows: Rows, order: int, labels: np.ndarray | None = None) -> Any:
        """Return the caller's array ``out`` in the layout of the core; None if ``out`` is None."""
        if out is None:
            return None
        compiled = self._compiled
        return results_view(out, rows, compiled.n_outputs, (compiled.n_features,) * order, labels)

    def _read_labels(self, y: Any, rows: Rows) -> np.ndarray | None:
        """Return the labels in the form that the link takes if the model output needs them, else None."""
        if not self._has_labels:
            if y is not None:
                raise ValueError(f"y is for model_output='log_loss', not {self.model_output!r}: leave it out")
            return None
        assert self._compiled.link is not None
        return self._compiled.link.read_labels(y, rows.n_rows, rows.row_labels)

    def _facts(self, X: Any, rows: Rows, run: Run, features: Features) -> dict[str, Any]:
        """Return the attributes that explanations of all kinds have in addition to their values."""
        names, origins = (
            rows.names or self._reader.default_names,
            features.origins(self._reader.origins_of(X)),
        )
        return {
            "base_values": self.expected_value,
            "data": features.data(rows.data, names, origins, rows.n_rows),
            "feature_names": features.names(names),
            "feature_indices": None if features.columns is None else features.columns.copy(),
            "group_columns": features.group_columns,
            "output_names": self._output_names,
            "row_labels": rows.row_labels,
            "precision": self._compiled.options.precision,
            "device": run.device,
            "additivity_error": run.gap,
            "unit": unit_of(self._adapted, self.model_output),
            "feature_perturbation": self.feature_perturbation,
            "origins": origins,
            "checked_against": self._agreement.against,
            "check_note": self._agreement.note,
        }

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

    def _on_gpu(self, index: int) -> TreeExplainer:
        """Return this explainer for calls on one of its GPUs; the values are the same."""
        return self._view(_compiled=self._compiled.on_gpu(index))

    @property
    def _without_warnings(self) -> TreeExplainer:
        """This explainer, without its warnings about rows that have no names: it has given them before."""
        reader = self._reader.without_warnings()
        return self if reader is self._reader else self._view(_reader=reader)

    def _without_steps(self) -> TreeExplainer:
        """Return the explainer of a pipeline's last step, which takes X as the other steps transform it."""
        return self._view(_reader=Reader([], self._adapted))

    def _behind(self, steps: Sequence[Any], grouped_by_input: bool) -> TreeExplainer:
        """Return this explainer for rows that fitted steps transform first: undo :meth:`_without_steps`.

        Parameters
        ----------
        steps : sequence of transformers
            Leading steps of a pipeline.
        grouped_by_input : bool
            Whether the groups of features are those of ``feature_groups="input"``.
        """
        features = replace(self._features, by_input=grouped_by_input)
        return self._view(_reader=Reader(steps, self._adapted), _features=features)

    def _view(self, **attributes: Any) -> TreeExplainer:
        """Return this explainer with other values of some attributes; the compiled model is shared."""
        view = object.__new__(TreeExplainer)
        view.__dict__ = vars(self) | attributes
        return view

    def save(self, path: str | os.PathLike[str], *, tables: bool = True, filesystem: Any = None) -> None:
        """Write the explainer to an explainer file, from which :meth:`load` restores it without the model.

        The file is an uncompressed ``.npz`` file of NumPy with a JSON header and no pickled objects; it is
        written completely or not at all. It contains the model's trees, names and categories, the options
        that affect the values, the background data, and the tables that every call for SHAP values uses.

        Parameters
        ----------
        path : path-like
            File to write; a URL such as "s3://bucket/explainer.npz" names one in another file system. If this
            method wrote an existing file, the new file replaces it; explainers that were loaded from the old
            file keep using its content. Any other existing file is never replaced.
        tables : bool, default=True
            Whether to store the tables, ``model_info()["table_bytes"]`` bytes. Without them, the file is
            small, and loading it fills the tables again.
        filesystem : file system of pyarrow or fsspec, or None, default=None
            File system in which ``path`` is, unless it has a scheme. None: the local one.

        Raises
        ------
        ValueError
            The explainer applies the leading steps of a pipeline, which a file cannot hold, or labels or
            categories of the model are neither numbers nor strings.
        FileExistsError
            The path is an existing file that this method did not write.
        OSError
            The file cannot be written.
        ImportError
            A package for the URL or file system is not installed.
        """
        require_bool("tables", tables)
        place = locate(path, filesystem)
        if self._reader.steps:
            raise ValueError(
                "the explainer applies the leading steps of a Pipeline, which a file cannot keep: save an "
                "explainer of the last step instead, and transform X yourself; or skshapgpu.mlflow saves both"
            )
        options = self._value_options() | {
            "times": self._compiled.options.times,
            "check": [*self._agreement.result],
        }
        contents = self._compiled.contents() if tables else {}
        saving.save(place, Saved(self._adapted, options, self._compiled.background, contents))

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

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: Device = "auto",
        n_jobs: int | None = None,
        memory_limit: int | str | None = None,
        expected_rows: int | None = None,
        check_additivity: bool = True,
        verify: bool = False,
        filesystem: Any = None,
    ) -> TreeExplainer:
        """Load an explainer from a file that :meth:`save` wrote; the model's library is not needed.

        Nothing in the file is executed. Its tables are neither filled again nor read in full: they are mapped
        into memory, so a call reads only the parts that its rows need, and processes that load the same file
        share the memory. While the explainer is in use, the file must not be modified in place or truncated;
        replacing it, as :meth:`save` does, or deleting it is safe.

        The whole file is compared with its checksums, except for tables of more than 16 MiB, which are read
        only where a row needs them. ``verify`` compares these as well. Without it, the additivity check of
        each row rejects damage that changes the sum of its values.

        Parameters
        ----------
        path : path-like
            Explainer file. A URL such as "s3://bucket/explainer.npz" names one in another file
            system; it is read into memory as a whole, and no copy of it is left on disk.
        device, n_jobs, memory_limit, expected_rows, check_additivity
            As for :class:`TreeExplainer`.
        verify : bool, default=False
            Also compare large tables with their checksums, which reads all of them.
        filesystem : file system of pyarrow or fsspec, or None, default=None
            File system in which ``path`` is, unless it has a scheme. None: the local one.

        Returns
        -------
        TreeExplainer

        Raises
        ------
        ValueError
            The file is not an explainer file, is damaged, or was written by a later version, or its
            tables by a different one; or an option has an invalid value.
        MemoryError
            The file has no tables, and those of "fast_v2" need more memory than they may take.
        OSError
            The file cannot be read.
        ImportError
            A package for the URL or file system is not installed.
        """
        require_bool("verify", verify)
        if isinstance(path, bytes):
            raise TypeError("path must not be bytes: TreeExplainer(content) reads the content of a file")
        if not (isinstance(path, Content) or is_path(path)):
            raise TypeError(f"path must be a str or path, not {with_article(path)}")
        place: Place | Content = path if isinstance(path, Content) else locate(path, filesystem)
        saved = saving.load(place, verify)
        stored, adapted, background = saved.options, saved.adapted, saved.background
        with _loading(place):
            if "groups" in stored:  # now "feature_groups"
                raise ValueError("it was written before the first release: save the explainer again")
            times, n_outputs = read_times(stored.get("times")), adapted.ensemble.n_outputs
            if times is not None and len(times) != n_outputs:
                raise ValueError(f"it has {len(times)} times for {n_outputs} outputs")
            agreement = Agreement.restored(stored.get("check"))
            groups = saved_groups(stored.get("feature_groups"), adapted.schema.n_features)
        options = Options.parse(
            data=background,
            model_output=stored.get("model_output"),
            times=times,
            algorithm=stored.get("algorithm"),
            device=device,
            precision=stored.get("precision"),
            outputs=stored.get("outputs"),
            columns=stored.get("columns", "all"),
            n_jobs=n_jobs,
            memory_limit=memory_limit,
            expected_rows=expected_rows,
            check_additivity=check_additivity,
        )
        explainer = object.__new__(cls)
        explainer._reader, explainer._adapted, explainer._agreement = Reader([], adapted), adapted, agreement
        with _loading(place):
            link = link_of(adapted, options.model_output, options.outputs == "all", options.interventional)
            explainer._compile(options, link, background, groups, tables=saved.tables)
        return explainer

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_agreement": self._agreement.result}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"_agreement": Agreement.restored(state["_agreement"])})

    def __copy__(self) -> TreeExplainer:
        return self  # immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> TreeExplainer:
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
            f"<TreeExplainer of a {self.family} model: {ensemble.n_trees} trees, "
            f"{ensemble.n_leaves} leaves, {self.n_features} features, "
            f"{n_outputs} output{'s' * (n_outputs > 1)}, {self._compiled.options.precision} precision"
            f"{background}>"
        )


#: Options of an explainer that do not affect what it explains, so that an explainer file has none of them.
_CHOSEN_LATER = ("device", "n_jobs", "memory_limit", "expected_rows", "check_additivity")


@contextmanager
def _loading(place: Place | Content) -> Iterator[None]:
    """Name the explainer file in errors about its content."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{quoted(place)} cannot be loaded: {error}") from error


def _value_kind(index: Any) -> Kind:
    """Return the kind of values of single features; raise ``ValueError`` if the index is unknown."""
    require_one_of("index", index, VALUE_INDICES)
    return Kind(1, index)


def _block(rows: Rows, row: int) -> np.ndarray:
    """Return a row as the trees test it, with NaN where a value is missing."""
    if isinstance(rows, HostRows):
        return rows.chunk(row, row + 1)
    assert isinstance(rows, gpu_arrays.GpuArray)
    on_host = gpu_arrays.to_host(rows.rows(row, row + 1).array)
    return np.where(on_host == rows.numbers.missing, np.nan, on_host)


def _shaped(values: Any) -> Any:
    """Return values [row][output]... in the public layout, outputs last or dropped, without a copy.

    As matrices of interactions are symmetric, swapping two axes has the same effect as moving one.
    """
    return values[:, 0] if values.shape[1] == 1 else values.swapaxes(1, values.ndim - 1)
