"""Everything from compiled plans to values: algorithms, plans, calls and their costs."""
