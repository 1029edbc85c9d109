"""Folders of tree models, written without Spark as Spark ML saves them, and predictions of their trees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

#: Node as Spark's NodeData: a dictionary.
Node = dict[str, Any]

#: Numbers of categories of the features of :func:`random_tree`; 0: numeric.
N_CATEGORIES = (0, 5, 0, 2, 0)


def node(number: int, stats: Sequence[float], prediction: float = 0.0, **split: Any) -> Node:
    """Return a leaf or, with ``left``, ``right``, ``feature``, ``values`` and ``n_categories``, a split."""
    return {
        "id": number,
        "prediction": prediction,
        "impurity": 0.25,
        "impurityStats": list(map(float, stats)),
        "rawCount": int(10 * stats[0]) + 1,
        "gain": 0.125 if split else -1.0,
        "leftChild": split.get("left", -1),
        "rightChild": split.get("right", -1),
        "split": {
            "featureIndex": split.get("feature", -1),
            "leftCategoriesOrThreshold": list(map(float, split.get("values", []))),
            "numCategories": split.get("n_categories", -1),
        },
    }


def random_tree(rng: np.random.Generator, n_classes: int, depth: int = 4) -> list[Node]:
    """Grow a tree in preorder; thresholds are multiples of 1/8, and features repeat along a path."""
    nodes: list[Node] = []

    def grow(depth: int) -> int:
        number = len(nodes)
        nodes.append({})
        stats = rng.uniform(0.5, 9, n_classes) if n_classes else [rng.uniform(0.5, 9), 1.0, 2.0]
        split: dict[str, Any] = {}
        if depth and rng.random() < 0.9:
            feature = int(rng.integers(len(N_CATEGORIES)))
            n = N_CATEGORIES[feature]
            values = [rng.integers(-8, 9) / 8] if not n else rng.choice(n, rng.integers(1, n), replace=False)
            split = {"feature": feature, "values": values, "n_categories": n or -1}
            split |= {"left": grow(depth - 1), "right": grow(depth - 1)}
        nodes[number] = node(number, list(stats), 100.0 + rng.normal(), **split)
        return number

    grow(depth)
    return nodes


def leaf(tree: list[Node], row: np.ndarray) -> Node:
    """Return the leaf that a row reaches, by the rules of Spark's ``Split.shouldGoLeft``."""
    node = tree[0]
    while node["leftChild"] != -1:
        split = node["split"]
        x, values, n = row[split["featureIndex"]], split["leftCategoriesOrThreshold"], split["numCategories"]
        if n == -1:
            goes_left = x <= values[0]
        elif len(values) <= n // 2:
            goes_left = x in values
        else:
            goes_left = x not in set(range(n)).difference(values)
        node = tree[node["leftChild" if goes_left else "rightChild"]]
    return node


def hard_numbers(rng: np.random.Generator, n_rows: int) -> np.ndarray:
    """Return rows on and next to thresholds, and with values that are no categories."""
    X = rng.integers(-9, 10, (n_rows, len(N_CATEGORIES))) / 8
    X = np.where(rng.random(X.shape) < 0.3, np.nextafter(X, rng.choice([-np.inf, np.inf], X.shape)), X)
    for feature in np.flatnonzero(N_CATEGORIES):
        X[:, feature] = rng.integers(0, N_CATEGORIES[feature], n_rows)
        others = rng.choice([-0.0, -1.0, 0.5, 5.0, 7.0, 1e12, np.nan, np.inf, -np.inf], n_rows)
        X[:, feature] = np.where(rng.random(n_rows) < 0.3, others, X[:, feature])
    return np.where(rng.random(X.shape) < 0.1, rng.choice([np.nan, np.inf, -np.inf, -0.0], X.shape), X)


def write(
    folder: Path,
    name: str,
    trees: list[list[Node]],
    n_features: int = len(N_CATEGORIES),
    weights: Sequence[float] | None = None,
    n_parts: int = 1,
    weight_names: Sequence[str] = ("treeID", "metadata", "weights"),
    **metadata: Any,
) -> Path:
    """Write a model of the class ``name``, with nodes in any order and further entries of ``metadata``."""
    import pyarrow as pa
    from pyarrow import parquet

    package = "classification" if "Classification" in name else "regression"
    facts: dict[str, Any] = {
        "class": f"org.apache.spark.ml.{package}.{name}",
        "timestamp": 1_700_000_000_000,
        "sparkVersion": "4.3.0",
        "uid": "model",
        "paramMap": {},
        "defaultParamMap": {"maxDepth": 5, "impurity": "gini" if "numClasses" in metadata else "variance"},
        "numFeatures": n_features,
    }
    if not name.startswith("DecisionTree"):
        facts["numTrees"] = len(trees)
        rows = [{"treeID": i, "nodeData": node} for i, tree in enumerate(trees) for node in tree]
        tree_weights = [1.0] * len(trees) if weights is None else weights
        kind = "Regression" if name.startswith("GBT") else name[len("RandomForest") : -len("Model")]
        tree = json.dumps(facts | {"class": f"org.apache.spark.ml.{kind.lower()}.DecisionTree{kind}Model"})
        if name.startswith("RandomForest"):
            facts["defaultParamMap"]["numTrees"] = len(trees)
        tree_rows = [dict(zip(weight_names, (i, tree, weight))) for i, weight in enumerate(tree_weights)]
        (folder / "treesMetadata").mkdir(parents=True)
        tree_schema = pa.schema([*zip(weight_names, (pa.int32(), pa.string(), pa.float64()))])
        table = pa.Table.from_pylist(tree_rows[::-1], tree_schema)
        parquet.write_table(table, folder / "treesMetadata/part-0.parquet")
    else:
        rows = list(trees[0])
    np.random.default_rng(0).shuffle(rows)
    schema = _schema(rows)
    for name_ in ("metadata", "data"):
        (folder / name_).mkdir(parents=True)
        (folder / name_ / "_SUCCESS").touch()
    (folder / "metadata/part-00000").write_text(json.dumps(facts | metadata) + "\n")
    for i in range(n_parts):
        part = pa.Table.from_pylist(rows[i::n_parts], schema)
        parquet.write_table(part, folder / f"data/part-0000{i}.snappy.parquet")
    return folder


def _schema(rows: list[dict[str, Any]]) -> Any:
    """Return the schema that Spark writes if the nodes have Spark's types, else a schema that fits them."""
    import pyarrow as pa

    integer, numbers = pa.int32(), pa.list_(pa.float64())
    split = [("featureIndex", integer), ("leftCategoriesOrThreshold", numbers), ("numCategories", integer)]
    types = {
        "id": integer,
        "prediction": pa.float64(),
        "impurity": pa.float64(),
        "impurityStats": numbers,
        "rawCount": pa.int64(),
        "gain": pa.float64(),
        "leftChild": integer,
        "rightChild": integer,
        "split": pa.struct(split),
    }
    first = rows[0].get("nodeData", rows[0])
    fields = [(name, types[name]) for name in first]
    if "nodeData" in rows[0]:
        fields = [("treeID", integer), ("nodeData", pa.struct(fields))]
    try:
        return pa.Table.from_pylist(rows, pa.schema(fields)).schema
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.Table.from_pylist(rows).schema
