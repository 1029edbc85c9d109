"""CatBoost's CTRs: edited exports and damaged files are rejected."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.catboost_ctrs import SEVERAL, encoded, export, fit, raw, rows

from skshapgpu.adapters import adapt
from skshapgpu.adapters.catboost.cbm import CbmFile
from skshapgpu.adapters.catboost.ctr import CtrColumns
from skshapgpu.adapters.catboost.model import read_document
from skshapgpu.adapters.schema import AdaptedModel, InputSchema
from skshapgpu.errors import UnsupportedModelError


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    ctrs = ["Borders", "Buckets:TargetBorderCount=2", "BinarizedTargetMeanValue", "Counter"]
    model = fit(iterations=12, simple_ctr=ctrs, combinations_ctr=ctrs)
    result = export(model, tmp_path_factory.mktemp("export"))
    types = {ctr["ctr_type"] for ctr in result["features_info"]["ctrs"]}
    assert types == {ctr.partition(":")[0] for ctr in ctrs}
    return result


def paths_of(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in items:
        yield from paths_of(child, (*path, key))


WRONG = ["delete", None, -1, 3, 1e9, 10**30, "text", "7", [], {}, math.nan, math.inf, True]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_edited_document_never_crashes(document: dict[str, Any], wrong: Any) -> None:
    """Replacing any single field of the CTRs leads to a documented error or to a model that works."""
    places = [("features_info", "ctrs", *path) for path in paths_of(document["features_info"]["ctrs"])]
    for name, table in document["ctr_data"].items():
        results = list(paths_of(table))
        places += [("ctr_data", name, *path) for path in [*results[:4], *results[-4:]]]
    places += [
        ("ctr_data",),
        ("features_info", "ctrs"),
        *(("ctr_data", name) for name in document["ctr_data"]),
    ]
    X, refused = rows(1).head(3), 0
    for path in places[::7]:
        edited = copy.copy(document)
        parent: Any = edited
        for key in path[:-1]:
            parent[key] = copy.copy(parent[key])
            parent = parent[key]
        if wrong == "delete":
            del parent[path[-1]]
        else:
            parent[path[-1]] = wrong
        try:
            ensemble, encoders, derived, shared = read_document(edited, 6)
        except (ValueError, UnsupportedModelError):
            refused += 1
            continue
        schema = InputSchema(6, encoders=encoders, derived=derived)
        adapted = AdaptedModel(ensemble, schema, "catboost", shared=shared)
        assert ensemble.margin(encoded(adapted, X)).shape == (3, 1)
    assert refused


def first_ctr(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(ctr for ctr in document["features_info"]["ctrs"] if ctr["ctr_type"] == kind)


def first_table(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return document["ctr_data"][first_ctr(document, kind)["identifier"]]


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: first_ctr(d, "Borders").update(target_border_idx=1),
        lambda d: first_ctr(d, "Borders").update(target_border_idx=-1),
        lambda d: first_ctr(d, "Buckets").update(target_border_idx=3),
        lambda d: first_ctr(d, "Borders").update(borders=[0.5]),
        lambda d: first_ctr(d, "Borders").update(prior_numerator=math.nan),
        lambda d: first_ctr(d, "Borders").update(scale=1e39),
        lambda d: first_ctr(d, "Borders").update(identifier="another"),
        lambda d: first_ctr(d, "Borders").update(identifier=first_ctr(d, "Counter")["identifier"]),
        lambda d: first_ctr(d, "Borders").update(elements=[]),
        lambda d: first_ctr(d, "Borders")["elements"][0].update(cat_feature_index=9),
        lambda d: first_table(d, "Borders").update(hash_stride=2),
        lambda d: first_table(d, "Borders").update(hash_stride=0),
        lambda d: first_table(d, "Borders").update(hash_stride=-3),
        lambda d: first_table(d, "Borders").update(hash_stride=10**12),
        lambda d: first_table(d, "Borders").update(hash_stride=10**12, hash_map=[]),
        lambda d: first_table(d, "Counter").update(hash_stride=3),
        lambda d: first_table(d, "Counter").update(counter_denominator=math.inf),
        lambda d: first_table(d, "BinarizedTargetMeanValue").update(hash_stride=2),
        lambda d: first_table(d, "Borders")["hash_map"].pop(),
        lambda d: first_table(d, "Borders")["hash_map"].extend(first_table(d, "Borders")["hash_map"][-3:]),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(0, "18446744073709551616"),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(0, "-1"),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(0, "0x7"),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(0, 1.0),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(1, -1),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(1, 2**31),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(1, 1.5),
        lambda d: first_table(d, "Borders")["hash_map"].__setitem__(1, [1]),
        lambda d: first_table(d, "BinarizedTargetMeanValue")["hash_map"].__setitem__(1, 1e39),
        lambda d: first_table(d, "BinarizedTargetMeanValue")["hash_map"].__setitem__(1, math.nan),
        lambda d: d["ctr_data"].clear(),
    ],
)
def test_edited_document(document: dict[str, Any], edit: Callable[[dict[str, Any]], Any]) -> None:
    edited = copy.deepcopy(document)
    read_document(edited, 6)
    edit(edited)
    with pytest.raises(ValueError):
        read_document(edited, 6)


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: first_ctr(d, "Borders").update(ctr_type="Medians"),
        lambda d: first_ctr(d, "Borders")["elements"][0].update(combination_element="estimated_feature"),
    ],
)
def test_unknown_kinds_are_refused(document: dict[str, Any], edit: Callable[[dict[str, Any]], Any]) -> None:
    edited = copy.deepcopy(document)
    edit(edited)
    with pytest.raises(UnsupportedModelError, match=r"Medians|estimated_feature"):
        read_document(edited, 6)


def test_split_of_no_ctr(document: dict[str, Any]) -> None:
    for number in (-1, 0, 10**9, 2**70, 1.5):
        edited = copy.deepcopy(document)
        tree = next(
            t for t in edited["oblivious_trees"] if any("ctr_target_border_idx" in s for s in t["splits"])
        )
        next(s for s in tree["splits"] if "ctr_target_border_idx" in s)["split_index"] = number
        with pytest.raises(ValueError):
            read_document(edited, 6)


def changed(columns: CtrColumns, **values: Any) -> CtrColumns:
    return dataclasses.replace(columns, **values)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: changed(c, n_features=2),
        lambda c: changed(c, keys=c.keys[::-1]),
        lambda c: changed(c, keys=c.keys[:-1]),
        lambda c: changed(c, keys=c.keys.astype(np.int64)),
        lambda c: changed(c, numbers=c.numbers[:-1]),
        lambda c: changed(c, numbers=c.numbers * np.float32(np.inf)),
        lambda c: changed(c, numbers=c.numbers[np.newaxis]),
        lambda c: changed(c, combination=c.combination + 10**6),
        lambda c: changed(c, combination=c.combination - 10**6),
        lambda c: changed(c, combination=c.combination[:-1]),
        lambda c: changed(c, good=c.good + 99),
        lambda c: changed(c, good=c.good - 99),
        lambda c: changed(c, total=c.total - 99),
        lambda c: changed(c, constants=c.constants[:, :4]),
        lambda c: changed(c, constants=c.constants * np.float32(np.nan)),
        lambda c: changed(c, combinations=c.combinations[:-1]),
        lambda c: changed(
            c, combinations=[dataclasses.replace(one, categories=()) for one in c.combinations]
        ),
        lambda c: changed(
            c, combinations=[dataclasses.replace(one, categories=(6,)) for one in c.combinations]
        ),
        lambda c: changed(c, combinations=[dataclasses.replace(one, n_keys=-1) for one in c.combinations]),
        lambda c: changed(
            c,
            combinations=[dataclasses.replace(one, above=((1, math.nan, False),)) for one in c.combinations],
        ),
    ],
)
def test_derived_columns_that_contradict_themselves(
    document: dict[str, Any], change: Callable[[CtrColumns], CtrColumns]
) -> None:
    """A damaged file may contain these."""
    derived = read_document(document, 6).derived
    assert derived is not None
    changed(derived)
    with pytest.raises((ValueError, np.exceptions.DTypePromotionError)), np.errstate(all="ignore"):
        change(derived)


def test_adapted_models_that_contradict_themselves(document: dict[str, Any]) -> None:
    ensemble, encoders, derived, shared, has_cover = read_document(document, 6)
    assert has_cover
    schema = InputSchema(6, encoders=encoders, derived=derived)
    assert AdaptedModel(ensemble, schema, "catboost", shared=shared).shared == shared
    for wrong in (
        shared[1:],
        (*shared[1:], ()),
        (*shared[1:], (0, 6)),
        (*shared[1:], (2, 2)),
        (*shared, (0, 2)),
    ):
        with pytest.raises(ValueError):
            AdaptedModel(ensemble, schema, "catboost", shared=wrong)
    with pytest.raises(ValueError):
        AdaptedModel(ensemble, InputSchema(6, encoders=encoders), "catboost", shared=shared)
    with pytest.raises(ValueError, match="encoders"):
        InputSchema(6, derived=derived)
    with pytest.raises(ValueError, match="other columns"):
        InputSchema(7, encoders=encoders, derived=derived)


@pytest.mark.parametrize("cut", [0, 3, 7, 20, 300, 3000, -1000, -8, -1])
def test_cut_off_file_of_catboost(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "model.cbm"
    fit(iterations=3).save_model(str(path), format="cbm")
    data = path.read_bytes()
    assert CbmFile(data).tables()
    with pytest.raises(ValueError, match="cannot read"):
        CbmFile(data[:cut]).tables()


def test_file_of_several_binarizations(tmp_path: Path) -> None:
    path = tmp_path / "model.cbm"
    model = fit(simple_ctr=SEVERAL, iterations=10)
    model.save_model(str(path))
    adapted = adapt(str(path))
    expected = raw(model, rows(1))
    np.testing.assert_allclose(
        adapted.ensemble.margin(encoded(adapted, rows(1))), expected, rtol=0, atol=1e-12
    )
