"""The state and the calls of an explainer, below its constructor and its files."""
