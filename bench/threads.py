"""What OpenMP's way of waiting costs: the embedded model, with threads that spin and with threads that sleep.

    python bench/threads.py            prints a table; run it on an idle machine, then beside other work

Two cores with little else to do, eight texts of 24 tokens: spinning 6 to 8 s, sleeping 5 s, one thread 3.5 s.
Two cores shared with four to six other busy processes: spinning 8 to 34 s of wall time
(10 to 21 s of CPU time; two more attempts were given up after 100 s), sleeping 7 to 11 s (4 to 5 s),
one thread 5 to 8 s (3 to 4 s).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

CASES = {
    "spin": {"OMP_WAIT_POLICY": "ACTIVE"},
    "library's default": {"GOMP_SPINCOUNT": "300000"},  # libgomp's own number; set, so that ours is not
    "short spin": {"GOMP_SPINCOUNT": "10000"},  # what steelyard sets
    "sleep": {"OMP_WAIT_POLICY": "PASSIVE"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}


def measure() -> None:
    """Generate and score with the settings of this process, and print the seconds."""
    from steelyard.core.types import Generate, Likelihood, Sampling, Work
    from steelyard.engine.transformers.backend import open_transformers

    backend = open_transformers("smollm2")
    prompts = [
        f"{p} {i}" for i in range(2) for p in ("The capital of", "Question: how", "Once upon", "def add(a")
    ]
    texts = [Work(p, Generate(p, Sampling(24))) for p in prompts]
    scores = [Work(p, Likelihood(p * 8, " Paris, of course.")) for p in prompts]
    list(backend.run(texts[:1], batch_size=8))  # loads the weights
    for name, work in (("generate", texts), ("score", scores)):
        wall, cpu = time.perf_counter(), time.process_time()
        list(backend.run(work, batch_size=8))
        print(f"  {name}: {time.perf_counter() - wall:.2f} s, {time.process_time() - cpu:.2f} s of CPU time")


def main() -> None:
    """Each case in a process of its own, because the settings are read once."""
    for name, settings in CASES.items():
        print(name, flush=True)
        subprocess.run([sys.executable, __file__, "here"], env=os.environ | settings, check=True)


if __name__ == "__main__":
    measure() if sys.argv[1:] == ["here"] else main()
