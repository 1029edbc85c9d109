"""Transformers, selection, importance and cross-validation."""
