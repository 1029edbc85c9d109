"""Stand-ins for the computations of shap.TreeExplainer."""
