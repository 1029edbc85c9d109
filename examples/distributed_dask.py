"""
Explain many rows with Dask
===========================

:func:`skshapgpu.distributed.explain_dask` explains the partitions of a Dask data frame, or the chunks of an
array, on the workers that hold them. Nothing runs before ``compute`` or ``to_parquet``. Run this file as a
script, because its workers are processes that import it.

.. image:: /images/benchmarks/distributed.svg
    :alt: speed of the engines with one and two workers, relative to one thread
"""

# sphinx_gallery_thumbnail_path = 'images/benchmarks/distributed.svg'

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster
from sklearn.ensemble import HistGradientBoostingRegressor

from skshapgpu import TreeExplainer
from skshapgpu.distributed import explain_dask


def main() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(20_000, 5)), columns=[f"sensor {i}" for i in range(5)])
    model = HistGradientBoostingRegressor(random_state=0).fit(X, X["sensor 0"] * X["sensor 1"])
    rows = X.assign(machine=np.arange(len(X)))

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster):
        frame = dd.from_pandas(rows, npartitions=8)
        values = explain_dask(model, frame, keep=["machine"])  # lazy, with the index of the data frame
        print(values.dtypes)
        importance = abs(values.drop(columns="machine")).mean().compute()  # values stay on the workers
        print(importance)

    local = np.abs(TreeExplainer(model).shap_values(X)).mean(axis=0)
    print("largest difference from the local values:", np.abs(importance - local).max())


if __name__ == "__main__":
    main()
