"""Explainers in files."""
