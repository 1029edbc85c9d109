"""Examples of packages that explain with shap, from their own first pages.

Each function trains a model and returns a function, which explains the model and returns arrays by name. The
data come with the package, or are generated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Example = Callable[[], dict[str, np.ndarray]]


def explainerdashboard() -> Example:
    """Set up the dashboard of explainerdashboard's shortest example: survivors of the Titanic, all tabs."""
    from explainerdashboard import ClassifierExplainer, ExplainerDashboard

    model, X_test, y_test = _titanic()

    def run() -> dict[str, np.ndarray]:
        explainer = ClassifierExplainer(model, X_test, y_test)
        ExplainerDashboard(explainer)
        return _results(explainer, interactions=True)

    return run


def explainerdashboard_options() -> Example:
    """Set up the dashboard of the longer example: a smaller forest, groups of columns, no interactions."""
    from explainerdashboard import ClassifierExplainer, ExplainerDashboard
    from explainerdashboard.datasets import titanic_names

    _, test_names = titanic_names()
    model, X_test, y_test = _titanic(n_estimators=50, max_depth=5)

    def run() -> dict[str, np.ndarray]:
        explainer = ClassifierExplainer(
            model,
            X_test,
            y_test,
            cats=["Deck", "Embarked", {"Gender": ["Sex_male", "Sex_female", "Sex_nan"]}],
            cats_notencoded={"Embarked": "Stowaway"},
            descriptions={"Gender": "Gender of passenger"},
            labels=["Not survived", "Survived"],
            idxs=test_names,
            index_name="Passenger",
            target="Survival",
        )
        ExplainerDashboard(explainer, title="Titanic Explainer", shap_interaction=False)
        return _results(explainer, interactions=False)

    return run


def _titanic(**options: Any) -> tuple[Any, Any, Any]:
    """Train a forest on the data of explainerdashboard; return it, the rows to explain and their labels."""
    from explainerdashboard.datasets import titanic_survive
    from sklearn.ensemble import RandomForestClassifier

    X_train, y_train, X_test, y_test = titanic_survive()
    return RandomForestClassifier(random_state=0, **options).fit(X_train, y_train), X_test, y_test


def _results(explainer: Any, interactions: bool) -> dict[str, np.ndarray]:
    results = {
        "values": explainer.get_shap_values_df().to_numpy(),
        "base_value": np.asarray(explainer.shap_base_value()),
        "importances": explainer.get_mean_abs_shap_df()["MEAN_ABS_SHAP"].to_numpy(),
    }
    if interactions:
        results["interactions"] = np.asarray(explainer.shap_interaction_values())
    return results


def shapash() -> Example:
    """Compile an explainer of house prices."""
    from category_encoders import OrdinalEncoder
    from shapash import SmartExplainer
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.model_selection import train_test_split

    X, y = _houses()
    encoder = OrdinalEncoder(cols=["Foundation", "Street"], handle_unknown="return_nan", return_df=True)
    X = encoder.fit_transform(X)
    Xtrain, Xtest, ytrain, ytest = train_test_split(X, y, train_size=0.75, random_state=1)
    regressor = ExtraTreesRegressor(n_estimators=100, max_depth=10, random_state=0)
    regressor.fit(Xtrain, ytrain["SalePrice"])

    def run() -> dict[str, np.ndarray]:
        xpl = SmartExplainer(
            model=regressor, preprocessing=encoder, features_dict={"GrLivArea": "Living area"}
        )
        xpl.compile(x=Xtest, y_target=ytest)
        summary = xpl.to_pandas(max_contrib=3)
        return {
            "values": xpl.explainer.contributions.to_numpy(),
            "strongest": summary[[f"contribution_{i}" for i in (1, 2, 3)]].to_numpy(np.float64),
        }

    return run


def powershap() -> Example:
    """Select features by models of CatBoost."""
    from catboost import CatBoostClassifier

    return _selection(CatBoostClassifier(n_estimators=250, verbose=0, use_best_model=True), 400)


def powershap_forest() -> Example:
    """Select features by forests of scikit-learn."""
    from sklearn.ensemble import RandomForestClassifier

    return _selection(RandomForestClassifier(n_estimators=100), 1000)


def _selection(model: Any, n_rows: int) -> Example:
    from powershap import PowerShap
    from sklearn.datasets import make_classification

    options = {"n_informative": 3, "n_redundant": 0, "class_sep": 2.0, "flip_y": 0.1, "shuffle": False}
    X, y = make_classification(n_rows, 6, **options, random_state=0)

    def run() -> dict[str, np.ndarray]:
        selector = PowerShap(model=model)
        selector.fit(X, y)
        impacts = selector._processed_shaps_df["impact"].to_numpy(np.float64)
        return {"impacts": impacts, "selected": selector.transform(X)}

    return run


def _houses() -> tuple[Any, Any]:
    """Generate data with some columns of shapash's own example, whose data shapash downloads."""
    import pandas as pd

    rng = np.random.default_rng(0)
    n = 1460
    X = pd.DataFrame(
        {
            "GrLivArea": rng.integers(300, 4000, n),
            "OverallQual": rng.integers(1, 11, n),
            "YearBuilt": rng.integers(1880, 2011, n),
            "LotArea": rng.integers(1300, 40_000, n),
            "GarageArea": rng.integers(0, 1200, n),
            "TotalBsmtSF": rng.integers(0, 3000, n),
            "Foundation": rng.choice(["Stone", "Wood", "Slab", "Poured Concrete"], n),
            "Street": rng.choice(["Paved", "Gravel"], n, p=[0.9, 0.1]),
        },
        index=pd.RangeIndex(1, n + 1, name="Id"),
    )
    price = 60 * X["GrLivArea"] + 9000 * X["OverallQual"] + 300 * (X["YearBuilt"] - 1880) + 2 * X["LotArea"]
    price += 20_000 * (X["Foundation"] == "Stone") * (X["OverallQual"] > 6) + rng.normal(scale=10_000, size=n)
    return X, price.to_frame("SalePrice")


#: Examples by name, which begins with the name of the package.
EXAMPLES: dict[str, Callable[[], Example]] = {
    "explainerdashboard": explainerdashboard,
    "explainerdashboard-options": explainerdashboard_options,
    "shapash": shapash,
    "powershap": powershap,
    "powershap-forest": powershap_forest,
}


def package_of(name: str) -> str:
    return name.partition("-")[0]
