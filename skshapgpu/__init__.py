"""Exact SHAP values for tree ensembles."""
