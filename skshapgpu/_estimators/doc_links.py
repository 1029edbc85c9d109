"""Links from scikit-learn's diagrams of estimators to the pages of this package."""

from __future__ import annotations


class DocLinkMixin:
    """Base class of estimators whose "?" in a diagram opens their page on this package's site.

    scikit-learn reads both attributes. It makes no link for a subclass that a user defines, because the class
    is in another module.
    """

    _doc_link_module = "skshapgpu"
    _doc_link_template = (
        "https://skshapgpu.readthedocs.io/en/stable/generated/{estimator_module}.{estimator_name}.html"
    )
