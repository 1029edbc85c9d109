"""Drift: how SHAP values of a current sample differ from those of a reference."""
