"""The public interface equals api.txt, and docs/api.rst lists all of it.

``./dev api`` writes api.txt again, so that a reviewer sees each change of the interface.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LISTED = Path(__file__).with_name("api.txt")

#: Modules whose ``__all__`` is public. A name in several modules is listed under the first.
PUBLIC = (
    "skshapgpu",
    "skshapgpu.adapters",
    "skshapgpu.batches",
    "skshapgpu.distributed",
    "skshapgpu.mlflow",
    "skshapgpu.reference",
)

#: scikit-learn generates these methods of metadata routing from the signatures of other methods.
ROUTING = re.compile(r"set_\w+_request$")


#: Results, whose attributes and methods are public, but not their constructors.
RESULTS = (
    "BatchesResult",
    "CallPlan",
    "Cohorts",
    "Explanation",
    "ExplanationComparison",
    "InteractionExplanation",
)

#: Special methods that users call, by their syntax.
SPECIAL = {"__call__", "__getitem__"}


class _Annotation(str):
    """Annotation of a module with postponed evaluation: a string that is shown without quotes."""

    def __repr__(self) -> str:
        return str(self)


def public_objects() -> dict[str, Any]:
    """Return each public object by its full name."""
    objects: dict[str, Any] = {}
    for place in PUBLIC:
        module = importlib.import_module(place)
        for name in module.__all__:
            value = getattr(module, name)
            if not any(value is other for other in objects.values()):
                objects[f"{place}.{name}"] = value
    return objects


def own_classes(owner: type) -> list[type]:
    """Return a class and its bases, as far as this package defines them."""
    return [base for base in owner.__mro__ if base.__module__.split(".")[0] == "skshapgpu"]


def signature(function: Any, *, of_class: bool = False) -> str:
    """Return the signature as text, as it stands in the code."""
    result = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=_Annotation(parameter.annotation))
        if isinstance(parameter.annotation, str)
        else parameter
        for parameter in result.parameters.values()
    ]
    returns = result.return_annotation
    if of_class:
        returns = result.empty
    elif isinstance(returns, str):
        returns = _Annotation(returns)
    return str(result.replace(parameters=parameters, return_annotation=returns))


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the names of public members that this package defines, and the members as the class holds them.

    Those of scikit-learn's base classes differ from release to release.
    """
    names = {name for base in own_classes(owner) for name in vars(base)}
    fields = set(getattr(owner, "__dataclass_fields__", ()))  # of which lines_of_class tells
    for name in sorted(names - fields):
        if name in SPECIAL or not (name.startswith("_") or ROUTING.match(name)):
            yield name, inspect.getattr_static(owner, name)


def lines_of_class(path: str, owner: type) -> Iterator[str]:
    """Yield the line of the constructor, if the package defines it, and the lines of the members."""
    own = any("__init__" in vars(base) for base in own_classes(owner))
    made = own and not getattr(owner, "_is_protocol", False) and owner.__name__ not in RESULTS
    yield f"class {path}{signature(owner, of_class=True) if made else ''}"
    if owner.__name__ in RESULTS:
        for field in dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ():
            if not field.name.startswith("_"):
                yield f"{path}.{field.name}: {field.type}"
    for name, member in members(owner):
        kind = type(member).__name__
        if isinstance(member, property) or kind == "cached_property":
            function = member.fget if isinstance(member, property) else member.func
            returns = inspect.signature(function).return_annotation
            yield f"{path}.{name}: {returns}"
        elif isinstance(member, (classmethod, staticmethod)):
            yield f"{kind} {path}.{name}{signature(getattr(owner, name))}"
        elif callable(getattr(owner, name)):
            yield f"{path}.{name}{signature(getattr(owner, name))}"
        else:
            yield f"{path}.{name}"


def interface() -> str:
    """Return the public interface, a line for each function, class, method and property."""
    lines = []
    for path, value in public_objects().items():
        if inspect.isclass(value):
            lines += lines_of_class(path, value)
        elif callable(value):
            lines.append(f"{path}{signature(value)}")
        else:
            lines.append(path)
    return "\n".join(lines) + "\n"


def test_the_interface_is_the_listed_one() -> None:
    listed, actual = LISTED.read_text(), interface()
    difference = "\n".join(
        difflib.unified_diff(listed.splitlines(), actual.splitlines(), LISTED.name, "package", "", "", 0, "")
    )
    assert listed == actual, (
        f"the public interface has changed:\n{difference}\n"
        f"if this is on purpose, run ./dev api and commit {LISTED.name}"
    )


def test_the_reference_lists_every_public_name() -> None:
    text = (ROOT / "docs/api.rst").read_text()
    listed = [f"skshapgpu.{name}" for name in re.findall(r"^   ([\w.]+)$", text, re.MULTILINE)]
    assert sorted(listed) == sorted(set(public_objects()) - {"skshapgpu.__version__"})


def test_pages_import_from_public_modules() -> None:
    # Names in quotes are the types that files of skops hold, not imports.
    private = re.compile(r"(?<!\")\bskshapgpu\.(\w+)(?:\.| import )[A-Z]")
    places = {place.partition(".")[2] for place in PUBLIC}
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.py")]
    assert len(pages) > 20
    for path in pages:
        assert set(private.findall(path.read_text())) <= places, path.name


if __name__ == "__main__":
    LISTED.write_text(interface())
