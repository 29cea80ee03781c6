"""How long the package and its help take to start, over bare Python: best of five.

python bench/start_up.py            prints a table; the asked-for limits are 0.3 s and 0.5 s
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

CASES = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import steelyard": [sys.executable, "-c", "import steelyard"],
    "steelyard --help": [str(Path(sys.executable).parent / "steelyard"), "--help"],
    "steelyard run --help": [str(Path(sys.executable).parent / "steelyard"), "run", "--help"],
}


def best(command: list[str], repeats: int = 5) -> float:
    """Seconds of the fastest of some runs."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Print the table."""
    bare = best(CASES["python -c pass"])
    for name, command in CASES.items():
        took = best(command)
        print(f"{name:22} {took:6.3f} s, {took - bare:6.3f} s over bare Python")


if __name__ == "__main__":
    main()
