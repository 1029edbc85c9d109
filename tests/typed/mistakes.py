"""A user's script with typical mistakes: a type checker must report each line that says so, and no other.

``tests/project/typed.py`` runs the checker; nothing runs this script.
"""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import RandomForestRegressor

import skshapgpu
from skshapgpu import ShapTransformer, TreeExplainer, cross_val_explain, explain, explain_batches

X = np.zeros((10, 3))
y = np.zeros(10)
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
TreeExplainer(model, device="gpu")  # mistake: choice
ShapTransformer(model, outputs="both")  # mistake: choice
explain_batches(model, "rows.csv", "values.parquet", if_exists="append")  # mistake: choice
explain_batches(model, "rows.csv", "values.parquet", csv_options={"sep": ";"})  # mistake: key
cross_val_explain(model, X, y, explain_params={"precison": "double"})  # mistake: misspelt option
explanation.reasons("three")  # mistake: type
skshapgpu.explain_interactions(model, X, index="SV")  # mistake: choice
explanation.values.abs()  # mistake: method of another library's arrays
print(explanation.groupby(y)[0].value)  # mistake: misspelt attribute
len(explanation.output_names)  # mistake: there are no names if there is one output
explanation.importance().to_frame()  # mistake: an array is no data frame
