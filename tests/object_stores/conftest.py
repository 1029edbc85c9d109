"""Stores of the tests. An S3 server of moto runs on this machine; without moto, its tests are skipped."""

from __future__ import annotations

import logging
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import stores

from skshapgpu import TreeExplainer


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Address of an S3 server on this machine, as host:port."""
    server = pytest.importorskip("moto.server")
    pytest.importorskip("pyarrow.fs")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    thread = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    thread.start()
    yield "{}:{}".format(*thread.get_host_and_port())
    thread.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a new bucket; the environment tells pyarrow where the server is."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": stores.KEY,
        "AWS_SECRET_ACCESS_KEY": stores.SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL_S3": f"http://{s3_server}",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{uuid.uuid4().hex}"
    urllib.request.urlopen(urllib.request.Request(f"http://{s3_server}/{name}", method="PUT"))
    return name


@pytest.fixture(params=["subtree", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An empty file system of each kind."""
    if request.param == "subtree":
        return stores.subtree(tmp_path_factory.mktemp("store"))
    if request.param == "memory":
        return stores.memory(uuid.uuid4().hex)
    return stores.s3(request.getfixturevalue("bucket"))


@pytest.fixture(params=["memory", "s3"])
def url_store(request: pytest.FixtureRequest) -> Any:
    """An empty file system of each kind that URLs name."""
    if request.param == "memory":
        return stores.memory(uuid.uuid4().hex, by_url=True)
    return stores.s3(request.getfixturevalue("bucket"))


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder for temporary files, which must be empty when a test ends."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    assert not list(folder.iterdir())


@pytest.fixture(scope="module")
def explainer() -> TreeExplainer:
    from helpers.batches import MODEL

    return TreeExplainer(MODEL)
