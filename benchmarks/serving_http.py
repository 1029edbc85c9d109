"""Latency of requests over HTTP: the service of docs/recipes.md, beside the same with other libraries."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import joblib
import numpy as np
import serving
import single_row

#: Seconds in which the server must answer.
START_SECONDS = 120


def libraries() -> list[str]:
    """Return the installed libraries whose models are served, if the service can run."""
    if not all(importlib.util.find_spec(name) for name in ("fastapi", "uvicorn")):
        return []
    return [name for name in serving.MODELS if importlib.util.find_spec(name)]


def measure(library: str, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the latencies of requests with each number of rows, from each number of clients."""
    n_trees, params = serving.MODELS[library]
    X, y = single_row.data("frame", single_row.N_LARGE_TRAINING)
    model = serving.fitted(library, X, y, n_trees, **params)
    with server(library, model) as port:
        names = json.loads(request(http.client.HTTPConnection("127.0.0.1", port), "names", None))
        for n_rows in serving.ROWS:
            records = X.to_dict("records")[: serving.N_REQUESTS * n_rows]
            requests = [json.dumps(records[i : i + n_rows]).encode() for i in range(0, len(records), n_rows)]
            makers = {name: client_maker(port, name) for name in names}
            strongest = {
                name: [strongest_value(make()(content)) for content in requests[:20]]
                for name, make in makers.items()
                if name != "predict"
            }
            ours = np.array(strongest.pop("skshapgpu"))
            for n_clients in serving.THREADS:
                yield {
                    "name": f"{library}, HTTP, {n_rows} rows, {n_clients} clients",
                    "n_trees": n_trees,
                    "latencies_us": serving.time_in_turn(makers, requests, n_clients, seconds),
                    "differences": {
                        name: float(np.abs(ours - values).max() / np.abs(ours).max())
                        for name, values in strongest.items()
                    },
                }


@contextmanager
def server(library: str, model: Any) -> Iterator[int]:
    """Start the service in a process of its own, and return its port when it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.joblib")
        joblib.dump(model, path)
        command = [sys.executable, "-m", "uvicorn", "serving_app:app"]
        process = subprocess.Popen(
            [*command, "--port", str(port), "--log-level", "warning"],
            cwd=Path(__file__).parent,
            env=os.environ | {"SERVING_MODEL": path, "SERVING_LIBRARY": library},
        )
        try:
            wait_for(port, process)
            yield port
        finally:
            process.terminate()
            process.wait()


def wait_for(port: int, process: subprocess.Popen) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise RuntimeError("the server did not start")


def client_maker(port: int, name: str) -> Callable[[], Callable[[bytes], bytes]]:
    """Return a function that makes a client with a connection of its own."""

    def make() -> Callable[[bytes], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        return lambda content: request(connection, name, content)

    return make


def request(connection: http.client.HTTPConnection, name: str, content: bytes | None) -> bytes:
    """Post content, or get without content, and return the answer."""
    connection.request(
        "GET" if content is None else "POST",
        "/" + quote(name),
        content,
        {} if content is None else {"Content-Type": "application/json"},
    )
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise RuntimeError(f"{name} answered {response.status}: {answer[:200]!r}")
    return answer


def strongest_value(answer: bytes) -> float:
    """Return the first row's largest SHAP value by magnitude."""
    return max((reason["shap_value"] for reason in json.loads(answer) if reason["row"] == 0), key=abs)
