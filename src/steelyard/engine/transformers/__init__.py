"""engine/transformers."""
