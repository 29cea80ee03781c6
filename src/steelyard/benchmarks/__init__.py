"""Benchmarks: named, versioned sets of items. One short file each; where the items come from is another room."""
