"""
Choose the background data
==========================

A SHAP value says how far a feature moved a prediction away from a base value. With background data, the base
value is the mean margin of rows of your choice, and the values say why a row differs from these rows.
"""

# %%
# The data are loan applicants, and the model predicts who repays the loan.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from skshapgpu import TreeExplainer

rng = np.random.default_rng(0)
n = 4_000
X = pd.DataFrame(
    {
        "income": rng.lognormal(8.5, 0.4, n),
        "debt": rng.lognormal(8, 1, n),
        "years employed": rng.integers(0, 30, n).astype(float),
        "age": rng.integers(20, 65, n).astype(float),
    }
)
margin = X["income"] / 2_500 - X["debt"] / 5_000 + X["years employed"] / 10 - 1.5
y = rng.random(n) < 1 / (1 + np.exp(-margin))
model = HistGradientBoostingClassifier(max_iter=100, learning_rate=0.05, random_state=0).fit(X, y)

# %%
# Compare a declined applicant with all applicants, and with the accepted applicants. In both cases the base
# value is the mean margin of the background data, and the base value plus the SHAP values is the margin of
# the row.
probability = model.predict_proba(X)[:, 1]
accepted, declined = X[probability > 0.8], X[probability < 0.4]
row = declined.iloc[[0]]
print(row)

explanations = {
    "all applicants": TreeExplainer(model, data=X).explain(row),
    "those accepted": TreeExplainer(model, data=accepted).explain(row),
    "path-dependent": TreeExplainer(model).explain(row),
}
for name, explanation in explanations.items():
    total = explanation.base_values + explanation.values.sum()
    print(f"{name}: from {explanation.base_values:+.2f} to {total:+.2f}")
print(f"margin of the row: {model.decision_function(row)[0]:+.2f}")

# %%
# Compared with the accepted applicants, the values have to explain a larger difference. Without background
# data, unknown features follow both branches of a split, weighted by the fractions of the training rows that
# follow them.
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
places = np.arange(X.shape[1])
for i, (name, explanation) in enumerate(explanations.items()):
    ax.barh(places + 0.25 * (1 - i), explanation.values[0], height=0.25, label=name)
ax.set_yticks(places, X.columns)
ax.axvline(0, color="black", linewidth=0.8)
ax.set_xlabel("SHAP value, log-odds")
ax.legend(title="compared with")
plt.show()

# %%
# Path-dependent values can describe another population, too: the fractions are then counted from the rows of
# this population, and the base value is the mean margin of these rows.
older = X[X["age"] > 50]
counted = TreeExplainer(model, data=older, feature_perturbation="tree_path_dependent")
print(f"mean margin of the older applicants: {model.decision_function(older).mean():+.2f}")
print(f"base value: {counted.expected_value:+.2f}")
print(pd.Series(counted.shap_values(row)[0], X.columns).round(2))

# %%
# All background rows are used. In this example, tables summarise them when the explainer is created, so a
# call takes the same time with a hundred background rows as with all of them.
explainer = TreeExplainer(model, data=X)
print(explainer)
print(explainer.plan(10_000))

# %%
# With background data you can also explain the probability instead of the log-odds, or the loss of each
# prediction, which shows what causes the model's errors.
of_probability = TreeExplainer(model, data=X[:200], model_output="probability").explain(row)
print("explained:", of_probability.base_values + of_probability.values.sum())
print("predicted:", model.predict_proba(row)[0, 1])

of_loss = TreeExplainer(model, data=X[:200], model_output="log_loss").explain(X[:500], y[:500])
worst = np.argmax(of_loss.base_values + of_loss.values.sum(axis=1))
print("the row with the largest loss:")
print(pd.DataFrame({"value": X.iloc[worst], "contribution to the loss": of_loss.values[worst].round(2)}))
