"""Planning a million requests: 100 wordings, 2,500 questions, 4 options, as already tokenised parts.

The parts are random tokens of the lengths of GSM8K with five shots; what is timed is the whole plan: the trie, its
packs, the tiles of every pack. It runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import numpy as np
from bench.engine.cases import Other
from bench.engine.machine import described
from bench.engine.results import Goal, Result

WORDINGS, QUESTIONS, OPTIONS = 100, 2_500, 4
LENGTHS = {"stem": 684, "question": 65, "option": 4}
SECONDS, GIGABYTES = 60.0, 4.0
_PACK = 2048


def run_case(case: Other, *, quick: bool) -> Result:
    """Plan once with questions shared by all wordings, once with questions of each wording's own."""
    wordings = WORDINGS // 10 if quick else WORDINGS
    plans = {own: _apart(wordings, own=own) for own in (False, True)}
    worst = {name: max(plan[name] for plan in plans.values()) for name in ("seconds", "gigabytes")}
    return Result(
        case=case.name,
        title=case.title,
        what=f"{wordings * QUESTIONS * OPTIONS:,} requests: {wordings} wordings x {QUESTIONS:,} questions x "
        f"{OPTIONS} options, given as parts; the slower of two plans (questions shared by the wordings, or not)",
        against="",
        goals=[
            Goal("seconds to plan", worst["seconds"], SECONDS, at_least=False, unit="s"),
            Goal("peak memory", worst["gigabytes"], GIGABYTES, at_least=False, unit="GB"),
        ],
        detail={"shared questions": plans[False], "own questions": plans[True]},
        machine=described(),
        quick=quick,
    )


def _apart(wordings: int, *, own: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.engine.planning", str(wordings), str(int(own))]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def _plan(wordings: int, *, own: bool) -> dict[str, Any]:
    import resource

    from steelyard.engine.packs import cut, tiles
    from steelyard.engine.trie import build_parts

    rng = np.random.default_rng(0)
    counts = {
        "stem": wordings,
        "question": QUESTIONS * (wordings if own else 1),
        "option": QUESTIONS * OPTIONS,
    }
    parts = [rng.integers(0, 49_152, LENGTHS[name]) for name, count in counts.items() for _ in range(count)]
    w, q, k = (axis.ravel() for axis in np.indices((wordings, QUESTIONS, OPTIONS)))
    question = counts["stem"] + (q + w * QUESTIONS if own else q)
    option = counts["stem"] + counts["question"] + q * OPTIONS + k
    rows = np.stack([w, question, option], axis=1)
    began = time.perf_counter()
    trie = build_parts(parts, rows)
    packs = cut(trie, _PACK)
    found = sum(len(tiles(trie, pack)) for pack in packs)
    return {
        "requests": len(rows),
        "tokens": len(rows) * sum(LENGTHS.values()),
        "nodes": len(trie),
        "packs": len(packs),
        "tiles": found,
        "seconds": time.perf_counter() - began,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
    }


if __name__ == "__main__":
    print(json.dumps(_plan(int(sys.argv[1]), own=sys.argv[2] == "1")))
