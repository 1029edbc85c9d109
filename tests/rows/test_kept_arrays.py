"""How an array is read is kept for later arrays, which must have the results of a new explainer."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer

ROWS = np.random.default_rng(0).normal(size=(30, 4))
Y = ROWS[:, 0] * ROWS[:, 1] + 5


def fitted(family: str) -> Any:
    if family == "sklearn":
        return RandomForestRegressor(3, random_state=0).fit(ROWS, Y)
    if family == "lightgbm":
        lightgbm = pytest.importorskip("lightgbm")
        return lightgbm.LGBMRegressor(n_estimators=3, min_child_samples=2, verbose=-1).fit(ROWS, Y)
    xgboost = pytest.importorskip("xgboost")
    return xgboost.XGBRegressor(n_estimators=3, missing=-999.0).fit(ROWS, Y)


ARRAYS = {
    "float64": ROWS,
    "float32": ROWS.astype("f4"),
    "integers": ROWS.astype("i8") + 2**53,
    "big-endian": ROWS.astype(">f8"),
    "unaligned": np.frombuffer(b"\0" + ROWS.tobytes(), np.uint8)[1:].view("f8").reshape(ROWS.shape),
    "objects": ROWS.astype(object),
    "infinite": np.where(ROWS > 1, np.inf, ROWS),
    "missing": np.where(ROWS > 1, np.nan, ROWS),
    "text": ROWS.astype(str),
    "too wide": np.hstack([ROWS, ROWS]),
    "no rows": ROWS[:0],
}


@pytest.mark.parametrize("family", ["sklearn", "lightgbm", "xgboost"])
def test_arrays_are_read_as_by_a_new_explainer(family: str) -> None:
    """How an array is read is kept for later arrays of its type, and must not be used for others."""
    model = fitted(family)
    explainer = TreeExplainer(model, device="cpu")
    for name in [*ARRAYS, *reversed(ARRAYS)]:
        outcomes: list[tuple[Any, ...]] = []
        for each in (explainer, TreeExplainer(model, device="cpu")):
            try:
                explanation = each.explain(ARRAYS[name])
                outcomes.append((explanation.values.tobytes(), explanation.values.dtype))
            except (TypeError, ValueError) as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1], name


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="this NumPy has no StringDType")
def test_a_type_of_text_without_a_hash() -> None:
    text = np.array([["1", "2", "3", "4"]], np.dtypes.StringDType(na_object=[]))
    with pytest.raises(ValueError, match="could not convert string to float"):
        TreeExplainer(fitted("sklearn"), device="cpu").explain(text)


def test_an_array_is_not_kept_alive() -> None:
    explainer, X = TreeExplainer(fitted("sklearn"), device="cpu"), ROWS.copy()
    explainer.explain(X)
    reference = weakref.ref(X)
    del X
    gc.collect()
    assert reference() is None
