"""
Explain a model in one call
===========================

:func:`skshapgpu.explain` takes a fitted tree model and rows. The result holds a SHAP value for each row and
feature: how much the feature moved the model's raw prediction for the row away from the base value.
"""

# %%
# A model of any of the four libraries will do; here one that needs nothing but scikit-learn. Half of the
# values of one column are missing, which the trees handle by themselves.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from skshapgpu import explain

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X.loc[::2, "s5"] = np.nan
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = HistGradientBoostingRegressor(max_iter=100, random_state=0).fit(X_train, y_train)

explanation = explain(model, X_test)

# %%
# The values of a row and the base value add up to the model's prediction.
predicted = explanation.base_values + explanation.values.sum(axis=1)
print("largest difference:", np.abs(predicted - model.predict(X_test)).max())

# %%
# The table of values keeps the data frame's index and columns.
print(explanation.to_frame().head().round(2))

# %%
# Two views: how much each feature matters on average, and what one feature does across the rows.
importance = explanation.importance()
order = np.argsort(importance)
bmi = X_test.columns.get_loc("bmi")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.barh(X_test.columns[order], importance[order])
left.set_xlabel("mean |SHAP value|")
right.scatter(X_test["bmi"], explanation.values[:, bmi], s=12)
right.set_xlabel("body mass index")
right.set_ylabel("SHAP value")
plt.show()
