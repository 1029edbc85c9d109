"""Displays in the style of scikit-learn: computed once, drawn as often as needed."""

from .bar import ShapBarDisplay
from .beeswarm import ShapBeeswarmDisplay
from .comparison import ShapComparisonDisplay
from .dependence import ShapDependenceDisplay
from .interaction import ShapInteractionDisplay
from .waterfall import ShapWaterfallDisplay

__all__ = [
    "ShapBarDisplay",
    "ShapBeeswarmDisplay",
    "ShapComparisonDisplay",
    "ShapDependenceDisplay",
    "ShapInteractionDisplay",
    "ShapWaterfallDisplay",
]
