"""The compiled core: everything that crosses between Python and C++."""

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

        The method "walk" is the quadrature. Algorithms that explain one tree at a time compute SHAP values
        (order 1, index "SII") without tables: "treeshap" and "fast_v1", the recursions of Lundberg et al. and
        Yang, and any others that are registered in csrc/cpu. "fast_v2" is Yang's second method, with a table
        for each leaf. It raises TableMemoryError if these need more than ``table_bytes``. ValueError is
        raised if a path has more different features than the method allows for; "fast_v2" allows for 16.

        ``stored`` is the result of :meth:`contents` of a plan for the same ensemble and options. Tables are
        then not filled but borrowed from these arrays, whatever ``table_bytes`` is. ValueError is raised if
        they do not fit the layout of the tables, which is computed from the ensemble.
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

        X has all columns or, in ascending order, only those that trees test. Every element of ``values``
        (C-contiguous, float32 or float64, shape (n_rows, n_outputs, n_features)) is written and, if given, of
        ``margin`` (C-contiguous float64, (n_rows, n_outputs), intercept included). The GIL is released;
        Ctrl-C interrupts the call.

        A plan of order 2 or 3 also writes, if given, C-contiguous arrays of the dtype of ``values``:
        ``pairs`` (n_rows, n_outputs, n_pairs), half of the index of each pair in :attr:`pairs`, and
        ``matrices`` (n_rows, n_outputs, n_features, n_features), which has these numbers in both places. On
        the diagonal is a feature's value minus its pairs, or with "BII" the value itself. With "SII", these
        are SHAP interaction values; with "STII", the diagonal is the contribution of a feature when it is
        the only one known. A plan of order 3 also writes ``triples`` (n_rows, n_outputs, n_triples), the
        index of each triple in :attr:`triples`, not halved.

        Given the base value of each output, it returns the largest additivity gap of each output, a float64
        array: the distance of a row's margin from the base value plus the values, as they were written.

        ``zeroed`` says that ``values`` are zeros already: those of features that no tree uses are then not
        written again, if these features are many.
        """

    @property
    def pairs(self) -> np.ndarray:
        """Features that occur on one path, ascending: int32, (n_pairs, 2); empty if the order is 1."""

    @property
    def triples(self) -> np.ndarray:
        """Features that occur on one path, ascending: int32, (n_triples, 3); empty if the order is not 3."""

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
        """Return the contents of the tables, large ones as read-only views; empty if the plan has no tables.

        "floats" or "doubles" are the tables of all trees, one after the other. With background data, there
        are also "base_value" and, for the leaves without a table, "counts", the number of different patterns
        of each leaf, "patterns" and their "weights". "layout" tells whether contents fit a plan: a digest of
        the layout of the tables, and the limits that determine it.
        """

    def info(self) -> dict[str, Any]:
        """Return counts and sizes of the compiled form.

        n_trees and n_leaves; n_repeated, the nodes whose feature occurs above them; groups, the trees by
        their quadrature nodes and whether they have tables, each a dict of algorithm ("tables" or
        "quadrature"), n_nodes (of the longest path), n_trees, n_leaves, n_lookups, n_places and table_bytes;
        n_table_trees, n_lookups and table_bytes, the trees with tables, the tables and their size;
        borrowed_bytes, that size if the tables are borrowed; n_leaves_without_table, and n_patterns, those
        of the background data at all of these leaves; n_chunks;
        n_features_used; bytes; scratch_bytes_per_thread, allocated by explain() in addition to its result,
        and shared_bytes_per_thread, allocated as well if there are several threads; precision;
        instruction_set.
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

        Trees that are explained faster by walking ``n_rows`` rows than by building tables and looking the
        rows up have none; neither have trees that test a categorical column with more than 256 categories, or
        any tree if a column has more than 65,534 thresholds or more than 32 features are used, 64 with
        ``on_gpu``. The prices are those of ``skshapgpu._engine.costs.trees.table_prices``. There may be no
        tables if all would take more than ``most_bytes``. With ``on_gpu``, they are those that a
        ``_cuda.CudaPlan`` can use: of at most 1024 entries, fewer in double precision and for many features,
        and none if a column has more than 31,743 thresholds; and only trees of at most 32 levels and 8
        quadrature nodes are merged. ValueError is raised for other plans.
        """

    def info(self) -> dict[str, Any]:
        """Return groups, as in :meth:`Plan.info`, table_bytes, and the seconds that the prices give.

        These are lookup_seconds for each row, and build_seconds.
        """

def interval_plan(plan: Plan, layout: IntervalLayout, n_threads: int = 1, unwalked: bool = False) -> Plan:
    """Compile a plan of the same values with the tables of a layout of this plan, filled by the threads.

    If a plan for Owen values has ``unwalked`` trees without tables, only a GPU explains rows by it: see
    :func:`has_owen_leaves`.
    """

def background_plan(
    ensemble: dict[str, Any],
    precision: str,
    background: np.ndarray,
    weights: np.ndarray,
    table_bytes: int,
    n_threads: int = 1,
    stored: dict[str, np.ndarray] | None = None,
    groups: list[int] | None = None,
) -> Plan:
    """Compile a plan of order 1 for SHAP values against background data (interventional).

    ``background`` is like X of :meth:`Plan.explain`, with at least one row; ``weights`` are float64, one for
    each row, and add up to 1. Tables take at most ``table_bytes``; the time for a leaf without a table grows
    with the number of different background rows. ``stored`` is as for :class:`Plan`; background and weights
    are then not read. ValueError is raised for a path with more than 64 different features. With ``groups``,
    the number of the group of each player, from 0 on, the values are Owen values.
    """

def owen_plan(ensemble: dict[str, Any], precision: str, groups: list[int], n_threads: int = 1) -> Plan:
    """Compile a plan of order 1 for path-dependent Owen values; ``groups`` as for :func:`background_plan`.

    :func:`interval_plan` makes a plan of it that explains rows, from any layout of it. GPUs explain rows by
    this one, too, if :func:`has_owen_leaves` says so.
    """

def has_owen_leaves(plan: Plan) -> bool:
    """Return whether a ``_cuda.CudaPlan`` can explain a plan for Owen values leaf by leaf, without walks.

    The plan is one of :func:`owen_plan`, or has tables by intervals and ``unwalked`` other trees. A path has
    at most 16 groups and at most 8 features of each, for all of which 32 bits and 24 KiB of tables must
    suffice; there are no vector leaves.
    """

def add_leaf_weights(
    ensemble: dict[str, Any],
    rows: np.ndarray,
    weights: np.ndarray,
    weight_at: np.ndarray,
    n_threads: int = 1,
) -> None:
    """Add the weight of each row to ``weight_at``, float64 of shape (n_nodes,), at the leaf of each tree.

    ``rows`` are like X of :meth:`Plan.explain`; ``weights`` are float64, one for each of them.
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

        An axis has the columns that change together, and points: rows with all columns, of which only these
        matter. The axes must have different columns. Without axes, the grid is one point, the row itself.
        """

    def add_weights(
        self, X: np.ndarray, weights: np.ndarray | None, weight_at: np.ndarray, n_threads: int = 1
    ) -> None:
        """Add the weight of each row, 1 for None, at the leaves that it reaches at some point of the grid.

        X is as for :meth:`Plan.explain`. ``weight_at`` is float64, of the shape (n_leaves,) by :meth:`info`.
        """

    def average(self, weight_at: np.ndarray, total: float) -> np.ndarray:
        """Return mean margins at all points, (n_outputs, n_points, ...), given the rows' total weight."""

    def individual(self, X: np.ndarray, n_threads: int = 1) -> np.ndarray:
        """Return the margin of each row at all points: (n_outputs, n_rows, n_points, ...)."""

    def cells(self, axis: int) -> np.ndarray:
        """Return the cell of each point of an axis; the trees cannot tell points of one cell apart."""

    @property
    def leaf_magnitude(self) -> np.ndarray:
        """Sum over the trees of the largest distance of a leaf from their middle, for each output."""

    def info(self) -> dict[str, int]:
        """Return n_leaves, and the bytes of the trees, of codes for each row, and of scratch for a thread."""

class BackgroundPairsPlan:
    """A compiled ensemble with background data, for Banzhaf values or interactions; like :class:`Plan`."""

    def __init__(
        self,
        ensemble: dict[str, Any],
        precision: str,
        background: np.ndarray,
        weights: np.ndarray,
        order: int,
        index: str,
        count_bytes: int,
        n_threads: int = 1,
    ) -> None:
        """Compile an ensemble and background data.

        ``background``, ``weights`` and the errors raised are as for :func:`background_plan`; ``index`` is as
        for :class:`Plan`. A plan of order 1 has values only, one of order 2 also pairs. The weights of the
        patterns in the background data are kept in at most ``count_bytes``, and counted again in each call
        for the trees that do not fit.
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

        Tables are built for every few thousand rows, so that each row takes longer if there are few.
        """

    @property
    def pairs(self) -> np.ndarray:
        """See :attr:`Plan.pairs`."""

    def table_costs(self, table_bytes: int) -> dict[str, int] | None:
        """Return the costs of the tables of :meth:`with_tables`; None if they are impossible.

        ``n_lookups`` is their number, ``table_bytes`` their size; a row adds up ``n_numbers`` numbers, and is
        compared with a pattern of the background data at most ``n_tests`` times.
        """

    def with_tables(self, table_bytes: int, n_threads: int = 1) -> Plan:
        """Return a plan for GPUs: leaves have tables of all decisions, or patterns of the background data.

        Those on paths of up to 12 features have tables, or of fewer if tables and patterns do not fit into
        ``table_bytes``. TableMemoryError is raised if not even the patterns fit.
        """

    def info(self) -> dict[str, Any]:
        """Return counts and sizes like :meth:`Plan.info`; table_bytes is the size of the counts kept."""

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
        whatever the precision is. Sums over the background rows take at most ``sum_bytes``; if they are
        larger, some are computed again for each call. ValueError is raised if a path, with the columns of
        its leaf's terms, has more than 64 different features.
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

        ``reach``, if given, is C-contiguous float64, (n_rows, n_outputs): a bound on the magnitude of leaves
        less the expected value of their tree, for a row and any background row, summed over the trees.
        """

    @property
    def base_value(self) -> np.ndarray: ...
    @property
    def constant(self) -> np.ndarray: ...
    @property
    def leaf_magnitude(self) -> np.ndarray:
        """The bound of ``reach`` for the background rows: float64, shape (n_outputs,)."""

    def info(self) -> dict[str, Any]:
        """Return counts and sizes, as ``Plan.info`` does, as far as there are any, and n_linear_leaves.

        ``table_bytes`` is the size of the sums over the background rows, for n_patterns different patterns
        of these rows at all leaves.
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
        and a label y, the link is "logistic", 1 / (1 + exp(-scale * m)), "log_loss",
        log(1 + exp(scale * m)) - y * scale * m with y of 0 or 1, "squared_error", (m - y)^2, "exp",
        exp(scale * m), "gumbel", exp(-exp(-scale * m)), or "normal", the standard normal distribution
        function of scale * m. :class:`RescaledTables` are of the first three only.
        """

    def explain(
        self,
        X: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        n_threads: int,
        labels: np.ndarray | None = None,
        zeroed: bool = False,
    ) -> None:
        """Compute values of the link from pairs of a row and a background row: time grows with both numbers.

        The arguments are as for :meth:`Plan.explain`; ``margin`` receives margins, before the link.
        ``labels`` are float64, one for each row; only the links "log_loss" and "squared_error" have any.
        """

    def table_costs(self, table_bytes: int) -> dict[str, int] | None:
        """Return the costs of :class:`RescaledTables` of this plan; None if they are impossible.

        ``table_bytes`` is the size of tables and patterns, at most so many bytes. ``n_patterns`` is the
        number of patterns of the background data at all leaves without a table, at most.
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
    """Tables of a :class:`RescaledPlan` for ``_cuda.CudaRescaledPlan``."""

    def __init__(
        self,
        plan: RescaledPlan,
        ensemble: dict[str, Any],
        background: np.ndarray,
        table_bytes: int,
        n_threads: int = 1,
    ) -> None:
        """Fill tables in at most ``table_bytes``; ensemble and background are those of the plan.

        Leaves on paths that are too long for a table have the patterns of the background data. Raise
        TableMemoryError if not even patterns fit, ``ValueError`` if the margins of the background are too far
        apart.
        """

    @property
    def n_terms(self) -> list[int]:
        """Number of products of which the slope consists, for each output."""

def all_below(array: np.ndarray, limit: float, allow_nan: bool, n_threads: int = 1) -> bool:
    """Return whether the magnitudes of all numbers, in one or two dimensions, are below a limit.

    NaN is, if it is allowed. 0 threads are as many as are of use.
    """

def scale_and_sum(results: np.ndarray, factor: float, n_threads: int = 1) -> np.ndarray:
    """Multiply results, a C-contiguous array [row][output][set], by a factor; return magnitudes of the sets.

    They are summed over rows and outputs, to float64, and do not depend on the number of threads; 0 threads
    are as many as are of use.
    """

def new_array(shape: tuple[int, ...], dtype: np.dtype) -> tuple[np.ndarray, bool]:
    """Return a new array of float32 or float64, and whether it is known that all of its elements are 0.

    Arrays of at least 4 MiB are in memory that is kept when they are deleted, as :func:`keep_memory` says.
    TypeError is raised for other types, ValueError for a negative shape.
    """

def keep_memory(most_bytes: int) -> None:
    """Set how many bytes of deleted arrays and tables are kept for new ones; the others are freed.

    At first, none are. The system may take the pages of kept memory when it is short of memory.
    """

def kept_memory() -> int:
    """Return how many bytes are kept."""

def parse_numbers(text: str, numbers: np.ndarray) -> int:
    """Read numbers, separated by white space, into ``numbers``, a float64 or int64 array of one dimension.

    It returns how many the text has before its end or before what is no number of this type; one more than
    ``numbers`` has elements means that the text has more.
    """

def walk_seconds(plan: Plan, X: np.ndarray) -> tuple[float, float]:
    """Measure the CPU seconds in which trees without tables are decided and walked, for benchmarks.

    One thread takes the rows, at most 1,024, through a plan of order 1 as :meth:`Plan.explain` does, without
    coding X or writing values. ValueError is raised for other plans and more rows.
    """

def instruction_set() -> str:
    """Return the kernels in use: "avx512", "avx2", "neon" or "baseline"; SKSHAPGPU_ISA forces one."""

def instruction_sets() -> list[str]:
    """Return the kernels that this processor can run, fastest first."""
