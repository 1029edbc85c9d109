"""
Explain large files, and resume after an interruption
=====================================================

:func:`skshapgpu.explain_batches` explains files that do not fit into memory, in batches, and writes the
values to files. In this example, the run is interrupted half-way and then resumed.
"""

# %%
# The source is two files of purchases, written in pieces as a data warehouse would export them. They are
# small, so that this page builds in seconds; for millions of rows the code would be the same.
import os
from functools import partial
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


def purchases(n_rows: int, first_id: int) -> pd.DataFrame:
    X = rng.exponential(1.0, (n_rows, len(NAMES))).astype(np.float32)
    return pd.DataFrame(X, columns=NAMES).assign(purchase=np.arange(first_id, first_id + n_rows))


def is_fraud(frame: pd.DataFrame) -> pd.Series:
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
# Keep the id and the three strongest reasons of each purchase. The interruption comes from the progress
# callback; killing the process has the same effect.


def power_cut(n_done: int, n_rows: int) -> None:
    if n_done > n_rows / 2:
        print(f"the power fails at {n_done:,} of {n_rows:,} rows")
        raise KeyboardInterrupt


reasons = Path(folder.name) / "reasons"
write_reasons = partial(explain_batches, model, data, reasons, keep=["purchase"], reasons=3, batch_size=5_000)
try:
    write_reasons(progress=power_cut)
except KeyboardInterrupt:
    n_parts = sum(name.startswith("part") for name in os.listdir(reasons))
    print(f"{n_parts} parts of 5,000 rows are written")

# %%
# The same call resumes after the last batch that was written.
result = write_reasons()
print(f"{result.n_rows:,} rows, {result.n_resumed:,} of them earlier; {result.rows_per_second:,.0f} rows/s")

# %%
# No row is lost or duplicated.
table = ds.dataset(reasons).to_table().to_pandas()
assert (table["purchase"] == np.arange(result.n_rows)).all()
table.head()

# %%
# The table shows the reasons of the most suspicious purchases, by rank: ``feature_1`` has the name of the
# strongest feature.
worst = table[table["shap_1"] > 0].nlargest(2_000, "shap_1")
counts = pd.concat({rank: worst[f"feature_{rank}"].value_counts() for rank in (1, 2, 3)}, axis=1).fillna(0)
counts.sort_values(1).plot.barh(stacked=True, figsize=(7, 3))
plt.xlabel("number of purchases, out of 2,000")
plt.legend(title="rank of the reason")
plt.tight_layout()
plt.show()
