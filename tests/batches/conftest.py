"""An explainer of the model of ``helpers.batches`` and the values of its rows."""

from __future__ import annotations

import numpy as np
import pytest

from skshapgpu import TreeExplainer

# PyArrow is imported only where it is needed, because other files of this folder run without it.


@pytest.fixture(scope="module")
def explainer() -> TreeExplainer:
    from helpers.batches import MODEL

    return TreeExplainer(MODEL)


@pytest.fixture(scope="module")
def values(explainer: TreeExplainer) -> np.ndarray:
    from helpers.batches import IRIS

    return explainer.shap_values(IRIS)
