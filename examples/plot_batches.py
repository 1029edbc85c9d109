"""
A million rows, and a power cut
===============================

Rows that do not fit into memory are explained from files to files, in batches:
:func:`skshapgpu.explain_batches`. Here the run is cut off half-way, and goes on where it was.
"""

# %%
# Two files of purchases, written in pieces, as a data warehouse exports them. (Not a million, so that this
# page is made in seconds; nothing else would change.)
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from sklearn.ensemble import HistGradientBoostingClassifier

from skshapgpu import explain_batches

rng = np.random.default_rng(0)
NAMES = ["amount", "hour", "distance", "items", "age_of_account", "failed_logins"]


def purchases(n_rows, first_id):
    X = rng.exponential(1.0, (n_rows, len(NAMES))).astype(np.float32)
    return pd.DataFrame(X, columns=NAMES).assign(purchase=np.arange(first_id, first_id + n_rows))


def is_fraud(frame):
    risk = frame["amount"] * frame["distance"] + 2 * frame["failed_logins"] - frame["age_of_account"]
    return risk + rng.normal(0, 1, len(frame)) > 5


folder = TemporaryDirectory()
data = Path(folder.name) / "purchases"
data.mkdir()
for month in range(2):
    schema = pa.Schema.from_pandas(purchases(1, 0))
    with pq.ParquetWriter(data / f"month-{month}.parquet", schema) as writer:
        for piece in range(4):
            frame = purchases(15_000, 60_000 * month + 15_000 * piece)
            writer.write_table(pa.Table.from_pandas(frame, preserve_index=False))

train = purchases(5_000, 0)
model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(train[NAMES], is_fraud(train))

# %%
# For each purchase the three strongest reasons are enough, with its id. The cut comes from a function that is
# told of the rows that are done; a kill of the process does the same.


def power_cut(n_done, n_rows):
    print(f"{n_done:,} of {n_rows:,} rows")
    if n_done > n_rows / 2:
        raise KeyboardInterrupt


reasons = Path(folder.name) / "reasons"
call = {"keep": ["purchase"], "top": 3, "batch_size": 20_000}
try:
    explain_batches(model, data, reasons, progress=power_cut, **call)
except KeyboardInterrupt:
    print("cut off; there are", sorted(name for name in os.listdir(reasons) if name.startswith("part")))

# %%
# The same call goes on behind the last batch that was written.
result = explain_batches(model, data, reasons, **call)
print(
    f"{result.n_rows:,} rows, of which {result.n_resumed:,} were there; {result.rows_per_second:,.0f} rows/s"
)

# %%
# No row is lost, none is there twice.
table = ds.dataset(reasons).to_table().to_pandas()
assert (table["purchase"] == np.arange(result.n_rows)).all()
table.head()

# %%
# Which reason comes first, for the purchases that look worst? That of a purchase is a name in a column.
worst = table[table["shap_1"] > 0].nlargest(2_000, "shap_1")
counts = pd.concat({rank: worst[f"feature_{rank}"].value_counts() for rank in (1, 2, 3)}, axis=1).fillna(0)
counts.sort_values(1).plot.barh(stacked=True, figsize=(7, 3))
plt.xlabel("purchases, of 2,000")
plt.legend(title="rank of the reason")
plt.tight_layout()
plt.show()
