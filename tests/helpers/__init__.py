"""Models, data, reference values and comparisons that several test files share."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
