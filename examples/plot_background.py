"""
Compared with whom
==================

A SHAP value says how a feature moved a prediction away from something. With background data that something
is the mean prediction of rows of your choice, and the question becomes: why this row, and not those?
"""

# %%
# Applicants for a loan, and a model of who pays it back.
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
# A row that was turned down, against all applicants, and against those that were accepted. The base value
# is the mean margin of the background, and from there the values lead to the margin of the row in both
# cases.
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
# Against those accepted the row has to explain a larger distance. Without a background the branches of the
# trees stand for what is not known, each with its share of the training rows.
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
# All rows of the background are used. Here tables sum it up when the explainer is made, so that a call
# takes the same time whether the background has a hundred rows or all of them.
explainer = TreeExplainer(model, data=X)
print(explainer)
print(explainer.plan(10_000))

# %%
# With a background the values can be of the probability instead of the log-odds, or of the loss of each
# prediction, which shows what makes the model err where it does.
of_probability = TreeExplainer(model, data=X[:200], model_output="probability").explain(row)
print("explained:", of_probability.base_values + of_probability.values.sum())
print("predicted:", model.predict_proba(row)[0, 1])

of_loss = TreeExplainer(model, data=X[:200], model_output="log_loss").explain(X[:500], y[:500])
worst = np.argmax(of_loss.base_values + of_loss.values.sum(axis=1))
print("the row with the largest loss:")
print(pd.DataFrame({"value": X.iloc[worst], "adds to the loss": of_loss.values[worst].round(2)}))
