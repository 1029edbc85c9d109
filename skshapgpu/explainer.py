"""From a fitted model to SHAP values and interactions: adapt it, compile it once, explain many rows.

A model goes through ``pipelines.unwrap`` (pipelines, searches, frozen estimators), ``adapters.adapt``
and ``_core.Plan``; X goes through ``inputs.Reader``, the leading steps of the pipeline included, and, in
chunks of rows, ``runs.py``, which runs the plan on a CPU or on GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from time import perf_counter
from typing import Any, Literal, TypeVar, overload

import numpy as np
from sklearn.utils import check_scalar

from ._common.progress import require_progress, watched
from ._engine.algorithms import BANZHAF_VALUES, SHAP_VALUES, Kind
from ._engine.calls import Run, call_plan, execute, shap_values
from ._engine.costs import CallPlan
from ._engine.links import link_of, require_model_output
from ._engine.pairs import Interactions, Request, interactions
from ._engine.plans import Options, Runner
from ._engine.sharing import Sharing
from ._explanations.interactions import INDEX_NAMES, InteractionExplanation
from ._explanations.values import Explanation
from ._files import saving
from ._files.saving import Saved
from ._rows.background import Background, require_perturbation
from ._rows.inputs import Reader
from ._rows.pipelines import Lent, copies_of, unwrap
from ._rows.rows import Rows
from .adapters import adapt
from .errors import UnsupportedModelError, require_one_of

T = TypeVar("T")

#: Kinds of the values of single features, by the names of their indices.
_VALUE_KINDS = {"sv": SHAP_VALUES, "bv": BANZHAF_VALUES}

_ALL_PAIRS = Request.parse("all")

_OUTPUTS = ("auto", "all")


@overload
def explain(model: Any, X: Any, *, interactions: Literal[False] = False, **options: Any) -> Explanation: ...
@overload
def explain(model: Any, X: Any, *, interactions: Literal[True], **options: Any) -> InteractionExplanation: ...
def explain(
    model: Any,
    X: Any,
    *,
    y: Any = None,
    interactions: bool = False,
    pairs: Any = "all",
    index: str | None = None,
    order: int = 2,
    progress: Any = False,
    **options: Any,
) -> Explanation | InteractionExplanation:
    """Compute exact SHAP values of a tree model, or interactions of its features, in one call.

    Parameters
    ----------
    model : fitted model
        As for :class:`TreeExplainer`.
    X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
        What ``model.predict`` takes.
    y : array-like of shape (n_rows,), default=None
        Labels; as for :meth:`TreeExplainer.explain`.
    interactions : bool, default=False
        Whether to give interactions.
    pairs : {"all", "occurring"}, int or list, default="all"
        Of interactions; as for :meth:`TreeExplainer.explain_interactions`.
    index : str or None, default=None
        As for :meth:`TreeExplainer.explain` or :meth:`TreeExplainer.explain_interactions`; None is
        their default, "sv" or "sii".
    order : {2, 3}, default=2
        Of interactions; as for :meth:`TreeExplainer.explain_interactions`.
    progress : bool or callable, default=False
        As for :meth:`TreeExplainer.explain`.
    **options
        Options of :class:`TreeExplainer`.

    Returns
    -------
    Explanation or InteractionExplanation
        The latter with ``interactions=True``.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import explain
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> explain(model, X).shape
    (442, 10)
    >>> explain(model, X, interactions=True, pairs=5).shape
    (442, 5)
    """
    require_progress(progress)
    if interactions:
        if y is not None:
            raise ValueError("y is for the SHAP values of model_output='log_loss', not for interactions")
        return TreeExplainer(Lent(model), **options).explain_interactions(
            X, pairs=pairs, index="sii" if index is None else index, order=order, progress=progress
        )
    if not (isinstance(pairs, str) and pairs == "all" and order == 2):
        raise ValueError("pairs and order are for interactions: use interactions=True")
    return TreeExplainer(Lent(model), **options).explain(
        X, y, index="sv" if index is None else index, progress=progress
    )


class TreeExplainer:
    """Exact SHAP values and interactions of a tree model, compiled once for many calls.

    Immutable, safe to use from several threads, and picklable without the model's library.

    One output (regression, ranking, or the positive class of a binary classifier) gives values
    of shape (n_rows, n_features) and a scalar base value; k > 1 outputs give (n_rows,
    n_features, k) and (k,). Values are float32 for float32 X, else float64. They are in the
    space in which the trees add up (log-odds of a boosted classifier, the probability of a
    forest), unless ``model_output`` says otherwise: the base value plus the values of a row is its
    margin.

    SHAP values are path-dependent, or interventional when background data is given; see Lundberg et
    al. (2020, doi:10.1038/s42256-019-0138-9) for both, and Janzing, Minorics & Blöbaum (2020,
    arXiv:1910.13413) for the latter.

    Parameters
    ----------
    model : fitted model, str or path
        Of scikit-learn, XGBoost, LightGBM, CatBoost, treelite, cuML, NGBoost, scikit-survival or
        quantile-forest, or of a registered adapter; or the path of a model file. Of a ``Pipeline``
        the last step is explained, with the columns that it sees; the others, of which copies are kept,
        transform X. A fitted search stands for its ``best_estimator_``, a ``FrozenEstimator`` for what it
        holds; docs/models.md lists all classes that are explained by the model inside.
    data : array-like, sparse matrix or data frame of shape (n_background, n_features), default=None
        Background rows, anything that X may be on the host; kept as an encoded copy. With them the
        worth of a set of known features is the mean margin of rows that have these from the row
        explained and the others from a background row, and the base value is the mean margin of
        the background. At most 64 different features on a path.
    feature_perturbation : {"auto", "tree_path_dependent", "interventional"}, default="auto"
        What stands for features that are not known: the covers of the trees, or ``data``. "auto" is
        "interventional" when ``data`` is given. Interventional interactions and Banzhaf values are
        computed on the CPU; triples are path-dependent only.
    data_weights : array-like of shape (n_background,), default=None
        Weight of each background row, not negative; they are divided by their sum. None: all weigh
        the same.
    cover : {"auto", "count", "weight"}, default="auto"
        Which covers path-dependent values use, where the model has both: the numbers of training rows at
        its nodes, or what these weigh, which in boosting is the sum of their hessians. Trees of scikit-learn
        and models of LightGBM have both, those of treelite may. "auto" is what the library itself uses:
        counts for LightGBM and HistGradientBoosting, else weights.
    model_output : {"raw", "probability", "log_loss"}, default="raw"
        What is explained, against ``data``: the margin; the probability of a classifier; or the loss of
        the prediction for a row with the label ``y``, which is the log loss of a binary classifier and
        the squared error of a regressor trained with it. The last two take time for each pair of a row
        and a background row, and are SHAP values of the margin, rescaled for each pair; see
        docs/which_shap.md.
    algorithm : {"auto", "quadrature", "fast_v2", "gputreeshap", "treeshap", "fast_v1"}, default="auto"
        "auto" is the exact quadrature; trees of up to 10 levels that ask the same in all nodes of a
        level, as those of CatBoost, are looked up in tables that are filled beforehand, and others in
        tables that a call on the CPU makes if it has so many rows that they pay: see :meth:`plan`. With
        "quadrature" there are no tables. "fast_v2" looks up each leaf in a table of its own, as Fast
        TreeSHAP v2 does (Yang, 2021, arXiv:2109.09847): SHAP values and Banzhaf values, at most 16
        features on a path, and tables within ``memory_limit``. The others are slower, for comparison, and
        compute path-dependent SHAP values only. "gputreeshap" is the method of Mitchell, Frank and Holmes
        (arXiv:2010.13972): on GPUs only, at most 31 features on a path, its last digits change from run to
        run; with more than 16 features on a path it computes in double precision. "treeshap" is algorithm 2
        of Lundberg et al. (2020), "fast_v1" Fast TreeSHAP v1 (Yang, 2021): both on the CPU only. Their
        rounding errors grow with the number of features on a path: they were found to be below 1e-6 of the
        largest leaf for up to 16 features in single and 32 in double precision; beyond that the additivity
        check refuses values that have too few digits left.
    device : {"auto", "cpu", "cuda", "cuda:N"} or list of "cuda:N", default="auto"
        Where to compute. "cuda" is the first GPU; with a list the rows are split. "auto" takes the
        first GPU when there is one and enough work for it, else the CPU; the environment variable
        ``SKSHAPGPU_DEVICE`` overrides it. X that lies on a GPU is explained there.
    precision : {"single", "double"}, default="single"
        Arithmetic inside a tree; trees are added up in float64 in both.
    outputs : {"auto", "all"}, default="auto"
        "all" gives a binary classifier an output for each of its two classes.
    n_jobs : int or None, default=None
        Threads, as joblib counts them: None is 1 unless a ``joblib.parallel_config`` says
        otherwise, -1 all processors.
    memory_limit : int, str or None, default=None
        Bytes that a call may allocate, result included: a number or a text such as "500MB" or
        "2GiB". X is worked off in chunks of rows to stay below it. Tables count, too, unless they are
        mapped from a file, and take at most half of it, those of "auto" never more than 256 MiB; so it can
        change the last digits. None lets the result take what the machine has, buffers beside it about
        256 MiB, the tables of "auto" 256 MiB, and those of "fast_v2" a quarter of the machine's memory.
    check_additivity : bool, default=True
        Compare base value plus SHAP values with the margin of each row, found in the same pass.
        They may differ by 2^-18 (2^-40 in double precision with float64 X) of the sum over all trees
        of the largest distance of a leaf from the tree's expected value, plus the rounding of float64.

    Raises
    ------
    UnsupportedModelError
        The model cannot be explained exactly, or a step of a pipeline cannot be copied.
    NotFittedError
        The model is not fitted.
    ValueError, TypeError
        An option has no such value, options contradict each other, ``data`` is nothing that the
        model takes, a text or path is not that of a model file, or a path through a tree has more
        features than interventional values or "fast_v2" can be computed for.
    ImportError
        A model file can be read by its library only, which is not installed.
    MemoryError
        The tables of "fast_v2" need more than they may take.
    RuntimeError
        A GPU is asked for that cannot be had.

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
        model: Any,
        data: Any = None,
        *,
        feature_perturbation: str = "auto",
        data_weights: Any = None,
        cover: str = "auto",
        model_output: str = "raw",
        algorithm: str = "auto",
        device: str | Sequence[str] = "auto",
        precision: str = "single",
        outputs: str = "auto",
        n_jobs: int | None = None,
        memory_limit: int | str | None = None,
        check_additivity: bool = True,
    ) -> None:
        compute = read_options(
            data=data,
            feature_perturbation=feature_perturbation,
            data_weights=data_weights,
            cover=cover,
            model_output=model_output,
            algorithm=algorithm,
            device=device,
            precision=precision,
            outputs=outputs,
            n_jobs=n_jobs,
            memory_limit=memory_limit,
            check_additivity=check_additivity,
        )
        steps, last = unwrap(model)
        steps = steps if isinstance(model, Lent) else copies_of(steps)
        self._adapted = adapt(last).with_cover(cover)
        self._reader = Reader(steps, self._adapted)
        background = None
        if data is not None:
            x_dtype = self._adapted.ensemble.x_dtype
            background = Background.read(data, data_weights, self._reader.read_on_host, x_dtype)
        self._set_up(compute, background, outputs, model_output)

    def _set_up(
        self,
        compute: Options,
        background: Background | None,
        outputs: str,
        model_output: str,
        tables: dict[str, np.ndarray] | None = None,
    ) -> None:
        """Compile the adapted model; ``tables``: with what :meth:`Runner.contents` gave."""
        adapted, self._outputs, self._model_output = self._adapted, outputs, model_output
        if background is None and not adapted.has_cover:
            raise UnsupportedModelError(
                f"this {adapted.family} model has no covers, the training weight at each node that "
                "path-dependent SHAP values depend on; give it background rows as data="
            )
        widen = outputs == "all" and adapted.binary is not None
        link = link_of(adapted, model_output, outputs == "all")
        n_outputs = 2 if widen else adapted.ensemble.n_outputs
        self._output_names: tuple[Any, ...] | None = None
        if widen:
            self._output_names = adapted.class_names or (0, 1)
        elif n_outputs > 1:
            self._output_names = adapted.output_names or tuple(range(n_outputs))
        sharing = Sharing(adapted.schema.n_features, adapted.shared) if adapted.shared else None
        self._runner = Runner(
            adapted.ensemble, compute, widen, self._output_names, background, link, tables, sharing
        )
        self._runner.require(SHAP_VALUES, "", False)
        if link is not None and link.has_labels:
            return  # base values depend on them
        base = self._runner.base_value(None)
        if widen:
            total = 0.0 if link is None and adapted.binary == "margin" else 1.0
            base = np.array([total - base[0], base[0]])
        self._base = base

    @property
    def expected_value(self) -> Any:
        """Base value: float, or float64 array of shape (n_outputs,) if there are several.

        Of a log loss it depends on the label: a function of a label, or of an array of them.
        """
        if self._has_labels:
            return self._base_values_of
        return float(self._base[0]) if len(self._base) == 1 else self._base.copy()

    @property
    def _has_labels(self) -> bool:
        link = self._runner.link
        return link is not None and link.has_labels

    def _base_values_of(self, y: Any) -> Any:
        """Return the mean loss of the predictions for the background, were ``y`` their label."""
        assert self._runner.link is not None
        given = [y] if np.ndim(y) == 0 else y
        base = self._runner.base_value(self._runner.link.read_labels(given, len(given)))[:, 0]
        return float(base[0]) if np.ndim(y) == 0 else base

    @property
    def model_output(self) -> str:
        """Quantity that the values explain: "raw", "probability" or "log_loss"."""
        return self._model_output

    @property
    def explains_probabilities(self) -> bool:
        """Whether the values are of probabilities of classes: asked for, or what the trees add up."""
        return self._model_output == "probability" or (
            self._model_output == "raw" and self._adapted.link == "identity"
        )

    @property
    def feature_perturbation(self) -> str:
        """Meaning of unknown features: "tree_path_dependent" or "interventional"."""
        return "tree_path_dependent" if self._runner.background is None else "interventional"

    @property
    def output_names(self) -> tuple[Any, ...] | None:
        """Class labels or target names of the outputs; None if there is one."""
        return self._output_names

    @property
    def family(self) -> str:
        """Library of the model, or the name of a registered family."""
        return self._adapted.family

    @property
    def steps(self) -> tuple[Any, ...]:
        """Transformers that X goes through first: copies of the leading steps of a pipeline."""
        return tuple(self._reader.steps)

    @property
    def n_features(self) -> int:
        """Columns that the model proper expects."""
        return self._adapted.schema.n_features

    @property
    def feature_names_in(self) -> tuple[str, ...] | None:
        """Names that X must have if it has any; None if unknown, or if X goes through a pipeline first."""
        return None if self._reader.steps else self._adapted.schema.feature_names

    @property
    def precision(self) -> str:
        """Arithmetic inside a tree: "single" or "double"."""
        return self._runner.options.precision

    @property
    def memory_limit(self) -> int | None:
        """Bytes that a call may allocate; None: no limit."""
        return self._runner.options.memory_limit

    @property
    def blank_as_underscore(self) -> bool:
        """Whether ``feature_names_in`` have an underscore where the names of columns had a blank."""
        return self._adapted.schema.blank_as_underscore

    @property
    def has_encoders(self) -> bool:
        """Whether columns that the model proper sees may be categorical."""
        return self._adapted.schema.has_encoders

    @property
    def takes_codes(self) -> bool:
        """Whether the codes that a data frame has for its categories are used as they are."""
        return self._adapted.schema.takes_codes

    def plan_info(self) -> dict[str, Any]:
        """Count the parts of the compiled model; see :meth:`plan`, too.

        Returns
        -------
        dict
            Counts of trees and leaves, bytes, and the groups of trees.
        """
        return dict(self._runner.info)

    def plan(self, n_rows: int, *, dtype: str = "float64") -> CallPlan:
        """Return what :meth:`explain` does with so many rows from the host, and about how long it takes.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        dtype : {"float64", "float32"}, default="float64"
            That of the values: float32 for float32 X.

        Returns
        -------
        CallPlan
            The device, how each group of trees is explained, bytes and seconds; ``print`` shows it. What it
            says is what is done: the choices of ``algorithm="auto"`` and ``device="auto"`` depend on nothing
            else than the model, the options and the number of rows. A call that would raise ``MemoryError``
            has its message as ``refusal``.

        Raises
        ------
        ValueError, TypeError
            ``n_rows`` is no number of rows, or ``dtype`` has no such value.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from skshapgpu import TreeExplainer
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = RandomForestRegressor(10, max_depth=4, random_state=0).fit(X, y)
        >>> explainer = TreeExplainer(model, device="cpu")
        >>> {group.algorithm for group in explainer.plan(10).groups}
        {'quadrature'}
        >>> {group.algorithm for group in explainer.plan(1_000_000).groups}
        {'tables'}
        """
        check_scalar(n_rows, "n_rows", Integral, min_val=0)
        require_one_of("dtype", dtype, ("float64", "float32"))
        return call_plan(self._runner, self._reader.count(int(n_rows), dtype))

    def occurring_pairs(self, order: int = 2) -> np.ndarray:
        """Return the pairs of features that occur together on a path; all others do not interact.

        Parameters
        ----------
        order : {2, 3}, default=2
            3 for triples.

        Returns
        -------
        ndarray of int32, shape (n_pairs, order)
            Positions of the features, in ascending order.
        """
        request = Request.parse("occurring", "sii", order)
        return self._runner.sets(request.kind, request.result)

    def explain(self, X: Any, y: Any = None, *, index: str = "sv", progress: Any = False) -> Explanation:
        """Compute SHAP values, with names, data, row labels and base values.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            What the model's ``predict`` takes. A data frame must have the columns of the
            training data in the same order. A ``DMatrix`` of XGBoost, a ``Dataset`` of LightGBM and a
            ``Pool`` of CatBoost are opened where they hold all numbers; see docs/models.md. An array on
            a GPU (of CuPy, PyTorch, or by ``__cuda_array_interface__`` or DLPack) is explained there, on
            its library's current stream, and the values are an array of that library.
        y : array-like of shape (n_rows,), default=None
            With ``model_output="log_loss"`` the label of each row: a class of the model, or a number for a
            regressor.
        index : {"sv", "bv"}, default="sv"
            "sv" gives SHAP values, that is Shapley values. "bv" gives Banzhaf values, in which every
            set of other features has the same weight (Hammer & Holzman, Approximations of
            pseudo-Boolean functions; applications to game theory, ZOR 36, 1992). They do not add up
            to the margin, so that nothing is checked.
        progress : bool or callable, default=False
            True draws a bar, with tqdm or rich. A function is called now and then, with the number of rows
            done and that of all; what it raises ends the work. Neither has an influence on the values.

        Returns
        -------
        Explanation
            SHAP values, of shape (n_rows, n_features[, n_outputs]); float32 for float32 X, else float64.

        Raises
        ------
        ValueError, TypeError
            X is nothing that the model takes; the message names the row and column. Or labels are
            missing, too many or unknown, or ``index`` has no such value, or is one that the device
            asked for or the model output does not have.
        MemoryError
            The result alone exceeds ``memory_limit`` or the memory of the machine, or a GPU has too little.
        RuntimeError
            Values of a row do not add up to its margin.
        """
        start = perf_counter()
        require_one_of("index", index, tuple(_VALUE_KINDS))
        require_progress(progress)
        kind = _VALUE_KINDS[index]
        rows = self._read(X, kind, "Banzhaf values")
        labels = self._read_labels(y, rows)
        values, run = self._execute(rows, kind, shap_values, labels, progress)
        facts = self._facts(rows, run)
        if labels is not None:
            facts["base_values"] = self._runner.base_value(labels)[:, 0]
        return Explanation(
            values=_shaped(values),
            value_index=index,
            feature_perturbation=self.feature_perturbation,
            model_output=self._model_output,
            origins=self._reader.origins_of(X),
            seconds=perf_counter() - start,
            **facts,
        )

    __call__ = explain

    def explain_interactions(
        self,
        X: Any,
        *,
        pairs: Any = "all",
        index: str = "sii",
        order: int = 2,
        progress: Any = False,
    ) -> InteractionExplanation:
        """Compute interactions of features, with names, data, row labels and base values.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            As for :meth:`explain`.
        pairs : {"all", "occurring"}, int or list, default="all"
            "all" gives a symmetric matrix for each row, in which a pair has half of its index at
            each of its two places, and main effects on the diagonal: its rows add up to SHAP
            values. The other forms give each pair once, with its whole index:
            "occurring" those that occur on a path, as all others are zero; a number so many of the
            strongest, by mean magnitude over all rows of X, summed over the outputs, the strongest
            first, which are found in a first pass over X; a list of pairs of names or positions
            those, in this order.
        index : {"sii", "stii", "bii"}, default="sii"
            "sii": Shapley interaction index (Grabisch & Roubens, 1999, doi:10.1007/s001820050125),
            of which "all" are the SHAP interaction values of Lundberg et al. (2020,
            doi:10.1038/s42256-019-0138-9). "stii": Shapley-Taylor interaction index (Sundararajan,
            Dhamdhere & Agarwal, 2020, arXiv:1902.05622). "bii": Banzhaf interaction index
            (Grabisch & Roubens, 1999), in which every set of other features has the same weight;
            it does not add up, so that nothing is checked, and "all" has Banzhaf values on the
            diagonal.
        order : {2, 3}, default=2
            3 gives the index of triples: "sii" or "bii", on the CPU, path-dependent, and not as "all".
        progress : bool or callable, default=False
            As for :meth:`explain`. The strongest pairs take two passes; rows are counted when both are done.

        Returns
        -------
        InteractionExplanation
            Its values are of shape (n_rows, n_features, n_features[, n_outputs]) for "all", else
            (n_rows, n_pairs[, n_outputs]); float32 for float32 X, else float64.

        Raises
        ------
        ValueError, TypeError
            X is nothing that the model takes; or an argument has no such value, names an unknown
            feature or a pair twice, or asks for what the device asked for does not have.
        MemoryError
            The result exceeds ``memory_limit`` or what the machine has; the message says what
            needs less.
        RuntimeError
            Values of a row do not add up to its margin.
        """
        start = perf_counter()
        require_progress(progress)
        found, run, rows = self._interactions(X, Request.parse(pairs, index, order), progress)
        feature_values = found.feature_values
        return InteractionExplanation(
            values=_shaped(found.values),
            interaction_index=index,
            pairs=found.sets,
            strength=found.strength,
            feature_values=None if feature_values is None else _shaped(feature_values),
            feature_perturbation=self.feature_perturbation,
            seconds=perf_counter() - start,
            **self._facts(rows, run),
        )

    def shap_values(self, X: Any, y: Any = None) -> np.ndarray:
        """SHAP values alone.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            As for :meth:`explain`, which also says what is raised.
        y : array-like of shape (n_rows,), default=None
            As for :meth:`explain`.

        Returns
        -------
        array of float32 or float64, shape (n_rows, n_features[, n_outputs])
            Of NumPy, or of the library of X if X lies on a GPU.
        """
        rows = self._read(X, SHAP_VALUES)
        values, _ = self._execute(rows, SHAP_VALUES, shap_values, self._read_labels(y, rows))
        return _shaped(values)

    def shap_interaction_values(self, X: Any) -> np.ndarray:
        """SHAP interaction values of all pairs of features alone.

        The matrix of a row and output is symmetric. Off the diagonal lies half of the Shapley interaction
        index of two features, on it the main effect of a feature: what its interactions leave of its SHAP
        value (Lundberg et al., 2020, doi:10.1038/s42256-019-0138-9). So each row of the matrix adds up to
        a SHAP value, and the whole matrix to the margin without the base value.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            As for :meth:`explain_interactions`, which also says what is raised, and offers results
            that need less memory.

        Returns
        -------
        array of float32 or float64, shape (n_rows, n_features, n_features[, n_outputs])
            Of NumPy, or of the library of X if X lies on a GPU.
        """
        found, _, _ = self._interactions(X, _ALL_PAIRS)
        return _shaped(found.values)

    def _interactions(
        self, X: Any, request: Request, progress: Any = False
    ) -> tuple[Interactions, Run, Rows]:
        rows = self._read(X, request.kind, f"{INDEX_NAMES[request.kind.index]} of {request.result}")
        positions = None
        if request.form == "listed":
            positions = request.positions(self._names_of(rows))
        work = partial(interactions, request=request, positions=positions)
        found, run = self._execute(rows, request.kind, work, progress=progress)
        return found, run, rows

    def _read(self, X: Any, kind: Kind, what: str = "") -> Rows:
        """Read X, after making sure that ``what``, which is of this kind, can be computed where X lies."""
        require = partial(self._runner.require, kind, what)
        return self._reader.read(X, self._runner.options.devices, require)

    def _execute(
        self,
        rows: Rows,
        kind: Kind,
        work: Callable[[Run], T],
        labels: np.ndarray | None = None,
        progress: Any = False,
    ) -> tuple[T, Run]:
        with watched(progress, rows.n_rows) as tracker:
            return execute(self._runner, rows, kind, work, labels, tracker)

    def _read_labels(self, y: Any, rows: Rows) -> np.ndarray | None:
        """Read the labels of the rows as the runner takes them, where the model output needs them."""
        if not self._has_labels:
            if y is not None:
                raise ValueError(
                    f"y is for model_output='log_loss', not {self._model_output!r}: leave it out"
                )
            return None
        assert self._runner.link is not None
        return self._runner.link.read_labels(y, rows.n_rows)

    def _names_of(self, rows: Rows) -> tuple[str, ...]:
        return rows.names or self.names_seen()

    def _facts(self, rows: Rows, run: Run) -> dict[str, Any]:
        """Return what explanations of any kind say beside their values."""
        return {
            "base_values": self.expected_value,
            "data": rows.data,
            "feature_names": self._names_of(rows),
            "output_names": self._output_names,
            "index": rows.index,
            "precision": self._runner.options.precision,
            "device": run.device,
            "additivity_error": run.gap,
        }

    def names_seen(self, input_features: Any = None) -> tuple[str, ...]:
        """Return the names of the columns that the model proper sees, behind the leading steps of a pipeline.

        Parameters
        ----------
        input_features : sequence of str or None
            Names of the columns of X.

        Returns
        -------
        tuple of str
            Distinct names, one for each feature.
        """
        return self._reader.names_seen(input_features)

    def save(self, path: str | os.PathLike[str], *, tables: bool = True) -> None:
        """Write the explainer to a file, from which :meth:`load` makes it again without the model.

        The file is an uncompressed ``.npz`` of NumPy with a JSON header, without pickled objects; it
        appears complete or not at all. It has the model's trees, names and categories, the options
        that shape the values, the background, and the tables that every call for SHAP values uses.

        Parameters
        ----------
        path : path-like
            A file that this method wrote is replaced by a new one: explainers that were loaded from the old
            one keep it. A file that something else wrote is never replaced.
        tables : bool, default=True
            Whether to keep the tables, ``plan_info()["table_bytes"]``. Without them the file is small, and
            they are filled again when it is loaded.

        Raises
        ------
        ValueError
            X goes through the leading steps of a pipeline first, which a file cannot keep, or labels
            or categories of the model are neither numbers nor texts.
        FileExistsError
            There is a file that this method did not write.
        OSError
            The file cannot be written.
        """
        if self._reader.steps:
            raise ValueError(
                "X goes through the leading steps of a Pipeline, which a file cannot keep: save the "
                "explainer of the last step, and transform X before"
            )
        options = {
            "algorithm": self._runner.options.algorithm,
            "precision": self._runner.options.precision,
            "outputs": self._outputs,
            "model_output": self._model_output,
        }
        contents = self._runner.contents() if tables else {}
        saving.save(path, Saved(self._adapted, options, self._runner.background, contents))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: str | Sequence[str] = "auto",
        n_jobs: int | None = None,
        memory_limit: int | str | None = None,
        check_additivity: bool = True,
        verify: bool = False,
    ) -> TreeExplainer:
        """Load an explainer from a file that :meth:`save` wrote; the model's library is not needed.

        Nothing in the file is executed. Its tables are neither filled again nor read: they are mapped into
        memory, so that a call reads what its rows need, and processes that load the same file share it. As
        long as the explainer is in use the file must not be changed in place or cut off. To replace or
        delete it, as :meth:`save` does, is safe.

        All of the file is compared with its checksums, but for tables of more than 16 MiB. These are read
        where a row needs them only, and compared with ``verify``; without, the additivity check of each row
        refuses what changes the sum of its values.

        Parameters
        ----------
        path : path-like
            The file.
        device, n_jobs, memory_limit, check_additivity
            As for :class:`TreeExplainer`.
        verify : bool, default=False
            Compare large tables, too, which reads all of them.

        Returns
        -------
        TreeExplainer

        Raises
        ------
        ValueError
            The file is none of an explainer, damaged, or of a later version, or its tables are of another
            version; or an option has no such value.
        MemoryError
            The file has no tables, and those of "fast_v2" need more than they may take.
        OSError
            The file cannot be read.
        """
        saved = saving.load(path, verify)
        outputs, model_output = (saved.options.get(name) for name in ("outputs", "model_output"))
        require_one_of("outputs", outputs, _OUTPUTS)
        require_model_output(model_output, saved.background, device)
        compute = Options.parse(
            algorithm=saved.options.get("algorithm"),
            device=device,
            precision=saved.options.get("precision"),
            n_jobs=n_jobs,
            memory_limit=memory_limit,
            check_additivity=check_additivity,
            interventional=saved.background is not None,
        )
        explainer = cls.__new__(cls)
        explainer._reader, explainer._adapted = Reader([], saved.adapted), saved.adapted
        try:
            explainer._set_up(compute, saved.background, str(outputs), str(model_output), saved.tables)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)!r} cannot be loaded: {error}") from error
        return explainer

    def __copy__(self) -> TreeExplainer:
        return self  # immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> TreeExplainer:
        return self

    def __repr__(self) -> str:
        ensemble, n_outputs = self._adapted.ensemble, self._runner.n_outputs
        given = self._runner.background
        background = "" if given is None else f", {len(given.rows)} background rows"
        if self._model_output != "raw":
            background += f", {self._model_output}"
        return (
            f"<TreeExplainer of a {self.family} model: {ensemble.n_trees} trees, "
            f"{ensemble.n_leaves} leaves, {self.n_features} features, "
            f"{n_outputs} output{'s' * (n_outputs > 1)}, {self._runner.options.precision} precision"
            f"{background}>"
        )


def read_options(
    *,
    data: Any = None,
    feature_perturbation: str = "auto",
    data_weights: Any = None,
    cover: str = "auto",
    model_output: str = "raw",
    device: str | Sequence[str],
    outputs: str,
    **others: Any,
) -> Options:
    """Check the options of a :class:`TreeExplainer`; return those that say how to compute.

    It raises what :class:`TreeExplainer` does, as far as no model is needed.
    """
    require_one_of("outputs", outputs, _OUTPUTS)
    require_perturbation(feature_perturbation, data, data_weights, cover)
    require_model_output(model_output, data, device)
    return Options.parse(device=device, interventional=data is not None, **others)


def _shaped(values: Any) -> Any:
    """[row][output]... as users see it, without a copy: outputs last if there are several.

    The matrices of interactions are symmetric, so that swapping two axes is as good as moving one.
    """
    return values[:, 0] if values.shape[1] == 1 else values.swapaxes(1, values.ndim - 1)
