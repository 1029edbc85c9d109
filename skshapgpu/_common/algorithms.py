"""The table of algorithms: which results each of them computes, where, and with which tables.

All rules about algorithms are read from here: the values of options, which calls are rejected, the core's
method, whether a GPU can be chosen, and the table in docs/models.md. A new algorithm is a new row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from .indices import INDICES

DEVICES = ("cpu", "cuda")

#: Values of the option ``model_output`` that are functions of time, with an output for each time.
TIME_OUTPUTS = ("survival", "cumulative_hazard")

#: Values of the option ``model_output`` that are scores of an isolation forest.
SCORE_OUTPUTS = ("score_samples", "decision_function")


class Kind(NamedTuple):
    """Kind of results: values of single features or, from order 2 on, interactions of sets of features.

    The index has its public name, as in the table of indices.
    """

    order: int
    index: str  # type: ignore[assignment]  # the method of tuples is not needed

    @property
    def values_name(self) -> str:
        """Name of the results, such as "SHAP values"."""
        return INDICES[self.index].values_name

    @property
    def adds_up(self) -> bool:
        """Whether the base value plus the values of a row is its margin."""
        return INDICES[self.index].adds_up

    @property
    def core_index(self) -> str:
        """Name of the index in the core, which has none for Owen values."""
        name = INDICES[self.index].core_name
        assert name is not None
        return name


SHAP_VALUES, BANZHAF_VALUES, OWEN_VALUES = Kind(1, "SV"), Kind(1, "BV"), Kind(1, "OV")

_PAIRS = (Kind(2, "SII"), Kind(2, "STII"), Kind(2, "BII"))
_TRIPLES = (Kind(3, "SII"), Kind(3, "BII"))


@dataclass(frozen=True)
class Results:
    """Results that an algorithm computes under the same conditions."""

    kinds: tuple[Kind, ...]
    devices: tuple[str, ...]
    #: Whether the results are computed against background data; otherwise they are path-dependent.
    interventional: bool = False
    #: Values of the option ``model_output`` for which the results are computed. Functions of time that are
    #: margins, such as the outputs of survival forests, count as "raw".
    model_outputs: tuple[str, ...] = ("raw",)


@dataclass(frozen=True)
class Algorithm:
    """Row of the table."""

    name: str  # value of the option ``algorithm``
    results: tuple[Results, ...]  # no two of them contain the same result
    precisions: tuple[str, ...] = ("single", "double")
    #: How ``_core.Plan`` computes path-dependent results: "walk", or the name under which an algorithm is
    #: registered in csrc/baselines. The core rejects models beyond the method's limits.
    method: str = "walk"
    #: Which trees have tables for path-dependent values. "worthwhile": trees with the same split in all nodes
    #: of a level, and trees for which a call with many rows builds tables; "all": all trees, as far as memory
    #: allows. Interventional values use tables with every algorithm.
    tables: Literal["none", "worthwhile", "all"] = "none"
    #: How ``_cuda.CudaPlan`` explains trees: "walk" (those without tables), or the name under which a method
    #: for all trees is registered in csrc/cuda/baselines.
    gpu_method: str = "walk"
    deterministic: bool = True  # whether equal calls on the same device give the same bits
    #: Results that the algorithm computes for models with linear leaves.
    linear_results: tuple[Results, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices on which the algorithm computes any results."""
        return tuple(device for device in DEVICES if any(device in entry.devices for entry in self.results))

    @property
    def is_for_comparison(self) -> bool:
        """Whether the algorithm explains all trees in one way, without quadrature or tables."""
        return self.tables == "none" and (self.method != "walk" or self.gpu_method != "walk")

    @property
    def interventional(self) -> bool:
        """Whether the algorithm computes results against background data."""
        return any(entry.interventional for entry in self.results)

    def by_kind(
        self, interventional: bool = False, model_output: str = "raw", linear_leaves: bool = False
    ) -> dict[Kind, Results]:
        """Return the entry for each kind of results that the algorithm computes under these conditions."""
        return {
            kind: entry
            for entry in (self.linear_results if linear_leaves else self.results)
            for kind in entry.kinds
            if entry.interventional == interventional and model_output in entry.model_outputs
        }

    def find(self, kind: Kind, interventional: bool = False, model_output: str = "raw") -> Results | None:
        """Return the entry for results of this kind; None if the algorithm does not compute them."""
        return self.by_kind(interventional, model_output).get(kind)


_QUADRATURE = (
    Results((SHAP_VALUES, BANZHAF_VALUES, *_PAIRS, *_TRIPLES), ("cpu", "cuda")),
    Results((SHAP_VALUES, BANZHAF_VALUES, *_PAIRS), ("cpu", "cuda"), interventional=True),
    Results((OWEN_VALUES,), ("cpu", "cuda")),
    Results((OWEN_VALUES,), ("cpu", "cuda"), interventional=True),
    Results(
        (SHAP_VALUES,),
        ("cpu", "cuda"),
        interventional=True,
        model_outputs=("probability", "log_loss"),
    ),
    Results(
        (SHAP_VALUES,),
        ("cpu",),
        interventional=True,
        model_outputs=("response", *TIME_OUTPUTS, *SCORE_OUTPUTS),
    ),
)
_LINEAR = (Results((SHAP_VALUES, BANZHAF_VALUES), ("cpu",), interventional=True),)
_SHAP_VALUES_ON_CPU = (Results((SHAP_VALUES,), ("cpu",)),)

#: The first algorithm computes everything that any other computes, so error messages recommend it.
ALGORITHMS = (
    Algorithm("auto", _QUADRATURE, tables="worthwhile", linear_results=_LINEAR),
    Algorithm("quadrature", _QUADRATURE, linear_results=_LINEAR),
    Algorithm(
        "fast_v2",
        (Results((SHAP_VALUES, BANZHAF_VALUES), ("cpu", "cuda")),),
        method="fast_v2",
        tables="all",
        gpu_method="fast_v2",
    ),
    Algorithm(
        "gputreeshap",
        (Results((SHAP_VALUES,), ("cuda",)),),
        gpu_method="gputreeshap",
        deterministic=False,  # it uses atomic additions
    ),
    Algorithm("treeshap", _SHAP_VALUES_ON_CPU, method="treeshap"),
    Algorithm("fast_v1", _SHAP_VALUES_ON_CPU, method="fast_v1"),
)
AUTO = ALGORITHMS[0]

#: Values of the option ``algorithm``, for type checkers.
AlgorithmName = Literal["auto", "quadrature", "fast_v2", "gputreeshap", "treeshap", "fast_v1"]

#: Values of the option ``algorithm``, and of ``model_output``.
NAMES = tuple(algorithm.name for algorithm in ALGORITHMS)
MODEL_OUTPUTS = tuple(dict.fromkeys(output for entry in AUTO.results for output in entry.model_outputs))

_BY_NAME = dict(zip(NAMES, ALGORITHMS))


def named(name: str) -> Algorithm:
    """Return the algorithm of this name."""
    return _BY_NAME[name]


def is_deterministic(name: Any) -> bool:
    """Return whether the algorithm of this name, if there is one, always gives the same bits."""
    return all(algorithm.deterministic or algorithm.name != name for algorithm in ALGORITHMS)
