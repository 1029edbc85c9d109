"""The compiled core: everything that crosses between Python and C++."""

from collections.abc import Callable
from typing import Any

import numpy as np

class TableMemoryError(MemoryError):
    """Error raised if the tables of all trees need more bytes than they may take."""

class Plan:
    """A compiled ensemble; immutable, safe to use from several threads at once."""

    def __init__(
        self,
        ensemble: dict[str, Any],
        precision: str,
        order: int = 1,
        index: str = "SII",
        tables: str = "none",
        table_bytes: int = 2**28,
        n_threads: int = 1,
        method: str = "walk",
        stored: dict[str, np.ndarray] | None = None,
    ) -> None:
        """Compile an ensemble, given as the attributes of ``Ensemble``; precision is "single" or "double".

        Results have an element for each player of the ensemble. There are n_features players, or fewer if
        several columns of X are one player.

        A plan of order 2 can also fill ``matrices`` and ``pairs`` of :meth:`explain`, one of order 3 also
        ``triples``; each order is slower than the one before and gives the same values. The index is "SII"
        (Shapley interaction index), "STII" (Shapley-Taylor, up to order 2) or "BII" (Banzhaf). With "BII",
        the values are Banzhaf values, which do not add up to the margin; otherwise they are SHAP values.

        A plan of order 1 can have tables of at most ``table_bytes``, filled by ``n_threads`` threads. With
        tables="level_uniform", trees of up to 10 levels that use the same split throughout each level have
        tables, as far as the bytes suffice. All other trees are walked. See also :func:`interval_plan`.

        The method "walk" is the quadrature. Algorithms registered in csrc/baselines explain one tree at a
        time. "treeshap" and "fast_v1", the recursions of Lundberg et al. and Yang, compute SHAP values (order
        1, index "SII") without tables. "fast_v2", Yang's second method, computes Banzhaf values, too, and has
        a table for each leaf; TableMemoryError is raised if its tables need more than ``table_bytes``.
        ValueError is raised if a path has more different features than the method allows; "fast_v2" allows
        16.

        ``stored`` is the result of :meth:`contents` of a plan for the same ensemble and options. The tables
        are then not filled but borrowed from these arrays, whatever ``table_bytes`` is. ValueError is raised
        if the arrays do not fit the layout of the tables, which is computed from the ensemble.
        """

    def explain(
        self,
        X: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        n_threads: int,
        matrices: np.ndarray | None = None,
        pairs: np.ndarray | None = None,
        triples: np.ndarray | None = None,
        base_value: np.ndarray | None = None,
        zeroed: bool = False,
    ) -> np.ndarray | None:
        """Compute SHAP or Banzhaf values of the rows X (float32 or float64, any strides, NaN is missing).

        X has all columns, or only the columns that trees test, in ascending order. Every element of
        ``values`` (C-contiguous, float32 or float64, shape (n_rows, n_outputs, n_features)) is written, and
        every element of ``margin``, if given (C-contiguous float64, (n_rows, n_outputs), intercept included).
        The GIL is released; Ctrl-C interrupts the call.

        A plan of order 2 or 3 also writes, if given, C-contiguous arrays of the dtype of ``values``:
        ``pairs`` (n_rows, n_outputs, n_pairs), half of the index of each pair in :attr:`pairs`, and
        ``matrices`` (n_rows, n_outputs, n_features, n_features), in which each pair has this number twice.
        The diagonal has the value of a feature minus its pairs, or with "BII" the value itself. With "SII",
        the matrices are SHAP interaction values; with "STII", the diagonal is the contribution of a feature
        when it is the only known feature. A plan of order 3 also writes ``triples`` (n_rows, n_outputs,
        n_triples), the index of each triple in :attr:`triples`, not halved.

        With ``base_value``, the base value of each output, the call returns the largest additivity gap of
        each output as a float64 array. The gap of a row is the distance of its margin from the base value
        plus the values, as they were written.

        ``zeroed`` says that all of ``values`` is 0 already. If many features are used by no tree, their zeros
        are then not written again.
        """

    @property
    def pairs(self) -> np.ndarray:
        """Pairs of features that share a path, ascending: int32, (n_pairs, 2); empty if the order is 1."""

    @property
    def triples(self) -> np.ndarray:
        """Triples of features that share a path, like ``pairs``: (n_triples, 3); empty below order 3."""

    @property
    def base_value(self) -> np.ndarray:
        """Expected margin of each output, intercept included: float64, shape (n_outputs,)."""

    @property
    def constant(self) -> np.ndarray:
        """Intercept plus the expected value of each tree: float64, shape (n_outputs,).

        The leaves of each tree are centered: its expected value is subtracted from them.
        """

    @property
    def leaf_magnitude(self) -> np.ndarray:
        """Sum over the trees of the largest magnitude of a centered leaf: float64, shape (n_outputs,)."""

    def contents(self) -> dict[str, np.ndarray]:
        """Return the contents of the tables; without tables, the result is empty. Large arrays are views.

        The views are read-only. "floats" or "doubles" are the tables of all trees, one after the other. With
        background data, there is also "base_value", and for the leaves without a table "counts" (the number
        of different patterns of each leaf), "patterns" and the "weights" of the patterns. "layout" shows
        whether contents fit a plan: it is a digest of the layout of the tables and of the limits on which the
        layout depends.
        """

    def info(self) -> dict[str, Any]:
        """Return counts and sizes of the compiled form.

        - n_trees, n_leaves, n_features_used, n_chunks, bytes, precision and instruction_set.
        - n_repeated: number of nodes whose feature also occurs above them.
        - groups: groups of trees with the same number of quadrature nodes, with or without tables. Each is a
          dict of algorithm ("tables" or "quadrature"), n_nodes (of the longest path), n_trees, n_leaves,
          n_lookups, n_places and table_bytes.
        - n_table_trees, n_lookups, table_bytes: number of trees with tables, number and size of the tables.
        - lane_steps: work of a row with leaves in lanes, see :func:`lane_plan`; 0 without them. Their size is
          in table_bytes. n_mixed_places: number of places of vectors that hold another feature in each lane.
        - borrowed_bytes: size of the tables if they are borrowed.
        - n_leaves_without_table, n_patterns: number of leaves without a table, and number of patterns of the
          background data at all these leaves.
        - scratch_bytes_per_thread, shared_bytes_per_thread: memory that explain() allocates in addition to
          its result; the latter only if there are several threads.
        """

class IntervalLayout:
    """Tables by intervals that are laid out, but not filled."""

    def __init__(
        self,
        plan: Plan,
        most_entries: int,
        n_rows: float,
        prices: dict[str, float],
        most_bytes: float = ...,
        on_gpu: bool = False,
    ) -> None:
        """Lay out tables of at most ``most_entries`` entries, at most 16384, for a plan of the method "walk".

        A tree has no tables if walking ``n_rows`` rows is faster than building its tables and looking the
        rows up, by the ``prices`` of ``skshapgpu._engine.costs.trees.table_prices``. A tree has no tables
        either if it tests a categorical column with more than 256 categories. No tree has tables if a column
        has more than 65,534 thresholds or if more than 32 features are used (64 with ``on_gpu``), and perhaps
        if all tables together would take more than ``most_bytes``.

        With ``on_gpu``, a ``_cuda.CudaPlan`` can use the tables: they have at most 1024 entries, fewer in
        double precision and for many features, and there are none if a column has more than 31,743
        thresholds. Only trees of at most 32 levels and 8 quadrature nodes are merged. ValueError is raised
        for plans of other methods.
        """

    def info(self) -> dict[str, Any]:
        """Return groups and table_bytes as in :meth:`Plan.info`, lookup_seconds and build_seconds.

        The seconds follow from the prices: the time for the lookups of one row, and to build all tables.
        """

def interval_plan(plan: Plan, layout: IntervalLayout, n_threads: int = 1, unwalked: bool = False) -> Plan:
    """Compile a plan of the same values that has the tables of ``layout``, a layout of ``plan``.

    ``n_threads`` threads fill the tables. ``unwalked`` is for plans for Owen values: trees without tables are
    then not compiled for walks, so that only a GPU can explain rows. See :func:`has_owen_leaves`.
    """

def lane_plan(plan: Plan, most_bytes: int) -> Plan | None:
    """Compile a plan of the same values for calls of few rows, whose leaves are in the lanes of vectors.

    Return None if the leaves would take more than ``most_bytes``, or cannot be in lanes. They can if the plan
    is for path-dependent SHAP or Banzhaf values, without tables; if each player is tested in one column; and
    if paths have at most 16 features (with "BII", at most 64).
    """

def background_lane_plan(
    ensemble: dict[str, Any],
    precision: str,
    background: np.ndarray,
    weights: np.ndarray,
    index: str,
    most_bytes: int,
    n_threads: int = 1,
) -> Plan | None:
    """Compile a plan of the same values as :func:`background_plan`, like :func:`lane_plan`.

    There are at most 64 background rows. Each adds as many leaves as the trees have.
    """

def unit_fractions(plan: Plan) -> tuple[float, float] | None:
    """Return about the fractions of units, and of walked leaves, that remain because some trees are alike.

    Trees with the same tests share units. If they have the same covers, too, they are walked as one. Both
    fractions are those of a sample of the trees. None if the plan cannot be explained by cells that occur: it
    can if it is for path-dependent SHAP or Banzhaf values, without tables; if codes have 16 bits; and if no
    column has more than 256 categories.
    """

def cell_plan(plan: Plan, n_threads: int = 1) -> Plan:
    """Compile a plan of the same values for calls of many rows, by cells that occur.

    Trees are cut into units of a few leaves. The rows that fall into the same cell of a unit get the same
    values from it, which are computed once. The plan must be one that has :func:`unit_fractions`.
    """

def background_plan(
    ensemble: dict[str, Any],
    precision: str,
    background: np.ndarray,
    weights: np.ndarray,
    index: str,
    table_bytes: int,
    n_threads: int = 1,
    stored: dict[str, np.ndarray] | None = None,
    groups: list[int] | None = None,
) -> Plan:
    """Compile a plan of order 1 for values against background data (interventional).

    ``background`` is like X of :meth:`Plan.explain`, with at least one row; ``weights`` are float64, one for
    each row, and add up to 1. ``index`` is as for :class:`Plan`: "BII" for Banzhaf values. Tables take at
    most ``table_bytes``; the time for a leaf without a table grows with the number of different background
    rows. ``stored`` is as for :class:`Plan`; with it, ``background``
    and ``weights`` are not read. ValueError is raised for a path with more than 64 different features.
    ``groups`` are the numbers of the players' groups, counted from 0; with them, the values are Owen values.
    """

def owen_plan(ensemble: dict[str, Any], precision: str, groups: list[int], n_threads: int = 1) -> Plan:
    """Compile a plan of order 1 for path-dependent Owen values; ``groups`` as for :func:`background_plan`.

    The plan itself cannot explain rows on the CPU: :func:`interval_plan` makes a plan that can, from any
    layout of this plan. A GPU can explain rows by this plan if :func:`has_owen_leaves` returns True.
    """

def has_owen_leaves(plan: Plan) -> bool:
    """Return whether a ``_cuda.CudaPlan`` can explain a plan for Owen values leaf by leaf, without walks.

    The plan must be a result of :func:`owen_plan`, or of :func:`interval_plan` with ``unwalked``. A path may
    have at most 16 groups and at most 8 features of each group, and must fit into 32 bits and 24 KiB of
    tables. Leaves must not be vectors.
    """

def add_leaf_weights(
    ensemble: dict[str, Any],
    rows: np.ndarray,
    weights: np.ndarray,
    weight_at: np.ndarray,
    n_threads: int = 1,
) -> None:
    """Add the weight of each row to ``weight_at``, float64 of shape (n_nodes,), at its leaf of each tree.

    ``rows`` are like X of :meth:`Plan.explain`; ``weights`` are float64, one for each row.
    """

class DependentTrees:
    """The trees of an ensemble as functions of the axes of a grid; immutable, safe to use from threads."""

    def __init__(
        self,
        ensemble: dict[str, Any],
        axes: list[tuple[list[int], np.ndarray]],
        n_threads: int = 1,
    ) -> None:
        """Compile an ensemble for a grid of up to two axes.

        An axis is a list of columns that change together, and an array of points. A point is a row of all
        columns, of which only the columns of the axis are read. A column may be in one axis only. Without
        axes, the grid is one point, the row itself.
        """

    def add_weights(
        self, X: np.ndarray, weights: np.ndarray | None, weight_at: np.ndarray, n_threads: int = 1
    ) -> None:
        """Add the weight of each row to all leaves that the row reaches at some point of the grid.

        If ``weights`` is None, each weight is 1. X is as for :meth:`Plan.explain`. ``weight_at`` is float64,
        of the shape (n_leaves,); :meth:`info` has n_leaves.
        """

    def average(self, weight_at: np.ndarray, total: float) -> np.ndarray:
        """Return mean margins at all points, (n_outputs, n_points, ...); ``total`` is the sum of weights."""

    def individual(self, X: np.ndarray, n_threads: int = 1) -> np.ndarray:
        """Return the margin of each row at all points: (n_outputs, n_rows, n_points, ...)."""

    def cells(self, axis: int) -> np.ndarray:
        """Return the number of the cell of each point of an axis: trees treat points of one cell alike."""

    @property
    def leaf_magnitude(self) -> np.ndarray:
        """Sum over the trees of the largest distance of a leaf from the tree's middle, for each output."""

    def info(self) -> dict[str, int]:
        """Return n_leaves, and the bytes of the trees, of the codes of a row, and of scratch for a thread."""

class BackgroundPairsPlan:
    """A compiled ensemble with background data, for interactions of pairs; like :class:`Plan`."""

    def __init__(
        self,
        ensemble: dict[str, Any],
        precision: str,
        background: np.ndarray,
        weights: np.ndarray,
        index: str,
        count_bytes: int,
        n_threads: int = 1,
    ) -> None:
        """Compile an ensemble and background data.

        ``background``, ``weights`` and the errors raised are as for :func:`background_plan`; ``index`` is as
        for :class:`Plan`. The weights of the patterns in the background data are kept in at most
        ``count_bytes``. For trees that do not fit into these bytes, each call counts the weights again.
        """

    def explain(
        self,
        X: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        n_threads: int,
        matrices: np.ndarray | None = None,
        pairs: np.ndarray | None = None,
        base_value: np.ndarray | None = None,
        zeroed: bool = False,
    ) -> np.ndarray | None:
        """Compute values like :meth:`Plan.explain`.

        Tables are built for every few thousand rows, so that a call with few rows takes longer per row.
        """

    @property
    def pairs(self) -> np.ndarray:
        """See :attr:`Plan.pairs`."""

    def table_costs(self, table_bytes: int) -> dict[str, int] | None:
        """Return the costs of the tables of :meth:`with_tables`; None if there can be no such tables.

        ``n_lookups`` is the number of tables, ``table_bytes`` their size. For each row, ``n_numbers`` numbers
        are added up, and at most ``n_tests`` patterns of the background data are compared with the row.
        """

    def with_tables(self, table_bytes: int, n_threads: int = 1) -> Plan:
        """Return a plan for GPUs, in which each leaf has a table of all decisions, or background patterns.

        A leaf has a table if its path has at most 12 features, or fewer features if tables and patterns would
        otherwise not fit into ``table_bytes``. TableMemoryError is raised if not even the patterns fit.
        """

    def info(self) -> dict[str, Any]:
        """Return counts and sizes like :meth:`Plan.info`; table_bytes is the size of the weights kept."""

class LinearPlan:
    """A compiled ensemble with linear leaves and background data; immutable, thread-safe like ``Plan``."""

    def __init__(
        self,
        ensemble: dict[str, Any],
        precision: str,
        background: np.ndarray,
        weights: np.ndarray,
        index: str = "SII",
        sum_bytes: int = 2**28,
        n_threads: int = 1,
    ) -> None:
        """Compile an ensemble, whose leaves may be linear, against background rows with weights of sum 1.

        The index is "SII" (SHAP values) or "BII" (Banzhaf values); both are computed in double precision,
        whatever ``precision`` is. Sums over the background rows take at most ``sum_bytes``; sums that do not
        fit are computed again in each call. ValueError is raised if a path and the terms of its leaf have
        more than 64 different features.
        """

    def explain(
        self,
        X: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        n_threads: int,
        reach: np.ndarray | None = None,
        zeroed: bool = False,
    ) -> None:
        """Compute values of the rows X, with arguments like those of ``Plan.explain``.

        ``reach``, if given, is C-contiguous float64, (n_rows, n_outputs). It receives a bound, summed over
        the trees, on the magnitude of a leaf minus the expected value of its tree, for the row and for any
        background row.
        """

    @property
    def base_value(self) -> np.ndarray: ...
    @property
    def constant(self) -> np.ndarray: ...
    @property
    def leaf_magnitude(self) -> np.ndarray:
        """The bound of ``reach`` for the background rows: float64, shape (n_outputs,)."""

    def info(self) -> dict[str, Any]:
        """Return those counts and sizes of ``Plan.info`` that the plan has, and n_linear_leaves.

        ``table_bytes`` is the size of the sums over the background rows. ``n_patterns`` is the number of
        different patterns of these rows at all leaves.
        """

class RescaledPlan:
    """A compiled ensemble with background data, for functions of its margin; like :class:`Plan`."""

    def __init__(
        self,
        ensemble: dict[str, Any],
        precision: str,
        background: np.ndarray,
        weights: np.ndarray,
        link: str,
        scale: float,
    ) -> None:
        """Compile an ensemble and background data.

        ``background``, ``weights`` and the errors raised are as for :func:`background_plan`. For the margin m
        and a label y, the links are:

        - "logistic": 1 / (1 + exp(-scale * m))
        - "log_loss": log(1 + exp(scale * m)) - y * scale * m, where y is 0 or 1
        - "squared_error": (m - y)^2
        - "exp": exp(scale * m)
        - "gumbel": exp(-exp(-scale * m))
        - "normal": the standard normal distribution function of scale * m

        :class:`RescaledTables` support the first three only.
        """

    def explain(
        self,
        X: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        n_threads: int,
        labels: np.ndarray | None = None,
        zeroed: bool = False,
        slopes: np.ndarray | None = None,
    ) -> None:
        """Compute values of the link. The time grows with the number of rows times that of background rows.

        The arguments are as for :meth:`Plan.explain`; ``margin`` receives margins, before the link.
        ``labels`` are float64, one for each row; only the links "log_loss" and "squared_error" use labels.
        ``slopes``, float64 of shape (n_rows, n_outputs, n_background), are slopes of another link between the
        margin of each row and that of each background row; they take the place of the plan's link.
        """

    def table_costs(self, table_bytes: int) -> dict[str, int] | None:
        """Return the costs of :class:`RescaledTables` of this plan; None if there can be no such tables.

        The argument is the limit on the size of tables and patterns, and ``table_bytes`` of the result is the
        size. ``n_patterns`` is an upper limit on the number of patterns of the background data at all leaves
        without a table.
        """

    @property
    def background_margin(self) -> np.ndarray:
        """Margins of the background rows, before the link: float64, shape (n_background, n_outputs)."""

    @property
    def constant(self) -> np.ndarray:
        """See :attr:`Plan.constant`."""

    @property
    def leaf_magnitude(self) -> np.ndarray:
        """See :attr:`Plan.leaf_magnitude`."""

    def info(self) -> dict[str, Any]:
        """Return counts and sizes like :meth:`Plan.info`."""

class RescaledTables:
    """Tables of a :class:`RescaledPlan` for ``_cuda.CudaPlan.rescaled``."""

    def __init__(
        self,
        plan: RescaledPlan,
        ensemble: dict[str, Any],
        background: np.ndarray,
        table_bytes: int,
        n_threads: int = 1,
    ) -> None:
        """Fill tables in at most ``table_bytes``; pass the ensemble and the background data of the plan.

        A leaf whose path is too long for a table has the patterns of the background data. TableMemoryError is
        raised if not even patterns fit, ValueError if the margins of the background rows are too far apart.
        """

    @property
    def n_terms(self) -> list[int]:
        """Number of products that the slope is a sum of, for each output."""

def all_below(array: np.ndarray, limit: float, allow_nan: bool, n_threads: int = 1) -> bool:
    """Return whether the magnitudes of all numbers of an array, of one or two dimensions, are below a limit.

    With ``allow_nan``, NaN counts as below the limit. With ``n_threads`` 0, the core chooses the number of
    threads.
    """

def scale_and_sum(results: np.ndarray, factor: float, n_threads: int = 1) -> np.ndarray:
    """Multiply results, a C-contiguous array [row][output][set], by a factor; return magnitudes of the sets.

    The magnitude of a set is summed over rows and outputs, in float64. The sums do not depend on the number
    of threads; with ``n_threads`` 0, the core chooses this number.
    """

def new_array(shape: tuple[int, ...], dtype: np.dtype) -> tuple[np.ndarray, bool]:
    """Return a new array of float32 or float64, and whether it is known that all of its elements are 0.

    The memory of arrays of at least 4 MiB is kept when they are deleted, up to the limit of
    :func:`keep_memory`.
    TypeError is raised for other types, ValueError for a negative shape.
    """

def keep_memory(most_bytes: int) -> None:
    """Set how many bytes of deleted arrays and tables are kept for new ones; all others are freed.

    At first, the limit is 0. The system may take the pages of kept memory when it is short of memory.
    """

def kept_memory() -> int:
    """Return how many bytes of deleted arrays and tables are kept now."""

def check_calls_with(check: Callable[[], None]) -> None:
    """Set the function that calls ask periodically: they end with the exception that it raises."""

def parse_numbers(text: str, numbers: np.ndarray) -> int:
    """Read numbers, separated by white space, into ``numbers``, a float64 or int64 array of one dimension.

    The result is the number of numbers before the end of the text, or before the first item that is not a
    number of this type. If the text has more numbers than ``numbers`` has elements, the result is the number
    of elements plus 1.
    """

def walk_seconds(plan: Plan, X: np.ndarray) -> tuple[float, float]:
    """Return the CPU seconds for the decisions and for the walks of trees without tables, for benchmarks.

    One thread takes at most 1,024 rows through a plan of order 1 as :meth:`Plan.explain` does, but without
    coding X or writing values. ValueError is raised for plans of another order, and for more rows.
    """

def instruction_set() -> str:
    """Return the kernels in use: "avx512", "avx2", "neon" or "baseline"; SKSHAPGPU_ISA forces one."""

def instruction_sets() -> list[str]:
    """Return the kernels that this processor can run, fastest first."""
