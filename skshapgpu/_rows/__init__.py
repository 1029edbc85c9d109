"""Reading X and background data."""
