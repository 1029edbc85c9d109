"""
Explain a model in one call
===========================

:func:`skshapgpu.explain` takes a fitted tree model and rows. It returns a SHAP value for each row and
feature: how far the feature moved the model's raw prediction for that row away from the base value.
"""

# %%
# Any supported model works; this one needs only scikit-learn. Half of the values in one column are missing,
# which the trees handle natively.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from skshapgpu import ShapBarDisplay, ShapDependenceDisplay, explain

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X.loc[::2, "s5"] = np.nan
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = HistGradientBoostingRegressor(max_iter=100, random_state=0).fit(X_train, y_train)

explanation = explain(model, X_test)

# %%
# The base value and the SHAP values of a row add up to the model's prediction.
predicted = explanation.base_values + explanation.values.sum(axis=1)
print(f"largest difference: {np.abs(predicted - model.predict(X_test)).max():.0e}")

# %%
# As a table, the values keep the data frame's index and columns.
print(explanation.to_frame().head().round(2))

# %%
# Displays show how much each feature matters on average, and how one feature acts across the rows.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
ShapBarDisplay.from_explanation(explanation, ax=left)
ShapDependenceDisplay.from_explanation(explanation, "bmi", ax=right)
plt.show()
