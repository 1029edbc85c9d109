"""
Pictures of SHAP values
=======================

Five displays in the style of scikit-learn: each computes once and draws as often as wanted, from a model
(``from_estimator``) or from an explanation that is there already (``from_explanation``).
"""

# %%
# One model: how far breast tumours are from benign, by measures of their cells. Some values are missing.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier

from skshapgpu import (
    ShapBarDisplay,
    ShapBeeswarmDisplay,
    ShapDependenceDisplay,
    ShapInteractionDisplay,
    ShapWaterfallDisplay,
    TreeExplainer,
)

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
rng = np.random.default_rng(0)
X["worst texture"] = X["worst texture"].where(rng.random(len(X)) > 0.1)
model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(X, y)

explainer = TreeExplainer(model)
explanation = explainer.explain(X)

# %%
# Which features matter? The mean magnitude of their SHAP values; the features not shown are added up.
ShapBarDisplay.from_explanation(explanation, max_features=10)
plt.show()

# %%
# In which direction? A point for each row and feature, coloured by the feature's value: large cells speak
# against a benign tumour, which has the positive class here.
ShapBeeswarmDisplay.from_explanation(explanation, max_features=10)
plt.show()

# %%
# How does one feature act? Its value across, its SHAP value upwards. The colour is the feature that interacts
# most with it, by exact SHAP interaction values; rows in which it is missing stand beside the axis.
display = ShapDependenceDisplay.from_estimator(model, X, "worst texture")
plt.show()
print("coloured by", display.color_name)

# %%
# Which features act together? Main effects stand on the diagonal.
ShapInteractionDisplay.from_estimator(model, X, max_features=10)
plt.show()

# %%
# Why this row? From the mean margin of the training data to the margin of the row, here of that of which the
# model is least sure.
row = int(np.abs(model.decision_function(X)).argmin())
ShapWaterfallDisplay.from_explanation(explanation, row=row, max_features=8)
plt.show()

# %%
# All of them draw on axes that they are given, and what they drew can be changed afterwards: ``ax_`` and
# ``figure_`` are matplotlib's own.
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
ShapBarDisplay.from_explanation(explanation, max_features=6, ax=left)
ShapDependenceDisplay.from_explanation(explanation, "worst concave points", ax=right)
left.set_title("importance")
right.set_title("worst concave points")
plt.show()
