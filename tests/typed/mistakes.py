"""A user's script with typical mistakes: a type checker must report each line that says so, and no other.

``tests/project/typed.py`` runs the checker; nothing runs this script.
"""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import (
    ShapInteractionTransformer,
    ShapSelector,
    ShapTransformer,
    TreeExplainer,
    compare_explanations,
    cross_val_explain,
    explain,
    explain_batches,
    explain_interactions,
    friedman_h,
    partial_dependence,
    shap_importance,
)
from skshapgpu.batches import BatchExplainer

X = np.zeros((10, 3))
y = np.zeros(10)
cube = np.zeros((10, 3, 2))
model = RandomForestRegressor().fit(X, y)

# Calls without a mistake.
explanation = explain(model, X, precision="double", device="cuda", n_jobs=-1)
explain("model.ubj", X.tolist(), data=X, feature_groups={"both": [0, 1]})
TreeExplainer(model, X, model_output="probability", memory_limit="2GiB").explain(X, index="BV")
ShapTransformer(model, outputs="all", device=["cuda:0", "cuda:5"]).fit(X, y)
explain_batches(model, "rows.csv", "values.parquet", csv_options={"delimiter": ";"}, if_exists="error")
cross_val_explain(model, X, y, explain_params={"columns": "all", "expected_rows": 10**6})
explanation.reasons(3, by_sign=True)
prediction = explanation.base_values + explanation.values.sum(axis=1)
strongest, importance = explanation.strongest(1)[0]
explanation.groupby(y)[0].values.mean(axis=0)

# Mistakes.
explain(model, X, feature_pertubation="interventional")  # mistake: misspelt option
explain(model, X, precision="float32")  # mistake: choice
explain(model, X, index="shap")  # mistake: choice
explain(X, model)  # mistake: arguments in the wrong order
explain(model, X, n_jobs="all")  # mistake: type
explain(model, X, groups={"both": [0, 1]})  # mistake: name of another argument
TreeExplainer(model, data=0.5)  # mistake: a number where rows belong
TreeExplainer(model, device=0)  # mistake: the number of a GPU instead of its name
TreeExplainer(model, device=["cuda:0", 1])  # mistake: the number of a GPU instead of its name
ShapTransformer(model, outputs="both")  # mistake: choice
explain_batches(model, "rows.csv", "values.parquet", if_exists="append")  # mistake: choice
explain_batches(model, "rows.csv", "values.parquet", csv_options={"sep": ";"})  # mistake: key
cross_val_explain(model, X, y, explain_params={"precison": "double"})  # mistake: misspelt option
explanation.reasons("three")  # mistake: type
explain_interactions(model, X, index="SV")  # mistake: choice
print(explanation.abs)  # mistake: attribute of explanations of shap
explanation.values.abs()  # mistake: method of another library's arrays
print(explanation.groupby(y)[0].value)  # mistake: misspelt attribute
len(explanation.output_names)  # mistake: there are no names if there is one output
explanation.importance().to_frame()  # mistake: an array is no data frame
explain(model, y)  # mistake: y where data belongs
explain(model, y.astype(np.float32), data=X)  # mistake: y where data belongs
explain(model, X, data=np.ones(10))  # mistake: weights where data belongs
explain(model, cube)  # mistake: three dimensions
explain(model, [1.0, 2.0])  # mistake: one row without a list around it
explain(model, ["a", "b"])  # mistake: names where data belongs
explain(model, "rows.parquet")  # mistake: a path where data belongs
TreeExplainer(model).shap_values(y)  # mistake: y where data belongs
TreeExplainer(model, y)  # mistake: y where data belongs
TreeExplainer(model, X, y)  # mistake: an argument too many
ShapTransformer(model).transform(y)  # mistake: y where data belongs
partial_dependence(model, y, 0)  # mistake: y where data belongs
explain(model, X, "target")  # mistake: the name of a column where its values belong
explain(model, X, data=X, data_weight=0.5)  # mistake: a number where an array belongs
explain(model, X, times="30")  # mistake: type
explain(TreeExplainer, X)  # mistake: a class instead of an explainer
explain(bytearray(b"content"), X)  # mistake: the content of a file must be bytes
explain(model, X, feature_groups={"both": "ab"})  # mistake: a string where a list belongs
explain_interactions(model, X, order=4)  # mistake: choice
explain_interactions(model, X, interactions="all")  # mistake: choice
explain_interactions(model, X, interactions=["a", "b"])  # mistake: a pair without a list around it
explain_interactions(model, X, interactions=2.5)  # mistake: type
TreeExplainer(model).plan(100, index="shap")  # mistake: choice
TreeExplainer(model).plan(100, dtype="float16")  # mistake: choice
TreeExplainer(model).plan(100, order=1)  # mistake: choice
TreeExplainer(model).plan(X)  # mistake: rows instead of their number
ShapTransformer.from_fitted(model, precison="double")  # mistake: misspelt option
ShapTransformer.from_fitted(model, precision="half")  # mistake: choice
ShapTransformer.from_fitted(model, interactions=20)  # mistake: option of another transformer
ShapInteractionTransformer(model, interactions="all")  # mistake: choice
ShapInteractionTransformer.from_fitted(model, index="SV")  # mistake: choice
ShapSelector(model, cv="five")  # mistake: type
ShapSelector(model, explain_params={"precison": "double"})  # mistake: misspelt option
shap_importance(model, X, sum_by="inputs")  # mistake: choice
friedman_h(model, X, "ab")  # mistake: a string where a list belongs
partial_dependence(model, X, 0, grid_resolution="fine")  # mistake: choice
explain_batches(model, 3, "values.parquet")  # mistake: a number where rows belong
explain_batches(model, y, "values.parquet")  # mistake: y where data belongs
explain_batches(model, "rows.csv", "values.parquet", keep="id")  # mistake: a string where a list belongs
explain_batches(model, "rows.csv", "values.parquet", batch_size="big")  # mistake: choice
explain_batches(model, "rows.csv", "values.parquet", interactions=20)  # mistake: depends on all rows
BatchExplainer(model, features="age")  # mistake: a string where a list belongs
compare_explanations(explanation, X)  # mistake: rows instead of their values
explanation.sum_by("inputs")  # mistake: choice
explanation.sum_by({"both": "ab"})  # mistake: a string where a list belongs
