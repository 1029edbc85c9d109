"""
Detect drift in production
==========================

The SHAP values of new rows show which changes of the data matter to a model. This example compares them with
the SHAP values of the rows on which the model was tested.
"""

# %%
# The model predicts the demand for bicycles. Its test rows are the reference.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from skshapgpu import ShapComparisonDisplay, compare_explanations, explain


def draw(seed: int, n: int = 4_000) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "temperature": rng.normal(15, 7, n),
            "rain": np.where(rng.random(n) < 0.7, 0.0, rng.exponential(3, n)),
            "wind": rng.gamma(3, 4, n),
            "weekend": rng.integers(0, 2, n),
            "pressure": rng.normal(1013, 8, n),
        }
    )
    demand = 200 + 6 * X["temperature"] - 25 * np.sqrt(X["rain"]) - 2 * X["wind"] + 40 * X["weekend"]
    return X, demand + 20 * rng.normal(size=n)


X_train, y_train = draw(0)
X_test, _ = draw(1)
model = HistGradientBoostingRegressor(max_iter=80, random_state=0).fit(X_train, y_train)
reference = explain(model, X_test)

# %%
# The current rows are a second sample from the same population. The population stability index (PSI) of every
# feature is small, and the order of the features is the same.
X_same, _ = draw(2)
same = compare_explanations(reference, explain(model, X_same))
print(same.to_frame().round(3).T)
print(f"nDCG {same.ndcg:.3f}")

# %%
# A month later, a sensor reports the temperature in degrees Fahrenheit, and the air pressure has risen.
X_new, _ = draw(3)
X_new["temperature"] = X_new["temperature"] * 9 / 5 + 32
X_new["pressure"] += 10
drifted = compare_explanations(reference, explain(model, X_new))
ShapComparisonDisplay.from_comparison(drifted)
plt.show()

# %%
# The PSI says that the values of a feature are distributed differently; the Wasserstein distance says how far
# they have moved, in the unit of the target. The pressure has changed, but it does not matter to the model,
# as its distance relative to the largest importance shows.
print(drifted.to_frame()[["psi", "wasserstein", "relative_wasserstein"]].round(2))

# %%
# In a scheduled job, compare the files that :func:`skshapgpu.explain_batches` or ``skshapgpu explain`` wrote.
# The command exits with code 3 if a limit is exceeded::
#
#     skshapgpu compare reference.parquet current.parquet --fail-below 0.9 --fail-distance-above 0.2
