"""Files of the leading steps of a pipeline. skops writes and reads them, so no pickle is loaded."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from .skops_objects import UntrustedTypesError, loads, require_skops

#: Types of this package that steps may have.
_OWN = ("skshapgpu._rows.pipelines.AsArray",)

#: Packages that every installation of this package has in suitable versions.
_REQUIRED_PACKAGES = {"numpy", "scipy", "joblib", "skshapgpu"}


def dump(steps: Sequence[Any], grouped_by_input: bool, trusted: Collection[str]) -> bytes:
    """Return the content of a file of fitted steps.

    ``grouped_by_input`` says whether all columns that the steps make from one column of X form one feature.
    ``trusted`` are the types, besides the types that skops trusts itself, that :func:`load` will be told to
    create. Raise ``ImportError`` if skops is not installed; ``ValueError`` if steps hold types that are not
    trusted, or that no other process can import, or skops cannot save them.
    """
    skops = _skops()
    names = ", ".join(type(step).__name__ for step in steps)
    try:
        content = skops.dumps({"steps": list(steps), "grouped_by_input": grouped_by_input})
    except Exception as error:  # skops or a step may raise any error
        raise ValueError(f"skops cannot save the leading steps of the pipeline ({names}): {error}") from error
    if main_types := [
        name for name in skops.get_untrusted_types(data=content) if name.startswith("__main__.")
    ]:
        raise ValueError(
            f"the leading steps of the pipeline hold {', '.join(main_types)}, which only this process knows: "
            "define it in a module that can be imported"
        )
    load(content, trusted)
    return content


def load(content: bytes, trusted: Collection[str]) -> tuple[list[Any], bool]:
    """Return the first two arguments of :func:`dump`.

    Parameters
    ----------
    content : bytes
    trusted : collection of str
        Full names of types, besides the types that skops trusts itself, that may be created.

    Raises
    ------
    ImportError
        skops, or a package that defines a type, is not installed.
    ValueError
        The file holds types that are not trusted, or is damaged.
    """
    try:
        loaded = loads(_skops(), content, [*trusted, *_OWN])
    except UntrustedTypesError as error:
        raise ValueError(
            f"the leading steps of the pipeline hold {error}. If you trust them, pass "
            f"skops_trusted_types={[*trusted, *error.types]}"
        ) from None
    except ValueError as error:
        raise ValueError(f"skops cannot load the leading steps of the pipeline: {error}") from error
    if not isinstance(loaded, dict) or set(loaded) != {"steps", "grouped_by_input"}:
        raise ValueError("the file holds no steps of a pipeline")
    steps = loaded["steps"]
    if not isinstance(steps, list) or not all(hasattr(step, "transform") for step in steps):
        raise ValueError("the file holds steps without a method transform")
    return steps, bool(loaded["grouped_by_input"])


def packages(content: bytes) -> list[str]:
    """Return the import names of the packages that define the types in a file.

    Packages that this package requires are left out, except scikit-learn: its objects depend on its version.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = {name.partition(".")[0] for name in _modules(json.loads(archive.read("schema.json")))}
    return sorted(names - set(sys.stdlib_module_names) - _REQUIRED_PACKAGES)


def _modules(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(module := node.get("__module__"), str):
            yield module
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from _modules(child)


def _skops() -> Any:
    return require_skops("the leading steps of a pipeline are saved by skops")
