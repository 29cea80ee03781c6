"""``python -m bench.engine.table``: the table of docs/speed.md from the results that are kept. A miss is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.engine import results
from bench.engine.cases import CASES
from bench.engine.data import ROOT

PAGE = ROOT / "docs" / "speed.md"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"

_GROWTH = "Tokens and seconds over what grows; grey is what asking each request whole would cost.\n"


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """The results as Markdown: one table of goals, then what each case was and what must be known beside it.

    Args:
        found: results as `results.read` gives them, in any order; those of --quick are refused.

    Raises:
        ValueError: a result is of a quick run, which measures nothing.
    """
    if quick := [one["case"] for one in found if one["quick"]]:
        raise ValueError(f"Results of --quick are no measurement: {', '.join(quick)}. Run make bench.")
    if not found:
        return "Nothing has been measured yet: run `make bench`."
    ordered = sorted(found, key=lambda one: _place(one["case"]))
    lines = ["| case | figure | asked | measured | over the repeats | reached |", "|---|---|---|---|---|---|"]
    for one in ordered:
        lines += [_row(one["title"] if n == 0 else "", goal) for n, goal in enumerate(one["goals"])]
    lines += ["", f"Not measured yet: {missing}."] if (missing := _missing(found)) else []
    lines += ["", _sum(ordered), ""]
    for one in ordered:
        lines.append(f"- **{one['title']}** (`{one['case']}`, {one['seconds']:.0f} s). {_sentence(one)}")
    lines += ["", *_machines(ordered)]
    if growth := next((one for one in ordered if one["case"] == "growth"), None):
        lines += ["", _GROWTH]
        lines += [f"![Cost over {name}](images/growth_{name}.svg)" for name in growth["detail"]["points"]]
    return "\n".join(lines)


def renew(page: str, body: str) -> str:
    """The page with what stands between the markers replaced.

    Raises:
        ValueError: a marker is missing, comes twice, or they are in the wrong order.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ValueError(f"Expected {BEGIN} and then {END} in the page, each once.")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{body}\n\n{END}{after}"


def main() -> None:
    """Renew the page and name what is missed, which is a result and not an error."""
    found = results.read(results.KEPT)
    PAGE.write_text(renew(PAGE.read_text("utf-8"), table(found)), "utf-8")
    missed = [
        f"{one['case']}: {goal['name']}" for one in found for goal in one["goals"] if goal["reached"] is False
    ]
    print(f"{PAGE.relative_to(ROOT)}: {len(found)} cases, {len(missed)} goals missed")
    for name in missed:
        print(f"  missed: {name}")


def _row(title: str, goal: Mapping[str, Any]) -> str:
    bound = "≥" if goal["at_least"] else "≤"
    asked = "" if goal["target"] is None else f"{bound} {_number(goal['target'])}{goal['unit']}"
    value = "not measured" if goal["value"] is None else f"{_number(goal['value'])}{goal['unit']}"
    spread = "" if goal["low"] is None else f"{_number(goal['low'])} to {_number(goal['high'])}"
    reached = {True: "yes", False: "**no**", None: ""}[goal["reached"]]
    note = f" ({goal['note']})" if goal["note"] else ""
    return f"| {title} | {goal['name']}{note} | {asked} | {value} | {spread} | {reached} |"


def _number(value: float) -> str:
    """Three significant digits, counts whole.

    >>> _number(6.0), _number(5.9571), _number(0.00012), _number(2144.0)
    ('6', '5.96', '0.00012', '2144')
    """
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e9 else f"{value:.3g}"


def _sentence(one: Mapping[str, Any]) -> str:
    against = f"Against {one['against']}." if one["against"] else ""
    return " ".join(filter(None, [f"{one['what']}.", against, *one["notes"]]))


def _sum(ordered: Sequence[Mapping[str, Any]]) -> str:
    asked = [goal["reached"] for one in ordered for goal in one["goals"] if goal["reached"] is not None]
    minutes = sum(one["seconds"] for one in ordered) / 60
    return f"{sum(asked)} of {len(asked)} targets reached; the cases took {minutes:.0f} minutes together."


def _missing(found: Sequence[Mapping[str, Any]]) -> str:
    have = {one["case"] for one in found}
    return ", ".join(f"`{name}`" for name in CASES if name not in have)


def _machines(ordered: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line a machine, with its versions: results of two machines may stand in one table, and must say so."""
    lines: dict[str, list[str]] = {}
    for one in ordered:
        m = one["machine"]
        named = (name for name in ("torch", "transformers", "lm-eval") if name in m["versions"])
        versions = ", ".join(f"{name} {m['versions'][name]}" for name in named)
        said = f"{m['cpu']}, {m['cores']} cores, {m['threads']} threads, {m['memory_gib']} GiB; {versions}; {m['date']}"
        lines.setdefault(said, []).append(one["case"])
    if len(lines) == 1:
        return [f"Machine: {next(iter(lines))}."]
    return [f"Machine of {', '.join(cases)}: {said}." for said, cases in lines.items()]


def _place(case: str) -> tuple[int, str]:
    names = list(CASES)
    return (names.index(case) if case in CASES else len(names), case)


if __name__ == "__main__":
    main()
