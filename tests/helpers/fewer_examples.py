"""Plugin of pytest that limits hypothesis to the number of examples in SKSHAPGPU_EXAMPLES.

Some tests set their number of examples, which no profile changes; in an emulator, they would take hours.
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
        settings_of_test = getattr(test, "_hypothesis_internal_use_settings", None)
        if settings_of_test is not None and settings_of_test.max_examples > MOST:
            test._hypothesis_internal_use_settings = settings(settings_of_test, max_examples=MOST)
