"""Chains of tests for equality, by which converters test whether a category is in a set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .tables import EQ, LEAF, MEMBER, NodeTable


def merged(table: NodeTable) -> NodeTable:
    """Return the table in which each chain is one node of mode MEMBER.

    In a chain, all nodes test the same column for equality and have the same true child. Each node after the
    first is the false child of the node before it, has no other parent, and is no root.
    """
    n_nodes = len(table.mode)
    inner = np.flatnonzero(table.mode != LEAF)
    n_parents = np.bincount(np.concatenate([table.true[inner], table.false[inner]]), minlength=n_nodes)
    n_parents[table.offsets[:-1]] += 1  # in a damaged file, a root may be a child: it is no part of a chain
    nodes = np.flatnonzero(table.mode == EQ)
    next_node = table.false[nodes]
    linked = (
        (table.mode[next_node] == EQ)
        & (table.feature[next_node] == table.feature[nodes])
        & (table.true[next_node] == table.true[nodes])
        & (n_parents[next_node] == 1)
    )
    next_of_node = dict(zip(nodes[linked].tolist(), next_node[linked].tolist()))
    heads = next_of_node.keys() - set(next_of_node.values())
    if not heads:
        return table
    mode, false, tracks_true = table.mode.copy(), table.false.copy(), table.tracks_true.copy()
    members = dict(table.members)
    is_kept = np.ones(n_nodes, bool)
    for head in sorted(heads):
        chain = [head]
        while chain[-1] in next_of_node:
            chain.append(next_of_node[chain[-1]])
        mode[head] = MEMBER
        members[head] = table.threshold[chain]
        false[head] = table.false[chain[-1]]
        tracks_true[head] = table.tracks_true[chain].any()
        is_kept[chain[1:]] = False
    new_number = np.cumsum(is_kept) - 1
    return replace(
        table,
        offsets=np.concatenate([[0], new_number[table.offsets[1:] - 1] + 1]),
        mode=mode[is_kept],
        feature=table.feature[is_kept],
        threshold=np.where(mode == MEMBER, 0.0, table.threshold)[is_kept],
        tracks_true=tracks_true[is_kept],
        true=new_number[table.true[is_kept]],
        false=new_number[false[is_kept]],
        members={int(new_number[node]): values for node, values in members.items()},
        weight_node=new_number[table.weight_node],
    )
