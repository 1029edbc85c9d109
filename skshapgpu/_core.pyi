"""The compiled core: everything that crosses between Python and C++."""

from typing import Any

import numpy as np

class TableMemoryError(MemoryError):
    """Tables of all trees need more bytes than they may take."""

class Plan:
    """A compiled ensemble; immutable, safe to use from several threads at once."""

    def __init__(
        self,
        ensemble: dict[str, Any],
        precision: str,
        order: int = 1,
        index: str = "sii",
        tables: str = "none",
        table_bytes: int = 2**28,
        n_threads: int = 1,
        method: str = "walk",
        table_nodes: int = 0,
        stored: dict[str, np.ndarray] | None = None,
    ) -> None:
        """Compile: ``ensemble`` holds the attributes of ``Ensemble``; precision "single" or "double".

        Results have an element for each player of the ensemble, of which there are n_features, unless several
        columns of X are one.

        A plan of order 2 can also fill ``matrices`` and ``pairs`` of :meth:`explain`, one of order 3 also
        ``triples``; each is slower than the one before with the same results. The index is "sii" (Shapley
        interaction index), "stii" (Shapley-Taylor, up to order 2) or "bii" (Banzhaf); with the last the
        values are Banzhaf values, which do not add up to the margin, with the others SHAP values.

        A plan of order 1 can have tables, which ``n_threads`` fill, of at most ``table_bytes``:
        "level_uniform" for trees of up to 10 levels that split alike in all nodes of a level, and for others
        with at most ``table_nodes`` quadrature nodes, as far as the bytes suffice and paths have at most 16
        different features. All other trees are walked.

        The method "walk" is the quadrature; "treeshap" and "fast_v1" are the recursions of Lundberg et al.
        and Yang, for SHAP values (order 1, index "sii") without tables; "fast_v2" is Yang's second method,
        with a table for each leaf. It raises TableMemoryError if these need more than ``table_bytes``, and
        ValueError if a path has more than 16 different features.

        ``stored``: what :meth:`contents` of a plan of the same ensemble and options gave. Tables are not
        filled then, but borrowed from these arrays, whatever ``table_bytes`` says. Raises ValueError if they
        do not fit the layout of the tables, which is made from the ensemble.
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
    ) -> None:
        """SHAP or Banzhaf values of the rows X (float32 or float64, any strides, NaN missing).

        Writes every element of ``values`` (C-contiguous, float32 or float64, shape
        (n_rows, n_outputs, n_features)) and, when given, of ``margin`` (C-contiguous float64,
        (n_rows, n_outputs), intercept included). Releases the GIL; Ctrl-C interrupts it.

        Of a plan of order 2 or 3, C-contiguous and of the dtype of ``values``, when given: ``pairs`` (n_rows,
        n_outputs, n_pairs), half of the index of each pair in :attr:`pairs`, and ``matrices`` (n_rows,
        n_outputs, n_features, n_features), which has them in both places. On its diagonal stands what
        they leave of the value of a feature, with "bii" the value itself. With "sii" these are SHAP
        interaction values; with "stii" the diagonal is what a feature adds when it is the only one known.
        Of a plan of order 3 likewise ``triples`` (n_rows, n_outputs, n_triples), the index of each triple in
        :attr:`triples`, not halved.
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
        """What is in the tables, as read-only views where it is large; empty if the plan has none.

        "floats" or "doubles" are the tables of all trees, one after the other. With background data there
        are also "base_value", and of the leaves without a table "counts", how many different patterns each
        has, "patterns" and their "weights". "layout" tells whether they fit: a digest of how the tables are
        laid out, and what that depends on.
        """

    def info(self) -> dict[str, Any]:
        """Counts of the compiled form.

        n_trees and n_leaves; n_repeated, the nodes whose feature occurs above them; groups, the trees by
        their quadrature nodes and whether they have tables, as :meth:`possible_tables` lists them;
        n_table_trees, n_look_ups and table_bytes, the trees with tables, the tables and their size;
        borrowed_bytes, that size if they are borrowed; n_leaves_without_table; n_chunks; n_features_used;
        bytes; scratch_bytes_per_thread, what explain() allocates beside its result; precision;
        instruction_set.
        """

    def possible_tables(self) -> list[dict[str, Any]]:
        """What the trees without tables would have, by their quadrature nodes, ascending.

        A dict for each number of nodes: algorithm ("tables"; in :meth:`info` also "quadrature"), n_nodes,
        n_trees, n_leaves, n_look_ups, n_places and table_bytes. Trees are left out with all others of as many
        nodes if a path has more than 16 different features.
        """

def background_plan(
    ensemble: dict[str, Any],
    precision: str,
    background: np.ndarray,
    weights: np.ndarray,
    table_bytes: int,
    n_threads: int = 1,
    stored: dict[str, np.ndarray] | None = None,
) -> Plan:
    """A plan of order 1 for SHAP values against background data (interventional).

    ``background`` is as X of :meth:`Plan.explain`, with at least one row; ``weights`` are float64, one for
    each row, and add up to 1. Tables take at most ``table_bytes``; leaves that then have none are
    slower by as much as the background has different rows. ``stored``: as for :class:`Plan`; background and
    weights are not read then. Raises ValueError for a path with more than 64 different features.
    """

class BackgroundPairsPlan:
    """A compiled ensemble with background data, for Banzhaf values or interactions; as :class:`Plan`."""

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
        """Compile; ``background`` and ``weights`` as for :func:`background_plan`, which says what is raised.

        Of order 1 it has values only, of order 2 also pairs; ``index`` as for :class:`Plan`. How often the
        background has which pattern is kept in at most ``count_bytes``, and counted anew for the other trees.
        """

    def explain(
        self,
        X: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        n_threads: int,
        matrices: np.ndarray | None = None,
        pairs: np.ndarray | None = None,
    ) -> None:
        """As :meth:`Plan.explain`. Tables are made for each few thousand rows: few rows take longer each."""

    @property
    def pairs(self) -> np.ndarray:
        """As :attr:`Plan.pairs`."""

    def info(self) -> dict[str, Any]:
        """As :meth:`Plan.info`; table_bytes are those of the counts that are kept."""

class RescaledPlan:
    """A compiled ensemble with background data, for values of a function of its margin; as :class:`Plan`."""

    def __init__(
        self,
        ensemble: dict[str, Any],
        precision: str,
        background: np.ndarray,
        weights: np.ndarray,
        link: str,
        scale: float,
    ) -> None:
        """Compile; ``background`` and ``weights`` as for :func:`background_plan`, which says what is raised.

        Of the margin m and a label y, the link is "logistic", 1 / (1 + exp(-scale * m)), "log_loss",
        log(1 + exp(scale * m)) - y * scale * m with y of 0 or 1, or "squared_error", (m - y)^2.
        """

    def explain(
        self,
        X: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        n_threads: int,
        labels: np.ndarray | None = None,
    ) -> None:
        """Values of the link, in pairs of a row and a background row: time grows with both.

        Arguments as for :meth:`Plan.explain`; ``margin`` gets margins, before the link. ``labels`` are
        float64, one for each row, except with "logistic", which has none.
        """

    @property
    def background_margin(self) -> np.ndarray:
        """Margins of the background, before the link: float64, shape (n_background, n_outputs)."""

    @property
    def constant(self) -> np.ndarray:
        """See :attr:`Plan.constant`."""

    @property
    def leaf_magnitude(self) -> np.ndarray:
        """See :attr:`Plan.leaf_magnitude`."""

    def info(self) -> dict[str, Any]:
        """As :meth:`Plan.info`."""

def instruction_set() -> str:
    """The kernels in use: "avx512", "avx2" or "baseline"; forced by SKSHAPGPU_ISA."""

def instruction_sets() -> list[str]:
    """The kernels that this processor can run, fastest first."""
