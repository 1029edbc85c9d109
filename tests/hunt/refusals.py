"""Documented refusals of the package: parts of their messages, and the draws for which they may occur."""

from __future__ import annotations

from . import containers
from .draws import Draw

#: Categories that are numbers are numbers in these containers.
TYPES_LOST = ("polars", "polars enum", "arrow", "arrow text", "frame of text")

#: Containers that scikit-learn reads as sparse matrices. It accepts NaN in them, but NaN may take any branch.
SPARSE = (*containers.SPARSE, "frame sparse")

#: Refusal of columns="used", of constant models only.
NO_COLUMN = "the model uses no column of X"

#: Refusal of functions of margins that are too large, which needs leaves of about 1e12.
TOO_LARGE = "the margins are so large"

#: Failure of the additivity check of algorithms that lose digits.
LOST_DIGITS = "loses digits on paths with many features: use algorithm='auto'"

#: Refusal of a memory limit that a GPU, which takes memory for each of its warps, cannot keep.
NO_GPU_MEMORY = "bytes for the smallest batch"

#: Failure of a step that takes no arrays of a GPU.
FAILED_STEP = "of the pipeline failed there"

#: Refusals in every container.
ALWAYS = {
    "model_output='probability' needs": lambda draw: draw.mode == "probability",
    "model_output='log_loss' needs": lambda draw: draw.mode == "log_loss",
    "there is one log loss": lambda draw: draw.mode == "log_loss",
    "at most 16 features": lambda draw: draw.options.get("algorithm") == "fast_v2",
    "infinity or a value too large": lambda draw: (
        draw.family in ("xgboost", "bagging")
        or "linear_tree" in draw.params
        # Steps, which members of sums may have, refuse background rows that float16 cannot hold, too.
        or (
            draw.container == "float16"
            and draw.background > 0
            and (draw.steps != "none" or draw.family == "sums")
        )
    ),
    "linear leaf with numbers that are not finite": lambda draw: "linear_tree" in draw.params,
    "linear leaves": lambda draw: "linear_tree" in draw.params,
    "steps of their own": lambda draw: draw.family == "sums",
    "round in different ways": lambda draw: draw.family == "sums",
    "training diverged": lambda draw: draw.family == "xgboost",
    "garbles those that are not ASCII": lambda draw: draw.family == "xgboost",  # before 3.4
    "are explained by their definition": lambda draw: draw.mode == "probability",
    "a border between infinite numbers": lambda draw: "infinite" in draw.columns,
    "CPU": lambda draw: draw.device == "cuda",  # "computed on the CPU only"
    NO_GPU_MEMORY: lambda draw: draw.device != "cpu" and "memory_limit" in draw.options,
    FAILED_STEP: lambda draw: draw.gpu_arrays != "none" and (draw.steps, draw.outer) != ("none", "none"),
    "is a dictionary of PyArrow with nulls": lambda draw: draw.family == "histograms",
    TOO_LARGE: lambda draw: draw.mode in ("responses", "probability"),
    LOST_DIGITS: lambda draw: draw.options.get("algorithm") in ("treeshap", "fast_v1"),
    "Arrow cannot combine all of them": lambda draw: (
        draw.mode == "typed" and "intervals" in (draw.asked.get("first type"), draw.asked.get("second type"))
    ),
    NO_COLUMN: lambda draw: draw.options.get("columns") == "used",
    "model has no covers": lambda draw: draw.task == "cox",  # whose hessians may add up to less than 0
    "there are no groups": lambda draw: draw.asked.get("groups") == "input" and draw.steps == "none",
    "have none": lambda draw: draw.mode == "triples",
    "interactions of pairs are available": lambda draw: draw.mode == "triples" and draw.family == "catboost",
}

#: Refusals of categories in a container that does not keep them.
OF_TYPES = (
    "columns must have the types that they had in training",
    "was categorical in training",
)


def refusal(draw: Draw, accepted: bool, error: str, container: str | None = None) -> str | None:
    """Return the kind of a refusal that is documented or that the library shares; None if it is a finding.

    ``accepted`` says whether the library predicts these rows. ``container`` is the rows' container if it is
    not the draw's; a "file" has types of its own.
    """
    container = container or draw.container
    for part, may in ALWAYS.items():
        if part in error and may(draw):
            return part
    for part in OF_TYPES:
        if part in error and (container == "file" or container in TYPES_LOST):
            return part
    if "does not accept in a sparse matrix" in error and container in SPARSE:
        return "NaN in a sparse matrix"
    if "takes the codes" in error and "missing" in draw.params:
        return "a code that is missing"  # it is compared with the codes of a frame
    return None if accepted else "as the library"
