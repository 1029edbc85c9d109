"""
Migrate from shap
=================

This example compares :class:`skshapgpu.TreeExplainer` with the explainer of the same name in `shap
<https://shap.readthedocs.io>`_, and shows how to keep using shap's plots.
"""

# %%
# The most common calls are the same in both packages.
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
import shap
from sklearn.datasets import load_breast_cancer, make_friedman1
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import TreeExplainer

X, y = make_friedman1(500, random_state=0)
model = RandomForestRegressor(100, max_depth=8, random_state=0).fit(X, y)

theirs = shap.TreeExplainer(model, feature_perturbation="tree_path_dependent")
ours = TreeExplainer(model)

start = perf_counter()
of_shap = theirs.shap_values(X)
middle = perf_counter()
values = ours.shap_values(X)
end = perf_counter()
print(f"largest difference: {np.abs(values - of_shap).max():.1e}, largest value: {np.abs(of_shap).max():.0f}")
print(f"base values: {float(np.squeeze(theirs.expected_value)):.4f} and {ours.expected_value:.4f}")
print(f"shap took {(middle - start) / (end - middle):.0f} times as long")

# %%
# Calls with background data and calls for interactions are the same, too.
background = X[:100]
of_shap = shap.TreeExplainer(model, background).shap_values(X[:20])
print("background:", np.abs(TreeExplainer(model, background).shap_values(X[:20]) - of_shap).max())
of_shap = theirs.shap_interaction_values(X[:20])
print("interactions:", np.abs(ours.shap_interaction_values(X[:20]) - of_shap).max())

# %%
# shap's plots accept explanations of skshapgpu.
shap.plots.beeswarm(ours.explain(X).to_shap(), show=False)
plt.show()

# %%
# **A binary classifier has one output**, the positive class, whatever its library. shap returns two outputs
# for scikit-learn forests; use ``outputs="all"`` to get both outputs from skshapgpu.
X, y = load_breast_cancer(return_X_y=True, as_frame=True)
model = RandomForestClassifier(50, max_depth=5, random_state=0).fit(X, y)
print("shap:", shap.TreeExplainer(model).shap_values(X).shape)
print("ours:", TreeExplainer(model).shap_values(X).shape)
print('ours, outputs="all":', TreeExplainer(model, outputs="all").shap_values(X).shape)

# %%
# **Pipelines are supported.** The last step is explained, on the columns that it sees.
pipeline = make_pipeline(StandardScaler(), RandomForestClassifier(50, max_depth=5, random_state=0)).fit(X, y)
try:
    shap.TreeExplainer(pipeline)
except Exception as error:
    print("shap:", type(error).__name__, str(error)[:60])
print("ours:", TreeExplainer(pipeline).explain(X).feature_names[:3])

# %%
# **Additivity is always checked**, row by row, against the margin computed in the same pass. The largest
# error is stored with the values.
explanation = TreeExplainer(pipeline).explain(X)
print("largest error:", explanation.additivity_error)
explanation
