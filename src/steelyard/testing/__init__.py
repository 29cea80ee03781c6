"""For authors of backends: checks that any backend has to pass, and what "the same answers" means.

Start with `conformance` (docs/conformance.md). Nothing here imports pytest unless it is asked for parameters.
"""
