"""S3: runs that are killed and resumed by another process; credentials, which no output may show."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import stores
from helpers.batches import ALONE, KEPT, TABLE, content, same
from helpers.stores import KEY, SECRET

from skshapgpu import TreeExplainer, explain_batches
from skshapgpu.command_line import main

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

#: This program runs slowly, and prints after each batch how many rows are written.
RUN = """
import sys, time
from skshapgpu import explain_batches

def report(done, n_rows):
    print(done, flush=True)
    time.sleep(0.05)

url, sink = sys.argv[1:]
keep = [] if sink.endswith(".npy") else ["id"]
options = {"keep": keep, "batch_size": 10, "progress": report}
explain_batches(url + "explainer", url + "rows.parquet", url + sink, **options)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL")
@pytest.mark.parametrize("sink", ["out", "out.parquet", "out.csv", "out.npy"])
def test_another_process_resumes_a_killed_run(
    sink: str, bucket: str, tmp_path: Path, explainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.s3(bucket)
    rows = pa.concat_tables([TABLE] * 2)
    rows = rows.set_column(rows.column_names.index("id"), "id", pa.array(np.arange(len(rows))))
    pq.write_table(rows, tmp_path / "rows.parquet")
    url, keep = store.place(""), [] if sink == "out.npy" else ["id"]
    store.copy(tmp_path / "rows.parquet", "rows.parquet")
    explainer.save(url + "explainer")
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    n_written = 0
    for _ in range(2):
        (tmp_path / "killed").mkdir(exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", RUN, url, sink],
            stdout=subprocess.PIPE,
            text=True,
            env=ALONE | aws | {"TMPDIR": str(tmp_path / "killed")},
        )
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= n_written + 30:
                break
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
        process.wait()
        assert process.returncode == -signal.SIGKILL
        n_written += 30
        assert "." not in sink or sink not in store.names()
    result = explain_batches(url + "explainer", url + "rows.parquet", url + sink, keep=keep, batch_size=10)
    assert n_written <= result.n_resumed < 300 and result.n_rows == 300
    want = explain_batches(explainer, rows, tmp_path / f"want-{sink}", keep=keep, batch_size=10)
    actual = store.fetch(sink, tmp_path / "found" / sink)
    if sink == "out.csv":
        assert actual.read_bytes() == Path(want.path).read_bytes()
    elif sink == "out":  # parts name their call, and so their source
        assert content(actual).equals(content(Path(want.path)))
    else:
        assert same(content(actual), content(Path(want.path)))


def test_credentials_are_never_shown(
    s3_server: str,
    bucket: str,
    tmp_path: Path,
    explainer: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The credentials are in the URL: in its user and in its query, which may also have the endpoint."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name)
    query = f"?endpoint_override={s3_server.replace(':', '%3A')}&scheme=http&region=us-east-1"
    store = stores.s3(bucket, query, f"{KEY}:{SECRET}@")
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    store.copy(tmp_path / "rows.parquet", "rows.parquet")
    hidden = (KEY, SECRET, s3_server, "endpoint_override", "%3A", SECRET[:9], SECRET[9:])
    told: list[str] = []

    def url(name: str) -> str:
        return store.place(name) + query

    explainer.save(url("explainer.npz"))
    for sink in ("out/", "out.parquet", "out.csv", "out.npy"):
        keep = [] if sink == "out.npy" else KEPT
        result = explain_batches(url("explainer.npz"), url("rows.parquet"), url(sink), keep=keep)
        assert result.path == f"s3://{bucket}/{sink}"
        told.append(repr(result))
    for wrong in wrong_arguments(url, bucket, query):
        arguments = {"model": explainer, "source": url("rows.parquet"), "sink": url("out2/")} | wrong
        with pytest.raises((ValueError, OSError)) as raised:
            explain_batches(**arguments)
            pytest.fail(str(wrong))
        told += messages(raised.value)
    for load in (TreeExplainer.load, TreeExplainer):
        for name in ("nowhere.npz", "rows.parquet"):
            with pytest.raises((ValueError, OSError)) as raised:
                load(url(name))
            told.append(str(raised.value))
    for command in commands(url):
        main(command)
    told += capsys.readouterr()
    for text in [*told, *store.names(), *(store.read(name).decode("latin1") for name in store.names())]:
        for secret in hidden:
            assert secret not in text


def wrong_arguments(url: Callable[[str], str], bucket: str, query: str) -> list[dict[str, Any]]:
    """Return arguments that explain_batches refuses, each with the credentials."""
    return [
        {"model": url("nowhere.json")},
        {"model": url("rows.parquet")},
        {"source": url("nowhere.parquet")},
        {"source": url("explainer.npz")},
        {"source": f"s3://{KEY}:{SECRET}@{bucket}/rows.parquet?nonsense={SECRET}"},
        {"source": f"s3://{KEY}:{SECRET[:9]}%ZZ{SECRET[9:]}@{bucket}/rows.parquet"},
        {"source": f"s3://{KEY}:{SECRET[:9]}/{SECRET[9:]}@{bucket}/rows.parquet{query}"},
        {"source": url("no such/rows.parquet")},
        {"source": f"nonsense://{KEY}:{SECRET}@{bucket}/rows.parquet{query}"},
        {"source": f"https://{KEY}:{SECRET}@{bucket}/rows.parquet{query}"},
        {"sink": url("out.txt")},
        {"sink": url("rows.parquet")},
        {"sink": url("out.parquet"), "reasons": 1},
        {"sink": f"s3://{KEY}:{SECRET}@nobucket-{bucket}/out{query}"},
    ]


def messages(error: BaseException | None) -> list[str]:
    """Return the messages that a traceback shows: of the error, and of its causes."""
    shown = []
    while error is not None:
        shown.append(str(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return shown


def commands(url: Callable[[str], str]) -> list[list[str]]:
    """Return commands of the command line, some of which fail."""
    return [
        ["info", url("explainer.npz"), "--json"],
        ["explain", url("explainer.npz"), url("rows.parquet"), "-o", url("cli/")],
        ["explain", url("explainer.npz"), url("nowhere.parquet"), "-o", url("cli2/"), "--debug"],
        ["explain", url("explainer.npz"), url("rows.parquet"), "-o", url("cli2/"), "--keep", "nothing"],
        ["explain", url("rows.parquet"), url("rows.parquet"), "-o", url("cli2/")],
        ["save", url("explainer.npz"), "-o", url("rows.parquet")],
        ["compare", url("out/"), url("rows.parquet")],
        ["compare", url("out/"), url("out.parquet")],
    ]
