"""Checks of options that several functions have."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, cast

import numpy as np

from .positions import is_integer
from .types import OPTION_LINES

F = TypeVar("F", bound=Callable[..., Any])


def require_one_of(option: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise ``ValueError``, naming the option, unless its value is one of the allowed strings."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{option} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def with_article(value: Any) -> str:
    """Return the name of a value's class for a message: "a str", "an InteractionExplanation"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def require_bool(option: str, value: object) -> None:
    """Raise ``TypeError``, naming the option, unless its value is a bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{option} must be a bool, not {value!r:.80}")


def require_count(option: str, value: Any, at_least: int = 1, also: tuple[str | None, ...] = ()) -> None:
    """Raise ``TypeError`` or ``ValueError``, naming the option, unless its value is a large enough int.

    ``also`` has values that stand for another choice, such as None or "auto".
    """
    if (value is None or isinstance(value, str)) and value in also:
        return
    if not is_integer(value):
        choices = " or ".join(["an int", *map(repr, also)])
        raise TypeError(f"{option} must be {choices}, not {value!r:.80}")
    if value < at_least:
        raise ValueError(f"{option} must be at least {at_least}, not {value}")


def require_unmasked(name: str, values: object, advice: str) -> None:
    """Raise ``TypeError`` for a masked array: without its mask, it would show the values below the mask."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: {advice}")


#: Words for options in other libraries and in the documentation, with the names of the options. A hint shows
#: the first name that is a parameter of the called function. Words without a name are similar to the name of
#: an option that means something else.
_NAMES_OF_WORDS = {
    "background": ("data",),
    "background_data": ("data",),
    "masker": ("data",),
    "weights": ("data_weight",),
    "perturbation": ("feature_perturbation",),
    "group": ("sum_by", "feature_groups"),
    "groups": ("feature_groups",),
    "max_display": ("max_features",),
    "color": ("color_by", "cmap"),
    "colors": ("color", "cmap"),
    "colormap": ("cmap",),
    "top": ("reasons",),
    "resume": ("if_exists",),
    "overwrite": ("if_exists",),
    "delimiter": ("csv_options",),
    "sep": ("csv_options",),
    "quote_char": ("csv_options",),
    "null_values": ("csv_options",),
    "decimal": ("csv_options",),
    "nthread": ("n_jobs",),
    "n_threads": ("n_jobs",),
    "num_threads": ("n_jobs",),
    "thread_count": ("n_jobs",),
    "gpu": ("device",),
    "use_gpu": ("device",),
    "max_memory": ("memory_limit",),
    "cat_features": (),
    "categorical_features": (),
    "init_score": ("base_margin",),
    "offset": ("base_margin",),
}

_NOT_SAMPLED = "The values are exact, and nothing is sampled: leave it out"

#: Advice about words for something that is no option, most of them arguments of shap.
_ADVICE = {
    "approximate": "The values are always exact: leave it out",
    "base_margin": "explain(..., base_margin=) returns a base value for each row",
    "check_additivity": "It is an option of TreeExplainer and of shap_values",
    "feature_names": "Features have the names of the columns: pass X as a data frame",
    "interactions": "explain_interactions computes interactions",
    "l1_reg": _NOT_SAMPLED,
    "linearize_link": "The margin or model_output is explained as it is: leave it out",
    "link": "The margin is explained, or with model_output='probability' the probability: leave it out",
    "max_evals": _NOT_SAMPLED,
    "nsamples": _NOT_SAMPLED,
    "output_names": "Outputs have the names of the model's classes: leave it out",
    "seed": "Nothing is random: leave it out",
    "tree_limit": "The trees that predict are explained: cut the model, as in booster[:50]",
}

#: Smallest similarity of an unknown option and the name in the hint, as ``difflib`` measures it.
_SIMILARITY = 0.76


def require_options(
    called: Callable[..., Any], options: Iterable[str], option_names: Iterable[str] = OPTION_LINES
) -> None:
    """Raise ``TypeError`` for a keyword argument that is not an option of an explainer.

    ``options`` are the names of the keyword arguments that are not parameters of ``called``, which the user
    called. ``option_names`` are the names of the options; those of a batch explainer where a function takes
    them. The message hints at the parameter or option that the user probably means.
    """
    for option in options:
        if option not in option_names:
            problem = f"{called.__name__}() got an unexpected keyword argument {option!r}"
            raise TypeError(f"{problem}{_hint(called, option, option_names)}")


def _hint(called: Callable[..., Any], unknown: str, option_names: Iterable[str]) -> str:
    """Return the end of a message about an unknown option; nothing if no parameter is similar."""
    parameters = signature(called).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind != Parameter.VAR_KEYWORD]
    if unknown in OPTION_LINES and "explain_params" in names:
        return f". Pass explain_params={{{unknown!r}: ...}}"
    names = [name for name in dict.fromkeys([*names, *option_names]) if name != unknown]
    if unknown in _ADVICE:
        return f". {_ADVICE[unknown]}"
    if unknown in _NAMES_OF_WORDS:
        meant = [name for name in _NAMES_OF_WORDS[unknown] if name in names]
    else:
        meant = get_close_matches(unknown, names, 1, _SIMILARITY)
    return f". Did you mean {meant[0]!r}?" if meant else ""


def checks_options(method: F) -> F:
    """Give advice in the error about an argument that a method does not have, as ``require_options`` does."""
    names = signature(method).parameters

    @wraps(method)
    def checked(*arguments: Any, **options: Any) -> Any:
        if not options.keys() <= names.keys():
            require_options(method, options, names)
        return method(*arguments, **options)

    return cast(F, checked)


def require_explain_params(explain_params: object) -> None:
    """Raise ``TypeError`` unless ``explain_params``, options of an explainer, is None or a mapping."""
    if not isinstance(explain_params, Mapping | None):
        raise TypeError(f"explain_params must be a dict or None, not {with_article(explain_params)}")


def require_n_jobs(n_jobs: object) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``n_jobs`` is None or a number, as in joblib."""
    if n_jobs is None:
        return
    if not is_integer(n_jobs):
        raise TypeError(f"n_jobs must be an int or None, not {n_jobs!r}")
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0: None or 1 is one thread, -1 all processors")
