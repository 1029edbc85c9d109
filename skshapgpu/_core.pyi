"""The compiled core: everything that crosses between Python and C++."""

from typing import Any

import numpy as np

class Plan:
    """A compiled ensemble; immutable, safe to use from several threads at once."""

    def __init__(
        self,
        ensemble: dict[str, Any],
        precision: str,
        order: int = 1,
        index: str = "sii",
        method: str = "walk",
    ) -> None:
        """Compile: ``ensemble`` holds the attributes of ``Ensemble``; precision "single" or "double".

        A plan of order 2 can also fill ``matrices`` and ``pairs`` of :meth:`explain`, one of order 3 also
        ``triples``; each is slower than the one before with the same results. The index is "sii" (Shapley
        interaction index), "stii" (Shapley-Taylor, up to order 2) or "bii" (Banzhaf); with the last the
        values are Banzhaf values, which do not add up to the margin, with the others SHAP values.

        The method "walk" is the quadrature; "treeshap" and "fast_v1" are the recursions of Lundberg et al.
        and Yang, for SHAP values (order 1, index "sii").
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

    def info(self) -> dict[str, Any]:
        """Counts of the compiled form.

        n_trees and n_leaves; n_repeated, the nodes whose feature occurs above them;
        trees_by_nodes and leaves_by_nodes, how many trees have each number of quadrature nodes and how
        many leaves those trees have; n_chunks; n_features_used; bytes; scratch_bytes_per_thread, what
        explain() allocates beside its result; precision; instruction_set.
        """

def background_plan(
    ensemble: dict[str, Any],
    precision: str,
    background: np.ndarray,
    weights: np.ndarray,
    table_bytes: int,
) -> Plan:
    """A plan of order 1 for SHAP values against background data (interventional).

    ``background`` is as X of :meth:`Plan.explain`, with at least one row; ``weights`` are float64, one for
    each row, and add up to 1. Tables take at most about ``table_bytes``; leaves that then have none are
    slower by as much as the background has different rows. Raises ValueError for a path with more than 64
    different features.
    """

def instruction_set() -> str:
    """The kernels in use: "avx512", "avx2" or "baseline"; forced by SKSHAPGPU_ISA."""

def instruction_sets() -> list[str]:
    """The kernels that this processor can run, fastest first."""
