"""
Why this calibrated probability?
================================

Boosting often predicts probabilities that are too close to 0 or 1. ``CalibratedClassifierCV`` maps them to
observed frequencies, and averages several models. The mean has no margin, so that the probability itself is
explained, against background rows.
"""

# %%
# The labels are noisy, so that a model that learned them too well is overconfident.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import brier_score_loss
from sklearn.model_selection import train_test_split

from skshapgpu import ShapWaterfallDisplay, TreeExplainer

X, y = make_classification(
    2000, n_features=8, n_informative=4, n_redundant=0, flip_y=0.25, class_sep=0.8, random_state=0
)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
boosting = HistGradientBoostingClassifier(random_state=0).fit(X_train, y_train)
calibrated = CalibratedClassifierCV(boosting, method="isotonic", cv=5).fit(X_train, y_train)
for name, model in (("boosting", boosting), ("calibrated", calibrated)):
    loss = brier_score_loss(y_test, model.predict_proba(X_test)[:, 1])
    print(f"{name:<11} Brier score {loss:.3f}")

# %%
# The base value is the mean probability of the background rows. The base value and the values of a row add up
# to its probability, for both models in the same unit.
background = X_train[:100]
explanations = {
    name: TreeExplainer(model, data=background, model_output="probability").explain(X_test[:200])
    for name, model in (("boosting", boosting), ("calibrated", calibrated))
}
total = explanations["calibrated"].base_values + explanations["calibrated"].values.sum(axis=1)
probability = calibrated.predict_proba(X_test[:200])[:, 1]
print("largest difference to predict_proba:", np.abs(total - probability).max())

# %%
# Take the row whose probability calibration moves most. Its features move the calibrated probability less far
# from the mean.
moved = boosting.predict_proba(X_test[:200])[:, 1] - probability
row = int(np.argmax(np.abs(moved)))
figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for ax, (name, explanation) in zip(axes, explanations.items()):
    ShapWaterfallDisplay.from_explanation(explanation, row=row, ax=ax)
    ax.set_title(name)
plt.show()

# %%
# The values of the mean are the means of the values of its five models, each through its own isotonic
# function. With ``method="sigmoid"`` and ``ensemble=False``, the probability is a logistic function of one
# margin, so that its log-odds can be explained, too, without background rows.
sigmoid = CalibratedClassifierCV(boosting, method="sigmoid", ensemble=False).fit(X_train, y_train)
print("unit of one sigmoid:", TreeExplainer(sigmoid).explain(X_test[:1]).unit)
