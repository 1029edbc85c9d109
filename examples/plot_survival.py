"""
Explain survival over time
==========================

A survival model predicts a function of time for each row. Its SHAP values at several times show what matters
early and what matters late.
"""

# %%
# The data are machines in a factory. Load wears a machine out; a flaw of its production makes it fail early.
# Observation ends after three years, so that many failures are never seen: the upper bound of their times is
# infinite.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xgboost

from skshapgpu import ShapBarDisplay, TreeExplainer

rng = np.random.default_rng(0)
n = 3_000
X = pd.DataFrame(
    {
        "load": rng.uniform(0, 1, n),
        "flaw": rng.random(n) < 0.2,
        "temperature": rng.normal(20, 5, n),
        "services": rng.integers(0, 4, n),
    }
).astype(float)
log_days = 6.8 - 1.5 * X["load"] - 1.2 * X["flaw"] * (X["services"] < 2) + 0.1 * X["services"]
days = np.exp(log_days + 0.5 * rng.normal(size=n))
seen = days < 3 * 365

# %%
# The accelerated failure time model of XGBoost adds trees up to the logarithm of the time.
rows = xgboost.DMatrix(X)
rows.set_float_info("label_lower_bound", np.where(seen, days, 3 * 365))
rows.set_float_info("label_upper_bound", np.where(seen, days, np.inf))
options = {"objective": "survival:aft", "aft_loss_distribution_scale": 0.5, "max_depth": 3, "eta": 0.1}
model = xgboost.train(options, rows, 60)

# %%
# The probability that a machine still runs after a time is explained against background rows: the base values
# are the mean probabilities of the background rows, and the values of a row lead from them to the row's own
# probability.
times = [90, 365, 730]
background = X.sample(200, random_state=0)
explainer = TreeExplainer(model, background, model_output="survival", times=times)
explanation = explainer.explain(X[:500])
row = explanation[0]
print(pd.DataFrame(row.values[0].round(3), index=X.columns, columns=times))
print("base values:  ", np.round(row.base_values, 3))
print("probabilities:", (row.base_values + row.values[0].sum(axis=0)).round(3))

# %%
# A flaw matters most in the first months, and load matters most later on.
importance = pd.DataFrame(explanation.importance(), index=X.columns, columns=times)
print(importance.round(3))
ShapBarDisplay.from_explanation(explanation)
plt.show()

# %%
# ``model_output="response"`` explains the predicted time itself, in days: there is one output, whose values
# add up to the model's prediction.
of_time = TreeExplainer(model, background, model_output="response").explain(X[:500])
print("explained:", (of_time.base_values + of_time.values[0].sum()).round(1))
print("predicted:", model.predict(rows)[0].round(1))

# %%
# The survival forests of scikit-survival are explained in the same way. They do not need background rows:
#
# .. code-block:: python
#
#     forest = RandomSurvivalForest().fit(X, y)
#     explain(forest, X, model_output="cumulative_hazard", times=[90, 365, 730])
