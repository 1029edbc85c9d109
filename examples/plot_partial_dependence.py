"""
How predictions change with a feature
=====================================

Partial dependence is the mean prediction if all rows had the same value of a feature.
:func:`skshapgpu.partial_dependence` computes it exactly, with each row passing through the trees once.
"""

# %%
# The result has the form of :func:`sklearn.inspection.partial_dependence`, and the same numbers, which
# scikit-learn computes by predicting all rows once for each value of the grid.
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.inspection import PartialDependenceDisplay
from sklearn.inspection import partial_dependence as brute_force

from skshapgpu import friedman_h, partial_dependence

X, y = make_friedman1(5_000, n_features=6, noise=1.0, random_state=0)
model = HistGradientBoostingRegressor(max_iter=50, random_state=0).fit(X, y)

start = perf_counter()
ours = partial_dependence(model, X, 2)
between = perf_counter()
theirs = brute_force(model, X, [2], method="brute")
print(f"ours {between - start:.3f} s, scikit-learn {perf_counter() - between:.3f} s")
print("largest difference:", np.abs(ours.average - theirs.average).max())

# %%
# The target is ``10 sin(pi x0 x1) + 20 (x2 - 0.5)^2 + 10 x3 + 5 x4``. With ``grid_resolution="exact"``, the
# grid has both sides of every jump, so that the line is the whole curve. The display is scikit-learn's.
features = [2, 3, (0, 1)]
results = [partial_dependence(model, X, 2, grid_resolution="exact", percentiles=(0, 1))]
results.append(partial_dependence(model, X, 3))
results.append(partial_dependence(model, X, (0, 1), grid_resolution=30))
PartialDependenceDisplay(
    results,
    features=[each.features for each in results],
    feature_names=results[0].feature_names,
    target_idx=0,
    deciles={place: each for result in results for place, each in result.deciles.items()},
).plot()
plt.gcf().set_size_inches(11, 4)
plt.show()

# %%
# The curves of single rows (individual conditional expectation) differ where features interact: the effect
# of x0 depends on x1, by which the lines are coloured.
rows = X[:80]
curves = partial_dependence(model, rows, 0, kind="individual", grid_resolution=60)
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
colours = plt.get_cmap("viridis")(rows[:, 1])
for curve, colour in zip(curves.individual[0], colours):
    ax.plot(curves.grid_values[0], curve, color=colour, linewidth=0.8)
ax.set_xlabel("x0")
ax.set_ylabel("prediction")
figure.colorbar(plt.cm.ScalarMappable(cmap="viridis"), ax=ax, label="x1")
plt.show()

# %%
# Friedman's H squared is the fraction of the joint effect of two features that is interaction. With
# predictions, the time would grow with the square of the number of rows.
strength = friedman_h(model, X)
for i in np.argsort(-strength.interaction[0])[:3]:
    first, second = strength.names[i]
    print(f"{first} and {second}: H squared {strength.h_squared[0, i]:.4f}")
