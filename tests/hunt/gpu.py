"""Choice of the device of a case, and copies of arrays to and from a GPU."""

from __future__ import annotations

from functools import cache
from importlib import util
from typing import Any

import numpy as np

from skshapgpu import cuda_info
from skshapgpu._common import algorithms

from .draws import Draw

#: Modes that run on the CPU only.
ON_CPU = ("background interactions",)


@cache
def available() -> bool:
    return bool(cuda_info()["available"])


def device_of(draw: Draw) -> str:
    """Return the device to ask for."""
    algorithm = algorithms.named(draw.options.get("algorithm", "auto"))
    on_cpu = draw.mode in ON_CPU or "cuda" not in algorithm.devices
    return draw.device if available() and not on_cpu else "cpu"


def on_device(draw: Draw, X: Any) -> Any:
    """Return X, or a copy on the GPU if a GPU array library can hold it."""
    if draw.gpu_arrays == "none" or device_of(draw) != "cuda" or type(X) is not np.ndarray:
        return X
    if X.dtype not in (np.float32, np.float64) or X.flags.writeable is False:
        return X
    if draw.gpu_arrays == "cupy" and util.find_spec("cupy"):
        import cupy

        return cupy.asarray(X)
    if draw.gpu_arrays == "torch" and util.find_spec("torch"):
        import torch

        return torch.from_numpy(np.ascontiguousarray(X)).to("cuda")
    return X


def on_host(values: Any) -> np.ndarray:
    """Return values as a NumPy array, whichever device holds them."""
    if hasattr(values, "get"):
        return values.get()
    return values.cpu().numpy() if hasattr(values, "cpu") else values
