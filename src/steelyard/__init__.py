"""steelyard: trustworthy language-model benchmark numbers for a fraction of the compute."""

__version__ = "0.1.0.dev0"
