"""Code in docstrings, in the README and on the pages runs as written, and names existing objects.

A page may have a comment with code that runs before its own: ``<!-- setup: ... -->``. Blocks that begin with
```` ```python skip ```` depend on the reader's data and are not run.
"""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib
import importlib.util
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from helpers import ROOT
from helpers.mlflow_versions import require_database
from sklearn.utils.fixes import parse_version

import skshapgpu

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
OTHER_PAGES = [ROOT / "CHANGELOG.md", ROOT / "benchmarks/README.md", ROOT / "tests/fuzz/README.md"]

PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(
    r"(?<![\w/.-])(?:(?:skshapgpu|csrc|tests)/[\w./<>*-]*|[\w./<>*-]+\.(?:h|cpp|cuh?|pyi)\b|test_\w+\.py\b)"
)
IMPORT = re.compile(r"^(?:>>> )?(?:from|import) (skshapgpu[\w.]*)", re.MULTILINE)

#: Modules whose names are public; ``test_api.py`` lists what they hold.
PUBLIC = {"skshapgpu"} | {f"skshapgpu.{name}" for name in skshapgpu._PUBLIC_MODULES}


#: Runs a page and compares the outputs that it shows; the test of wheels runs the README with the same file.
page_code = runpy.run_path(str(ROOT / "tests/wheels/page_code.py"))


def page_id(path: Path) -> str:
    return path.stem


@pytest.fixture
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set up a temporary working directory, invisible figures, and the CPU, which some code needs."""
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "cpu")


def with_examples() -> list[str]:
    files = sorted((ROOT / "skshapgpu").rglob("*.py"))
    return [".".join(p.relative_to(ROOT).with_suffix("").parts) for p in files if ">>> " in p.read_text()]


@pytest.mark.parametrize("name", with_examples())
def test_code_of_docstrings(name: str, somewhere: None) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    if ">>> import pyarrow" in Path(spec.origin).read_text():
        pytest.importorskip("pyarrow")
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testmod(importlib.import_module(name), optionflags=options)
    assert result.attempted
    assert not result.failed


def with_code() -> list[Path]:
    """Return the pages whose blocks run in order; test_recipes.py runs blocks of recipes.md one by one."""
    return [path for path in PAGES if path.stem != "recipes" and PYTHON.search(path.read_text())]


@pytest.mark.parametrize("path", with_code(), ids=page_id)
def test_code_of_pages(path: Path, somewhere: None) -> None:
    text = path.read_text()
    code = "".join(code for code, _ in page_code["blocks"](text))
    if setup := page_code["SETUP"].search(text):
        code += setup[1]
    for library in ("xgboost", "lightgbm", "catboost", "shap", "pyarrow", "dask", "mlflow"):
        if re.search(rf"\b(from|import) {library}\b", code):
            require_database() if library == "mlflow" else pytest.importorskip(library)
    if parse_version(sklearn.__version__) < parse_version("1.7") and path.stem in ("README", "index"):
        text = re.sub(r"```text\n.*?```", "", text, flags=re.DOTALL)  # scikit-learn 1.6 grows other trees
    namespace: dict[str, Any] = {"__name__": "__main__"}
    page_code["run"](text, namespace)


def defined_names(node: ast.AST) -> set[str]:
    """Return the names that code defines or imports, and those of its functions and comprehensions."""
    names: set[str] = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and not isinstance(child.ctx, ast.Load):
            names.add(child.id)
        elif isinstance(child, ast.arg):
            names.add(child.arg)
        elif isinstance(child, ast.alias):
            names.add((child.asname or child.name).partition(".")[0])
        elif isinstance(child, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)) and child.name:
            names.add(child.name)
    return names


def borrowed_names(page: str) -> set[str]:
    """Return the names that the Python blocks of a page use before they define or import them."""
    known, borrowed = set(dir(builtins)), set()
    for code, _ in page_code["blocks"](page):
        for statement in ast.parse(code).body:
            names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
            used = {name.id for name in names if isinstance(name.ctx, ast.Load)}
            # An assignment defines its targets only after its value has been computed.
            defined = defined_names(statement.value if isinstance(statement, ast.Assign) else statement)
            borrowed |= used - known - defined
            known |= defined_names(statement)
    return borrowed


def test_borrowed_names() -> None:
    def borrowed(code: str) -> set[str]:
        return borrowed_names(f"```python\n{code}\n```\n")

    assert borrowed("explain(model, X)") == {"explain", "model", "X"}
    assert borrowed("import a.b\nfrom c import d as e\na(e)\nd") == {"d"}
    assert borrowed("X = X.head(2)\nX") == {"X"}
    assert borrowed("y = [i for i in z]\nfor k in y:\n    print(k)") == {"z"}
    assert borrowed("def f(a, b=1):\n    return a + b + c\nf(2)") == {"c"}
    assert borrowed("with open(path) as file:\n    rows, n = file.read(), 3\nrows, n") == {"path"}


@pytest.mark.parametrize("path", [path for path in PAGES if PYTHON.search(path.read_text())], ids=page_id)
def test_pages_say_what_their_code_takes_from_a_hidden_setup(path: Path) -> None:
    """A reader sees no setup: a sentence before the first block names each variable that comes from it."""
    page = path.read_text()
    setup = page_code["SETUP"].search(page)
    visible = page[setup.end() if setup else 0 :].partition("```python\n")[0]
    assert sorted(borrowed_names(page) - set(re.findall(r"`(\w+)`", visible))) == []


@pytest.mark.parametrize("name", ["quickstart", "explaining_to_others"])
def test_pages_find_a_customer_by_its_label(name: str, somewhere: None) -> None:
    """The labels of the page are positions as well. With other labels, it must still mean one customer."""
    page = (ROOT / f"docs/{name}.md").read_text()
    fit = "model = HistGradientBoostingClassifier(max_iter=50, max_leaf_nodes=8).fit(X, leaves)\n"
    assert page.count(fit) == 1
    page = page.replace(fit, fit + "X.index = np.r_[np.roll(np.arange(100), 6), np.arange(100, n)]\n")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    if setup := page_code["SETUP"].search(page):
        exec(setup[1], namespace)
    shown = "".join(page_code["output"](code, namespace) for code, _ in page_code["blocks"](page))
    X, risks = namespace["X"], namespace["model"].predict_proba(namespace["X"])[:, 1]
    risk = risks[9]
    assert X.index.get_loc(3) == 9 and (X.loc[3] != X.iloc[3]).all() and abs(risk - risks[3]) > 0.1
    (said,) = re.findall(r"customer 3 (?:leaves is )?([\d.]+%?)", shown)
    assert said in (f"{risk:.2f}", f"{risk:.0%}")
    plt = importlib.import_module("matplotlib.pyplot")
    waterfall = plt.figure(1).axes[0]
    bars = "\n".join(label.get_text() for label in waterfall.get_yticklabels())
    totals = "\n".join(text.get_text() for text in waterfall.texts).replace("\N{MINUS SIGN}", "-")
    reasons = re.findall(r"^(?:- )?(\w+) (?:is|=) (\w+)(?:\.0)?: [+-]", shown, re.MULTILINE)
    reasons += re.findall(r"^(\w+) = (\w+)$", bars, re.MULTILINE)
    assert len(reasons) == 3 + 3 + 4  # two lists in words, and the bars
    values = {name: value if isinstance(value, str) else f"{value:.0f}" for name, value in X.loc[3].items()}
    assert [reason for reason in reasons if reason not in values.items()] == []
    assert f" {risk:.3f}" in totals  # f(x), or the probability beside it


def test_the_first_pages_show_what_their_code_shows() -> None:
    """Without outputs there is nothing to compare, and the test of their code would not notice."""
    for name, least in (("README.md", 2), ("docs/index.md", 2), ("docs/quickstart.md", 8)):
        shown = [output for _, output in page_code["blocks"]((ROOT / name).read_text()) if output]
        assert len(shown) >= least, name


def test_an_output_that_differs_is_noticed() -> None:
    page = '```python\nprint("a", 1)\n2 + 2\n```\n\n```text\na 1\n{}\n```\n'
    assert page_code["run"](page.format(4), {}) == 1
    with pytest.raises(AssertionError, match="and not"):
        page_code["run"](page.format(5), {})
    varying = "computed: on {} in {} s, single precision\nadditivity error: at most {}\n"
    shown = varying.format("the CPU", 0.1, 2e-5)
    assert page_code["comparable"](varying.format("cuda:0", 3, 0)) == page_code["comparable"](shown)
    assert page_code["comparable"](shown.replace("single", "double")) != page_code["comparable"](shown)


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_links_of_pages(path: Path) -> None:
    for link in LINK.findall(CODE.sub("", path.read_text())):
        if not link.startswith(("http", "#")):
            if "benchmarks/results" in link and not (ROOT / "benchmarks/results").exists():
                continue  # source distributions lack them
            assert (path.parent / link.partition("#")[0]).exists(), link


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_code_blocks_of_pages_fit(path: Path) -> None:
    """A page shows 110 characters on a wide screen; ``./dev docs --screenshots`` measures tables, too."""
    code = re.findall(r"^```\w*[^\n{]*\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)
    assert [line for block in code for line in block.splitlines() if len(line) > 110] == []


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_commands_of_pages(path: Path) -> None:
    commands = re.findall(r"^  (\w+)(?: \|.*)?\)$", (ROOT / "dev").read_text(), re.MULTILINE)
    assert "test" in commands
    for command in re.findall(r"(?<!\w)\./dev (\w+)", path.read_text()):
        assert command in commands


def named_files(text: str) -> set[str]:
    """Return the files and folders that a page names, with placeholders such as <name> as wildcards."""
    return {re.sub(r"<\w+>", "*", name.rstrip("./")) for name in FILE.findall(text)}


def found(name: str) -> bool:
    """Return whether a file exists, at its path from the root or, for a bare name, in any folder."""
    if name.startswith(("skshapgpu", "csrc", "tests")):
        return any(ROOT.glob(name))
    return any(any((ROOT / folder).rglob(name)) for folder in ("skshapgpu", "csrc", "tests"))


@pytest.mark.parametrize("path", PAGES + OTHER_PAGES, ids=lambda path: "-".join(path.relative_to(ROOT).parts))
def test_files_named_on_pages_exist(path: Path) -> None:
    assert sorted(name for name in named_files(path.read_text()) if not found(name)) == []


def test_names_of_files_are_found_in_text() -> None:
    text = (
        "`csrc/plan/plan.h`, tests/helpers. `simd_<name>.h` (test_x.py) csrc/cpu/, skshapgpu/*/y.py a/csrc/b"
    )
    names = {"csrc/plan/plan.h", "tests/helpers", "simd_*.h", "test_x.py", "csrc/cpu", "skshapgpu/*/y.py"}
    assert named_files(text) == names
    assert found("csrc/plan/plan.h") and found("plan.h") and found("test_docs.py") and found("simd_*.h")
    assert (
        not found("csrc/plan.h") and not found("no.h") and not found("test_no.py") and not found("tests/no")
    )


@pytest.mark.parametrize("title, folder", [("folder", "skshapgpu"), ("folder of `csrc`", "csrc")])
def test_the_tour_lists_each_folder(title: str, folder: str) -> None:
    text = (ROOT / "docs/how_it_works.md").read_text()
    rows = text.partition(f"| {title} | contents |\n")[2].partition("\n\n")[0]
    folders = {
        path.name for path in (ROOT / folder).iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert set(re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)) == folders


def test_the_example_of_the_tour_has_these_values() -> None:
    namespace: dict[str, Any] = {}
    exec(PYTHON.findall((ROOT / "docs/how_it_works.md").read_text())[0], namespace)
    explanation = namespace["explanation"]
    np.testing.assert_allclose(explanation.values, [[-2.75, 0.75]], rtol=1e-6)
    assert explanation.base_values == 5.0 and namespace["model"].predict([[0.3, 2.5]]) == 3.0


@pytest.mark.parametrize("path", PAGES + sorted((ROOT / "examples").glob("*.py")), ids=page_id)
def test_pages_and_examples_import_public_modules(path: Path) -> None:
    assert set(IMPORT.findall(path.read_text())) <= PUBLIC


def test_screenshots_need_a_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screenshots = runpy.run_path(str(ROOT / "docs/screenshots.py"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("BROWSER_PATH", raising=False)
    assert screenshots["main"]() == 0
    assert "skipped, as there is no browser" in capsys.readouterr().err
    (tmp_path / "chromium").touch(mode=0o755)
    assert screenshots["find_browser"]() == str(tmp_path / "chromium")
    monkeypatch.setenv("BROWSER_PATH", "/elsewhere")
    assert screenshots["find_browser"]() == "/elsewhere"


def test_readme_is_short_and_begins_with_pictures() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 800
    assert all(f"docs/images/{name}" in text.partition("\n## ")[0] for name in ("beeswarm.png", "speed.svg"))


def test_each_page_of_the_site_links_to_its_source() -> None:
    source_of = runpy.run_path(str(ROOT / "docs/sources.py"))["source_of"]
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    pages |= {f"auto_examples/{path.stem}" for path in (ROOT / "examples").glob("plot_*.py")}
    public = re.findall(r"^   (\w[\w.]*)$", (ROOT / "docs/api.rst").read_text(), re.MULTILINE)
    pages |= {f"generated/skshapgpu.{name}" for name in public} | {"api", "auto_examples/index"}
    sources = {page: source_of(page) for page in pages}
    assert [page for page, source in sources.items() if not (ROOT / source).is_file()] == []
    assert sources["generated/skshapgpu.TreeExplainer"] == "skshapgpu/explainer.py"
    assert sources["contributing"] == "CONTRIBUTING.md"
    assert source_of("search") is None


def test_pages_for_users_are_short() -> None:
    """All pages count but those of the developers' part, which has the mathematics, and the changelog."""
    developers = {"changelog", "development"}
    developers |= set(re.findall(r"^(\w+)$", (ROOT / "docs/development.md").read_text(), re.MULTILINE))
    pages = [path for path in (ROOT / "docs").glob("*.md") if path.stem not in developers]
    assert len(pages) >= 20
    assert sum(len(path.read_text().split()) for path in pages) <= 26_000
