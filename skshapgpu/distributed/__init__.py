"""Explanations by the workers of Dask, Spark and Ray.

The engines schedule, retry and spill; what is theirs is imported when it is used. An explainer travels to
each process once, see ``_parcel.py``, and finds out there which device it has.
"""

from ._dask import explain_dask
from ._ray import explain_ray
from ._spark import explain_spark

__all__ = ["explain_dask", "explain_ray", "explain_spark"]
