"""
Categories and missing values
=============================

Trees split categories into sets and send missing values to one side. skshapgpu handles both as the model's
own library does, so you need not encode or impute anything before explaining a model.
"""

# %%
# The data are flats and their rents. There are a categorical feature, a number that is missing at random, and
# a number that is missing where the landlord had a reason not to state it.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from skshapgpu import TreeExplainer

rng = np.random.default_rng(0)
n = 2_000
towns = np.array(["Bern", "Basel", "Chur", "Geneva", "Sion", "Zug"])
extra = {"Bern": 0, "Basel": 0, "Chur": -300, "Geneva": 500, "Sion": -300, "Zug": 700}
town = rng.choice(towns, n)
area = rng.uniform(30, 150, n)
year = rng.integers(1900, 2026, n).astype(float)
rent = 400 + 14 * area + 3 * (year - 1900) + np.array([extra[t] for t in town]) + rng.normal(0, 60, n)

area[rng.random(n) < 0.2] = np.nan
year[(year < 1950) & (rng.random(n) < 0.8)] = np.nan
X = pd.DataFrame({"town": pd.Categorical(town), "area": area, "year": year})
model = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0).fit(X, rent)

explainer = TreeExplainer(model)
explanation = explainer.explain(X)
total = explanation.base_values + explanation.values.sum(axis=1)
print("largest difference from predict:", np.abs(total - model.predict(X)).max())

# %%
# The plots show the effect of the town on the rent, and the effect of a missing year: flats without a year
# are old, and the model has learnt that.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
of_town = dict(list(explanation.to_frame()["town"].groupby(X["town"], observed=True)))
left.boxplot(of_town.values(), showfliers=False)
left.set_xticks(range(1, len(of_town) + 1), of_town)
left.set_ylabel("SHAP value of the town")

of_year = explanation[:, "year"].values[:, 0]
missing = X["year"].isna().to_numpy()
right.scatter(X["year"][~missing], of_year[~missing], s=6, label="known")
right.axhline(of_year[missing].mean(), color="C1", label="missing, on average")
right.set_xlabel("year")
right.set_ylabel("SHAP value of the year")
right.legend()
plt.show()

# %%
# A value that is missing at random carries no information: the SHAP values of missing areas are small
# compared with the SHAP values of known areas.
of_area = np.abs(explanation[:, "area"].values[:, 0])
missing = X["area"].isna().to_numpy()
print(f"area, mean |SHAP value|: known {of_area[~missing].mean():.0f}, missing {of_area[missing].mean():.0f}")

# %%
# A town that the model has never seen is handled as in the model's library: scikit-learn treats it as a
# missing value. The values still add up to the prediction.
new = pd.DataFrame({"town": pd.Categorical(["Davos", "Zug"]), "area": [80.0, 80.0], "year": [1990.0, 1990.0]})
of_new = explainer.explain(new)
print(of_new.to_frame().round(1))
print("predicted:", model.predict(new).round(1))
print("explained:", (of_new.base_values + of_new.values.sum(axis=1)).round(1))
