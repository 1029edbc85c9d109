"""Order of the examples in the gallery, and the picture with which the page of each opens."""

import re

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


_PICTURE = re.compile(r"^\.\. image-sg::.*\n(?: +:.*\n)+", re.MULTILINE)
_SOURCE = ".. GENERATED FROM PYTHON SOURCE LINES"
_NUMBER = re.compile(r"^# sphinx_gallery_thumbnail_number = (\d+)$", re.MULTILINE)


def opened_with_picture(page: str, example: str) -> str:
    """Return the page of an example with the picture of its thumbnail before its first code, too.

    A page without pictures, as of an example that was not run, is returned as it is.
    """
    pictures = _PICTURE.findall(page)
    head, source, rest = page.partition(_SOURCE)
    if not pictures or not source:
        return page
    number = _NUMBER.search(example)
    return f"{head}{pictures[int(number[1]) - 1 if number else 0]}\n{source}{rest}"
