"""Rows and targets of ensembles: columns of unlike scales, targets far from zero, rare classes."""

from __future__ import annotations

import numpy as np
import pandas as pd

_RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(_RNG.normal(size=(240, 4)), columns=["age", "body mass", "c", "d"])
FRAME["d"] = np.round(FRAME["d"] * 2)
SIGNAL = (FRAME["age"] * (FRAME["d"] > 0) + FRAME["body mass"]).to_numpy() + 0.2 * _RNG.normal(size=240)
#: Far from zero, so that an offset that is counted twice, or not at all, shows.
NUMBERS = 1000 + 30 * SIGNAL
TARGETS = np.stack([NUMBERS, -50 - SIGNAL**2, FRAME["c"] * 3], axis=1)
TWO = np.where(SIGNAL > 0.5, "yes", "no")
THREE = np.array(["c", "a", "b"])[np.digitize(SIGNAL, [-0.6, 1.2])]
#: One class is so rare that some members of a bag do not see it.
RARE = np.where(np.arange(240) % 60 == 7, "rare", THREE)
LABELS = np.stack([THREE, TWO], axis=1)
INDICATORS = np.stack([SIGNAL > 0, SIGNAL < 0.8, FRAME["c"] > 0], axis=1).astype(int)
