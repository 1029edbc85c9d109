"""CatBoost: its models, and the statistics of categories (CTRs) that they test."""
