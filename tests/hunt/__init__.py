"""Randomised differential test of the whole package; ``./dev hunt``, or see ``__main__.py``."""
