"""Chains of tests for equality that share a child: how converters write that a category is in a set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .tables import EQ, LEAF, MEMBER, NodeTable


def merged(table: NodeTable) -> NodeTable:
    """Return the table with each chain as one node of mode MEMBER.

    In a chain, all nodes test the same column for equality and have the same node as true child, and each
    is the false child of the one before, of no other, and no root.
    """
    n_nodes = len(table.mode)
    inner = np.flatnonzero(table.mode != LEAF)
    n_parents = np.bincount(np.concatenate([table.true[inner], table.false[inner]]), minlength=n_nodes)
    n_parents[table.offsets[:-1]] += (
        1  # so that a root, although it is a child in a damaged file, remains one
    )
    nodes = np.flatnonzero(table.mode == EQ)
    after = table.false[nodes]
    linked = (
        (table.mode[after] == EQ)
        & (table.feature[after] == table.feature[nodes])
        & (table.true[after] == table.true[nodes])
        & (n_parents[after] == 1)
    )
    following = dict(zip(nodes[linked].tolist(), after[linked].tolist()))
    heads = following.keys() - set(following.values())
    if not heads:
        return table
    mode, false, tracks_true = table.mode.copy(), table.false.copy(), table.tracks_true.copy()
    members = dict(table.members)
    kept = np.ones(n_nodes, bool)
    for head in sorted(heads):
        chain = [head]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        mode[head] = MEMBER
        members[head] = table.threshold[chain]
        false[head] = table.false[chain[-1]]
        tracks_true[head] = table.tracks_true[chain].any()
        kept[chain[1:]] = False
    place = np.cumsum(kept) - 1
    return replace(
        table,
        offsets=np.concatenate([[0], place[table.offsets[1:] - 1] + 1]),
        mode=mode[kept],
        feature=table.feature[kept],
        threshold=np.where(mode == MEMBER, 0.0, table.threshold)[kept],
        tracks_true=tracks_true[kept],
        true=place[table.true[kept]],
        false=place[false[kept]],
        members={int(place[node]): values for node, values in members.items()},
        weight_node=place[table.weight_node],
    )
