"""Deprecations: their warnings and docstrings, how long they last, and that none outlives its release."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest
from project import release
from sklearn.base import BaseEstimator, clone

from skshapgpu._deprecation import deprecated, renamed_parameter

NOTE = ".. deprecated:: 0.3\n   Removed in 0.5: use `new`."


@deprecated(since="0.3", removed_in="0.5", instead="`new`")
def old(value: int, *, factor: int = 1) -> int:
    """Multiply a number.

    Parameters
    ----------
    value : int
    """
    return value * factor


@deprecated(since="0.3", removed_in="0.5", instead="`new`")
class Old(BaseEstimator):
    """Estimator that was replaced."""

    def __init__(self, depth: int = 3):
        self.depth = depth


class Owner(BaseEstimator):
    @renamed_parameter("n", "depth", since="0.3", removed_in="0.5")
    def __init__(self, depth: int = 3):
        self.depth = depth

    @deprecated(since="0.3", removed_in="0.5", instead="`new`")
    def method(self) -> int:
        return self.depth

    @renamed_parameter("n", "rows", since="0.3", removed_in="0.5")
    def explain(self, X: Any, rows: int | None = None) -> Any:
        return X, rows


def test_a_deprecated_function_warns_where_it_is_called() -> None:
    with pytest.warns(FutureWarning) as caught:
        assert old(2, factor=3) == 6
    assert str(caught[0].message) == (
        "old is deprecated since skshapgpu 0.3, and skshapgpu 0.5 removes it: use `new`"
    )
    assert caught[0].filename == __file__
    assert str(inspect.signature(old)) == "(value: 'int', *, factor: 'int' = 1) -> 'int'"
    assert inspect.getdoc(old) == f"Multiply a number.\n\n{NOTE}\n\nParameters\n----------\nvalue : int"


def test_a_deprecated_method_warns() -> None:
    with pytest.warns(FutureWarning, match=r"^Owner\.method is deprecated since .*: use `new`$"):
        assert Owner(4).method() == 4
    assert Owner.method.__doc__ == NOTE


def test_a_deprecated_class_stays_a_class() -> None:
    with pytest.warns(FutureWarning, match="^Old is deprecated") as caught:
        found = Old(depth=4)
    assert caught[0].filename == __file__
    assert isinstance(found, Old) and found.get_params() == {"depth": 4}
    assert Old.__doc__ == f"Estimator that was replaced.\n\n{NOTE}"
    assert pickle.loads(pickle.dumps(found)).depth == 4  # without a second warning
    with pytest.warns(FutureWarning, match="^Old is deprecated"):
        assert clone(found).depth == 4


def test_a_renamed_parameter_is_accepted_by_both_names(recwarn: pytest.WarningsRecorder) -> None:
    owner = Owner()
    assert owner.explain(1, 2) == owner.explain(1, rows=2) == (1, 2) and owner.explain(1) == (1, None)
    assert Owner(depth=4).get_params() == clone(Owner(4)).get_params() == {"depth": 4}
    assert not recwarn
    with pytest.warns(FutureWarning) as caught:
        assert owner.explain(1, n=2) == (1, 2)
    assert caught[0].filename == __file__
    assert str(caught[0].message) == (
        "the parameter 'n' of Owner.explain is deprecated since skshapgpu 0.3, and skshapgpu 0.5 removes it: "
        "use 'rows'"
    )
    with pytest.warns(FutureWarning, match=r"^the parameter 'n' of Owner is .* use 'depth'$"):
        assert Owner(n=5).depth == 5
    for arguments in ((1, 2), (1,)):
        given = {} if len(arguments) == 2 else {"rows": None}
        with pytest.raises(TypeError, match="both 'n' and 'rows'"):
            owner.explain(*arguments, n=3, **given)


@pytest.mark.parametrize("names", [("rows", "n"), ("X", "rows"), ("n", "m")])
def test_a_renamed_parameter_must_be_that_of_the_function(names: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="must have the parameter"):
        renamed_parameter(*names, since="0.3", removed_in="0.5")(Owner.explain)


CODE = """
from .._deprecation import deprecated, renamed_parameter

class A:
    @renamed_parameter("a", "b", since="{since}", removed_in="{removed_in}")
    def f(self, b): ...

g = _deprecation.deprecated(since="{since}", removed_in="{removed_in}", instead="`A`")(A)
"""


@pytest.mark.parametrize(
    ("since", "removed_in", "version", "problem"),
    [
        ("0.3", "0.5", "0.4.2", None),
        ("0.9", "0.11", "0.10.0", None),
        ("1.2", "2.0", "1.3.0", None),
        ("0.3", "1.0", "0.9.0", None),
        ("0.3", "0.5", "0.5.0.dev1", "0.5.0.dev1 still has it, and 0.5 was to remove it"),
        ("0.3", "0.5", "0.5.0", "0.5.0 still has it"),
        ("0.9", "0.11", "0.12.1", "0.12.1 still has it"),
        ("1.2", "2.0", "2.0.0", "2.0.0 still has it"),
        ("0.3", "0.4", "0.3.0", "fewer than two releases"),
        ("1.2", "1.4", "1.3.0", "no major release"),
        ("2.0", "1.9", "1.3.0", "fewer than two releases"),
    ],
)
def test_deprecations_that_are_overdue_or_too_short(
    tmp_path: Path, since: str, removed_in: str, version: str, problem: str | None
) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room/module.py").write_text(CODE.format(since=since, removed_in=removed_in))
    found = release.problems_of_deprecations(tmp_path, version)
    if problem is None:
        assert found == []
    else:
        assert [line.split(": ")[0] for line in found] == ["room/module.py:5", "room/module.py:8"]
        assert all(problem in line for line in found)


def test_deprecations_say_when_they_end(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "@deprecated(since=SINCE, removed_in='0.5', instead='x')\ndef f(): ...\n"
    )
    (line,) = release.problems_of_deprecations(tmp_path, "0.1.0")
    assert "since and removed_in must be strings" in line


def test_no_deprecation_of_the_package_is_overdue() -> None:
    assert release.problems_of_deprecations(release.ROOT / "skshapgpu", release.version_of_project()) == []
