"""
Explain groups of columns, and the columns within them
======================================================

Some columns belong together, such as the coordinates of a place. The value of a group says what its columns
contribute together, and Owen values divide this value among the columns.
"""

# %%
# The data are flats, whose prices depend on the place, the building and the season. Neither coordinate says
# much alone.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from skshapgpu import ShapBarDisplay, TreeExplainer, explain

rng = np.random.default_rng(0)
n = 3_000
X = pd.DataFrame(
    {
        "east": rng.uniform(-5, 5, n),
        "north": rng.uniform(-5, 5, n),
        "area": rng.uniform(30, 120, n),
        "rooms": rng.integers(1, 6, n),
        "month": rng.integers(1, 13, n),
    }
)
in_centre = np.hypot(X["east"], X["north"]) < 2
y = 8 * X["area"] + 20 * X["rooms"] + 5 * X["area"] * in_centre + 10 * np.cos(X["month"]) + rng.normal(size=n)
model = HistGradientBoostingRegressor(max_iter=80).fit(X, y)

# %%
# With groups, there is one value for each group, the place and the building, and one for the month, which is
# in no group.
groups = {"place": ["east", "north"], "building": ["area", "rooms"]}
explainer = TreeExplainer(model, feature_groups=groups)
of_groups = explainer.explain(X)
print(of_groups[:3].to_frame().round(1))

# %%
# There is an Owen value for each column, in a game in which the other groups are known or unknown as a whole.
# The Owen values of a group's columns add up to the value of the group.
of_columns = explainer.explain(X, index="OV")
print(of_columns[:3].to_frame().round(1))
difference = of_columns.sum_by(groups).values - of_groups.values
print(f"largest difference: {np.abs(difference).max():.1e}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3), layout="constrained")
ShapBarDisplay.from_explanation(of_groups, ax=left)
ShapBarDisplay.from_explanation(of_columns, ax=right)
left.set_title("groups")
right.set_title("columns")
plt.show()

# %%
# The SHAP values of the columns do not add up to the values of the groups: they also count sets in which only
# one coordinate is known.
apart = explain(model, X).sum_by(groups)
print((apart[:3].to_frame() - of_groups[:3].to_frame()).round(1))
