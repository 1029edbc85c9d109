"""
Find all relevant columns, or the fewest
========================================

:class:`skshapgpu.ShapBoruta` keeps every column that is more important than permuted columns;
:class:`skshapgpu.ShapRFECV` keeps the columns with the best score. This example runs both on data whose
relevant columns are known.
"""

# %%
# The target depends on five columns. ``copy`` is the first of these columns with a little noise, so it tells
# about the target, too. Twelve columns are noise.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import ShapBoruta, ShapRFECV

rng = np.random.default_rng(0)
values, y = make_friedman1(400, n_features=17, noise=1.0, random_state=0)
names = [f"relevant {i}" for i in range(5)] + [f"noise {i}" for i in range(12)]
X = pd.DataFrame(values, columns=names)
X.insert(5, "copy", X["relevant 0"] + 0.1 * rng.normal(size=len(X)))
model = RandomForestRegressor(20, max_depth=6, max_features=0.5, random_state=0)

# %%
# In each round, Boruta adds a shadow of each column, which has its values in random order, and compares
# importances on rows that the models were not trained on. A column is confirmed if it exceeds the most
# important shadow significantly more often than by chance, and rejected if it does so significantly less
# often.
boruta = ShapBoruta(model, cv=3, max_iter=15, random_state=0).fit(X, y)
print("confirmed:", ", ".join(X.columns[boruta.confirmed_]))
print("tentative:", ", ".join(X.columns[boruta.tentative_]) or "none", f"after {boruta.n_iter_} rounds")

# %%
# You can add rounds later. The result is the same as if all rounds had run in one call.
boruta.set_params(max_iter=30, warm_start=True).fit(X, y)
print("tentative:", ", ".join(X.columns[boruta.tentative_]) or "none", f"after {boruta.n_iter_} rounds")

figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
order = np.argsort(boruta.importances_)
history = boruta.importances_history_[:, order]
for place, column in enumerate(order):
    color = "tab:green" if boruta.confirmed_[column] else "tab:gray"
    axes.plot(history[:, place], np.full(boruta.n_iter_, place), "|", color=color, markersize=12)
axes.axvspan(boruta.thresholds_.min(), boruta.thresholds_.max(), color="tab:orange", alpha=0.3, linewidth=0)
axes.set_yticks(np.arange(len(order)), X.columns[order])
axes.set_xscale("log")
axes.set_xlabel("mean |SHAP value| on held-out rows; shaded: the most important shadows")
axes.set_title("Importances in the rounds; confirmed columns are green")
plt.show()

# %%
# Recursive elimination drops the least important column in each step. ``rule="one_std_err"`` takes the fewest
# columns whose score is within one standard error of the best score.
rfecv = ShapRFECV(model, cv=3, rule="one_std_err").fit(X, y)
print("kept:", ", ".join(rfecv.get_feature_names_out()))

results = rfecv.cv_results_
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
axes.errorbar(
    results["n_features"], results["mean_test_score"], results["std_test_score"], marker="o", capsize=3
)
axes.axvline(rfecv.n_features_, color="tab:green", linestyle="--", label="selected")
axes.set(
    xlabel="number of columns",
    ylabel="R2 on held-out rows, mean and spread over the splits",
    xticks=range(2, 19, 2),
)
axes.legend()
plt.show()
