"""MLflow models that explain: an explainer is logged, registered, loaded, served and called like a model.

MLflow is imported when a function is called.
"""

from ._flavor import FLAVOR_NAME as FLAVOR_NAME
from ._flavor import _load_pyfunc as _load_pyfunc
from ._flavor import load_model, log_explainer, save_model

__all__ = ["load_model", "log_explainer", "save_model"]
