"""The local engine: a checkpoint in this process, through the transformers library.

Start with `backend` (the protocol's one call), then `reference` (scoring) and `generate`; `model` is the
network itself, `resolve` finds it by name, `embedded` is the model that needs no hub. Token boundaries
are decided one floor up, in `steelyard.engine.tokens`.
"""
