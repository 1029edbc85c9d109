"""Untrusted X: every dtype, shape, stride and container, as rows and as background data."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import harness
import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from skshapgpu import TreeExplainer

INSTRUMENT = (
    "skshapgpu._rows.inputs",
    "skshapgpu._rows.background",
    "skshapgpu._engine.options",
    "skshapgpu._engine.compiled_model",
    "skshapgpu._common.devices",
)

_DTYPES = (
    "f4", "f8", ">f4", ">f8", "f2", "g", "?", "i1", "u1", "i2", ">u2", "i4", "i8", ">i8", "u8", "c8", "c16",
    "M8[D]", "m8[s]", "U3", "S2", "V8", "O", "i4,f8",
)  # fmt: skip

_OBJECTS: tuple[Any, ...] = (
    1, 0.5, None, np.nan, "1.5", "x", b"2", 10**400, Decimal("1.5"), Decimal("sNaN"), Fraction(1, 3), 1j,
    [], [1.0], np.float32(1), np.array(1.0), np.array([1, 2]), pd.NA, pd.NaT, np.datetime64("2020-01-01"),
    object(), True, {},
)  # fmt: skip


@cache
def explainers() -> list[TreeExplainer]:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, size=(80, 3)).astype(float)
    y = X[:, 0] + (X[:, 1] == 2)
    forest = RandomForestRegressor(2, max_depth=3, random_state=0).fit(X, y)
    codes = HistGradientBoostingRegressor(max_iter=2, categorical_features=[1]).fit(X, y)
    options: dict[str, Any] = {"device": "cpu", "n_jobs": 1, "memory_limit": 2**26}
    return [
        TreeExplainer(forest, **options),
        TreeExplainer(forest, X[:5], **options),
        TreeExplainer(codes, **options),
        TreeExplainer(codes, algorithm="fast_v2", precision="double", **options),
    ]


def array(choices: harness.Choices, data: bytes) -> np.ndarray:
    dtype = np.dtype(choices.one_of(_DTYPES))
    shape = choices.one_of([(4, 3), (1, 3), (0, 3), (3, 4), (4, 0), (3,), (), (2, 3, 1), (70, 3)])
    n = int(np.prod(shape))
    if dtype.hasobject:
        out = np.empty(n, object)
        for i in range(n):
            out[i] = choices.one_of(_OBJECTS)
        out = out.reshape(shape)
    else:
        raw = ((data or b"\0") * (n * dtype.itemsize + 1))[: n * dtype.itemsize]
        out = np.frombuffer(raw, dtype, n).reshape(shape)
    return laid_out(out, choices)


def laid_out(out: np.ndarray, choices: harness.Choices) -> np.ndarray:
    """Return an array with the same, or nearly the same, content but other strides."""
    layout = choices.number(8)
    if layout == 1:
        return np.asfortranarray(out)
    if layout == 2 and out.ndim:
        return out[::-1]
    if layout == 3 and out.ndim == 2:
        return out[:, ::-1]
    if layout == 4 and out.ndim == 2 and out.size:
        return np.broadcast_to(out[:1], out.shape)
    if layout == 5 and out.ndim == 2 and out.size and not out.dtype.hasobject:
        packed = np.zeros(out.nbytes + 1, np.uint8)
        packed[1:] = np.frombuffer(out.tobytes(), np.uint8)
        return np.ndarray(out.shape, out.dtype, packed, 1)  # not aligned
    if layout == 6:
        return np.ma.masked_array(out)
    return out


def table(choices: harness.Choices, data: bytes) -> Any:
    kind = choices.number(6)
    if kind < 3:
        return array(choices, data)
    if kind == 3:
        rows = [
            [choices.one_of(_OBJECTS) for _ in range(choices.one_of([3, 3, 3, 3, 2, 4]))] for _ in range(3)
        ]
        return rows if choices.number(4) else tuple(map(tuple, rows))
    return frame(choices, data) if kind == 4 else sparse(choices)


def frame(choices: harness.Choices, data: bytes) -> Any:
    try:
        out = pd.DataFrame(array(choices, data))
    except Exception:  # values that pandas itself cannot hold
        return None
    for name in list(out):
        change = choices.number(8)
        if change == 1:
            out[name] = pd.Series([choices.one_of(_OBJECTS) for _ in range(len(out))], dtype=object)
        elif change == 2:
            out[name] = pd.Categorical([choices.one_of(["a", "b", None, "c"]) for _ in range(len(out))])
        elif change == 3:
            out[name] = pd.array([choices.one_of([1, 2, None]) for _ in range(len(out))], dtype="Int32")
    return out


def sparse(choices: harness.Choices) -> Any:
    """Build a sparse matrix whose parts may be inconsistent: SciPy does not check attributes set later."""
    made = choices.one_of(
        [sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.csr_array, sp.lil_matrix, sp.bsr_matrix]
    )
    out = made(np.eye(4, 3).astype(choices.one_of(["f4", "f8", "i8", "?", "c16"])))
    if out.format != "lil" and choices.number(2):
        for _ in range(1 + choices.number(2)):
            name = choices.one_of(
                ["row", "col", "data"] if out.format == "coo" else ["indices", "indptr", "data"]
            )
            part = getattr(out, name)
            if part.ndim == 1:
                setattr(out, name, harness.changed_array(part, choices))
    return out


def test_one(data: bytes) -> None:
    choices = harness.Choices(data)
    explainer = choices.one_of(explainers())
    X = table(choices, data)
    with harness.limits(100_000 + 100 * len(data)):
        action = choices.number(4)
        if action == 0:
            choices.one_of([explainer.explain_interactions, explainer.shap_interaction_values])(X)
        elif action == 1:
            model = harness.PreadaptedModel(explainer._adapted)
            TreeExplainer(model, X, device="cpu", n_jobs=1, data_weight=choices.one_of([None, [1.0] * 4, X]))
        else:
            explainer.explain(X)
