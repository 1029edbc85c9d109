"""The result of a comparison of explanations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._common.digits import number
from .._common.lazy import import_for

if TYPE_CHECKING:
    from pandas import DataFrame

#: Number of features in the representation.
_N_SHOWN = 12


@dataclass(frozen=True, eq=False, repr=False)
class ExplanationComparison:
    """Differences between the SHAP values of two samples, from :func:`compare_explanations`.

    Its attributes and methods are public; its constructor is private.

    Attributes
    ----------
    feature_names : tuple of str
        In the order of the reference.
    output_names : tuple or None
        None if there is only one output.
    reference_importance, current_importance : ndarray of float64, shape (n_features[, n_outputs])
        Mean magnitude of the values of each feature, in their unit.
    reference_rank, current_rank : ndarray of int64, shape (n_features,)
        Rank of each feature by its importance, summed over the outputs; 1 for the largest.
    psi : ndarray of float64, shape (n_features[, n_outputs])
        Population stability index of the values; 0 for the same distribution.
    wasserstein : ndarray of float64, shape (n_features[, n_outputs])
        Wasserstein distance between the values, in their unit.
    ndcg : float
        Agreement of the rankings, 1 for the same order.
    n_reference, n_current : int
        Numbers of rows.
    index, model_output, feature_perturbation : str
        Kind of the values; see :class:`Explanation`.
    unit : str
        Unit of the values, "margin" if it has no name.
    """

    feature_names: tuple[str, ...]
    output_names: tuple[Any, ...] | None
    reference_importance: np.ndarray
    current_importance: np.ndarray
    reference_rank: np.ndarray
    current_rank: np.ndarray
    psi: np.ndarray
    wasserstein: np.ndarray
    ndcg: float
    n_reference: int
    n_current: int
    index: str = "SV"
    model_output: str = "raw"
    feature_perturbation: str = "tree_path_dependent"
    unit: str = "margin"

    @property
    def relative_wasserstein(self) -> np.ndarray:
        """Wasserstein distances divided by the largest importance of either sample, for each output."""
        largest = np.maximum(self.reference_importance, self.current_importance).max(axis=0)
        return self.wasserstein / np.where(largest > 0, largest, 1.0)

    def to_frame(self) -> DataFrame:
        """Return the measures of each feature as a pandas data frame, the largest PSI first.

        Returns
        -------
        pandas.DataFrame
            Columns ``reference_importance``, ``current_importance``, ``reference_rank``, ``current_rank``,
            ``psi``, ``wasserstein`` and ``relative_wasserstein``. The index has the features; if there are
            several outputs, it has features and outputs.
        """
        pd = import_for("to_frame() needs pandas", "pandas", "pandas")
        records = self._records()
        keys = ["feature"] if self.output_names is None else ["feature", "output"]
        return pd.DataFrame.from_records(records).set_index(keys)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as a dict, for JSON.

        Returns
        -------
        dict
            ``ndcg``, ``n_reference``, ``n_current``, ``index``, ``model_output``, ``feature_perturbation``,
            ``unit`` and ``features``, a list with a dict for each row of :meth:`to_frame`.
        """
        names = ("ndcg", "n_reference", "n_current", "index", "model_output", "feature_perturbation", "unit")
        return {name: getattr(self, name) for name in names} | {"features": self._records()}

    def _records(self) -> list[dict[str, Any]]:
        """Return a record for each feature and output, in descending order of PSI, ties as they come."""
        n_outputs = len(self.output_names or (None,))
        relative = self.relative_wasserstein
        order = np.argsort(-self.psi.ravel(), kind="stable")
        records = []
        for i in order.tolist():
            feature, output = divmod(i, n_outputs)
            record: dict[str, Any] = {"feature": self.feature_names[feature]}
            if self.output_names is not None:
                name = self.output_names[output]
                record["output"] = name.item() if isinstance(name, np.generic) else name
            records.append(
                record
                | {
                    "reference_importance": float(self.reference_importance.flat[i]),
                    "current_importance": float(self.current_importance.flat[i]),
                    "reference_rank": int(self.reference_rank[feature]),
                    "current_rank": int(self.current_rank[feature]),
                    "psi": float(self.psi.flat[i]),
                    "wasserstein": float(self.wasserstein.flat[i]),
                    "relative_wasserstein": float(relative.flat[i]),
                }
            )
        return records

    def __repr__(self) -> str:
        lines = [
            f"ExplanationComparison of {self.n_reference:,} and {self.n_current:,} rows",
            f"nDCG of the rankings: {number(self.ndcg, 4)}",
        ]
        records = self._records()
        for record in records[:_N_SHOWN]:
            output = f", {record['output']}" if "output" in record else ""
            lines.append(
                f"  {record['feature']}{output}: PSI {number(record['psi'], 3)}, Wasserstein "
                f"{number(record['wasserstein'], 3)}, mean |value| "
                f"{number(record['reference_importance'], 3)} -> {number(record['current_importance'], 3)}"
            )
        n_others = len(records) - _N_SHOWN
        return "\n".join(lines + [f"  and {n_others} more"] * (n_others > 0))
