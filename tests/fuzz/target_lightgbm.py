"""LightGBM: the text of a model."""

from __future__ import annotations

from functools import cache

import harness

from skshapgpu.adapters import adapt

INSTRUMENT = (
    "skshapgpu.adapters.lightgbm",
    "skshapgpu.adapters._lightgbm_trees",
    "skshapgpu.adapters.ensemble",
)


@cache
def texts() -> list[str]:
    return [data.decode() for data in harness.seeds("lightgbm")]


def edited(text: str, choices: harness.Choices) -> str:
    """Change up to four lines of a model's text; usually, a change affects one number."""
    lines = text.split("\n")
    for _ in range(1 + choices.number(4)):
        which = choices.number(len(lines))
        name, equals, values = lines[which].partition("=")
        action = choices.number(8)
        if action == 0:
            del lines[which]
        elif action == 1:
            lines.insert(which, choices.one_of(lines))
        elif action == 2:
            lines[which] = choices.number_as_text()
        elif equals:
            words = values.split(" ")
            words[choices.number(len(words))] = choices.number_as_text()
            lines[which] = f"{name}={' '.join(words)}"
    return "\n".join(lines)


def test_one(data: bytes) -> None:
    """Treat bytes that begin like a model as its text, and other bytes as edits of a corpus text."""
    if data.startswith(b"tree"):
        text = data.decode("utf-8", "replace")
    else:
        choices = harness.Choices(data)
        text = edited(choices.one_of(texts()), choices)
    with harness.limits(len(text)):
        harness.explain_some(adapt(text.encode()), data[-1])  # which names a field that is missing
