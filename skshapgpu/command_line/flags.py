"""Flags of the command line, and messages of the library in terms of flags."""

from __future__ import annotations

import re
import shlex

#: The flag of each argument; most arguments have the name of a parameter of the library.
FLAGS = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        *("algorithm", "background", "background_rows", "batch_size", "by_sign", "columns", "cover"),
        *("current_weight", "decimal", "delimiter", "device", "feature_perturbation", "features"),
        *("if_exists", "interactions", "keep", "memory_limit", "model_output", "n_jobs", "precision"),
        *("prefix", "quote_char", "reasons", "reference_weight", "seed", "sum_by", "times"),
    )
} | {"data": "--background", "feature_groups": "--feature-group", "null_values": "--null-value"}

#: A parameter in a message: at its beginning, before a colon, a comma or "must", or anywhere as "name=" or
#: "name='value'".
_PARAMETER = re.compile(r"^(\w+)(?=[:,]| must )|\b(\w+)=(?:'([^']*)'|(?=[\s,;:.)]|$))")


def in_flags(message: str) -> str:
    """Replace the names of the library's parameters in a message by the flags of the command line."""

    def flag(match: re.Match[str]) -> str:
        name = FLAGS.get(match[1] or match[2])
        if name is None:
            return match[0]
        return name if match[3] is None else f"{name} {shlex.quote(match[3])}"

    return _PARAMETER.sub(flag, message).replace("explain_batches", "'skshapgpu explain'")
