"""Results of a call, with names, labels and base values."""
