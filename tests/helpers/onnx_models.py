"""ONNX models as bytes, built without ONNX: messages of its protobuf schema, and tree ensembles in them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from skshapgpu._rows.inputs import read
from skshapgpu.adapters.schema import AdaptedModel

#: Element types of tensors by dtype, in the schema's numbers.
TYPES = {
    "float32": 1, "uint8": 2, "int32": 6, "int64": 7, "string": 8, "bool": 9, "float16": 10, "float64": 11
}  # fmt: skip

#: Attributes of any value, by name.
Attributes = Mapping[str, Any]


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def field(number: int, value: int | float | str | bytes) -> bytes:
    """Encode a field: an integer as varint, a float in four bytes, anything else after its length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def tensor(array: np.ndarray, raw: bool = True, name: str = "") -> bytes:
    """Encode a tensor, in raw bytes or else in the packed field of its type."""
    dims = b"".join(field(1, n) for n in array.shape)
    head = dims + field(2, TYPES[array.dtype.name]) + (field(8, name) if name else b"")
    if raw:
        return head + field(9, array.tobytes())
    if array.dtype.kind == "f":
        return head + field(4 if array.dtype == np.float32 else 10, array.tobytes())
    return head + field(7 if array.dtype == np.int64 else 5, b"".join(map(varint, array.tolist())))


def attribute(name: str, value: Any, packed: bool = False) -> bytes:
    """Encode an attribute: a number, a string, a list of either, or an array as a tensor."""
    single = {int: (3, 2), float: (2, 1), str: (4, 3)}
    several = {int: (8, 7), float: (7, 6), str: (9, 8)}
    if isinstance(value, np.ndarray):
        content = field(5, tensor(value, raw=not packed)) + field(20, 4)
    elif isinstance(value, (int, float, str)):
        number, kind = single[type(value)]
        content = field(number, value) + field(20, kind)
    else:
        number, kind = several[type(value[0])] if len(value) else (8, 7)
        if packed and kind == 6:
            content = field(number, struct.pack(f"<{len(value)}f", *value))
        elif packed and kind == 7:
            content = field(number, b"".join(map(varint, value)))
        else:
            content = b"".join(field(number, item) for item in value)
        content += field(20, kind)
    return field(1, name) + content


def operator(
    kind: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Attributes | None = None,
    *,
    ml: bool = False,
    packed: bool = False,
) -> bytes:
    """Encode a node of a graph; ``ml``: of the domain ai.onnx.ml."""
    parts = [field(1, name) for name in inputs] + [field(2, name) for name in outputs] + [field(4, kind)]
    parts += [field(5, attribute(*pair, packed=packed)) for pair in (attributes or {}).items()]
    return b"".join(parts) + (field(7, "ai.onnx.ml") if ml else b"")


def value_info(name: str, dtype: str, shape: Sequence[int | str | None]) -> bytes:
    """Encode the name and type of an input or output; the shape may hold numbers, names and unknowns."""
    dims = (b"" if n is None else field(1, n) if isinstance(n, int) else field(2, n) for n in shape)
    dimensions = b"".join(field(1, dim) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, TYPES[dtype]) + field(2, dimensions)))


def model(
    operators: Sequence[bytes],
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
    *,
    opset: int = 3,
    initializers: Sequence[bytes] = (),
) -> bytes:
    """Encode a model; ``opset`` is the version of ai.onnx.ml."""
    graph = b"".join(field(1, message) for message in operators) + field(2, "graph")
    graph += b"".join(field(5, message) for message in initializers)
    graph += b"".join(field(11, message) for message in inputs) + b"".join(
        field(12, message) for message in outputs
    )
    versions = field(8, field(1, "") + field(2, 17)) + field(8, field(1, "ai.onnx.ml") + field(2, opset))
    return field(1, 8) + field(2, "a test") + field(7, graph) + versions


#: Comparisons in the order of their numbers in TreeEnsemble.
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")

#: Nodes of a tree. A leaf is ("LEAF", weights by output). A split is its mode, its feature, a threshold or a
#: list of members, the numbers of the true and of the false node, and whether missing values go to the true
#: node.
Tree = list[tuple[Any, ...]]


def random_trees(
    rng: np.random.Generator,
    modes: Sequence[str],
    *,
    n_trees: int = 5,
    depth: int = 4,
    n_outputs: int = 1,
    decimals: int = 1,
) -> list[Tree]:
    """Draw trees of three features, with thresholds that several nodes share."""
    trees = []
    for _ in range(n_trees):
        tree: Tree = []

        def grow(levels: int, tree: Tree = tree) -> int:
            at = len(tree)
            if levels == 0 or (levels < depth - 1 and rng.random() < 0.2):
                tree.append(("LEAF", dict(enumerate(rng.normal(size=n_outputs).tolist()))))
                return at
            tree.append(())
            mode = str(rng.choice(modes))
            numbers = np.round(2 * rng.normal(size=4), decimals)[: rng.integers(1, 5)].tolist()
            threshold = numbers if mode == "MEMBER" else numbers[0]
            children = (grow(levels - 1), grow(levels - 1))
            tree[at] = (mode, int(rng.integers(3)), threshold, *children, bool(rng.integers(2)))
            return at

        grow(depth)
        trees.append(tree)
    return trees


def hard_numbers(
    rng: np.random.Generator, trees: Sequence[Tree], dtype: str, n_rows: int = 400
) -> np.ndarray:
    """Draw rows of a dtype: thresholds and their neighbours, zeros, infinities and missing values."""
    numbers = [node[2] for tree in trees for node in tree if node[0] != "LEAF"]
    exact = np.hstack([np.zeros(1), *map(np.atleast_1d, numbers)])
    edges = np.concatenate([exact.astype(np.float32), exact], dtype=dtype)
    pool = [edges, *(np.nextafter(edges, edges.dtype.type(to)) for to in (np.inf, -np.inf))]
    pool += [edges + edges.dtype.type(0.05), np.array([-0.0, np.nan, np.nan, np.inf, -np.inf], dtype)]
    return rng.choice(np.concatenate(pool), (n_rows, 3))


def scores(trees: Sequence[Tree], X: np.ndarray, n_outputs: int = 1, precise: bool = False) -> np.ndarray:
    """Compute the sums of the trees by the definition of the operators; X is compared without rounding.

    Without ``precise``, thresholds and weights are float32.
    """
    real = np.float64 if precise else np.float32
    sums = np.zeros((len(X), n_outputs))
    for i, row in enumerate(X.astype(np.float64)):
        for tree in trees:
            node = tree[0]
            while node[0] != "LEAF":
                mode, feature, threshold, true, false, missing = node
                x, t = row[feature], np.asarray(threshold, real).astype(np.float64)
                holds = {
                    "LEQ": lambda x=x, t=t: x <= t,
                    "LT": lambda x=x, t=t: x < t,
                    "GTE": lambda x=x, t=t: x >= t,
                    "GT": lambda x=x, t=t: x > t,
                    "EQ": lambda x=x, t=t: x == t,
                    "NEQ": lambda x=x, t=t: x != t,
                    "MEMBER": lambda x=x, t=t: x in t,
                }[mode]()
                node = tree[true if holds or (missing and np.isnan(x)) else false]
            for output, weight in node[1].items():
                sums[i, output] += real(weight)
    return sums


def listed(trees: Sequence[Tree], kind: str = "target", double: bool = False) -> dict[str, Any]:
    """Return the attributes of a regressor ("target") or of a classifier ("class").

    With ``double``, thresholds and weights are tensors of float64.
    """
    columns: dict[str, list[Any]] = {}

    def add(**row: Any) -> None:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)

    for tree, nodes in enumerate(trees):
        for number, (mode, *rest) in enumerate(nodes):
            feature, threshold, true, false, missing = (0, 0.0, 0, 0, False) if mode == "LEAF" else rest
            add(
                nodes_treeids=tree,
                nodes_nodeids=number,
                nodes_modes=mode if mode == "LEAF" else f"BRANCH_{mode}",
                nodes_featureids=feature,
                nodes_values=float(threshold),
                nodes_truenodeids=true,
                nodes_falsenodeids=false,
                nodes_missing_value_tracks_true=int(missing),
            )
            for output, weight in rest[0].items() if mode == "LEAF" else ():
                row = {"treeids": tree, "nodeids": number, "ids": output, "weights": float(weight)}
                add(**{f"{kind}_{name}": value for name, value in row.items()})
    for name in ("nodes_values", f"{kind}_weights") if double else ():
        columns[f"{name}_as_tensor"] = np.array(columns.pop(name))  # type: ignore[assignment]
    return columns


def indexed(trees: Sequence[Tree], dtype: str = "float32") -> dict[str, Any]:
    """Return the attributes of a TreeEnsemble, each of whose leaves has the weight of one output."""
    columns: dict[str, Any] = {
        f"nodes_{name}": []
        for name in (
            "featureids",
            "modes",
            "splits",
            "missing_value_tracks_true",
            "truenodeids",
            "trueleafs",
            "falsenodeids",
            "falseleafs",
        )
    }
    roots: list[int] = []
    outputs: list[int] = []
    leaf_weights: list[float] = []
    members: list[float] = []
    for tree in trees:
        first = len(columns["nodes_modes"])
        place: dict[int, int] = {}
        leaf: dict[int, int] = {}
        for number, node in enumerate(tree):
            if node[0] != "LEAF":
                place[number] = first + len(place)
            else:
                leaf[number] = len(outputs)
                ((output, weight),) = node[1].items()
                outputs.append(output)
                leaf_weights.append(weight)
        roots.append(first)
        for mode, feature, threshold, true, false, missing in (tree[number] for number in place):
            if mode == "MEMBER":
                members += [*threshold, np.nan]
            row = {
                "featureids": feature,
                "modes": MODES.index(mode),
                "splits": 0.0 if mode == "MEMBER" else threshold,
                "missing_value_tracks_true": int(missing),
            }
            for side, child in (("true", true), ("false", false)):
                row |= {
                    f"{side}nodeids": place.get(child, leaf.get(child)),
                    f"{side}leafs": int(child in leaf),
                }
            for name, value in row.items():
                columns[f"nodes_{name}"].append(value)
    columns["nodes_modes"] = np.array(columns["nodes_modes"], np.uint8)
    columns["nodes_splits"] = np.array(columns["nodes_splits"], dtype)
    columns |= {"tree_roots": roots, "leaf_targetids": outputs, "leaf_weights": np.array(leaf_weights, dtype)}
    return columns | ({"membership_values": np.array(members, dtype)} if members else {})


def ensemble(
    kind: str,
    attributes: Attributes,
    n_features: int | str | None = 3,
    *,
    dtype: str = "float32",
    packed: bool = False,
) -> bytes:
    """Encode a model of one TreeEnsembleRegressor or, with opset 5, of one TreeEnsemble."""
    operators = [operator(kind, ["X"], ["Y"], attributes, ml=True, packed=packed)]
    inputs = [value_info("X", dtype, [None, n_features])]
    outputs = [value_info("Y", dtype if kind == "TreeEnsemble" else "float32", [None, None])]
    return model(operators, inputs, outputs, opset=5 if kind == "TreeEnsemble" else 3)


def regressor(attributes: Attributes, n_features: int | str | None = 3, **options: Any) -> bytes:
    """Encode a model of one TreeEnsembleRegressor, with one target unless ``attributes`` has more."""
    return ensemble("TreeEnsembleRegressor", {"n_targets": 1, **attributes}, n_features, **options)


def classifier(attributes: Attributes, n_features: int = 3, *, dtype: str = "float32") -> bytes:
    """Encode a model of one TreeEnsembleClassifier, whose first output are labels."""
    operators = [operator("TreeEnsembleClassifier", ["X"], ["label", "scores"], attributes, ml=True)]
    label_type = "string" if "classlabels_strings" in attributes else "int64"
    outputs = [value_info("label", label_type, [None]), value_info("scores", "float32", [None, None])]
    return model(operators, [value_info("X", dtype, [None, n_features])], outputs)


#: A tree of two leaves.
STUMP: Tree = [("LEQ", 1, 0.5, 1, 2, False), ("LEAF", {0: 1.0}), ("LEAF", {0: -2.0})]


def around(
    tree_inputs: list[str],
    before: list[bytes],
    after: list[bytes],
    dtype: str = "float32",
    *,
    outputs: tuple[str, ...] = ("Y",),
    shape: list[int | str | None] | None = None,
    attributes: dict[str, Any] | None = None,
) -> bytes:
    """Build a graph with operators before and after a regressor, whose output is S."""
    attributes_of_trees = attributes or {**listed([STUMP]), "n_targets": 1}
    trees = operator("TreeEnsembleRegressor", tree_inputs, ["S"], attributes_of_trees, ml=True)
    x = value_info("X", dtype, ["N", 3] if shape is None else shape)
    ends = [value_info(name, "float32", [None, 1]) for name in outputs]
    return model([*before, trees, *after], [x], ends)


def margin(adapted: AdaptedModel, X: np.ndarray) -> np.ndarray:
    """Evaluate the trees of a model by a slow and simple loop, on rows as users pass them."""
    rows = read(X, adapted.schema, adapted.ensemble.x_dtype)
    return adapted.ensemble.margin(rows.chunk(0, rows.n_rows))
