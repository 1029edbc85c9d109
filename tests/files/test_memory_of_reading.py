"""Resident memory of reading a hostile file: at most a mebibyte plus 200 times its size, for every reader.

The memory is measured from outside, so that the memory of Arrow and of the core counts, too.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import TESTS, onnx_models, spark_models
from helpers.ubjson import dumps

from skshapgpu import TreeExplainer
from skshapgpu._files import storage
from skshapgpu.adapters import _ubjson, adapt, files

pytestmark = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="only Linux reports the peak of the memory"
)

CORPUS = TESTS / "fuzz" / "corpus"

#: Bytes of most files. The limits of small files are dominated by the mebibyte.
N = 200_000

#: Contents of files, or functions that write a folder, by their names.
Hostile = dict[str, bytes | Callable[[Path], Any]]


def document(name: str) -> Any:
    """Read a document of XGBoost in the fuzzer's corpus, with arrays that can be written again."""

    def copied(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: copied(item) for key, item in value.items()}
        if isinstance(value, list):
            return [copied(item) for item in value]
        return np.array(value, value.dtype.newbyteorder("=")) if isinstance(value, np.ndarray) else value

    return copied(_ubjson.loads((CORPUS / "xgboost" / name).read_bytes()))


def model_of(document: Any) -> Any:
    return document["learner"]["gradient_booster"]["model"]


def with_trees(document: Any, trees: list[Any]) -> Any:
    model_of(document).update(
        trees=trees, tree_info=[0] * len(trees), iteration_indptr=list(range(len(trees) + 1))
    )
    return document


def children(n_leaves: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the children of a balanced tree."""
    node = np.arange(2 * n_leaves - 1)
    inner = node < n_leaves - 1
    return np.where(inner, 2 * node + 1, -1), np.where(inner, 2 * node + 2, -1)


def compact_tree(tree: Any, n_leaves: int) -> Any:
    """Return a tree of XGBoost with a byte for each number."""
    left, right = children(n_leaves)
    kept = {
        name: part for name, part in tree.items() if name not in ("base_weights", "loss_changes", "parents")
    }
    zeros = np.zeros(len(left), np.int8)
    kept |= {"left_children": left.astype(np.int8), "right_children": right.astype(np.int8)}
    names = ("split_conditions", "split_indices", "split_type", "default_left", "sum_hessian")
    return kept | dict.fromkeys(names, zeros)


def xgboost_ubjson() -> Hostile:
    plain = document("regression")

    def beside(content: bytes) -> bytes:
        return dumps(plain)[:-1] + b"i\1x" + content + b"}"

    wide = document("vector_leaves")
    for tree in model_of(wide)["trees"]:
        tree["tree_param"]["size_leaf_vector"] = "500000000"
    wide["learner"]["learner_model_param"].update(num_target="500000000", base_score="0")
    names = document("categories")
    offsets = np.array([0, N // 2] * (N // 16), np.int32)
    enc = [{}, {"offsets": offsets, "values": np.zeros(N // 2, np.int8)}, {}]
    model_of(names)["cats"] = {"enc": enc, "feature_segments": offsets[:0], "sorted_idx": offsets[:0]}
    mixed = document("vector_leaves")
    vector = model_of(mixed)["trees"][0]
    leaf = {key: part[-1:] if isinstance(part, np.ndarray) else part for key, part in vector.items()}
    leaf |= {"left_children": np.array([-1]), "right_children": np.array([0])}
    plain_tree = compact_tree(vector, 64) | {"leaf_weights": np.empty(0, np.float32)}
    hostile: Hostile = {}
    for width in (60, 256):
        parameters = vector["tree_param"] | {"size_leaf_vector": str(width)}
        leaves = leaf | {"leaf_weights": np.ones(width, np.float32), "tree_param": parameters}
        mixed["learner"]["learner_model_param"].update(num_target=str(width), base_score="0")
        hostile[f"mixed {width}"] = dumps(with_trees(mixed, [leaves] + [plain_tree] * (N // 1500)))
    small_trees = [compact_tree(model_of(plain)["trees"][0], 64)] * (N // 1500)
    return hostile | {
        "honest": dumps(plain),
        "lists": beside(b"[" + b"[]" * (N // 2) + b"]"),
        "dictionaries": beside(b"[" + b"{i\0Z}" * (N // 5) + b"]"),
        "arrays": beside(b"[" + b"[$i#i\0" * (N // 6) + b"]"),
        "nulls": beside(b"[" + b"Z" * N + b"]"),
        "a huge count": beside(b"[#L\x10" + bytes(7) + b"Z" * N),
        "a huge array": beside(b"[$L#L\x10" + bytes(7) + b"Z" * N),
        "a wide letter": beside(b"SL" + (N + 4).to_bytes(8, "big") + "\U00010000".encode() + b"a" * N),
        "deep": beside(b"[" * N),
        "trees": dumps(with_trees(document("regression"), small_trees)),
        "widths of leaves": dumps(wide),
        "names of categories": dumps(names),
    }


def plain_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain_lists(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [plain_lists(item) for item in value] if isinstance(value, list) else value


def xgboost_json() -> Hostile:
    plain = plain_lists(document("regression"))

    def beside(content: str) -> bytes:
        return (json.dumps(plain)[:-1] + f', "x": {content}}}').encode()

    def edited(**parts: Any) -> bytes:
        edited_document = json.loads(json.dumps(plain))
        model_of(edited_document)["trees"][0].update(parts)
        return json.dumps(edited_document).encode()

    outputs = with_trees(json.loads(json.dumps(plain)), [])
    outputs["learner"]["learner_model_param"]["num_class"] = "65536"
    strings = ["a" * (N // 2)] + [""] * (N // 8)
    return {
        "honest": json.dumps(plain).encode(),
        "deep": beside("[" * N),
        "lists": beside("[" + "[]," * (N // 3) + "[]]"),
        "deep lists": beside("[" + ("[" * 500 + "]" * 500 + ",") * (N // 1001) + "[]]"),
        "dictionaries": beside("[" + '{"a":1},' * (N // 8) + "{}]"),
        "keys": beside("{" + ",".join(f'"{i:x}":0' for i in range(N // 9)) + "}"),
        "long numbers": beside("[" + ",".join(["9" * 4000] * (N // 4001)) + "]"),
        "numbers": beside("[" + "300," * (N // 4) + "1]"),
        "strings": beside("[" + '"ab",' * (N // 5) + "1]"),
        "a wide letter": beside('"\U00010000' + "a" * N + '"'),
        "strings as integers": edited(split_indices=strings),
        "strings as floats": edited(split_conditions=strings),
        "short strings": edited(split_indices=["a" * 10_000] + [""] * 2_500),
        "outputs": json.dumps(outputs).encode(),
    }


def lightgbm_tree(n_leaves: int) -> str:
    inner = np.arange(n_leaves - 1)
    fields = {"num_leaves": n_leaves, "num_cat": 0, "is_linear": 0}
    for name, child in (("left_child", 2 * inner + 1), ("right_child", 2 * inner + 2)):
        fields[name] = np.where(child < n_leaves - 1, child, ~(child - n_leaves + 1))
    fields |= dict.fromkeys(("split_feature", "threshold", "decision_type"), 0 * inner)
    fields |= {"internal_count": 0 * inner + 1, "leaf_value": [0] * n_leaves, "leaf_count": [1] * n_leaves}
    lines = (f"{name}={' '.join(map(str, np.atleast_1d(part)))}\n" for name, part in fields.items())
    return "Tree=0\n" + "".join(lines) + "\n\n"


def lightgbm_text() -> Hostile:
    honest = (CORPUS / "lightgbm" / "regression").read_text()
    head, before_categories = honest.partition("\n\nTree=0")[0], honest.partition("pandas_categorical:")[0]

    def text(trees: list[str], head: str = head) -> bytes:
        head = re.sub("tree_sizes=.*", "tree_sizes=" + " ".join(["1"] * len(trees)), head)
        return f"{head}\n\n{''.join(trees)}end of trees\n\npandas_categorical:null\n".encode()

    def bits(word: str) -> bytes:
        n_words = N // (len(word) + 1)
        sets = f"num_cat=1\ncat_boundaries=0 {n_words}\ncat_threshold={' '.join([word] * n_words)}"
        tree = lightgbm_tree(2).replace("num_cat=0", sets).replace("decision_type=0", "decision_type=1")
        return text([tree])

    n_terms = N // 4
    terms = " ".join(["0"] * n_terms)
    linear = (
        f"is_linear=1\nnum_features={n_terms} 0\nleaf_const=0 0\nleaf_features={terms}\nleaf_coeff={terms}"
    )
    return {
        "honest": honest.encode(),
        "empty lines": honest.encode() + b"\n" * N,
        "short lines": ("\n".join(f"{i:x}" for i in range(N // 5)) + "\n" + honest).encode(),
        "a wide letter": honest.replace("\nTree=0", "\n\U00010000=" + "a" * N + "\nTree=0", 1).encode(),
        "lists": (before_categories + "pandas_categorical:[" + "[]," * (N // 3) + "[]]\n").encode(),
        "deep lists": (before_categories + "pandas_categorical:" + "[" * N + "\n").encode(),
        "sizes of trees": honest.replace("tree_sizes=", "tree_sizes=" + "10 " * (N // 3), 1).encode(),
        "one tree": text([lightgbm_tree(N // 30)]),
        "small trees": text([lightgbm_tree(2)] * (N // 200)),
        "no trees": text(["Tree=0\nnum_leaves=1\nnum_cat=0\nleaf_value=1\n\n\n"] * (N // 50)),
        "outputs": text([], re.sub("num_tree_per_iteration=.*", "num_tree_per_iteration=65536", head)),
        "sets": bits("4294967295"),
        "sets of -1": bits("-1"),
        "linear leaves": text([lightgbm_tree(2).replace("is_linear=0", linear)]),
    }


def catboost_json() -> Hostile:
    plain = json.loads((CORPUS / "catboost" / "regression").read_bytes())
    split = plain["oblivious_trees"][0]["splits"][0]
    nested = {name: part for name, part in plain.items() if name != "oblivious_trees"}

    def written(**parts: Any) -> bytes:
        start = nested if "trees" in parts else plain
        return json.dumps(start | parts, separators=(",", ":")).encode()

    deep = {"leaf_values": [0] * 2**16, "splits": [split] * 16}
    flat = [
        {"feature_index": i, "flat_feature_index": i * 10**4, "nan_value_treatment": "AsIs"}
        for i in range(2500)
    ]
    return {
        "honest": written(),
        "a deep tree": written(oblivious_trees=[deep]),
        "leaves": written(oblivious_trees=[{"leaf_values": [0], "splits": None}] * (N // 32)),
        "nested leaves": written(trees=[{"value": 0}] * (N // 12)),
        "lists": written(oblivious_trees=[{"leaf_values": [[]] * (N // 3), "splits": None}]),
        "strings": written(
            oblivious_trees=[{"leaf_values": ["a" * (N // 2)] + [""] * (N // 8), "splits": None}]
        ),
        "outputs": written(oblivious_trees=[], scale_and_bias=[1, [0] * (N // 2)]),
        "columns": written(oblivious_trees=[], features_info={"float_features": flat}),
    }


def onnx_messages() -> Hostile:
    def graph(field: int, messages: bytes) -> bytes:
        content = onnx_models.field(field, messages)
        return onnx_models.field(1, 8) + onnx_models.field(7, content * (N // len(content)))

    def shared_leaves(n_outputs: int) -> bytes:
        inner = np.arange(N // 13)
        attributes: dict[str, Any] = {"tree_roots": [0], "n_targets": n_outputs}
        for side, child in (("true", 2 * inner + 1), ("false", 2 * inner + 2)):
            is_leaf = child >= len(inner)
            attributes[f"nodes_{side}nodeids"] = np.where(is_leaf, inner % n_outputs, child).tolist()
            attributes[f"nodes_{side}leafs"] = is_leaf.astype(int).tolist()
        attributes |= {
            "nodes_featureids": [0] * len(inner),
            "nodes_modes": np.zeros(len(inner), np.uint8),
            "nodes_splits": np.zeros(len(inner), np.float32),
            "leaf_targetids": list(range(n_outputs)),
            "leaf_weights": np.ones(n_outputs, np.float32),
        }
        return onnx_models.ensemble("TreeEnsemble", attributes, packed=True)

    return {
        "honest": (CORPUS / "model_file" / "onnx_classes").read_bytes(),
        "operators": graph(1, b""),
        "inputs": graph(11, onnx_models.field(1, "ab")),
        "constants": graph(5, onnx_models.field(8, "ab")),
        "names": graph(1, onnx_models.field(1, "ab") * 1000),
        "few outputs": shared_leaves(48),
        "many outputs": shared_leaves(190),
    }


def treelite_checkpoint() -> Hostile:
    honest = (CORPUS / "model_file" / "treelite_classes").read_bytes()

    def array(items: Any, dtype: str) -> bytes:
        numbers = np.asarray(items, dtype)
        return len(numbers).to_bytes(8, "little") + numbers.tobytes()

    def numbers(dtype: str, *items: int) -> bytes:
        return np.array(items, dtype).tobytes()

    tree = numbers("<i4", 1) + b"\0"
    for dtype, n in zip(["i1", *["<i4"] * 3, "u1", "<f4", "<f4", "i1", "u1", "<f4"], [1] * 9 + [0]):
        tree += array([-1 if dtype == "<i4" else 0] * n, dtype)
    tree += array([0], "<u8") * 2 + array([], "<u4") + array([0], "<u8") * 2 + bytes(6 * 8 + 8)

    def outputs(n_trees: int, n_targets: int) -> bytes:
        """Return a model whose trees claim to have one class of each target."""
        head = numbers("<i4", 4, 0, 0) + b"\2\2" + numbers("<u8", n_trees) + numbers("<i4", 3) + b"\1\0"
        head += numbers("<i4", n_targets) + array([2] * n_targets, "<i4") + array([1, 1], "<i4")
        head += array([-1] * n_trees, "<i4") + array([0] * n_trees, "<i4") + array(list(b"identity"), "u1")
        head += numbers("<f4", 1, 1) + array([0] * 2 * n_targets, "<f8") + array([], "u1") + bytes(4)
        return head + tree * n_trees

    return {
        "honest": honest,
        "trees": outputs(N // len(tree), 1),
        "outputs": outputs(3000, 50_000),
        "a huge count": honest[:14] + b"\0\0\0\0\0\1\0\0" + honest[22:],
    }


def explainer_file() -> Hostile:
    path = CORPUS / "explainer_file" / "plain"
    header, arrays = storage.read(path)
    model = dict(header["model"]["mapping"])
    schema = dict(model["schema"]["mapping"])

    def mapping(content: dict[str, Any]) -> Any:
        return {"mapping": [[key, value] for key, value in content.items()]}

    def written(of_model: Any = None, of_schema: Any = None, more: Any = None) -> Callable[[Path], Any]:
        changed = model | {"schema": mapping(schema | (of_schema or {}))} | (of_model or {})
        return lambda place: storage.write(place, header | {"model": mapping(changed)}, arrays | (more or {}))

    numbers = np.arange(N // 16, dtype="<f8")
    ranks = {"encoder": "onnx ranks", "fields": {"values": {"array": "numbers"}, "x_dtype": "float64"}}
    encoders = {"mapping": [[i, ranks] for i in range(N // 200)]}
    members = io.BytesIO()
    with zipfile.ZipFile(members, "w") as archive:
        archive.writestr("header.json", b"{}")
        for i in range(N // 100):
            archive.writestr(f"{i:x}", b"")
    compressed = io.BytesIO()
    with zipfile.ZipFile(compressed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", '{"format": "skshapgpu"' + " " * 2**25 + "}")
    return {
        "honest": path.read_bytes(),
        "lists": written({"shared": {"tuple": [{"tuple": []}] * (N // 15)}}),
        "objects": written({"shared": {"objects": [{"objects": []}] * (N // 18)}}),
        "mappings": written({"shared": {"tuple": [{"mapping": [[0, 0]]}] * (N // 25)}}),
        "a scalar of a gigabyte": written(None, {"missing_value": {"scalar": "V1", "value": 10**9}}),
        "encoders": written(None, {"encoders": encoders}, {"numbers": numbers}),
        "members": members.getvalue(),
        "a compressed header": compressed.getvalue(),
    }


def spark_folder() -> Hostile:
    pytest.importorskip("pyarrow")
    n_rows = 10**6
    return {
        "honest": spark_boosting,
        "weights": spark_weights({"treeID": np.zeros(n_rows, np.int32), "weights": np.ones(n_rows)}),
        "a column that is not read": spark_weights(
            {"treeID": [0], "metadata": ["a" * 3 * 10**7], "weights": [1.0]}
        ),
        "long lists": spark_long_lists(False),
        "long lists that lie": spark_long_lists(True),
        "classes": spark_classes,
        "metadata of Parquet": spark_metadata_of_parquet,
        "metadata": spark_metadata,
    }


def spark_boosting(folder: Path) -> Path:
    """Write a model of one tree with two leaves."""
    stump = [
        spark_models.node(0, [3, 0, 0], left=1, right=2, feature=1, values=[0.5]),
        spark_models.node(1, [2, 0, 0], 1.0),
        spark_models.node(2, [1, 0, 0], -2.0),
    ]
    return spark_models.write(folder, "GBTRegressionModel", [stump])


def spark_weights(table: dict[str, Any]) -> Callable[[Path], Any]:
    """Return a writer of a model with this table of the weights of trees."""
    import pyarrow as pa
    from pyarrow import parquet

    def write(folder: Path) -> None:
        part = spark_boosting(folder) / "treesMetadata" / "part-0.parquet"
        parquet.write_table(pa.table(table), part, compression="zstd")

    return write


def spark_long_lists(lies: bool) -> Callable[[Path], Any]:
    """Return a writer of nodes with lists of six million zeros, if it ``lies`` as lists of three."""
    import pyarrow as pa
    from pyarrow import parquet

    def write(folder: Path) -> None:
        part = next((spark_boosting(folder) / "data").glob("part-*"))
        table = parquet.read_table(part)
        nodes = table["nodeData"].combine_chunks()
        n = 2 * 10**6
        lists = pa.ListArray.from_arrays(
            pa.array([0, n, 2 * n, 3 * n], pa.int32()), pa.array(np.zeros(3 * n))
        )
        columns = [
            lists if field.name == "impurityStats" else nodes.field(field.name) for field in nodes.type
        ]
        nodes = pa.StructArray.from_arrays(columns, [field.name for field in nodes.type])
        table = pa.table({"treeID": table["treeID"], "nodeData": nodes})
        options = {"use_dictionary": False, "data_page_size": 2**30} if lies else {}
        parquet.write_table(table, part, compression="zstd", **options)
        if lies:
            count = onnx_models.varint(2 * 3 * n)
            content = part.read_bytes()
            assert count in content
            part.write_bytes(content.replace(count, b"\x92" + b"\x80" * (len(count) - 2) + b"\0"))

    return write


def spark_classes(folder: Path) -> None:
    """Write a tree whose nodes have numbers of many classes."""
    n_leaves, n_classes = 500, 100
    left, right = children(n_leaves)
    rng = np.random.default_rng(0)
    tree = []
    for i, (one, other) in enumerate(zip(left.tolist(), right.tolist())):
        split = {"left": one, "right": other, "feature": 0, "values": [0.5]} if one >= 0 else {}
        tree.append(spark_models.node(i, rng.integers(0, 2, n_classes).tolist(), **split))
    name = "RandomForestClassificationModel"
    spark_models.write(folder, name, [tree], n_features=1, numClasses=n_classes)


def spark_metadata_of_parquet(folder: Path) -> None:
    """Write columns without content, each of which takes three bytes in the metadata."""
    schema = b"\x2c\x48\4root\x15\2\0\x15\2\x25\0\x18\1a\0"
    chunks = b"\xfc" + onnx_models.varint(N // 3) + b"\x26\0\0" * (N // 3)
    metadata = b"\x15\2\x19" + schema + b"\x16\0\x19\x1c\x19" + chunks + b"\x16\0\x16\0\0\0"
    part = next((spark_boosting(folder) / "data").glob("part-*"))
    part.write_bytes(b"PAR1" + metadata + len(metadata).to_bytes(4, "little") + b"PAR1")


def spark_metadata(folder: Path) -> None:
    """Write metadata that are a list of empty lists."""
    (spark_boosting(folder) / "metadata" / "part-00000").write_text("[" + "[]," * (N // 3) + "[]]")


def skops_file() -> Hostile:
    skops = pytest.importorskip("skops.io")
    from sklearn.preprocessing import StandardScaler

    honest = skops.dumps(StandardScaler().fit(np.eye(3)))
    with zipfile.ZipFile(io.BytesIO(honest)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}

    def compressed(name: str, content: bytes) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, honest_content in contents.items():
                archive.writestr(member, content if member == name else honest_content)
        return file.getvalue()

    array = next(name for name in contents if name.endswith(".npy"))
    numbers = io.BytesIO()
    np.save(numbers, np.zeros(10**7))
    return {
        "honest": honest,
        "schema": compressed("schema.json", contents["schema.json"] + b" " * 3 * 10**7),
        "array": compressed(array, numbers.getvalue()),
    }


READERS = (
    xgboost_ubjson,
    xgboost_json,
    lightgbm_text,
    catboost_json,
    onnx_messages,
    treelite_checkpoint,
    explainer_file,
    spark_folder,
    skops_file,
)


@pytest.mark.parametrize("hostile_files", READERS)
def test_peak(hostile_files: Callable[[], Hostile], tmp_path: Path) -> None:
    end = ".skops" if hostile_files is skops_file else ""
    paths, sizes = {}, {}
    for name, content in hostile_files().items():
        paths[name] = path = tmp_path / f"{name}{end}"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            content(path)
        parts = path.rglob("*") if path.is_dir() else [path]
        sizes[name] = sum(part.stat().st_size for part in parts if part.is_file())
    measured = peaks(paths)
    too_large = {
        name: (sizes[name], *measured[name])
        for name in paths
        if measured[name][0] > 2**20 + 200 * sizes[name]
    }
    assert not too_large


def peaks(paths: dict[str, Path]) -> dict[str, tuple[int, str]]:
    """Return the bytes and the outcome of reading each file; the first is the honest one."""
    honest = paths["honest"]
    script = TESTS / "helpers" / "memory_of_reading.py"
    command = [sys.executable, str(script), str(honest), *map(str, paths.values())]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    lines = [line.split("\t") for line in run.stdout.splitlines()]
    outcomes = {name: (int(peak), outcome) for name, (peak, _, outcome) in zip(paths, lines, strict=True)}
    assert "Error" not in outcomes["honest"][1]
    for _, outcome in outcomes.values():
        assert not re.match("'(?!ValueError|UnsupportedModelError|UntrustedTypes)[A-Za-z]*Error", outcome)
    return outcomes


def test_compressed_headers_are_not_ours(tmp_path: Path) -> None:
    """Such a file is not replaced, and its header is not decompressed to find that out."""
    with zipfile.ZipFile(tmp_path / "file", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", '{"format": "skshapgpu explainer"' + " " * 2**20 + "}")
    assert not storage.is_ours(tmp_path / "file")
    explainer = TreeExplainer.load(CORPUS / "explainer_file" / "plain")
    with pytest.raises(FileExistsError):
        explainer.save(tmp_path / "file")


@pytest.mark.parametrize("limit", ["_EXPORT_BYTES", "_CATBOOST_BYTES"])
def test_catboost_has_limits(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catboost = pytest.importorskip("catboost")
    X = np.random.default_rng(0).normal(size=(100, 3))
    # CatBoost 1.2.0 reserves memory when it is imported, which is enough for a small model.
    model = catboost.CatBoostRegressor(iterations=5, depth=12, verbose=0, allow_writing_files=False)
    model.fit(X, X[:, 0]).save_model(str(tmp_path / "model.cbm"))
    assert adapt(tmp_path / "model.cbm").ensemble.n_trees == 5
    monkeypatch.setattr(files, limit, -(10**7))
    monkeypatch.setattr(files, limit.replace("BYTES", "GROWTH"), 0)
    with pytest.raises(ValueError, match="cannot be read as a model of CatBoost"):
        adapt(tmp_path / "model.cbm")
