"""The stories of the gallery, in the order in which they are told."""

STORIES = (
    "plot_quickstart.py",
    "plot_pipeline.py",
    "plot_cross_val_explain.py",
    "plot_selection.py",
    "plot_categories_missing.py",
    "plot_multiclass.py",
    "plot_background.py",
    "plot_interactions.py",
    "plot_serving.py",
    "plot_batches.py",
    "plot_migrating_from_shap.py",
)


def position(file_name: str) -> tuple[int, str]:
    """Key to sort by: the place among the stories, behind them by name."""
    place = STORIES.index(file_name) if file_name in STORIES else len(STORIES)
    return place, file_name
