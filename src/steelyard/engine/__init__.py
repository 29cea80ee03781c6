"""Backends: they answer requests and have never heard of a benchmark."""
