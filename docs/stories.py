"""Order of the examples in the gallery."""

STORIES = (
    "plot_quickstart.py",
    "plot_displays.py",
    "plot_pipeline.py",
    "plot_cross_val_explain.py",
    "plot_selection.py",
    "plot_boruta.py",
    "plot_categories_missing.py",
    "plot_multiclass.py",
    "plot_voting.py",
    "plot_calibration.py",
    "plot_background.py",
    "plot_survival.py",
    "plot_cohorts.py",
    "plot_comparisons.py",
    "plot_owen_values.py",
    "plot_interactions.py",
    "plot_partial_dependence.py",
    "plot_drift.py",
    "plot_serving.py",
    "plot_batches.py",
    "plot_migrating_from_shap.py",
)


def position(file_name: str) -> tuple[int, str]:
    """Return the sort key of an example: its position in STORIES; others follow, by name."""
    place = STORIES.index(file_name) if file_name in STORIES else len(STORIES)
    return place, file_name
