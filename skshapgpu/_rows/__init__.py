"""Readers of X and of background data."""
