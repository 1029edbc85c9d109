"""The measurement of the walk."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.ensembles import random_ensemble, random_rows

from skshapgpu import _core
from skshapgpu.adapters.ensemble import attributes_of


@pytest.mark.parametrize("precision", ["single", "double"])
def test_walk_seconds(precision: str) -> None:
    ensemble = random_ensemble(1, n_trees=70, n_features=8, n_outputs=2, max_leaves=60)
    plan = _core.Plan(attributes_of(ensemble), precision)
    rows = random_rows(2, ensemble, 1024)
    deciding, walking = np.sum([_core.walk_seconds(plan, rows) for _ in range(20)], axis=0)
    assert 0 < deciding < 5 and 0 < walking < 5
    assert len(_core.walk_seconds(plan, rows[:1])) == 2


def test_walk_seconds_refuses_what_it_cannot_measure() -> None:
    ensemble = random_ensemble(1, n_trees=2, n_features=4)
    rows = random_rows(2, ensemble, 1025)
    with pytest.raises(ValueError, match="of order 1"):
        _core.walk_seconds(_core.Plan(attributes_of(ensemble), "single", 2), rows[:1])
    for wrong in (rows, rows[:0]):
        with pytest.raises(ValueError, match="1 to 1024 rows"):
            _core.walk_seconds(_core.Plan(attributes_of(ensemble), "single"), wrong)
