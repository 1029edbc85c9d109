"""Explanations computed by the workers of Dask, Spark and Ray.

The engines schedule the work, retry it after failures and spill data to disk. They are imported only when
they are used. An explainer is sent to each process once (see ``_parcel.py``), and detects its device there.
"""

from ._dask import explain_dask
from ._ray import explain_ray
from ._spark import explain_spark

__all__ = ["explain_dask", "explain_ray", "explain_spark"]
