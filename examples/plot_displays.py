"""
Plot SHAP values
================

This example shows five displays in the style of scikit-learn. Each display is created from a model
(``from_estimator``) or from an existing explanation (``from_explanation``), computes once, and can be plotted
any number of times.
"""

# %%
# The model classifies breast tumours as benign or malignant by measurements of their cells. Some values are
# missing.
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
# Which features matter? Each bar is the mean magnitude of a feature's SHAP values; the last bar is the sum of
# all features that are not shown.
ShapBarDisplay.from_explanation(explanation, max_features=10)
plt.show()

# %%
# In which direction? There is a point for each row and feature, coloured by the feature's value. Large cells
# are evidence against a benign tumour, which is the positive class.
ShapBeeswarmDisplay.from_explanation(explanation, max_features=10)
plt.show()
# sphinx_gallery_thumbnail_number = 2

# %%
# How does one feature act? The x-axis shows its value, the y-axis its SHAP value, and the colour the feature
# that interacts most with it, by exact SHAP interaction values. Rows in which the feature is missing are
# beside the axis.
display = ShapDependenceDisplay.from_estimator(model, X, "worst texture")
plt.show()
print("coloured by", display.color_name)

# %%
# Which features act together? Main effects are on the diagonal.
ShapInteractionDisplay.from_estimator(model, X, max_features=10)
plt.show()

# %%
# Why this prediction? The features lead from the base value to the margin of the row, in this plot the row
# about which the model is least certain.
row = int(np.abs(model.decision_function(X)).argmin())
ShapWaterfallDisplay.from_explanation(explanation, row=row, max_features=8)
plt.show()

# %%
# All displays accept existing axes, and the result can be changed afterwards: ``ax_`` and ``figure_`` are
# matplotlib objects.
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
ShapBarDisplay.from_explanation(explanation, max_features=6, ax=left)
ShapDependenceDisplay.from_explanation(explanation, "worst concave points", ax=right)
left.set_title("importance")
right.set_title("worst concave points")
plt.show()
