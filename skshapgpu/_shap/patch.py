"""Tree explainers of shap that compute with this package, for as long as a patch is active.

The patch replaces functions in the classes of shap, not the classes. So it also reaches code that imported or
subclassed a class beforehand, and explainers that exist already. ``isinstance`` and pickle see the classes of
shap, and there is little to put back. shap still constructs explainers and explanations, and its original
functions still compute what this package refuses.

The data that explainers need for this are in ``_ENTRIES``, not in attributes of the explainers. So the
explainers and their pickles are the same as without a patch.
"""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, wraps
from types import FrameType, TracebackType
from typing import Any

from sklearn.utils.fixes import parse_version

from ..errors import ShapFallbackWarning
from .stand_in import REFUSALS, HasStandIn, StandIn, calls_library, is_numeric, require_loadable

#: Oldest supported release. Earlier releases return lists of arrays for several outputs.
_OLDEST_SHAP = "0.45"


class ShapPatch:
    """Patch of shap that is active until ``undo`` is called, or until the end of a ``with`` block.

    :func:`patch_shap` returns it.
    """

    def __init__(self) -> None:
        _SWITCH.turn_on()
        self._active = True

    @property
    def active(self) -> bool:
        """Whether this patch is active. After :meth:`ShapPatch.undo`, another patch may still be active."""
        return self._active

    def undo(self) -> None:
        """End this patch. A second call does nothing.

        When the last active patch ends, every function of shap that was replaced is back in its place.
        """
        with _SWITCH.lock:
            if self._active:
                self._active = False
                _SWITCH.turn_off()

    def __enter__(self) -> ShapPatch:
        if not self._active:
            raise RuntimeError("this patch has been undone: call patch_shap() again")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"<ShapPatch: {'active' if self._active else 'undone'}>"


def patch_shap() -> ShapPatch:
    """Let the tree explainers of shap compute with this package.

    The patch covers ``shap.TreeExplainer`` by any of its names, ``shap.Explainer`` on tree models,
    ``shap.GPUTreeExplainer``, and subclasses, also in code that imported them beforehand. Explainers have the
    arguments, attributes and shapes of shap, and ``explainer(X)`` is a ``shap.Explanation``. Values are exact
    and float64. docs/migration.md lists where they differ from the values of shap.

    If this package refuses something, such as ``approximate=True``, shap computes it itself. A
    :class:`ShapFallbackWarning` says why, once for each explainer and reason. shap also computes with
    explainers that were made before the patch, copied or unpickled. Exceptions are path-dependent explainers
    of XGBoost, LightGBM and CatBoost, which know their model. shap itself raises an error for background data
    with strings; under a patch, a note of this error says what takes them.

    The patch is active from the call on, for all threads of the process. It ends with :meth:`ShapPatch.undo`,
    or with a ``with`` block, also by an exception. If several patches are active, shap is restored when the
    last of them ends, in whatever order they end. Explainers that were made under a patch remain usable, and
    compute with shap after it. New processes are not patched.

    Returns
    -------
    ShapPatch
        Context manager with a method ``undo``.

    Raises
    ------
    ImportError
        shap is not installed, or older than 0.45.

    See Also
    --------
    Explanation.to_shap : Convert an explanation, for the plots of shap.

    Examples
    --------
    >>> import skshapgpu
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> import shap  # doctest: +SKIP
    >>> with skshapgpu.patch_shap():  # doctest: +SKIP
    ...     values = shap.TreeExplainer(model).shap_values(X)
    """
    return ShapPatch()


class _Switch:
    """Counter of active patches, which replaces functions of shap while there are any."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.n_active = 0
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def turn_on(self) -> None:
        with self.lock:
            if not self.n_active:
                for owner, name, new in list(_replacements()):
                    self._replaced.append((owner, name, vars(owner)[name], new))
                    setattr(owner, name, new)
            self.n_active += 1

    def turn_off(self) -> None:
        with self.lock:
            self.n_active -= 1
            if self.n_active:
                return
            while self._replaced:
                owner, name, original, new = self._replaced.pop()
                # Leave it if others have wrapped the new function: without a patch, it calls the original.
                if vars(owner)[name] is new:
                    setattr(owner, name, original)


_SWITCH = _Switch()


@dataclass
class _Entry:
    """An explainer's stand-in, if there is one, and the reasons why shap computed instead.

    ``expected_value`` is the value with which shap made the explainer, and with which shap computes.
    """

    reference: weakref.ref[Any]
    expected_value: Any
    stand_in: StandIn | None = None
    reasons: set[str] = field(default_factory=set)


#: Entries by the id of the explainer, because subclasses may define equality. They end with their explainers.
_ENTRIES: dict[int, _Entry] = {}


def _replacements() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Yield the functions to replace: the class or module, the name, and the new function."""
    try:
        import shap
    except ImportError as error:
        raise ImportError("patch_shap() needs shap: pip install shap") from error
    if parse_version(shap.__version__) < parse_version(_OLDEST_SHAP):
        raise ImportError(f"patch_shap() needs shap {_OLDEST_SHAP} or newer, not {shap.__version__}")
    explainers = shap.explainers
    wrappers: dict[str, Callable[[Any], Any]] = {
        "__init__": _constructor,
        "shap_values": partial(_method, compute=StandIn.values),
        "shap_interaction_values": partial(_method, compute=StandIn.interaction_values),
    }
    for owner in (shap.TreeExplainer, vars(explainers).get("GPUTreeExplainer")):
        for name in wrappers.keys() & (set() if owner is None else vars(owner)):
            yield owner, name, wrappers[name](vars(owner)[name])
    if hasattr(explainers, "_load_tree_backend"):  # from 0.54 on, classes for GPUs are in other packages
        yield explainers, "_load_tree_backend", _backend_loader(explainers._load_tree_backend)


def _constructor(original: Any) -> Any:
    @wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        passed = dict(zip(("model", "data"), args)) | kwargs
        if _SWITCH.n_active:
            require_loadable(passed.get("model"), passed.get("data"))
        try:
            original(self, *args, **kwargs)
        except Exception as error:
            if _SWITCH.n_active and not is_numeric(passed.get("data")):
                error.add_note(
                    "shap needs background data of numbers. skshapgpu.TreeExplainer(model, data) also takes "
                    "data frames with categories."
                )
            raise
        if _SWITCH.n_active and not isinstance(self, HasStandIn):
            stand_in = _prepare(_new_entry(self), self, args[0] if args else kwargs["model"])
            if stand_in is not None:
                self.expected_value = stand_in.base_value_like(self.expected_value)

    return __init__


def _method(original: Any, compute: Any) -> Any:
    """Return a method that computes with the explainer's stand-in, or else calls the original."""

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        stand_in = _stand_in_of(self) if _SWITCH.n_active else None
        if stand_in is None:
            return original(self, *args, **kwargs)
        try:
            values = compute(stand_in, *args, **kwargs)
        except REFUSALS as error:
            entry = _ENTRIES[id(self)]
            _warn(entry, str(error))
            self.expected_value = entry.expected_value
            return original(self, *args, **kwargs)
        interactions = compute is StandIn.interaction_values
        self.expected_value = stand_in.base_value_after(self.expected_value, interactions)
        return values

    return method


def _backend_loader(original: Any) -> Any:
    @wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        if not _SWITCH.n_active:
            return original(*args, **kwargs)
        from shap import TreeExplainer

        return TreeExplainer

    return load


def _stand_in_of(explainer: Any) -> StandIn | None:
    """Return the stand-in of an explainer. Try to make one if the explainer was not made under a patch."""
    entry = _ENTRIES.get(id(explainer))
    if entry is not None:
        if entry.stand_in is None:
            return None
        difference = entry.stand_in.difference(explainer)
        if difference is None:
            return entry.stand_in
        _warn(entry, f"{difference}: make another explainer")
        return None
    entry = _new_entry(explainer)
    if calls_library(explainer):  # shap would return the values of this model in its present state
        return _prepare(entry, explainer, explainer.model.original_model)
    _warn(entry, "the explainer was made without patch_shap(), copied or unpickled: make it again")
    return None


def _new_entry(explainer: Any) -> _Entry:
    key = id(explainer)
    entry = _Entry(weakref.ref(explainer, lambda _: _ENTRIES.pop(key, None)), explainer.expected_value)
    _ENTRIES[key] = entry
    return entry


def _prepare(entry: _Entry, explainer: Any, model: Any) -> StandIn | None:
    """Make the stand-in of an explainer, or warn that there is none."""
    try:
        entry.stand_in = StandIn(explainer, model)
    except REFUSALS as error:
        _warn(entry, str(error))
    return entry.stand_in


def _warn(entry: _Entry, reason: str) -> None:
    if reason in entry.reasons:
        return
    entry.reasons.add(reason)
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and _package(frame) in ("shap", "skshapgpu"):
        frame, level = frame.f_back, level + 1
    warnings.warn(f"shap computes this itself, as without patch_shap(): {reason}", ShapFallbackWarning, level)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
