"""
Explain inside cross-validation
===============================

A model knows its training rows, and explanations of these rows reflect that.
:func:`skshapgpu.cross_val_explain` cross-validates a model like
:func:`sklearn.model_selection.cross_validate`, with the same fits and scores, and explains each row with a
model that was not trained on it.
"""

# %%
# Explain a pipeline with preprocessing and a model, with the options of ``cross_validate``.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, RepeatedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import cross_val_explain, explain

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
model = make_pipeline(StandardScaler(), RandomForestRegressor(50, random_state=0))
cv = KFold(5, shuffle=True, random_state=0)

results = cross_val_explain(model, X, y, cv=cv, scoring=["r2", "neg_mean_absolute_error"])
print("R2:", results["test_r2"].round(2))
print("mean absolute error:", -results["test_neg_mean_absolute_error"].round(1))

# %%
# The explanation has the rows of X in their original order. Each model has its own base value, and each row
# has the base value of the model with which it was tested. Base value and SHAP values of a row add up to its
# out-of-fold prediction.
explanation = results["explanation"]
predicted = explanation.base_values + explanation.values.sum(axis=1)
print("base values:", results["base_values"].round(1))
difference = predicted - cross_val_predict(model, X, y, cv=cv)
print(f"largest difference: {np.abs(difference).max():.0e}")
print(explanation.to_frame().head().round(1))

# %%
# Explanations of training rows add up to overfitted predictions.
training = explain(model.fit(X, y), X)
in_training = training.base_values + training.values.sum(axis=1)
print(f"R2 of base value plus values: {r2_score(y, in_training):.2f} on training rows")
print(f"                              {r2_score(y, predicted):.2f} on out-of-fold rows")

# %%
# ``importances`` has a row for each split, which shows how stable the differences between features are.
# Repeated cross-validation has more splits and shows this better; the values of a row are then the mean over
# its models.
repeated = cross_val_explain(model, X, y, cv=RepeatedKFold(n_splits=5, n_repeats=3, random_state=0))
importances, names = repeated["importances"], np.array(repeated["explanation"].feature_names)
order = np.argsort(importances.mean(axis=0))

# %%
# The right plot shows the values of one feature for training rows and for out-of-fold rows. The model has
# fitted the noise of its training rows, so their values are farther from zero.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.barh(names[order], importances.mean(axis=0)[order], xerr=importances.std(axis=0)[order], capsize=3)
left.set_xlabel("mean |SHAP value|, with its standard deviation over the splits")
column = list(names).index("bmi")
for label, values in (("training rows", training.values), ("out-of-fold rows", explanation.values)):
    right.scatter(X["bmi"], values[:, column], s=12, alpha=0.6, label=label)
right.set(xlabel="body mass index", ylabel="SHAP value")
right.legend()
plt.show()
