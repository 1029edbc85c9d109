"""Limits of old releases of MLflow beside new releases of other libraries."""

from __future__ import annotations

import pytest


def require_database() -> None:
    """Skip the test if MLflow cannot store runs in a database."""
    pytest.importorskip("mlflow")
    try:
        import mlflow.store.db.utils  # noqa: F401
    except ImportError:
        pytest.skip("MLflow 3.0 cannot use a database with SQLAlchemy 2.1")
