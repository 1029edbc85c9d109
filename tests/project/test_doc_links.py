"""The "?" of scikit-learn's diagrams, which opens the page of an estimator."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import BaseEstimator
from sklearn.tree import DecisionTreeRegressor

import skshapgpu
from skshapgpu import ShapTransformer

ROOT = Path(__file__).parents[2]
ESTIMATORS = sorted(
    name
    for name in skshapgpu.__all__
    if isinstance(getattr(skshapgpu, name), type) and issubclass(getattr(skshapgpu, name), BaseEstimator)
)


def links(estimator: Any) -> list[str]:
    """Return the addresses of pages in the diagram of an estimator."""
    return re.findall(r'href="([^"]*)"', estimator._repr_html_())


def test_estimators() -> None:
    assert {"ShapTransformer", "ShapInteractionTransformer", "ShapSelector"} < set(ESTIMATORS)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_diagram_links_to_our_page(name: str) -> None:
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("not a checkout")
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    page = f"{urls['Documentation']}en/stable/generated/skshapgpu.{name}.html"
    addresses = links(getattr(skshapgpu, name)(DecisionTreeRegressor()))
    assert page in addresses
    # The model inside keeps the page that scikit-learn has for it.
    assert any("scikit-learn.org" in link and "DecisionTreeRegressor" in link for link in addresses)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_site_has_the_page(name: str) -> None:
    """``autosummary`` writes a page into the folder ``generated`` for each name that it lists."""
    page = ROOT / "docs" / "api.rst"
    if not page.exists():
        pytest.skip("not a checkout")
    text = page.read_text()
    before, entry, _ = text.partition(f"\n   {name}\n")
    assert entry and ".. currentmodule:: skshapgpu\n" in before
    assert ":toctree: generated" in before.rpartition(".. autosummary::")[2]


class TransformerOfAUser(ShapTransformer):
    pass


def test_a_subclass_elsewhere_has_no_page() -> None:
    assert not any("skshapgpu" in link for link in links(TransformerOfAUser(DecisionTreeRegressor())))
