"""Values of rows in files, data frames, arrays or streams, batch by batch."""

from .record_batches import BatchExplainer
from .run import BatchesResult, explain_batches

__all__ = ["BatchExplainer", "BatchesResult", "explain_batches"]
