"""Plugin of pytest that limits hypothesis to the number of examples that SKSHAPGPU_EXAMPLES says.

Some tests set the number of their examples, which no profile changes. An emulator would take hours for them.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

MOST = int(os.environ["SKSHAPGPU_EXAMPLES"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        test: Any = getattr(item, "obj", None)
        found = getattr(test, "_hypothesis_internal_use_settings", None)
        if found is not None and found.max_examples > MOST:
            test._hypothesis_internal_use_settings = settings(found, max_examples=MOST)
