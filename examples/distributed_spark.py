"""
Explain many rows with Spark
============================

:func:`skshapgpu.distributed.explain_spark` returns the SHAP values of the rows of a Spark data frame, or only
the strongest values of each row. The schema of the result is known at once; Spark computes the result when it
is needed.

.. image:: /images/benchmarks/distributed.svg
    :alt: speed of the engines with one and two workers, relative to one thread
"""

# sphinx_gallery_thumbnail_path = 'images/benchmarks/distributed.svg'

import os
import sys

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession
from sklearn.ensemble import HistGradientBoostingClassifier

from skshapgpu.distributed import explain_spark

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need the same Python version

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(20_000, 5)), columns=[f"sensor_{i}" for i in range(5)])
model = HistGradientBoostingClassifier(random_state=0).fit(X, X["sensor_0"] * X["sensor_1"] > 0)

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
rows = spark.createDataFrame(X.assign(machine=np.arange(len(X)))).repartition(8)

reasons = explain_spark(model, rows, keep=["machine"], reasons=2)
reasons.printSchema()
reasons.orderBy("machine").show(5)
reasons.groupBy("feature_1").count().orderBy("count", ascending=False).show()
spark.stop()
