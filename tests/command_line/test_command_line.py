"""The command line: files without a model, doctor, help, errors and exit codes."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ROOT
from helpers.command_line import X, model_file

import skshapgpu
from skshapgpu import TreeExplainer
from skshapgpu.command_line import arguments, doctor
from skshapgpu.command_line.answers import bytes_text
from skshapgpu.command_line.flags import FLAGS, in_flags

# Files without a model


def test_scikit_learn_models_are_not_unpickled(fails: Any, forest: Any, tmp_path: Path) -> None:
    joblib = pytest.importorskip("joblib")
    path = tmp_path / "model"
    path.write_bytes(pickle.dumps(forest))
    assert re.search(r"is a pickle.*TreeExplainer\(model\)\.save.*skops\.io\.dump", fails("info", path))
    for method in ("zlib", "gzip", "bz2", "xz"):
        joblib.dump(forest, path, compress=(method, 3))
        assert re.search(r"is compressed with .*TreeExplainer\(model\)\.save", fails("info", path))


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "is empty"),
        (b"no model", "holds no model of a known kind"),
        (b"{", "begins like JSON, but is not valid"),
        (b"{}", "neither a model of XGBoost nor one of CatBoost"),
        (b"tree\nversion=v4\n", "cannot be read as a model of LightGBM"),
        (b"{L\0\0\0\0", "cannot be read as a model of XGBoost"),
        (b"PK\x03\x04", "is a ZIP archive, but not an explainer file"),
        (b"PAR1", "is a Parquet file, not a model: write MODEL before DATA"),
        (b"\x93NUMPY", "is a file of a NumPy array, not a model"),
    ],
)
def test_files_that_are_no_models(content: bytes, message: str, fails: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.ubj"
    path.write_bytes(content)
    for command in (["info", path], ["save", path, "-o", tmp_path / "out"]):
        assert message in fails(*command)
    assert os.listdir(tmp_path) == ["model.ubj"]


def test_paths_that_are_no_files(fails: Any, saved: Path, tmp_path: Path) -> None:
    assert fails("info", tmp_path / "explainer.npy").endswith("did you mean 'explainer.npz'?")
    assert fails("info", tmp_path / "no" / "model").endswith(f"and no folder '{tmp_path / 'no'}'")
    assert "is a folder" in fails("info", tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        assert "is not a regular file" in fails("info", tmp_path / "pipe")
    if os.geteuid():
        saved.chmod(0)
        assert fails("info", saved).endswith("Permission denied")


# doctor


@pytest.fixture
def few_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the extras by two: the library of one is installed, the library of the other is missing."""
    extras = {"one": ("numpy", "numpy", "for arrays"), "other": ("no_such_module", "no-such", "for nothing")}
    monkeypatch.setattr(doctor, "EXTRAS", extras)


def test_doctor(run: Any, few_extras: None) -> None:
    code, out, err = run("doctor", "--json")
    facts = json.loads(out)
    assert (code, err, facts["works"]) == (0, "", True)
    assert facts["versions"]["skshapgpu"] == skshapgpu.__version__
    assert facts["versions"]["numpy"] == np.__version__
    assert facts["self_tests"][0] == {"device": "cpu", "works": True, "error": None}
    assert len(facts["self_tests"]) == 1 + len(skshapgpu.cuda_info()["devices"])
    assert [extra["version"] for extra in facts["extras"]] == [np.__version__, None]
    assert facts["extras"][1]["install"] == "pip install no-such"
    assert 1 <= facts["threads"] <= facts["processors"] and facts["threads_in_python"] == 1
    code, out, _ = run("doctor")
    processors = "1 processor" if facts["processors"] == 1 else f"{facts['processors']} processors"
    assert f"{facts['threads']} of {processors} for commands and n_jobs=-1, 1 for calls in Python" in out
    assert code == 0 and "values are right" in out and "pip install no-such" in out
    assert "avx" in out or "baseline" in out


def test_doctor_finds_wrong_values(run: Any, few_extras: None, monkeypatch: pytest.MonkeyPatch) -> None:
    right = TreeExplainer.shap_values
    monkeypatch.setattr(TreeExplainer, "shap_values", lambda self, X: right(self, X) * 1.001)
    code, out, _ = run("doctor")
    assert code == 1 and re.search(r"FAILED: RuntimeError: SHAP values in single precision are wrong by", out)
    assert json.loads(run("doctor", "--json")[1])["works"] is False


def test_doctor_tests_every_gpu(run: Any, few_extras: None, monkeypatch: pytest.MonkeyPatch) -> None:
    device = {"name": "a GPU", "memory": 80 * 10**9, "compute_capability": "9.0", "multiprocessors": 132}
    info = {"available": True, "reason": None, "driver": "13.0", "runtime": "13.0", "devices": [device] * 2}
    monkeypatch.setattr(doctor, "cuda_info", lambda: info)
    compare = doctor._compare

    def broken(name: str) -> None:
        if name == "cuda:1":
            raise RuntimeError("out of order")
        compare("cpu")

    monkeypatch.setattr(doctor, "_compare", broken)
    code, out, _ = run("doctor")
    assert code == 1 and "a GPU, 80 GB" in out
    assert re.search(r"test on cuda:0 +values are right\ntest on cuda:1 +FAILED: .*out of order", out)


def test_doctor_finds_what_cannot_be_imported(
    run: Any, few_extras: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "no_such_module.py").write_text("raise OSError('libgomp.so.1: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    code, out, _ = run("doctor")
    assert code == 1 and "FAILED: OSError: libgomp.so.1: cannot open" in out


def test_extras_are_those_of_the_project() -> None:
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("not a checkout")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {
        extra: re.split(r"[<>=~!\[]", requirements[0])[0]
        for extra, requirements in project["optional-dependencies"].items()
        if extra != "all"
    }
    assert {extra: package for extra, (_, package, _) in doctor.EXTRAS.items()} == extras
    all_of_them = project["optional-dependencies"]["all"]
    listed = re.findall(r"[\w-]+", " ".join(re.search(r"\[(.*)\]", line)[1] for line in all_of_them))
    assert sorted(listed) == sorted(extras)
    assert project["scripts"] == {"skshapgpu": "skshapgpu.command_line:main"}


# Usage, errors, output


def parsers(parser: argparse.ArgumentParser, *words: str) -> list[tuple[str, ...]]:
    """Return the words of each command, and the empty words of the main parser."""
    results: list[tuple[str, ...]] = [words]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                results += parsers(sub, *words, name)
    return results


@pytest.mark.parametrize("words", parsers(arguments.parser()), ids=" ".join)
def test_help(words: tuple[str, ...], run: Any) -> None:
    code, out, err = run(*words, "--help")
    assert (code, err) == (0, "") and out.startswith("usage: skshapgpu")
    assert "examples:\n  skshapgpu" in out


def written_commands() -> list[str]:
    """Yield the command lines shown in the help and on the pages."""
    texts = [value for name, value in vars(arguments).items() if name.endswith("EXAMPLES")]
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts += [page.read_text() for page in pages if page.exists()]
    result = re.findall(r"^(?:  )?skshapgpu ([a-z].*)$", "\n".join(texts), re.MULTILINE)
    return sorted({re.split(" +[>#]", line)[0] for line in result})


@pytest.mark.parametrize("line", written_commands())
def test_examples_can_be_parsed(line: str) -> None:
    assert arguments.parser().parse_args(line.split()).run


def test_help_waits_for_no_library() -> None:
    program = """
import sys
from skshapgpu.command_line import main
assert main(["explain", "--help"]) == main(["--version"]) == 0
print(*sorted({"numpy", "sklearn", "scipy"} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.endswith(f"skshapgpu {skshapgpu.__version__}\n\n")


def test_version(run: Any) -> None:
    assert run("--version") == (0, f"skshapgpu {skshapgpu.__version__}\n", "")


@pytest.mark.parametrize(
    "line, message",
    [
        ("", "required: COMMAND"),
        ("inform", "invalid choice: 'inform'"),
        ("info", "required: MODEL"),
        ("save m", "required: -o/--output"),
        ("save m -o out --background-rows 0", "'0' is not a whole number of at least 1"),
        ("save m -o out --algorithm fast", "invalid choice: 'fast'"),
        ("explain m d", "required: -o/--output"),
        ("explain m d -o out --interactions 0", "'0' is not a whole number of at least 1"),
        ("explain m d -o out --interactions age", "is none of: occurring, a number, pairs such as"),
        ("explain m d -o out --n-jobs 0", "'0' is not a number of threads"),
        ("explain m d -o out --keep a,,b", "is not a list of names"),
        ("explain m d -o out --batch-size -1", "'-1' is not a whole number of at least 1"),
        ("explain m d -o out --quiet --progress", "not allowed with argument"),
        ("explain m d -o -", "values are not written to the standard output: name a file"),
        ("save m -o -", "values are not written to the standard output: name a file"),
        ("explain m d -o out --over", "unrecognized arguments: --over"),
    ],
)
def test_wrong_usage(line: str, message: str, fails: Any, run: Any) -> None:
    result = fails(*line.split(), exit_code=2)
    assert message in result and "--help" in result
    code, out, _ = run(*line.split(), "--json")
    assert code == 2 and json.loads(out) == {"error": result, "type": "UsageError"}


def test_errors_as_json(run: Any, tmp_path: Path) -> None:
    code, out, err = run("info", tmp_path / "model", "--json")
    assert code == 1 and json.loads(out)["type"] == "ValueError"
    assert err == f"skshapgpu: error: {json.loads(out)['error']}\n"


def test_debug(run: Any, tmp_path: Path) -> None:
    code, out, err = run("info", tmp_path / "model", "--debug")
    assert code == 1 and not out and err.startswith("Traceback") and "skshapgpu: error: " in err


@pytest.mark.parametrize(
    "error, code, message",
    [
        (KeyboardInterrupt(), 130, "skshapgpu: interrupted\n"),
        (MemoryError(), 1, "skshapgpu: error: MemoryError\n"),
        (OSError(28, "No space left on device"), 1, "skshapgpu: error: [Errno 28] No space left on device\n"),
        (PermissionError(13, "Permission denied", "a"), 1, "skshapgpu: error: 'a': Permission denied\n"),
        (ValueError("two\n  lines"), 1, "skshapgpu: error: two lines\n"),
    ],
)
def test_errors(
    error: BaseException, code: int, message: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise error

    monkeypatch.setattr(doctor, "run", fail)
    assert run("doctor") == (code, "", message)


def test_interrupted(run: Any, saved: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("skshapgpu.command_line.explaining.explain_batches", interrupt)
    command = ("explain", saved, data, "-o", data.parent / "out.parquet")
    for flags, advice in (
        ((), "the same command resumes"),
        (
            (
                "--if-exists",
                "overwrite",
            ),
            "command without --if-exists overwrite",
        ),
    ):
        code, out, err = run(*command, *flags)
        assert (code, out) == (130, "") and err.startswith("skshapgpu: interrupted; ") and advice in err


def test_unexpected_errors_have_a_traceback(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(doctor, "run", fail)
    code, out, err = run("doctor", "--json")
    assert code == 1 and err.startswith("Traceback") and err.endswith("skshapgpu: error: a bug\n")
    assert json.loads(out) == {"error": "a bug", "type": "ZeroDivisionError"}


def test_errors_about_the_background(fails: Any, tmp_path: Path) -> None:
    _, path = model_file("xgboost", tmp_path)
    np.save(tmp_path / "b.npy", X[:, :3])
    message = fails("save", path, "-o", tmp_path / "out", "--background", tmp_path / "b.npy")
    assert message == "data has 3 features, but the model expects 10"


def test_notes_of_errors_are_shown(fails: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(args: Any) -> None:
        error = ValueError("wrong")
        error.add_note("This is a note.")
        raise error

    monkeypatch.setattr(doctor, "run", fail)
    assert fails("doctor") == "wrong This is a note."


@pytest.mark.parametrize(
    "n_bytes, text",
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (1_234_567, "1.23 MB"),
        (999_600, "1000 kB"),
        (2 * 10**15, "2000 TB"),
    ],
)
def test_bytes(n_bytes: int, text: str) -> None:
    assert bytes_text(n_bytes) == text


def test_module_and_broken_pipe(saved: Path) -> None:
    """There is no error message if the reader of the output has closed the pipe."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "skshapgpu", "info", str(saved)]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, cwd=ROOT, timeout=120)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (1, b"")


def test_module_prints(saved: Path) -> None:
    command = [sys.executable, "-m", "skshapgpu", "info", str(saved), "--json"]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0 and not done.stderr
    assert json.loads(done.stdout)["n_trees"] == 5


def test_messages_of_the_library_name_flags() -> None:
    """Each parameter in the table has a flag of a command, and messages name it."""
    actions = arguments.parser()._actions
    commands = next(action.choices for action in actions if isinstance(action.choices, dict))
    flags = {flag for command in commands.values() for flag in command._option_string_actions}
    assert set(FLAGS.values()) <= flags
    for message, expected in {
        "memory_limit must be a size": "--memory-limit must be a size",
        "current_weight: there is no column": "--current-weight: there is no column",
        "leave out columns, or use delimiter=';'": "leave out columns, or use --delimiter ';'",
        "give data=, or model_output='raw'": "give --background, or --model-output raw",
        "'keep=1/rows.csv' and index='SV'": "'keep=1/rows.csv' and index='SV'",
    }.items():
        assert in_flags(message) == expected
