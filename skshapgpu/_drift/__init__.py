"""Drift: how SHAP values of a current sample differ from SHAP values of a reference."""
