"""The explainer of a fitted model: adapt the model, compile it once, explain many rows.

The model passes through ``pipelines.unwrap`` (pipelines, searches, frozen estimators), ``adapters.adapt`` and
``_core.Plan``. X passes through ``inputs.Reader``, which applies the leading steps of a pipeline, and then in
batches through ``runs.py``, which runs the plan on the CPU or on GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Unpack

from sklearn.frozen import FrozenEstimator

from ._common.algorithms import TIME_OUTPUTS
from ._common.checks import require_bool, require_options, with_article
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
    Vector,
    lists_options,
)
from ._engine.agreement import Agreement
from ._engine.features import (
    saved_groups,
)
from ._engine.interactions import (
    Request,
)
from ._engine.links import link_of, read_times
from ._engine.options import Options
from ._explainer.calls import ExplainerCalls, value_kind
from ._explanations.interactions import InteractionExplanation
from ._explanations.values import Explanation
from ._files import saving
from ._files.locations import Content, Place, is_path, locate, quoted
from ._files.model_files import adapt_file
from ._files.saving import Saved
from ._rows.inputs import Reader
from ._rows.pipelines import unwrap
from .adapters.schema import AdaptedModel


@lists_options
def explain(
    model: Model,
    X: Table,
    y: Vector | None = None,
    *,
    index: ValueIndex = "SV",
    base_margin: Table | Vector | None = None,
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
    y, index, base_margin, progress
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
    kind = value_kind(index)
    require_progress(progress)
    return as_explainer(model, options, copies_steps=False)._explain(X, y, kind, progress, base_margin)


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

    ``model`` is a fitted model or its file, an explainer or its file. ``options`` are options of
    ``TreeExplainer``; of ``TreeExplainer.load`` for an explainer file, and none for an explainer. With
    ``copies_steps``, the explainer has copies of the steps of a pipeline. It needs none if the pipeline is
    not refitted while the explainer is in use. Raise ``TypeError`` if an option is unknown, or an explainer
    has it already.
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

    Raise ``ValueError`` if an explainer explains a function of time, so that it no longer has the model
    itself.
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

    Raise ``TypeError`` if the explainer has one of the options already.
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


class TreeExplainer(ExplainerCalls):
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
        scikit-survival, quantile-forest, GPBoost, imbalanced-learn, PyOD, scikit-optimize, EconML or
        CausalML, or of a class with a registered adapter. Of a ``Pipeline``, the last step is explained, in
        terms of the columns that it receives, and copies of the other steps transform X. Of a fitted search,
        ``best_estimator_`` is explained; docs/models.md lists all wrappers.

        Or a tree of scikit-learn without its estimator, ``tree_``, or a dictionary of trees, in the form in
        which shap takes them: see docs/models.md.

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
    model_output : {"raw", "probability", "log_loss", "response", "survival", "cumulative_hazard", \
            "score_samples", "decision_function"}, default="raw"
        What is explained. "raw" is the margin. "probability" is the probability that a classifier predicts.
        "log_loss" is the loss of the prediction for a row with the label ``y``: the log loss of a binary
        classifier, or the squared error of a regressor that was trained with it. "response" is the
        exponential of the margin, such as the mean of a Poisson regression. "survival" and
        "cumulative_hazard" are functions of time, with an output for each of ``times``. "score_samples" and
        "decision_function" are scores of an isolation forest, lower for outliers. All but "raw" need
        ``data``, unless the trees themselves add up to the output, as the probabilities of a forest and the
        functions of time of survival forests do. See docs/outputs.md.
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
        a pipeline make from each column of X; without such steps, it is an error.
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
            if cls.__init__ is TreeExplainer.__init__:  # a subclass may have options of its own
                require_options(cls, (name for name in options if name != "model"))
            self._passed = [*("data" for _ in arguments[1:]), *(name for name in options if name != "model")]
            return self

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
            file keep using its content. Anything else, such as another file or a link, is never replaced.
        tables : bool, default=True
            Whether to store the tables, ``model_info()["table_bytes"]`` bytes. Without them, the file is
            small, and loading it fills the tables again.
        filesystem : file system of pyarrow or fsspec, or None, default=None
            File system in which ``path`` is, unless it has a scheme. None: the local one.

        Raises
        ------
        ValueError
            The explainer applies the leading steps of a pipeline, which a file cannot hold, or labels or
            categories of the model are neither numbers nor strings, or the path ends like a file of another
            format, such as ".pkl".
        FileExistsError
            The path is a link, or an existing file that this method did not write.
        OSError
            The file cannot be written.
        ImportError
            A package for the URL or file system is not installed.
        """
        require_bool("tables", tables)
        place = locate(path, filesystem)
        if str(path).endswith(_ENDINGS_OF_OTHERS):
            raise ValueError(
                f"an explainer file is an .npz file, and {quoted(place)} ends like a file of another format: "
                "name it explainer.npz, for example"
            )
        if self._reader.schema.inputs:
            raise ValueError(
                "members of the model have steps of their own, which a file cannot keep: pickle the "
                "explainer, or put the steps before the sum, and save an explainer of the sum"
            )
        if self._reader.steps:
            raise ValueError(
                "the explainer applies the leading steps of a Pipeline, which a file cannot keep: save an "
                "explainer of the last step instead, with groups of the columns that the steps make, and "
                "transform X yourself; or skshapgpu.mlflow saves both"
            )
        options = self._value_options() | {
            "times": self._compiled.options.times,
            "check": [*self._agreement.result],
        }
        contents = self._compiled.contents() if tables else {}
        saving.save(place, Saved(self._adapted, options, self._compiled.background, contents))

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
        only where a row needs them, and its trees with the digest in its header. ``verify`` compares these
        tables as well. Without it, the additivity check of each row rejects damage that changes the sum of
        its values.

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
            The path is not the path of a regular file; the file is not an explainer file, is damaged, or was
            written by a later version, or its tables by a different one; or an option has an invalid value.
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
        try:
            saved = saving.load(place, verify)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"there is no file {quoted(place)}; TreeExplainer(model).save(path) writes one"
            ) from error
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


#: Endings of names that readers take for files of other formats.
_ENDINGS_OF_OTHERS = (".pkl", ".pickle", ".joblib", ".json", ".skops")

#: Options of an explainer that do not affect what it explains, so that an explainer file has none of them.
_CHOSEN_LATER = ("device", "n_jobs", "memory_limit", "expected_rows", "check_additivity")


@contextmanager
def _loading(place: Place | Content) -> Iterator[None]:
    """Name the explainer file in errors about its content."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{quoted(place)} cannot be loaded: {error}") from error
