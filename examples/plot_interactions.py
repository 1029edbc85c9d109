"""
Which features act together
===========================

The interaction of two features is what they do together beyond what each does alone.
:meth:`skshapgpu.TreeExplainer.explain_interactions` computes it exactly for each row.
"""

# %%
# Explain all pairs that occur on a path of a tree. Other pairs do not interact, so none is left out.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import ShapInteractionDisplay, ShapInteractionTransformer, TreeExplainer

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
model = RandomForestRegressor(100, max_depth=5, random_state=0).fit(X, y)

explainer = TreeExplainer(model)
explanation = explainer.explain_interactions(X)
for name, strength in explanation.strongest(5):
    print(f"{name:<12}{strength:6.2f}")

# %%
# The value of a pair is its whole interaction index: the base value, the main effects and the pairs of a row
# add up to its prediction.
total = explanation.base_values + explanation.main_effects().sum(axis=1) + explanation.values.sum(axis=1)
print("largest difference:", np.abs(total - model.predict(X)).max())

# %%
# On the left, a heat map of the strongest features, with main effects on the diagonal. On the right, the
# strongest pair, for each row: what body mass index and s5 do together beyond what each does alone.
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
ShapInteractionDisplay.from_explanation(explanation, max_features=6, ax=left)
pair = explanation[:, "bmi x s5"]
points = right.scatter(X["bmi"], pair.values[:, 0], c=X["s5"], s=12)
right.set_xlabel("body mass index")
right.set_ylabel("interaction of bmi and s5")
figure.colorbar(points, ax=right, label="s5")
plt.show()

# %%
# With many features or rows, ask for the strongest pairs only. They are determined exactly, over all rows,
# and only their values are kept.
strongest = explainer.explain_interactions(X, interactions=3)
print(strongest.to_frame().head().round(2))

# %%
# The transformer fits the model and returns the strongest pairs as named columns.
pairs = ShapInteractionTransformer(RandomForestRegressor(50, max_depth=4, random_state=0), interactions=3)
print(pairs.set_output(transform="pandas").fit_transform(X, y).tail().round(2))
