"""
Compare groups of rows, and list reasons
========================================

The importance of a feature is a mean over rows, and may hide that the model uses the feature for some rows
only. Cohorts show for which rows; reasons show what speaks for and against a high output of a single row.
"""

# %%
# The data are flats, whose prices depend on the floor only where there is no lift.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from skshapgpu import ShapBarDisplay, explain

rng = np.random.default_rng(0)
n = 3_000
X = pd.DataFrame(
    {
        "area": rng.uniform(30, 120, n),
        "floor": rng.integers(0, 8, n),
        "lift": pd.Categorical(rng.choice(["no", "yes"], n)),
        "district": pd.Categorical(rng.choice(["centre", "north", "south"], n)),
    }
)
price = 10 * X["area"] - 60 * X["floor"] * (X["lift"] == "no") + 200 * (X["district"] == "centre")
y = price + 30 * rng.normal(size=n)
model = HistGradientBoostingRegressor(max_iter=80, categorical_features="from_dtype").fit(X, y)
explanation = explain(model, X)

# %%
# Over all rows, the floor seems to matter a little. The cohorts show for which flats it matters. Labels are a
# column, an array, a series with the index of X, or a function of the row labels.
cohorts = explanation.groupby("lift")
print(cohorts.to_frame().round(1))
ShapBarDisplay.from_explanation(cohorts)
plt.show()

# %%
# A cohort is an explanation like any other, and can be split again.
without_lift = cohorts["no"]
high_up = np.where(without_lift.data["floor"] > 3, "high up", "low")
for label, cohort in without_lift.groupby(high_up).items():
    print(label, [(name, round(mean, 1)) for name, mean in cohort.strongest(2)])

# %%
# ``reasons`` returns the reasons for a high price and the reasons against it as records: the feature, its
# value in the row, and its SHAP value.
print(pd.DataFrame(explanation[:3].reasons(2, by_sign=True)).round(1))
