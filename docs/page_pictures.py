"""Draw the pictures of pages by running the code of the pages, at twice the usual resolution.

Run ``python docs/page_pictures.py``. A picture of a page shows the figure of the block above it.
"""

from __future__ import annotations

import contextlib
import re
import runpy
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

DOCS = Path(__file__).resolve().parent
PAGES = ("quickstart.md", "explaining_to_others.md")


def draw(page: str) -> None:
    """Run the blocks of a page, and save the figure that is current where the page shows a picture."""
    page_code = runpy.run_path(str(DOCS.parent / "tests/wheels/page_code.py"))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    if setup := page_code["SETUP"].search(page):
        exec(setup[1], namespace)
    parts = re.split(r"^!\[[^\]]*\]\((images/\w+\.png)\)$", page, flags=re.MULTILINE)
    for text, picture in zip(parts[::2], [*parts[1::2], None]):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            for code, _ in page_code["blocks"](text):
                page_code["output"](code, namespace)
        if picture is not None:
            plt.gcf().savefig(DOCS / picture, dpi=200, bbox_inches="tight", metadata={"Software": None})
            plt.close("all")


if __name__ == "__main__":
    for name in PAGES:
        draw((DOCS / name).read_text())
