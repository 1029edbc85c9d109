"""Settings of the site; ``./dev docs`` builds it.

The pages are read on a code host as well, where links lead to files of the repository. On the site
they lead to the pages made of those files: see ``SITE_LINKS``.
"""

import os
import re
import sys
from pathlib import Path

import matplotlib

import skshapgpu

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))
from sources import source_of  # noqa: E402

matplotlib.use("Agg")

project = "skshapgpu"
author = "the skshapgpu developers"
project_copyright = author
release = version = skshapgpu.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
# Links to other projects need their inventories from the network, so only the published site has them.
if os.environ.get("READTHEDOCS") == "True":
    extensions.append("sphinx.ext.intersphinx")
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", None),
    "numpy": ("https://numpy.org/doc/stable", None),
    "scipy": ("https://docs.scipy.org/doc/scipy", None),
    "sklearn": ("https://scikit-learn.org/stable", None),
    "pandas": ("https://pandas.pydata.org/docs", None),
    "matplotlib": ("https://matplotlib.org/stable", None),
    "shap": ("https://shap.readthedocs.io/en/latest", None),
}
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
nitpicky = True
nitpick_ignore_regex = [
    ("py:class", "ColumnEncoder|Ensemble"),  # as autosummary finds them in annotations
    # Plain text where the site is built without the inventories of other projects.
    ("py:.*", r"(sklearn|scipy|numpy|pandas|matplotlib|shap|mlflow)\..*"),
    # numpydoc takes what Mapping's own docstrings return for types.
    ("py:class", r"(D\[k\] if|an object providing a view|a set-like object) .*"),
]

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say them
numpydoc_show_class_members = False  # the template of classes lists them
numpydoc_xref_param_type = False
# All checks of docstrings (numpydoc/validate.py lists them) but those named behind "all".
numpydoc_validation_checks = {
    "all",
    "ES01",  # an extended summary: a summary is enough where it says everything
    "EX01",  # examples: the pages and the gallery have those of methods
    "SA01",  # see also: links stand in the text, where they are needed
    "PR04",  # types: parameters that are "as for" those of another function have theirs there
}
numpydoc_validation_exclude = {
    # These classes are protocols, or dataclasses and tuples that document their parameters as attributes.
    r"^skshapgpu\.(BatchesResult|CallPlan|Explanation|ExplanationComparison|InteractionExplanation)$",
    r"^skshapgpu\.adapters\.(AdaptedModel|Column|ColumnEncoder|DerivedColumns|Ensemble|InputSchema|Tree)$",
    r"^skshapgpu\.reference\.ReferenceValues$",
    r"^skshapgpu\.Cohorts(\.(get|items|keys|values))?$",  # a Mapping, with the methods of that class
    r"\.set_callbacks$",  # scikit-learn's own
}

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "tasklist"]

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["auto_examples"],
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(__init__|demo)\.py",
    "within_subsection_order": "stories.position",
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("skshapgpu",),
    "reference_url": {"skshapgpu": None},
    "image_srcset": ["2x"],
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,  # its page loads scripts from elsewhere
    "download_all_examples": False,
}

html_theme = "pydata_sphinx_theme"
html_title = f"skshapgpu {version}"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}  # light or dark as the browser is
html_theme_options = {
    "show_toc_level": 2,
    "github_url": "https://github.com/skshapgpu/skshapgpu",
    "navigation_with_keys": False,
    "article_footer_items": ["edit.html"],
    "footer_start": ["copyright"],
    "footer_end": ["versions.html"],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "benchmarks": [], "measurements": []},
}
html_sidebars = {"index": [], "install": [], "quickstart": [], "faq": []}

#: Links as they stand in the repository, and where they lead on the site.
SITE_LINKS = (
    (re.compile(r"\]\((?:\.\./)?examples/((?:plot|distributed)_\w+)\.py"), r"](/auto_examples/\1.rst"),
    (re.compile(r"\]\((?:\.\./)?examples\)"), r"](/auto_examples/index.rst)"),
    (re.compile(r"\]\(docs/"), r"](/"),
    (re.compile(r"\]\((tests|benchmarks/results)/"), r"](../\1/"),
    (re.compile(r"\]\(results/"), r"](../benchmarks/results/"),
    (re.compile(r"\]\((?:\.\./)?CHANGELOG\.md"), r"](/changelog.md"),
    (re.compile(r"\]\((?:\.\./)?CONTRIBUTING\.md"), r"](/contributing.md"),
    (re.compile(r"\]\((?:\.\./)?benchmarks/README\.md"), r"](/benchmarking.md"),
)


def _link_within_site(text: str) -> str:
    for pattern, replacement in SITE_LINKS:
        text = pattern.sub(replacement, text)
    return text


def _on_source_read(app, docname, source):
    source[0] = _link_within_site(source[0])


def _on_include_read(app, relative_path, parent_docname, content):
    content[0] = _link_within_site(content[0])


def _on_page_context(app, pagename, templatename, context, doctree):
    context["source_file"] = source_of(pagename)


def setup(app):
    app.connect("source-read", _on_source_read)
    app.connect("include-read", _on_include_read)
    app.connect("html-page-context", _on_page_context)
