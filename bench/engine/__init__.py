"""The engine side by side with its peers: `make bench`, or ``python -m bench.engine [CASE ...]``.

Each case runs in a process of its own. Inside it every side answers the same requests with the same threads, in
alternating order, so that a machine which drifts drifts for all of them: only ratios within a run count.
Results are one JSON file a case in ``bench/results/engine`` (``build/bench`` with ``--quick``), and
``python -m bench.engine.table`` makes the table of docs/speed.md from them.

Start with `cases` (what is run and what is asked of it), then `scoring` and `sampling` (how it is timed).
"""
