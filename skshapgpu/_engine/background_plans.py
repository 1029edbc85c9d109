"""The plans of results against background data, and the choice among all plans.

``CompiledModel.of`` returns the plans of a kind: ``plan_of`` chooses their class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .._common import devices
from .._common.algorithms import AUTO, OWEN_VALUES, SHAP_VALUES, Kind
from .._common.lazy import computed_once
from ..adapters.ensemble import attributes_of
from .costs import trees as tree_costs
from .costs.background_pairs import PairTables
from .kind_plans import Intervals, KindPlan, OwenPlan, PathOwenPlan
from .link_sums import LinkSumPlan
from .softmax import SoftmaxPlan

if TYPE_CHECKING:
    from .compiled_model import CompiledModel


class BackgroundPlan(KindPlan):
    """The plan of SHAP values or Banzhaf values of the margin against background data."""

    _can_have_cells = False

    def _compile_trees(self, tables: dict[str, np.ndarray] | None) -> Any:
        index, room = self.kind.core_index, self._table_room()
        return _core.background_plan(*self._background(), index, room, self._n_threads, tables)

    def _compile_lanes(self) -> Any:
        index, room = self.kind.core_index, self.model.interval_room()
        return _core.background_lane_plan(*self._background(), index, room, self._n_threads)

    @property
    def _n_background(self) -> int:
        assert self.model.background is not None
        return len(self.model.background.weights)

    @property
    def may_have_lanes(self) -> bool:
        return super().may_have_lanes and self._n_background <= tree_costs.MOST_LANE_BACKGROUND

    @computed_once
    def few_rows_seconds(self) -> float:
        """Seconds in which one thread looks up few rows."""
        return tree_costs.few_lookups_seconds(self.groups)

    @computed_once
    def lane_build_seconds(self) -> float:
        # Each background row has its leaves.
        return self._n_background * tree_costs.lane_build_seconds(self.groups)

    def _background(self) -> tuple[dict[str, Any], str, np.ndarray, np.ndarray]:
        """Return the ensemble, the precision and the background data, as the core takes them."""
        model, background = self.model, self.model.background
        assert background is not None
        return attributes_of(self._ensemble), model.options.precision, background.rows, background.weights


class TiledPlan(BackgroundPlan):
    """The plan of interactions of pairs against background data."""

    is_tiled = True
    _can_have_tables = False

    def _compile_trees(self, tables: dict[str, np.ndarray] | None) -> Any:
        index, room = self.kind.core_index, self._table_room()
        return _core.BackgroundPairsPlan(*self._background(), index, room, self._n_threads)

    @computed_once
    def pair_tables(self) -> PairTables | None:
        """Costs of the tables with which GPUs compute the results; None: they do not fit into memory."""
        return self.pair_tables_within(self.model.gpu_table_room())

    def pair_tables_within(self, table_bytes: int) -> PairTables | None:
        """Return the costs of these tables; None if they take more bytes, or have too many entries."""
        costs = self.plan().table_costs(table_bytes)
        return None if costs is None else PairTables(**costs)

    @property
    def _fits_gpus(self) -> bool:
        return self.pair_tables is not None

    def name_without_gpus(self, name: str) -> str:
        return f"interventional {name} of a model whose tables do not fit into memory or memory_limit"

    def _compile_on(self, plan: Any, index: int, method: str) -> Any:
        tables = plan.with_tables(self.model.gpu_table_room(), self._n_threads)
        return devices.compile_tables_on(tables, index)


class LinkPlan(BackgroundPlan):
    """The plan of SHAP values of a link, which is a function of the margin."""

    _can_have_tables = _can_have_lanes = False

    def _compile_trees(self, tables: dict[str, np.ndarray] | None) -> Any:
        model, link = self.model, self.model.link
        assert link is not None and model.background is not None
        if link.is_joint:
            return SoftmaxPlan(model.ensemble, model.options.precision, model.background, link)
        if link.sum is not None:
            return LinkSumPlan(model.ensemble, model.options.precision, model.background, link.sum)
        return _core.RescaledPlan(*self._background(), link.name, link.scale)

    @computed_once
    def table_costs(self) -> dict[str, int] | None:
        """Costs of the tables with which GPUs compute the values.

        None: the tables do not fit into memory, or the margins of the background data are too far apart.
        """
        return self.plan().table_costs(self.model.gpu_table_room())

    @property
    def _fits_gpus(self) -> bool:
        return self.table_costs is not None

    def name_without_gpus(self, name: str) -> str:
        link = self.model.link
        assert link is not None
        if link.is_joint or link.sum is not None or "cuda" not in self.model.results[self.kind].devices:
            return f"SHAP values of a {link.noun}"
        return (
            f"SHAP values of a {link.noun} whose tables do not fit into memory or memory_limit, or are "
            "impossible, because the margins of the background rows are too far apart,"
        )

    def _gpu_method(self, n_rows: int, intervals: Intervals) -> str:
        return "chunks"

    def _compile_on(self, plan: Any, index: int, method: str) -> Any:
        """Return the ``_cuda.CudaPlan`` of the tables of a plan on a GPU."""
        model = self.model
        assert model.background is not None
        tables = _core.RescaledTables(
            plan,
            attributes_of(model.ensemble),
            model.background.rows,
            model.gpu_table_room(),
            self._n_threads,
        )
        return devices.load_cuda().CudaPlan.rescaled(tables, index)


class LinearPlan(BackgroundPlan):
    """The plan of values of trees whose leaves are linear functions."""

    _can_have_tables = _can_have_lanes = False

    def _compile_trees(self, tables: dict[str, np.ndarray] | None) -> Any:
        index = self.kind.core_index
        return _core.LinearPlan(*self._background(), index, self._table_room(), self._n_threads)

    def name_without_gpus(self, name: str) -> str:
        return f"{name or 'SHAP values'} of a model with linear leaves"

    def sets(self, result: str) -> np.ndarray:
        self.require_pairs()
        raise no_linear_leaves(f"interactions of {result}")


class BackgroundOwenPlan(OwenPlan, BackgroundPlan):
    """The plans of Owen values against background data."""

    def _compile_trees(self, tables: dict[str, np.ndarray] | None) -> Any:
        index, room, groups = SHAP_VALUES.core_index, self._table_room(), self._group_of_player
        return _core.background_plan(*self._background(), index, room, self._n_threads, groups=groups)

    @property
    def _fits_gpus(self) -> bool:
        return not self.n_patterns

    def name_without_gpus(self, name: str) -> str:
        return f"interventional {name} of a model with leaves whose paths are too long for tables"


def plan_of(model: CompiledModel, kind: Kind) -> KindPlan:
    """Return the plans of a kind of results of a model, none of which is compiled yet."""
    if model.has_linear_leaves:
        return LinearPlan(model, kind)
    # Kinds that are not computed against background data have only lists of sets, which do not depend on it.
    if model.background is None or AUTO.find(kind, interventional=True) is None:
        return PathOwenPlan(model, kind) if kind == OWEN_VALUES else KindPlan(model, kind)
    if kind == OWEN_VALUES:
        return BackgroundOwenPlan(model, kind)
    if kind.order > 1:
        return TiledPlan(model, kind)
    return BackgroundPlan(model, kind) if model.link is None else LinkPlan(model, kind)


def no_linear_leaves(results: str) -> ValueError:
    """Return the error for results that are not computed for models with linear leaves."""
    return ValueError(
        f"{results} are not computed for models with linear leaves: only SHAP values and Banzhaf values are"
    )
