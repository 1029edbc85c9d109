"""Estimated times of calls, from which algorithms and devices are chosen."""
