"""``python -m bench.engine [CASE ...] [--quick]``: every case in a process of its own, results case by case."""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from bench.engine import results, table
from bench.engine.cases import CASES, Other, Sampling, Scoring
from bench.engine.data import ROOT, data_folder

from steelyard.core.errors import SteelyardError, UnknownNameError

BUDGET = 75 * 60  # seconds on two cores


def main() -> int:
    """Run the cases that are named, or all. Returns 1 when one failed, 2 when nothing could be started."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument(
        "--quick", action="store_true", help="a tiny version, kept in build/bench, to see that it runs"
    )
    parser.add_argument(
        "--here", action="store_true", help=argparse.SUPPRESS
    )  # this process is the case's own
    given = parser.parse_args()
    try:
        for name in given.cases:
            if name not in CASES:
                raise UnknownNameError("case", name, CASES)
        data_folder()
        if given.here:
            _here(given.cases[0], results.TRIED if given.quick else results.KEPT, quick=given.quick)
            return 0
    except SteelyardError as error:
        print(error, file=sys.stderr)
        return 2
    return _all(given.cases or list(CASES), quick=given.quick)


def _all(names: list[str], *, quick: bool) -> int:
    began, failed = time.monotonic(), []
    for name in names:
        print(f"{name}: {CASES[name].title}", flush=True)
        command = [sys.executable, "-m", "bench.engine", name, "--here", *(["--quick"] if quick else [])]
        # nothing is fetched: the model and the data are on this machine, and a peer must not wait for a network
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        if subprocess.run(command, cwd=ROOT, env=os.environ | offline, check=False).returncode:
            failed.append(name)
    minutes = (time.monotonic() - began) / 60
    print(f"{len(names) - len(failed)} of {len(names)} cases in {minutes:.1f} minutes", flush=True)
    if minutes * 60 > BUDGET:
        print(f"That is more than the {BUDGET // 60} minutes that all cases may take.")
    if not quick:
        table.main()
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _here(name: str, folder: Path, *, quick: bool) -> None:
    began = time.monotonic()
    match CASES[name]:
        case Scoring() as case:
            from bench.engine.scoring import run_case as score

            result = score(case, quick=quick)
        case Sampling() as case:
            from bench.engine.sampling import run_case as sample

            result = sample(case, quick=quick)
        case Other() as case:
            result = importlib.import_module(case.module).run_case(case, quick=quick)
    result = replace(result, seconds=time.monotonic() - began)
    path = results.write(result, folder)
    for goal in result.goals:
        print(f"  {goal.name}: {_shown(goal)}", flush=True)
    print(f"  {result.seconds:.0f} s, kept in {path.relative_to(ROOT)}", flush=True)


def _shown(goal: results.Goal) -> str:
    value = "not measured" if goal.value is None else f"{goal.value:.4g}{goal.unit}"
    spread = f" ({goal.low:.4g} to {goal.high:.4g})" if goal.low is not None and goal.high is not None else ""
    target = "" if goal.target is None else f", asked {'>=' if goal.at_least else '<='} {goal.target:g}"
    verdict = {True: ", reached", False: ", MISSED", None: ""}[goal.reached]
    return value + spread + target + verdict


if __name__ == "__main__":
    sys.exit(main())
