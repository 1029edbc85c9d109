"""
Multiclass models and the shape of their values
===============================================

The shape of the values is the same for every library: ``(n_rows, n_features)`` with one output and
``(n_rows, n_features, k)`` with k outputs. A binary classifier has one output, its positive class.
"""

# %%
# With three classes the last axis has length three, and its labels are in ``output_names``.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.model_selection import train_test_split

from skshapgpu import ShapTransformer, TreeExplainer

X, y = load_wine(return_X_y=True, as_frame=True)
y = y.map({0: "Barolo", 1: "Grignolino", 2: "Barbera"})
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

for kind in (RandomForestClassifier, GradientBoostingClassifier, HistGradientBoostingClassifier):
    model = kind(random_state=0).fit(X_train, y_train)
    explanation = TreeExplainer(model).explain(X_test)
    print(f"{kind.__name__:<32}{explanation.shape}  {explanation.output_names}")

# %%
# Select a class by its name, or by its position in ``model.classes_``. The values of a forest are in
# probabilities: for each row and feature, the values of the three classes add up to zero, since the other
# classes lose what one class gains. The values of boosted trees are in margin space, before the softmax.
model = RandomForestClassifier(random_state=0).fit(X_train, y_train)
explanation = TreeExplainer(model).explain(X_test)
barolo = explanation[..., "Barolo"]
print("one class:", barolo.shape, "base value", np.round(barolo.base_values, 3))
print("largest sum over the classes:", np.abs(explanation.values.sum(axis=2)).max())

# %%
# Which features matter for which wine? The importances also have one column per class.
importance = explanation.importance()
order = np.argsort(importance.sum(axis=1))[-8:]
names = np.array(explanation.feature_names)[order]

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
start = np.zeros(len(order))
for i, wine in enumerate(model.classes_):
    ax.barh(names, importance[order, i], left=start, label=wine)
    start += importance[order, i]
ax.set_xlabel("mean |SHAP value|, stacked by class")
ax.legend()
plt.show()

# %%
# The transformer returns a table with a column for each feature and class.
transformer = ShapTransformer(RandomForestClassifier(random_state=0)).set_output(transform="pandas")
print(transformer.fit(X_train, y_train).transform(X_test).iloc[:3, :6].round(3))

# %%
# With two classes, the values belong to the positive class, ``model.classes_[1]``. ``outputs="all"`` returns
# the values of both classes, which are the negatives of each other.
X, y = load_breast_cancer(return_X_y=True)
model = RandomForestClassifier(random_state=0).fit(X, y)
positive = TreeExplainer(model).explain(X)
both = TreeExplainer(model, outputs="all").explain(X)
print("one output:", positive.shape, "both classes:", both.shape, both.output_names)
print("the positive class is the same:", np.array_equal(both[..., 1].values, positive.values))
print("the other is its negative:", np.array_equal(both[..., 0].values, -positive.values))
