"""
Select features, and compare three kinds of importance
======================================================

:class:`skshapgpu.ShapSelector` keeps the columns that move the predictions of a tree model most. This example
compares its ranking with the rankings by impurity and by permutation importance, on real data with added
noise columns, so that the worthless columns are known.
"""

# %%
# The diabetes dataset has 10 columns; 20 columns of random numbers are added.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.inspection import permutation_importance
from sklearn.model_selection import KFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline

from skshapgpu import ShapSelector

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
rng = np.random.default_rng(0)
noise = pd.DataFrame(rng.normal(size=(len(X), 20)), columns=[f"noise {i}" for i in range(20)])
X = X.join(noise)
model = RandomForestRegressor(20, min_samples_leaf=3, random_state=0)

# %%
# The selector is a pipeline step like any other. With ``cv=`` it fits the model on splits of its training
# rows and computes the importances on the held-out rows; without it, on the rows that the model was trained
# on.
selector = ShapSelector(model, max_features=5, cv=5)
pipeline = make_pipeline(selector, model)
outer = KFold(5, shuffle=True, random_state=0)
print("R2 with all columns:", cross_val_score(model, X, y, cv=outer).mean().round(3))
print("R2 with 5 columns:  ", cross_val_score(pipeline, X, y, cv=outer).mean().round(3))
print("kept:", ", ".join(selector.fit(X, y).get_feature_names_out()))


# %%
# Compute four rankings. Permutation importance needs rows that the model was not trained on, so some of the
# training rows are held out.
def importances(X_train: pd.DataFrame, y_train: pd.Series) -> dict[str, np.ndarray]:
    on_training_rows = ShapSelector(model).fit(X_train, y_train)
    X_fit, X_held_out, y_fit, y_held_out = train_test_split(X_train, y_train, random_state=0)
    fitted = RandomForestRegressor(**model.get_params()).fit(X_fit, y_fit)
    permuted = permutation_importance(fitted, X_held_out, y_held_out, n_repeats=5, random_state=0)
    return {
        "impurity": on_training_rows.estimator_.feature_importances_,
        "SHAP, training rows": on_training_rows.importances_,
        "SHAP, out-of-fold rows": ShapSelector(model, cv=5).fit(X_train, y_train).importances_,
        "permutation, held-out rows": permuted.importances_mean.clip(0),
    }


# %%
# In each of five splits, the columns are ranked on the training rows, and a model with the top-ranked columns
# is scored on the test rows. ``noise`` is the fraction of the sum of all importances that belongs to noise
# columns.
sizes = (2, 4, 8, 16)
scores: dict[str, list[list[float]]] = {}
shares: dict[str, list[float]] = {}
for train, test in outer.split(X):
    X_train, y_train, X_test, y_test = X.iloc[train], y.iloc[train], X.iloc[test], y.iloc[test]
    for method, importance in importances(X_train, y_train).items():
        order = np.argsort(-importance)
        kept = [X.columns[order[:size]] for size in sizes]
        of_split = [model.fit(X_train[names], y_train).score(X_test[names], y_test) for names in kept]
        scores.setdefault(method, []).append(of_split)
        shares.setdefault(method, []).append(importance[10:].sum() / importance.sum())

print(f"{'R2 with':28}" + "".join(f"{size:>8}" for size in sizes) + "   noise")
for method, of_splits in scores.items():
    means = "".join(f"{mean:8.3f}" for mean in np.mean(of_splits, axis=0))
    print(f"{method:28}{means}{np.mean(shares[method]):8.1%}")

# %%
# Conclusions:
#
# - All methods find the same strong columns. The scores of their selections differ by much less than the
#   scores of the splits, whose standard deviation is printed below: no method is better on these data, and
#   selection itself hardly changes the score of a forest.
# - Impurity attributes most importance to the noise, SHAP values less, and permutation least. Permutation
#   measures how much worse the predictions get; SHAP values measure how much of a prediction comes from a
#   column, right or wrong. A model that uses noise has SHAP values for the noise, also on new rows, so using
#   held-out rows changes little.
# - Permutation ranks weak columns by small differences of a score on few held-out rows; SHAP values need
#   neither y nor held-out rows.
spread = np.std(scores["impurity"], axis=0)
print("standard deviation of R2 over the splits:", spread.round(2))

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for method, of_splits in scores.items():
    left.plot([str(size) for size in sizes], np.mean(of_splits, axis=0), marker="o", label=method)
left.set(xlabel="columns kept", ylabel="mean R2 on the test rows")
left.legend(fontsize="small")
right.barh(list(shares), [100 * np.mean(of_method) for of_method in shares.values()])
right.set_xlabel("importance share of the 20 noise columns, %")
plt.show()
