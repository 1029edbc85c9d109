"""Find prose that must be read twice: how docstrings and comments open, and words with a second meaning.

``python tests/project/prose.py`` prints ``file:line: problem`` for each, and ``./dev check`` runs it.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Openings of any docstring or comment that make a reader guess what is meant.
RIDDLE = re.compile(r"(What|Who|Whom|Of(?! course)|The same|That of|Those (of|that|which|who))\b")

#: First words, other than plurals, participles and those before "of", that are no verb. Words that are verbs
#: as well, such as "Name" or "Complete", are not among them.
NO_VERBS = frozenset(
    """
    A About Adult Again Against All Also An Another Any Anything As At Background Banzhaf Bar Base
    Because Before Behind Below Beside Between Beyond Both But By Category Class Column Data Decision
    Depth Device Discrete Distinct Each Eight Either Else Encoder Equal Every Everything Exact
    Explanation Feature First Five For Four From Half Hardly How However If In Interaction
    Interventional Into It Its Largest Last Leaf Least Length Machine Many Margin Memory Minus Model
    More Most Much Neither New Nine No Nobody None Nor Not Nothing Now Number Numeric On Once One Only
    Operation Or Otherwise Our Over Part Path Per Prediction Random Second Seven Several Shapley Single
    Six So Some Somebody Source Such Symmetric Target Ten That The Their Then There These They Third
    This Those Three Top Training Tree Two Under Unique Unless Until Up Usable Vector Vertical Whatever
    When Where Whether Which While Whoever Whole Whose Why With Within Without Word Worth Wrong Zero
    """.split()
)

#: Verbs whose ending is that of a plural or a participle.
VERBS_ALL_THE_SAME = frozenset("Bias Bring Embed Focus Ping Shed Spring String".split())

#: Verbs, with or without an "s", which no docstring of a class opens with. Words that are common nouns as
#: well, such as "Answer" or "Run", are not among them.
VERBS = frozenset(
    """
    Add Apply Ask Build Carry Choose Collect Compare Compile Compute Contain Convert Create Decide
    Describe Draw Drop Encode Evaluate Explain Fail Fill Find Give Go Hand Has Have Hold Keep Know Let
    Make Must Open Predict Print Put Read Refuse Remember Represent Return Save Say Send Stand Store
    Take Tell Train Turn Wait Wrap Write Yield
    """.split()
)

#: Words and idioms, and what is written instead. A pattern must be exact: whatever it finds is a mistake.
WORDS = {
    r"\blook-ups?\b|\b(a|each|every|of|one|per|the) look ups?\b": "'lookup' is one word",
    r"\bhorizontal axis\b": "write 'x-axis'",
    r"\bvertical axis\b": "write 'y-axis'",
    r"\bgoes on where\b": "write 'resumes'",
    r"\brefused by name\b": "write 'rejected, with the reason'",
    r"\bis nothing that\b": "say what it is, or what it lacks",
    r"\bworth of a (set|coalition)\b": "write 'value of a coalition'",
}

#: Files that quote these words.
QUOTING = {"prose.py", "test_prose.py"}

FOLDERS = ("benchmarks", "csrc", "docs", "examples", "skshapgpu", "tests")
GENERATED = {"__pycache__", "_build", "auto_examples", "corpus", "generated"}
CODE = {".cpp", ".cu", ".cuh", ".h"}
TEXT = {".md", ".rst", ".py", ".pyi", *CODE}

Problem = tuple[int, str]


def problems(path: Path) -> list[Problem]:
    """Return the line and the description of each problem of a file, in the order of the lines."""
    text = path.read_text()
    found = [] if path.name in QUOTING else list(_words(text))
    if path.suffix in (".py", ".pyi"):
        found += [*_docstrings(text), *_python_comments(text)]
    elif path.suffix in CODE:
        found += _cpp_comments(text)
    return sorted(found)


def _words(text: str) -> Iterator[Problem]:
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, advice in WORDS.items():
            if match := re.search(pattern, line, re.IGNORECASE):
                yield number, f"{match[0]!r}: {advice}"


def _docstrings(text: str) -> Iterator[Problem]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        docstring = ast.get_docstring(node)
        if not docstring:
            continue
        opening, line = docstring.split("\n")[0][:40], node.body[0].lineno
        word = re.match(r"[A-Z][a-z]+(?!\w)", opening)
        if RIDDLE.match(opening):
            yield line, f"a docstring opens with a riddle: {opening!r}"
        elif isinstance(node, ast.ClassDef):
            if word and {word[0], word[0].removesuffix("s")} & VERBS:
                yield line, f"the docstring of a class opens with a verb: {opening!r}"
        elif not isinstance(node, ast.Module) and not _may_open_with_noun(node):
            if word is None or not _may_be_imperative(word[0], opening):
                yield line, f"the docstring of a function opens with no verb in the imperative: {opening!r}"


def _may_be_imperative(word: str, opening: str) -> bool:
    if word in VERBS_ALL_THE_SAME:
        return True
    noun = word in NO_VERBS or re.search(r"[^s]s$|[^e]ed$|ing$", word)
    return not (noun or opening.startswith(f"{word} of "))


def _may_open_with_noun(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether the docstring describes a thing (a property, a fixture) or a statement (a test)."""
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    special = function.name.startswith("__") and function.name.endswith("__")
    nouns = ("property", "computed_once", "fixture", ".setter")
    described = any(part in name for part in nouns for name in decorators)
    return special or described or function.name.startswith("test_")


def _python_comments(text: str) -> Iterator[Problem]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {t.start[0]: t.string.lstrip("#: ") for t in tokens if t.type == tokenize.COMMENT}
    own = {number for number in lines if text.splitlines()[number - 1].lstrip().startswith("#")}
    for number in sorted(own):
        if number - 1 not in own and RIDDLE.match(lines[number]):
            yield number, f"a comment opens with a riddle: {lines[number][:40]!r}"


def _cpp_comments(text: str) -> Iterator[Problem]:
    lines = [line.strip() for line in text.splitlines()]
    is_comment = [line.startswith(("//", "/*", "*")) for line in lines]
    for i, line in enumerate(lines):
        if not is_comment[i] or (i and is_comment[i - 1]):
            continue
        opening = line.lstrip("/*! ")[:40]
        following = next((after for j, after in enumerate(lines[i:], i) if not is_comment[j]), "")
        is_function = re.search(r"^[\w:<>,*&~\[\] ]+\(", following) and not re.match(
            r"(if|for|while)\b", following
        )
        if RIDDLE.match(opening) or (is_function and re.match(r"(Whether|How|Which|Where)\b", opening)):
            yield i + 1, f"a comment opens with a riddle: {opening!r}"


def files() -> Iterator[Path]:
    """Yield all files with prose of the project, by folder."""
    yield from sorted(ROOT.glob("*.md"))
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in TEXT and not GENERATED & set(path.relative_to(ROOT).parts):
                yield path


def main() -> int:
    """Print all problems; return the exit status of the program."""
    found = [(path.relative_to(ROOT), *problem) for path in files() for problem in problems(path)]
    for name, line, problem in found:
        print(f"{name}:{line}: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
