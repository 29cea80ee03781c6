"""Doing a study: open a model, plan, ask what is missing, judge. `session` is the page to read first."""
