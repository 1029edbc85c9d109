"""
Save an explainer and load it on a server
=========================================

Create an explainer once and save it with :meth:`skshapgpu.TreeExplainer.save`. Another process loads it with
:meth:`skshapgpu.TreeExplainer.load`, without the model and its library, and explains incoming rows. The file
also contains the tables that summarise the background data. They are memory-mapped, so a server with large
tables is ready at once, and several servers share them.
"""

# %%
# The first process has the model and the background data, and builds the tables.
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from skshapgpu import ShapWaterfallDisplay, TreeExplainer

data = load_diabetes(scaled=False)  # arrays, which are explained faster than data frames
X_train, X_new, y_train, _ = train_test_split(data.data, data.target, random_state=0)
model = HistGradientBoostingRegressor(max_iter=50).fit(X_train, y_train)

folder = TemporaryDirectory()
path = Path(folder.name)
start = perf_counter()
explainer = TreeExplainer(model, data=X_train)
print(f"created in {1000 * (perf_counter() - start):.0f} ms")
explainer.save(path / "explainer.npz")
tables = explainer.model_info()["table_bytes"]
print(f"{(path / 'explainer.npz').stat().st_size / 1e6:.1f} MB, of which tables {tables / 1e6:.1f} MB")

# %%
# The server has only the file. It reads batches of rows as they arrive and returns their values. In this
# example, it reads the batches from a folder, one after the other.
SERVER = """
import sys
from pathlib import Path
from time import perf_counter
import numpy as np
from skshapgpu import TreeExplainer

folder = Path(sys.argv[1])
start = perf_counter()
explainer = TreeExplainer.load(folder / "explainer.npz")
print(f"loaded in {1000 * (perf_counter() - start):.0f} ms")
for batch in sorted(folder.glob("batch*.npy")):
    values = explainer.shap_values(np.load(batch))
    np.save(folder / f"values_of_{batch.name}", values)
    print(batch.name, values.shape, "base value", round(explainer.expected_value, 2))
"""

batches = np.array_split(X_new, 3)
for i, batch in enumerate(batches):
    np.save(path / f"batch{i}.npy", batch)
print(
    subprocess.run(
        [sys.executable, "-c", SERVER, folder.name], check=True, capture_output=True, text=True
    ).stdout
)

# %%
# The server's values equal the values of the explainer that was saved, and add up to the model's predictions.
values = np.concatenate([np.load(path / f"values_of_batch{i}.npy") for i in range(len(batches))])
print("the same values:", (values == explainer.shap_values(X_new)).all())
difference = explainer.expected_value + values.sum(axis=1) - model.predict(X_new)
print(f"largest difference: {np.abs(difference).max():.0e}")
folder.cleanup()

# %%
# A client needs no explainer to show why the first row was predicted as it was.
display = ShapWaterfallDisplay(
    values[0],
    explainer.expected_value,
    data.feature_names,
    feature_values=[f"{value:g}" for value in X_new[0]],
    label="progression of the disease",
)
display.plot(max_features=8)
plt.show()
