"""
An ensemble of several libraries
================================

A ``VotingRegressor`` averages the predictions of its members. If these are sums of trees, the average is a
sum of trees, too. It is explained as one model, even if its members come from different libraries.
"""

# %%
# The members are a model of XGBoost, a model of LightGBM and a forest, with different weights.
import matplotlib.pyplot as plt
import numpy as np
from lightgbm import LGBMRegressor
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor, VotingRegressor
from sklearn.model_selection import train_test_split
from xgboost import XGBRegressor

from skshapgpu import ShapBarDisplay, TreeExplainer, explain

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
members = [
    ("xgboost", XGBRegressor(n_estimators=100, max_depth=3, learning_rate=0.1)),
    ("lightgbm", LGBMRegressor(n_estimators=100, num_leaves=8, verbose=-1)),
    ("forest", RandomForestRegressor(100, random_state=0)),
]
model = VotingRegressor(members, weights=[2, 2, 1]).fit(X_train, y_train)
explanation = explain(model, X_test)
total = explanation.base_values + explanation.values.sum(axis=1)
print("largest difference to predict:", np.abs(total - model.predict(X_test)).max())

# %%
# The values of the ensemble are the weighted means of the values of its members. The importances of the
# members show which features matter more to one model than to another.
importances = [explain(member, X_test).importance() for member in model.estimators_]
print("     ", "".join(f"{name:>10}" for name, _ in members))
for name, *row in zip(X.columns, *importances):
    print(f"{name:<5}", "".join(f"{value:10.2f}" for value in row))

ShapBarDisplay.from_explanation(explanation)
plt.show()

# %%
# An ensemble can do whatever a single model can, such as interactions, or values against background rows.
explainer = TreeExplainer(model, data=X_train[:100])
print("against background rows:", explainer.explain(X_test[:5]).shape)
print("interactions:", explainer.shap_interaction_values(X_test[:5]).shape)
