"""
Explain many rows with Ray
==========================

:func:`skshapgpu.distributed.explain_ray` explains the blocks of a Ray dataset in actors, each of which
compiles the model once. With ``num_gpus=1`` and a ``batch_size``, each actor gets its own GPU.

.. image:: /images/benchmarks/distributed.svg
    :alt: speed of the engines with one and two workers, relative to one thread
"""

# sphinx_gallery_thumbnail_path = 'images/benchmarks/distributed.svg'

import numpy as np
import pandas as pd
import ray
from sklearn.ensemble import HistGradientBoostingRegressor

from skshapgpu import TreeExplainer
from skshapgpu.distributed import explain_ray

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(20_000, 5)), columns=[f"sensor_{i}" for i in range(5)])
model = HistGradientBoostingRegressor(random_state=0).fit(X, X["sensor_0"] * X["sensor_1"])

ray.init(num_cpus=2, include_dashboard=False)
frame = X.assign(machine=np.arange(len(X)))
rows = ray.data.from_pandas([frame[start : start + 2_500] for start in range(0, len(frame), 2_500)])

# The result is lazy. Actors hold the CPUs they reserve, so leave some for the tasks that read the rows.
values = explain_ray(model, rows, keep=["machine"], concurrency=2, num_cpus=0.5)
found = values.to_pandas().sort_values("machine")
print(found.head())

local = TreeExplainer(model).shap_values(X)
print("largest difference from the local values:", np.abs(found[list(X)].to_numpy(float) - local).max())
ray.shutdown()
