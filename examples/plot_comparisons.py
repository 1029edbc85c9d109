"""
Comparisons, and reasons in words
=================================

Why does one row score higher than another? Why do two models differ? And how does one say it in a sentence?
"""

# %%
# Why is A above B?
# -----------------
# With B as the only background row, the base value is the prediction of B. The values of A say what each
# feature adds on the way from B to A.
import textwrap

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import train_test_split

from skshapgpu import Explanation, ShapBarDisplay, ShapWaterfallDisplay, TreeExplainer, explain
from skshapgpu.adapters import sum_of_models

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = HistGradientBoostingRegressor(max_iter=50, random_state=0).fit(X_train, y_train)

predictions = model.predict(X_test)
a, b = X_test.index[predictions.argmax()], X_test.index[predictions.argmin()]
comparison = TreeExplainer(model, data=X_test.loc[[b]]).explain(X_test.loc[[a]])
print(f"patient {a} is predicted {predictions.max():.0f}, patient {b} {predictions.min():.0f}")
print(f"base value: {comparison.base_values:.0f}, sum of values: {comparison.values.sum():.0f}")

ShapWaterfallDisplay.from_explanation(comparison)
plt.show()

# %%
# Why do two models differ?
# -------------------------
# A sum with the weights 1 and -1 is a model, too. Its prediction is the difference of two predictions, and
# its values say which features make the models differ.
forest = RandomForestRegressor(100, min_samples_leaf=5, random_state=0).fit(X_train, y_train)
difference = sum_of_models([model, forest], [1, -1])
explanation = explain(difference, X_test, data=X_train[:100])
gap = predictions - forest.predict(X_test)
print("the models differ by", gap.min().round(1), "to", gap.max().round(1))
print("most because of", ", ".join(name for name, _ in explanation.strongest(3)))

ShapBarDisplay.from_explanation(explanation)
plt.show()

# %%
# Reasons in words
# ----------------
# ``reasons`` returns a record for each of the strongest values of a row. A template for each direction, and
# names that people know, make sentences of them, in any language.
NAMES = {
    "English": {
        "bmi": "the body mass index",
        "s5": "the log of triglycerides",
        "bp": "the blood pressure",
        "s3": "HDL",
    },
    "German": {
        "bmi": "der Body-Mass-Index",
        "s5": "der Logarithmus der Triglyzeride",
        "bp": "der Blutdruck",
        "s3": "HDL",
    },
}
TEMPLATES = {
    "English": {
        "for": "{feature} of {value:g} raises it by {size:.0f}",
        "against": "{feature} of {value:g} lowers it by {size:.0f}",
        "row": "Patient {row} is predicted {prediction:.0f}, because {reasons}.",
        "and": " and ",
    },
    "German": {
        "for": "{feature} von {value:g} sie um {size:.0f} erhöht",
        "against": "{feature} von {value:g} sie um {size:.0f} senkt",
        "row": "Für Patient {row} lautet die Vorhersage {prediction:.0f}, weil {reasons}.",
        "and": " und ",
    },
}


def sentence(explanation: Explanation, row: object, language: str) -> str:
    """Return the strongest reasons for the prediction of the only row of an explanation, as a sentence."""
    words, names = TEMPLATES[language], NAMES[language]
    parts = [
        words[record["reason"]].format(
            feature=names.get(record["feature"], record["feature"]),
            value=record["value"],
            size=abs(record["shap_value"]),
        )
        for record in explanation.reasons(3)
    ]
    reasons = ", ".join(parts[:-1]) + words["and"] + parts[-1]
    prediction = explanation.base_values + explanation.values.sum()
    return words["row"].format(row=row, prediction=prediction, reasons=reasons)


explained = explain(model, X_test)
for language in TEMPLATES:
    print(textwrap.fill(sentence(explained.loc[[a]], a, language), 80))
