"""Judgements: pure functions from responses and references to verdicts. No model, no store, no randomness."""
