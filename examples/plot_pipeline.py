"""
SHAP values in a pipeline
=========================

:class:`skshapgpu.ShapTransformer` wraps a tree model as a scikit-learn transformer: ``fit`` fits the model,
``transform`` returns SHAP values, and ``predict`` and ``score`` are the model's own. It can be used wherever
a transformer or the last step of a pipeline can.
"""

# %%
# This pipeline preprocesses columns in different ways and ends with a model.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skshapgpu import ShapTransformer, explain

rng = np.random.default_rng(0)
n = 1_000
X = pd.DataFrame(
    {
        "age": rng.integers(18, 80, n),
        "income": rng.lognormal(10, 0.5, n),
        "city": rng.choice(["Bern", "Geneva", "Basel"], n),
    }
)
y = (X["age"] > 45) ^ ((X["city"] == "Basel") & (rng.random(n) < 0.9))
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

columns = make_column_transformer(
    (StandardScaler(), ["age", "income"]),
    (OneHotEncoder(sparse_output=False), ["city"]),
    verbose_feature_names_out=False,
)
pipeline = make_pipeline(columns, ShapTransformer(RandomForestClassifier(max_depth=6, random_state=0)))
pipeline.set_output(transform="pandas").fit(X_train, y_train)

# %%
# ``transform`` returns a data frame of SHAP values with a column for each preprocessed column and the index
# of X.
values = pipeline.transform(X_test)
print(values.head().round(3))
print("accuracy:", pipeline.score(X_test, y_test))

# %%
# ``explain`` explains the whole pipeline, and also returns names and base values. With
# ``feature_groups="input"``, all columns that the steps make from an input column are one feature, such as
# the dummy columns of the city.
explanation = explain(pipeline, X_test)
print("columns of the model:", ", ".join(explanation.feature_names))
by_input = explain(pipeline, X_test, feature_groups="input")
importance = by_input.importance()
order = np.argsort(importance)

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.barh(np.array(by_input.feature_names)[order], importance[order])
ax.set_xlabel("mean |SHAP value|")
plt.show()
