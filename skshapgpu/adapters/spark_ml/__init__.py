"""Spark ML: decision trees, random forests and gradient-boosted trees of ``pyspark.ml``."""
