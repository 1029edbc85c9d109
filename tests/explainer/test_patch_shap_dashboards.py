"""Examples of packages that explain with shap (benchmarks/dashboards.py), with patch_shap and without."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skshapgpu import patch_shap
from skshapgpu._shap.stand_in import StandIn

pytest.importorskip("shap", minversion="0.45")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # theirs
    pytest.mark.filterwarnings("error::skshapgpu.ShapFallbackWarning"),
]


@pytest.fixture
def dashboards(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("dashboards")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that records the calls that compute values with this package."""
    results: list[str] = []

    def count(name: str) -> None:
        own = getattr(StandIn, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            results.append(name)
            return own(*args, **kwargs)

        monkeypatch.setattr(StandIn, name, counted)

    count("values")
    count("interaction_values")
    return results


@pytest.mark.parametrize(
    "name",
    ["explainerdashboard", "explainerdashboard-options", "shapash", "powershap", "powershap-forest"],
)
def test_results_are_the_same_under_the_patch(name: str, dashboards: Any, calls: list[str]) -> None:
    pytest.importorskip(dashboards.package_of(name))
    example = dashboards.EXAMPLES[name]()
    expected = example()
    assert not calls
    with patch_shap():
        result = example()
    assert "values" in calls
    assert ("interaction_values" in calls) == ("interactions" in expected)
    assert result.keys() == expected.keys()
    for key, theirs in expected.items():
        assert np.isfinite(theirs).all()
        assert np.ptp(theirs) > 0 or theirs.ndim == 0
        np.testing.assert_allclose(result[key], theirs, atol=1e-5 * np.abs(theirs).max(), err_msg=key)
    calls.clear()
    example()
    assert not calls
