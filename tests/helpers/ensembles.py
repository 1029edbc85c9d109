"""Random ensembles and rows; reference values and interactions of trees too deep for the definition."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from math import comb, factorial, lcm
from typing import Any

import numpy as np
from hypothesis import strategies as st

from skshapgpu.adapters.ensemble import Ensemble, Tree

SHAPES = ("random", "chain", "perfect", "oblivious", "leaf")
COVERS = ("consistent", "independent", "extreme", "zero")
ORDERS = ("preorder", "breadth_first", "shuffled")

#: Both zeros, infinities, denormal and huge numbers, and some that only float64 can distinguish.
THRESHOLDS = np.array(
    [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.0,
        -1.0,
        2.0,
        3.0,
        0.1,
        np.nextafter(0.1, 1),
        np.float32(0.1),
        1 / 3,
        np.inf,
        -np.inf,
        5e-324,
        -5e-324,
        1e-45,
        1e-40,
        -1e-40,
        1e-35,
        -1e-35,
        2e-35,
        3e38,
        3.5e38,
        1e300,
        -1e300,
        16777217.0,
    ]
)
#: The largest number that ``zero_missing`` treats as zero.
ZERO = float(np.float32(1e-35))
#: Numbers at the limits of 32- and 64-bit words, of a byte, of float32's exact integers, and of int32.
CODES = np.array([0, 1, 2, 3, 30, 31, 32, 33, 63, 64, 65, 255, 256, 1000, 70000, 2**24 + 1, 2**31 - 1])


def random_ensemble(
    seed: int | np.random.Generator,
    *,
    n_trees: int = 3,
    n_features: int = 5,
    n_used: int | None = None,
    n_outputs: int = 1,
    vector: bool = False,
    shapes: tuple[str, ...] = SHAPES,
    max_leaves: int = 12,
    covers: tuple[str, ...] = COVERS,
    order: str = "preorder",
    x_dtype: str = "float32",
    strict: bool = False,
    categorical: bool = False,
    zero_missing: bool = False,
) -> Ensemble:
    """Draw random trees; the shape and the kind of covers of each are drawn from the arguments.

    A tree splits only on ``n_used`` of the columns, so features repeat on a path and other columns stay
    unused. ``categorical`` makes about half of the used features categorical, some of them only in some
    nodes; ``zero_missing`` makes zero a missing value in about half of all features.
    """
    rng = np.random.default_rng(seed)
    used = rng.permutation(n_features)[: n_features if n_used is None else n_used]
    is_categorical = np.zeros(n_features, bool)
    is_categorical[used] = categorical & (rng.random(len(used)) < 0.5)
    thresholds = rng.choice(THRESHOLDS, rng.integers(1, len(THRESHOLDS)), replace=False)
    trees = []
    for _ in range(n_trees):
        shape = str(rng.choice(shapes)) if len(used) else "leaf"
        left, right, level = _grow(rng, shape, max_leaves)
        n_nodes = len(left)
        inner = left >= 0
        split_of_node = level if shape == "oblivious" else np.arange(n_nodes)
        splits, categories = _random_splits(rng, split_of_node, used, thresholds, is_categorical)
        value = rng.normal(size=(n_nodes, n_outputs if vector else 1)) * 10.0 ** rng.integers(-3, 4)
        value[rng.random(n_nodes) < 0.1] = 0.0
        value[inner] = 0.0
        tree = Tree(
            left,
            right,
            **splits,
            cover=_covers(rng, str(rng.choice(covers)), left, right),
            value=value if vector else value[:, 0],
            output=int(rng.integers(n_outputs)),
            categories={i: codes for i, codes in categories.items() if inner[i]},
            listed_left=bool(rng.random() < 0.5),
        )
        trees.append(_reorder(rng, tree, order))
    return Ensemble.from_trees(
        trees,
        n_features=n_features,
        intercept=rng.normal(size=n_outputs),
        x_dtype=x_dtype,
        strict=strict,
        zero_missing=rng.random(n_features) < 0.5 if zero_missing else [],
    )


def _random_splits(
    rng: np.random.Generator,
    split_of_node: np.ndarray,
    used: np.ndarray,
    thresholds: np.ndarray,
    is_categorical: np.ndarray,
) -> tuple[dict[str, np.ndarray], dict[int, np.ndarray]]:
    """Draw the splits of nodes: fields of `Tree`, and the codes that nodes list if they split by category."""
    n_nodes = len(split_of_node)
    feature = rng.choice(used, n_nodes) if len(used) else np.zeros(n_nodes, int)
    threshold = rng.choice(thresholds, n_nodes)
    missing_left = rng.random(n_nodes) < 0.5
    by_category = np.isin(feature, np.flatnonzero(is_categorical)) & (rng.random(n_nodes) < 0.8)
    codes = [rng.choice(CODES, rng.integers(0, 6)) for _ in range(n_nodes)]
    splits = {
        "feature": feature[split_of_node],
        "threshold": threshold[split_of_node],
        "missing_left": missing_left[split_of_node],
    }
    return splits, {i: codes[split] for i, split in enumerate(split_of_node) if by_category[split]}


def _grow(rng: np.random.Generator, shape: str, max_leaves: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the children and the level of each node; parents precede their children."""
    if shape == "leaf":
        n_leaves = 1
    elif shape in ("perfect", "oblivious"):
        n_leaves = 2 ** int(rng.integers(1, max_leaves.bit_length()))
    else:
        n_leaves = int(rng.integers(2, max_leaves + 1))
    left, right, level = [-1], [-1], [0]
    leaves = [0]
    while len(leaves) < n_leaves:
        if shape == "chain":  # the children of the last split node stand at the end
            which = -int(rng.integers(1, min(2, len(leaves)) + 1))
        else:
            which = int(rng.integers(len(leaves))) if shape == "random" else 0
        split = leaves.pop(which)
        left[split], right[split] = len(left), len(left) + 1
        leaves += [len(left), len(left) + 1]
        left += [-1, -1]
        right += [-1, -1]
        level += [level[split] + 1] * 2
    return np.array(left), np.array(right), np.array(level)


def _covers(rng: np.random.Generator, kind: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    n_nodes = len(left)
    if kind == "consistent":
        cover = rng.integers(0, 50, n_nodes).astype(float)
        for i in range(n_nodes - 1, -1, -1):
            if left[i] >= 0:
                cover[i] = cover[left[i]] + cover[right[i]]
        return cover
    if kind == "independent":
        return 10.0 ** rng.uniform(-9, 12, n_nodes) * (rng.random(n_nodes) > 0.2)
    if kind == "extreme":
        return rng.choice([0.0, 5e-324, 1e-9, 1.0, 1e12, 1.7e308], n_nodes)
    return np.zeros(n_nodes)


def _reorder(rng: np.random.Generator, tree: Tree, order: str) -> Tree:
    """Return the tree with its nodes stored in another order, the root first."""
    left, right = np.asarray(tree.left), np.asarray(tree.right)
    nodes, pending = [], [0]
    while pending:
        node = pending.pop(0 if order == "breadth_first" else -1)
        nodes.append(node)
        if left[node] >= 0:
            children = [int(left[node]), int(right[node])]
            pending += children if order == "breadth_first" else children[::-1]
    shuffled = rng.permutation(len(nodes) - 1) + 1  # always drawn: no order changes later draws
    if order == "shuffled":
        nodes = [0, *shuffled.tolist()]
    position = np.empty(len(nodes), int)
    position[nodes] = np.arange(len(nodes))

    def moved(children: np.ndarray) -> np.ndarray:
        return np.where(children[nodes] < 0, -1, position[children[nodes]])

    per_node = {
        name: np.asarray(getattr(tree, name))[nodes]
        for name in ("feature", "threshold", "missing_left", "cover", "value")
    }
    return Tree(
        moved(left),
        moved(right),
        **per_node,
        output=tree.output,
        listed_left=tree.listed_left,
        categories={int(position[i]): codes for i, codes in tree.categories.items()},
    )


@st.composite
def ensemble_options(draw: st.DrawFn, max_used: int = 7) -> dict[str, Any]:
    """Draw arguments of :func:`random_ensemble`, so that a failing example can be repeated as printed."""
    n_features = draw(st.integers(1, 9))
    one_shape = st.sampled_from([(shape,) for shape in SHAPES])
    one_kind = st.sampled_from([(kind,) for kind in COVERS])
    return {
        "seed": draw(st.integers(0, 2**32 - 1)),
        "n_trees": draw(st.integers(0, 5)),
        "n_features": n_features,
        "n_used": draw(st.integers(0, min(n_features, max_used))),
        "n_outputs": draw(st.integers(1, 3)),
        "vector": draw(st.booleans()),
        "shapes": draw(one_shape | st.just(SHAPES)),
        "max_leaves": draw(st.sampled_from([2, 3, 5, 9, 16])),
        "covers": draw(one_kind | st.just(COVERS)),
        "order": draw(st.sampled_from(ORDERS)),
        "x_dtype": draw(st.sampled_from(["float32", "float64"])),
        "strict": draw(st.booleans()),
        "categorical": draw(st.booleans()),
        "zero_missing": draw(st.booleans()),
    }


def random_rows(seed: int | np.random.Generator, ensemble: Ensemble, n_rows: int) -> np.ndarray:
    """Draw encoded float64 rows at the edges of every comparison of the ensemble.

    Numeric columns hold thresholds, their neighbours in both float types, zeros, infinities and ordinary
    numbers. Categorical columns hold codes that are listed, neighbouring, fractional, negative, infinite or
    enormous. All columns hold NaN.
    """
    rng = np.random.default_rng(seed)
    X = np.empty((n_rows, ensemble.n_features))
    sets = ensemble.category_set if len(ensemble.category_set) else np.full(ensemble.n_nodes, -1)
    for f in range(ensemble.n_features):
        nodes = np.flatnonzero((ensemble.left >= 0) & (ensemble.feature == f))
        if (sets[nodes] >= 0).any():
            listed = [
                ensemble.category_values[ensemble.category_offsets[s] : ensemble.category_offsets[s + 1]]
                for s in np.unique(sets[nodes])
            ]
            codes = np.concatenate([*listed, CODES[:4]]).astype(float)
            pools = [
                codes,
                codes,
                rng.choice(CODES, 5) + 1.0,
                codes + 0.9,
                -codes - 0.5,
                [-1.0, -np.inf, np.inf, 2.0**31, 2.0**32 + 1, 2.0**63, 1e300, -1e300],
            ]
        else:
            t = np.concatenate([ensemble.threshold[nodes], [0.5]])
            with np.errstate(over="ignore"):
                t32 = t.astype(np.float32)
            pools = [
                t,
                t,
                np.nextafter(t, np.inf),
                np.nextafter(t, -np.inf),
                np.nextafter(t32, np.float32(np.inf)),
                np.nextafter(t32, np.float32(-np.inf)),
                rng.normal(size=5),
                [0.0, -0.0, 1e-36, -1e-36],
                [1e-35, ZERO, -ZERO, np.nextafter(ZERO, 1), -np.nextafter(ZERO, 1)],
                [np.inf, -np.inf, 1e38, -1e39],
            ]
        pools.append([np.nan])
        which = rng.integers(len(pools), size=n_rows)
        for i, pool in enumerate(pools):
            X[which == i, f] = rng.choice(np.asarray(pool, float), (which == i).sum())
    return X


def hard_ensemble(seed: int, shape: str, vector: bool, n_used: int) -> Ensemble:
    """Draw trees with few features, most of which repeat, with categories and zeros that count as missing."""
    return random_ensemble(
        seed,
        n_trees=4,
        n_features=9,
        n_used=n_used,
        n_outputs=2,
        vector=vector,
        shapes=(shape,),
        max_leaves=16,
        order="shuffled",
        x_dtype="float64" if seed else "float32",
        categorical=seed < 2,
        zero_missing=seed == 1,
    )


def random_weights(seed: int, n_rows: int) -> np.ndarray:
    """Draw weights of background rows, some of them 0; their sum is 1."""
    weights = np.random.default_rng(seed).integers(0, 5, n_rows) + 0.0
    weights[0] += 1
    return weights / weights.sum()


def leaf_scale(ensemble: Ensemble) -> np.ndarray:
    """Sum the absolute leaf values of each output, (n_outputs,): the unit of every tolerance."""
    magnitude = np.abs(ensemble.value) * (ensemble.left < 0)[:, np.newaxis]
    if ensemble.n_trees and ensemble.tree_output[0] < 0:
        return magnitude.sum(axis=0)
    output = np.repeat(ensemble.tree_output, np.diff(ensemble.tree_offsets))
    return np.bincount(output, magnitude[:, 0], ensemble.n_outputs)


def full_tree(rng: np.random.Generator, depth: int, n_features: int) -> Tree:
    """Build a tree with all leaves at ``depth``, breadth first; level l splits on feature l % n_features."""
    node = np.arange(2 ** (depth + 1) - 1)
    inner = node < 2**depth - 1
    level = np.repeat(np.arange(depth + 1), 2 ** np.arange(depth + 1))
    return Tree(
        left=np.where(inner, 2 * node + 1, -1),
        right=np.where(inner, 2 * node + 2, -1),
        feature=level % n_features,
        threshold=rng.random(len(node)),
        missing_left=rng.random(len(node)) < 0.5,
        cover=rng.integers(0, 9, len(node)).astype(float),
        value=np.where(inner, 0.0, rng.normal(size=len(node))),
    )


def oblivious_tree(seed: int, depth: int, n_features: int) -> Tree:
    """Build a complete tree, breadth first, with one split on each level."""
    rng = np.random.default_rng(seed)
    n_nodes = 2 ** (depth + 1) - 1
    node = np.arange(n_nodes)
    inner = node < 2**depth - 1
    level = np.floor(np.log2(node + 1)).astype(int)
    return Tree(
        np.where(inner, 2 * node + 1, -1),
        np.where(inner, 2 * node + 2, -1),
        rng.integers(n_features, size=depth + 1)[level],
        rng.normal(size=depth + 1)[level],
        (rng.random(depth + 1) < 0.5)[level],
        rng.integers(0, 50, n_nodes).astype(float),
        np.where(inner, 0.0, rng.normal(size=n_nodes)),
    )


def paths_that_no_row_takes() -> Iterator[tuple[Ensemble, np.ndarray]]:
    """Yield trees with x <= 1 below x > 2, as other tools may write them, and rows.

    Missing values may take such a path.
    """
    for missing in product([False, True], repeat=2):
        tree = Tree(
            left=np.array([1, -1, 3, -1, -1]),
            right=np.array([2, -1, 4, -1, -1]),
            feature=np.array([0, 0, 0, 0, 0]),
            threshold=np.array([2.0, 0, 1, 0, 0]),
            missing_left=np.array([missing[0], False, missing[1], False, False]),
            cover=np.array([8.0, 3, 5, 1, 4]),
            value=np.array([[0.0], [1], [0], [30], [-2]]),
        )
        rows = np.array([[0.0, 0], [1, 0], [1.5, 0], [2, 0], [3, 0], [np.nan, 0]])
        yield Ensemble.from_trees([tree], n_features=2, intercept=0.5), rows


def random_chain(seed: int, depth: int, n_features: int) -> Ensemble:
    """Build one chain of ``depth`` splits x <= 0.5, on different features if there are enough.

    At each split, the chain continues at random on the left or the right, with 0 to 16 sixteenths of the
    cover.
    """
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(n_features) for _ in range(-(-depth // n_features))])
    n_nodes = 2 * depth + 1
    left, right = np.full(n_nodes, -1), np.full(n_nodes, -1)
    feature, cover = np.zeros(n_nodes, int), np.zeros(n_nodes)
    node = 0
    for level in range(depth):
        onward, leaf = 2 * level + 1, 2 * level + 2
        left[node], right[node] = (onward, leaf) if rng.random() < 0.5 else (leaf, onward)
        feature[node] = order[level]
        cover[onward] = rng.integers(0, 17) if rng.random() < 0.05 else rng.integers(8, 16)
        cover[leaf] = 16 - cover[onward]
        node = onward
    value = np.where(left < 0, rng.normal(size=n_nodes), 0.0)
    tree = Tree(left, right, feature, np.full(n_nodes, 0.5), np.zeros(n_nodes, bool), cover, value)
    return Ensemble.from_trees([tree], n_features=n_features, intercept=0.25)


def random_comb(seed: int, n_features: int, n_outputs: int) -> Ensemble:
    """Build a chain of splits x <= 0.5 on different features, with small subtrees beside and below it.

    These subtrees have one to four leaves and split on any features, including features of the path above.
    Each leaf holds all outputs.
    """
    rng = np.random.default_rng(seed)
    left, right, feature, cover = [-1], [-1], [0], [16.0]

    def split(node: int, on: int) -> tuple[int, int]:
        left[node], right[node], feature[node] = len(left), len(left) + 1, on
        first = float(rng.integers(1, 16))
        left.extend([-1, -1])
        right.extend([-1, -1])
        feature.extend([0, 0])
        cover.extend([first, 16 - first])
        return left[node], right[node]

    def grow(node: int, n_leaves: int) -> None:
        if n_leaves == 1:
            return
        children = split(node, int(rng.integers(n_features)))
        for child in children[: n_leaves - 2]:
            split(child, int(rng.integers(n_features)))

    end = 0
    for i, on in enumerate(rng.permutation(n_features)):
        end, side = rng.permutation(split(end, int(on)))
        grow(side, 1 + i % 4)
    grow(end, 4)
    inner = np.array(left)[:, np.newaxis] >= 0
    value = np.where(inner, 0.0, rng.normal(size=(len(left), n_outputs)))
    none = np.zeros(len(left), bool)
    tree = Tree(
        left, right, feature, np.full(len(left), 0.5), none, cover, value if n_outputs > 1 else value[:, 0]
    )
    return Ensemble.from_trees([tree], n_features=n_features, intercept=np.full(n_outputs, 0.25))


def exact_shap(ensemble: Ensemble, x: np.ndarray) -> np.ndarray:
    """Compute the exact Shapley values of a row, (n_outputs, n_features), from each path's polynomial.

    For a leaf of value v, let ``on`` be the features of its path that x satisfies at every node, ``off`` the
    other features of the path, and z_j the product of the cover fractions at feature j's nodes. Only
    coalitions S inside ``on`` reach the leaf. A coalition of size k has the weight k! (d - k - 1)! / d!, and
    all coalitions of size k together have the value v prod_off(z) A_k, where A(y) = prod_on(z_j + y).
    """
    with np.errstate(over="ignore"):
        x = np.asarray(x, np.float64).astype(ensemble.x_dtype)
    phi = [[Fraction(0)] * ensemble.n_features for _ in range(ensemble.n_outputs)]
    for root, output in zip(ensemble.tree_offsets, ensemble.tree_output):
        outputs = range(ensemble.n_outputs) if output < 0 else [output]
        pending: list[tuple[int, dict[int, tuple[Fraction, bool]]]] = [(root, {})]
        while pending:
            node, path = pending.pop()
            if ensemble.left[node] < 0:
                for f, share in _leaf_shares(path).items():
                    for column, k in enumerate(outputs):
                        value = ensemble.value[node, column if output < 0 else 0]
                        phi[k][f] += share * Fraction(float(value))
                continue
            f = int(ensemble.feature[node])
            children = root + ensemble.left[node], root + ensemble.right[node]
            covers = [Fraction(float(ensemble.cover[child])) for child in children]
            goes_left = bool(ensemble.goes_left(np.array([node]), x[f : f + 1])[0])
            for child, cover, follows in zip(children, covers, (goes_left, not goes_left)):
                fraction = cover / sum(covers) if sum(covers) else Fraction(1, 2)
                z, on = path.get(f, (Fraction(1), True))
                pending.append((child, path | {f: (z * fraction, on and follows)}))
    return np.array([[float(value) for value in row] for row in phi]).reshape(len(phi), ensemble.n_features)


def _leaf_shares(path: dict[int, tuple[Fraction, bool]]) -> dict[int, Fraction]:
    """Compute the Shapley value of each feature of a path that ends in a leaf of value 1."""
    on = {f: z for f, (z, follows) in path.items() if follows}
    off = [z for z, follows in path.values() if not follows]
    outside = Fraction(1)
    for z in off:
        outside *= z
    if not path or not outside:
        return {}
    # With z_j = a_j / D, whole numbers suffice: prod(z_j + y) = prod(a_j + D y) / D^m.
    common = lcm(*(z.denominator for z in on.values()))
    a = {f: int(z * common) for f, z in on.items()}
    product = [1]
    for a_j in a.values():
        product = [a_j * c + b for c, b in zip([*product, 0], [0, *product])]
    d, m = len(path), len(on)
    weight = [factorial(k) * factorial(d - k - 1) * common**k for k in range(min(m, d - 1) + 1)]
    unit = outside / factorial(d)
    shares = {}
    if off:
        reached = sum(w * c for w, c in zip(weight, product))
        shares = dict.fromkeys(path.keys() - on.keys(), -unit * Fraction(reached, common**m))
    for f, a_f in a.items():
        without = [0] * m
        without[-1] = product[m]
        for k in range(m - 1, 0, -1):
            without[k - 1] = product[k] - a_f * without[k]
        reached = sum(w * c for w, c in zip(weight, without))
        shares[f] = unit * (1 - on[f]) * Fraction(reached, common ** (m - 1))
    return shares


def chain_rows(seed: int, ensemble: Ensemble, n_rows: int) -> np.ndarray:
    """Draw rows that satisfy most splits on the way to the end of a chain of different features."""
    rng = np.random.default_rng(seed)
    onward = np.empty(ensemble.n_features)
    for node in np.flatnonzero(ensemble.left >= 0):
        ends_left = ensemble.left[ensemble.left[node]] < 0
        onward[ensemble.feature[node]] = 0.75 if ends_left else 0.25
    return np.where(rng.random((n_rows, ensemble.n_features)) < 0.9, onward, 1 - onward)


def path_interactions(
    ensemble: Ensemble, row: np.ndarray, index: str, order: int
) -> dict[tuple[int, ...], float]:
    """Compute whole indices of one row, for one tree whose features never repeat on a path, leaf by leaf.

    A leaf is a product game: v(S) is the leaf's value times the product of the path's one-fractions o for
    features in S and zero-fractions z for all other features. The discrete derivative by some features is the
    product of their o - z, times the value of the game of the other features. This value, summed over all
    coalitions of one size, is a coefficient of the product of z + o y.
    """
    total: dict[tuple[int, ...], float] = {}
    pending: list[tuple[int, dict[int, tuple[float, float]]]] = [(0, {})]
    while pending:
        node, path = pending.pop()
        if ensemble.left[node] >= 0:
            f = int(ensemble.feature[node])
            assert f not in path
            children = int(ensemble.left[node]), int(ensemble.right[node])
            cover = ensemble.cover[list(children)]
            shares = cover / cover.sum() if cover.sum() > 0 else np.array([0.5, 0.5])
            with np.errstate(over="ignore"):
                x = np.asarray(row[f : f + 1]).astype(ensemble.x_dtype)
            goes_left = bool(ensemble.goes_left(np.array([node]), x)[0])
            for child, share, taken in zip(children, shares, (goes_left, not goes_left)):
                pending.append((child, path | {f: (float(share), float(taken))}))
            continue
        sizes = range(len(path) - order + 1)
        weights = [_index_weight(index, size, len(path), order) for size in sizes]
        for members in combinations(sorted(path), order):
            by_size = np.ones(1)
            contribution = float(ensemble.value[node, 0])
            for f, (z, o) in path.items():
                if f in members:
                    contribution *= o - z
                else:
                    by_size = np.convolve(by_size, [z, o])
            total[members] = total.get(members, 0.0) + contribution * float(by_size @ weights)
    return total


def background_matrix(
    ensemble: Ensemble, row: np.ndarray, background: np.ndarray, weights: np.ndarray, index: str
) -> np.ndarray:
    """Compute interventional interactions of one row, for one tree whose features never repeat on a path.

    Whole indices are off the diagonal. The diagonal holds the values of single features: Shapley values, or
    Banzhaf values with "BII". At a leaf that mixtures of x and b can reach, p features are satisfied by x
    only and q features by b only; only these features take part in the leaf's game. The game has the leaf's
    value if the p features are known and the q features are not, and 0 otherwise. The discrete derivative by
    some of the features is therefore nonzero for only one coalition of the others.
    """
    total = np.zeros((ensemble.n_features, ensemble.n_features))
    for b, weight in zip(background, weights, strict=True):
        pending: list[tuple[int, dict[int, tuple[bool, bool]]]] = [(0, {})]
        while pending:
            node, path = pending.pop()
            if ensemble.left[node] >= 0:
                f = int(ensemble.feature[node])
                assert f not in path
                x_goes_left, b_goes_left = (
                    bool(ensemble.goes_left(np.array([node]), r[f : f + 1])[0]) for r in (row, b)
                )
                pending.append((int(ensemble.left[node]), path | {f: (x_goes_left, b_goes_left)}))
                pending.append((int(ensemble.right[node]), path | {f: (not x_goes_left, not b_goes_left)}))
                continue
            if not all(x_goes_left or b_goes_left for x_goes_left, b_goes_left in path.values()):
                continue
            only_x = [f for f, (_, b_goes_left) in path.items() if not b_goes_left]
            only_b = [f for f, (x_goes_left, _) in path.items() if not x_goes_left]
            p, n = len(only_x), len(only_x) + len(only_b)
            value = weight * float(ensemble.value[node, 0])
            for order in (1, 2):
                for members in combinations(only_x + only_b, order):
                    n_off = sum(f in only_b for f in members)
                    size = p - (order - n_off)
                    kind = "SII" if order == 1 and index == "STII" else index
                    term = (-1) ** n_off * value * _index_weight(kind, size, n, order)
                    for at in {(members[0], members[-1]), (members[-1], members[0])}:
                        total[at] += term
    return total


def _index_weight(index: str, size: int, n_players: int, order: int) -> float:
    """Return the weight of a coalition of ``size`` other features in the index of ``order`` features."""
    if index == "BII":
        return 0.5 ** (n_players - order)
    if index == "STII":
        return order / (n_players * comb(n_players - 1, size))
    return 1 / ((n_players - order + 1) * comb(n_players - order, size))
