"""Make the data files of the benchmark `mini` from their sources in bench/mini/, checking them on the way.

    python bench/make_mini.py            write src/steelyard/benchmarks/data/mini_*.jsonl
    python bench/make_mini.py --check    write nothing; exit with 1 when a file is not what the sources give
    python bench/make_mini.py --check --run    also run the programs of mini_code (in a subprocess)

The files are made byte for byte again from the same sources: numbers come from named random streams. The
sources hold what people write (word problems with ranges instead of numbers, questions, passages, functions);
everything that can be computed from that is computed here.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "bench" / "mini"
DATA = ROOT / "src" / "steelyard" / "benchmarks" / "data"
PARTS = ("math", "facts", "reading", "code")
N_DISTRACTORS = 3
MAX_DRAWS = 20_000

sys.path.insert(0, str(ROOT / "src"))  # so that the script also works before the package is installed

from steelyard.core import rng  # noqa: E402 - after the path

Row = dict[str, Any]


# ---------------------------------------------------------------------------------------------------- math
@dataclass(frozen=True)
class Step:
    """One operation of a solution: names or integers left and right of an operator, and its sentence."""

    result: str
    left: str
    operator: str
    right: str
    sentence: str


class NotWhole(Exception):  # noqa: N818 - not an error: such a draw is thrown away
    """A step does not come out as a positive whole number."""


def parse_step(result: str, expression: str, sentence: str) -> Step:
    match = re.fullmatch(r"(\w+) ([-+*/]) (\w+)", expression)
    if match is None or sentence.count("{}") != 1:
        sys.exit(f"make_mini: not a step: {expression!r}, {sentence!r}")
    return Step(result, match[1], match[2], match[3], sentence)


def apply(operator: str, left: int, right: int) -> int:
    """A positive whole number, or NotWhole."""
    if operator == "/":
        if right == 0 or left % right:
            raise NotWhole
        value = left // right
    else:
        value = {"+": left + right, "-": left - right, "*": left * right}[operator]
    if value <= 0:
        raise NotWhole
    return value


def solve(steps: list[Step], drawn: Mapping[str, int]) -> tuple[str, int]:
    """The worked solution and its number. Raises NotWhole."""
    known, lines = dict(drawn), []
    value = 0
    for step in steps:
        left, right = (known[s] if s in known else int(s) for s in (step.left, step.right))
        value = apply(step.operator, left, right)
        known[step.result] = value
        sum_text = f"{left}{step.operator}{right}"
        lines.append(step.sentence.replace("{}", f"{sum_text} = <<{sum_text}={value}>>{value}"))
    return "\n".join([*lines, f"#### {value}"]), value


def faults(steps: list[Step], drawn: Mapping[str, int]) -> Iterator[tuple[int, float, list[Step]]]:
    """Every solution with one wrong step: where it is, how clumsy it is, and the steps."""
    known = list(drawn)
    for position, step in enumerate(steps):
        others = [(step.left, op, step.right, 0.0) for op in "+-*/" if op != step.operator]
        others += [(step.right, op, step.left, 0.2) for op in "-/"]
        for name in known:  # the right operation on a wrong quantity
            if name not in (step.left, step.right):
                others += [(step.left, step.operator, name, 0.6), (name, step.operator, step.right, 0.6)]
        known.append(step.result)
        for left, operator, right, cost in others:
            wrong = Step(step.result, left, operator, right, step.sentence)
            yield position, cost, [*steps[:position], wrong, *steps[position + 1 :]]


def wrong_solutions(
    steps: list[Step], drawn: Mapping[str, int], gold: int
) -> dict[int, tuple[float, int, str]]:
    """Wrong number -> (cost, position of the wrong step, worked solution), the cheapest for each number.

    The cost grows with the distance from the right number: an answer that is far off gives itself away.
    """
    found: dict[int, tuple[float, int, str]] = {}
    for position, clumsy, wrong in faults(steps, drawn):
        try:
            text, value = solve(wrong, drawn)
        except NotWhole:
            continue
        entry = (clumsy + abs(math.log(value / gold)), position, text)
        if value != gold and (value not in found or entry < found[value]):
            found[value] = entry
    return found


def choose_wrong(found: Mapping[int, tuple[float, int, str]], gold: int, below: int) -> list[int]:
    """Three wrong numbers, `below` of them smaller than the right one as far as possible, in different steps."""

    def cost(triple: tuple[int, ...]) -> tuple[int, float, tuple[int, ...]]:
        rank = abs(sum(value < gold for value in triple) - below)
        same = N_DISTRACTORS - len({found[value][1] for value in triple})
        return rank, sum(found[value][0] for value in triple) + 0.8 * same, triple

    return list(min(itertools.combinations(sorted(found), N_DISTRACTORS), key=cost))


def math_row(scenario: Mapping[str, Any], name: str) -> Row:
    random = rng.stream(0, "mini_math", name)
    steps = [parse_step(*step) for step in scenario["steps"]]
    nearest = math.log(8 if len(steps) > 1 else 700)  # with one step, all other operations are needed
    for _ in range(MAX_DRAWS):
        drawn = {}
        for key, (low, high, *step) in scenario["draw"].items():
            choices = range(low, high + 1, *step)
            drawn[key] = choices[int(random.integers(len(choices)))]
        if len(set(drawn.values())) < len(drawn) or any(
            drawn[a] >= drawn[b] for a, b in scenario.get("less", ())
        ):
            continue
        try:
            worked, gold = solve(steps, drawn)
        except NotWhole:
            continue
        found = {v: e for v, e in wrong_solutions(steps, drawn, gold).items() if e[0] < nearest}
        if len(found) < N_DISTRACTORS or gold in drawn.values() or gold < 2:
            continue
        wrong = choose_wrong(found, gold, int(random.integers(N_DISTRACTORS + 1)))
        order = random.permutation(N_DISTRACTORS)
        return {
            "question": scenario["question"].format(**drawn),
            "worked": worked,
            "answer": str(gold),
            "distractors": [{"full": found[wrong[i]][2], "answer": str(wrong[i])} for i in order],
        }
    return sys.exit(f"make_mini: no numbers found for {scenario['question']!r}")


# ----------------------------------------------------------------------------------------- facts and reading
def facts_row(entry: Mapping[str, Any]) -> Row:
    return {
        "subject": entry["subject"],
        "question": entry["q"],
        "aliases": entry["a"],
        "distractors": entry["not"],
    }


def reading_rows(passage: Mapping[str, Any]) -> Iterator[Row]:
    text = " ".join(passage["text"].split())
    for entry in passage["questions"]:
        yield {
            "passage_id": passage["id"],
            "title": passage["title"],
            "passage": text,
            "question": entry["q"],
            "aliases": entry["a"],
            "distractors": entry["not"],
        }


# ---------------------------------------------------------------------------------------------------- code
def code_row(entry: Mapping[str, Any]) -> Row:
    signature = entry["def"]
    name = signature.partition("(")[0]
    examples = "".join(f"    >>> {name}({call})\n    {value}\n" for call, value in entry["tests"][:2])
    doc = textwrap.fill(entry["doc"], 90, initial_indent='    """', subsequent_indent="    ")
    body = textwrap.indent(entry["body"].strip("\n") + "\n", "    ")
    tests = "".join(f"    assert candidate({call}) == {value}\n" for call, value in entry["tests"])
    bodies = []
    for old, new in entry["wrong"]:
        if body.count(old) != 1:
            sys.exit(f"make_mini: {name}: {old!r} stands {body.count(old)} times in the body, not once")
        bodies.append(body.replace(old, new))
    return {
        "prompt": f'def {signature}:\n{doc}\n\n{examples}    """\n',
        "entry_point": name,
        "canonical_solution": body,
        "test": f"def check(candidate):\n{tests}",
        "distractors": bodies,
    }


# Our own programs, written above in plain sight; still run apart, with a clock against endless loops.
_RUNNER = """
import json, sys

def outcome(program, entry, test):
    space = {}
    try:
        exec(program, space)
        exec(test, space)
        space["check"](space[entry])
    except AssertionError:
        return "wrong"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "right"

print(json.dumps([outcome(*job) for job in json.load(sys.stdin)]))
"""


def run_programs(rows: list[Row]) -> list[str]:
    """What is wrong with the programs: nothing when each gold passes and each distractor fails an assertion."""
    jobs, expected = [], []
    for row in rows:
        for position, body in enumerate([row["canonical_solution"], *row["distractors"]]):
            jobs.append((row["prompt"] + body, row["entry_point"], row["test"]))
            expected.append((row["entry_point"], position, "wrong" if position else "right"))
    done = subprocess.run(
        [sys.executable, "-I", "-c", _RUNNER],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        return [done.stderr]
    return [
        f"{name}, body {position}: {got} instead of {wanted}"
        for (name, position, wanted), got in zip(expected, json.loads(done.stdout), strict=True)
        if got != wanted
    ]


# --------------------------------------------------------------------------------------------------- files
def build(part: str) -> list[Row]:
    """The rows of a part, evaluated items first, then the shots."""
    source = tomllib.loads((SOURCES / f"{part}.toml").read_text(encoding="utf-8"))
    rows = []
    for split, table in (("test", "item"), ("shots", "shot")):
        entries = source[table]
        match part:
            case "math":
                made = [math_row(entry, f"{split}-{i}") for i, entry in enumerate(entries)]
            case "facts":
                made = [facts_row(entry) for entry in entries]
            case "reading":
                made = [row for entry in entries for row in reading_rows(entry)]
            case _:
                made = [code_row(entry) for entry in entries]
        prefix = "" if split == "test" else "shot-"
        rows += [{"id": f"{prefix}{part}-{i:03}", "split": split, **row} for i, row in enumerate(made, 1)]
    return rows


def render(rows: list[Row]) -> str:
    """One JSON object a line, as the package reads it."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the data files of mini.")
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--run", action="store_true", help="run the programs of mini_code")
    options = parser.parse_args()
    bad = 0
    for part in PARTS:
        rows, path = build(part), DATA / f"mini_{part}.jsonl"
        text = render(rows)
        if part == "code" and (options.run or not options.check):
            problems = run_programs(rows)
            print(*problems, sep="\n", end="\n" if problems else "")
            bad += len(problems)
            if problems:
                continue
        if options.check:
            same = path.exists() and path.read_text(encoding="utf-8") == text
            print(f"{path.name}: {'in sync' if same else 'NOT what the sources give'}")
            bad += not same
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"{path.name}: {len(rows)} rows")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
