"""Explanations computed by the workers of Dask, Spark and Ray.

The engines schedule, retry and spill; they are imported only when used. An explainer is sent to each process
once (see ``_parcel.py``), and finds its device there.
"""

from ._dask import explain_dask
from ._ray import explain_ray
from ._spark import explain_spark

__all__ = ["explain_dask", "explain_ray", "explain_spark"]
