"""The documents say what is true: every command is described, the reference is fresh, examples run."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import steelyard
from steelyard.benchmarks import catalog
from steelyard.cli.main import app
from steelyard.cli.options import FLAGS
from steelyard.forms.formulation import FORMULATIONS
from steelyard.forms.templates import templates
from steelyard.plan.study import Study
from steelyard.scoring.choice import NORMALISATIONS
from steelyard.scoring.registry import SCORERS

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
COMMANDS = sorted(typer.main.get_command(app).commands)


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def reference() -> str:
    """docs/cli.md, made from the help texts."""
    parts = [
        "# Commands\n",
        "This page is made from the commands' own help; `STEELYARD_UPDATE=1 make unit` renews it.\n",
    ]
    runner = CliRunner(env={"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"})
    for command in ([], *([c] for c in COMMANDS)):
        text = runner.invoke(app, [*command, "--help"], prog_name="steelyard").stdout
        parts.append(f"## {' '.join(['steelyard', *command])}\n\n```\n{text.strip()}\n```\n")
    return "\n".join(parts)


def test_the_command_reference_is_fresh():
    path = DOCS / "cli.md"
    if os.environ.get("STEELYARD_UPDATE"):
        path.write_text(reference(), "utf-8")
    assert path.read_text("utf-8") == reference()


def test_every_command_has_an_example_and_is_in_the_readme():
    runner = CliRunner()
    for command in COMMANDS:
        assert "Example: steelyard" in runner.invoke(app, [command, "--help"]).stdout
        assert f"steelyard {command}" in read("README.md")


def test_flags_and_study_keys_are_the_same():
    assert {name for name, *_ in FLAGS} == set(Study.model_fields)


def test_every_study_key_has_a_description():
    assert all(field.description for field in Study.model_fields.values())


def test_every_study_key_stands_in_the_page_about_studies_with_its_default():
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", read("docs/study.md"), re.MULTILINE))
    assert list(rows) == list(Study.model_fields)
    for name, field in Study.model_fields.items():
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert rows[name] == f"{field.default:g}"
        elif isinstance(field.default, bool):
            assert rows[name] == str(field.default).lower()
        elif field.default and isinstance(field.default, str | Path):
            assert rows[name] == str(field.default)


def keys(value: object) -> set[str]:
    match value:
        case dict():
            return set(value).union(*map(keys, value.values()))
        case list():
            return set().union(*map(keys, value))
    return set()


@pytest.mark.parametrize("command", ["run", "plan", "show", "score", "check", "selfcheck", "doctor"])
def test_every_key_of_the_json_of_a_command_is_documented(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("b.jsonl").write_text('{"q": "x?", "a": "y"}\n{"q": "x?", "a": "y"}\n{"q": "z?"}\n')
    study = ["--model", "simulated", "--tasks", "simulated", "--forms", "nlg,mc", "--limit", "3"]
    calls = {
        "run": [["run", *study]],
        "plan": [["plan", *study]],
        "show": [
            ["show", "--model", "simulated", "--task", "mini_facts", "--form", f] for f in ("nlg", "mc")
        ],
        "score": [["score", "runs/study"]],
        "check": [["check", "b.jsonl"]],
        "selfcheck": [["selfcheck", *study, "--requests", "20"]],
        "doctor": [["doctor"]],
    }
    if command == "score":
        CliRunner().invoke(app, calls["run"][0])
    page = read("docs/json.md").partition(f"## {command}")[2]
    section = page.partition("\n## ")[0] + (page.partition("## score")[2] if command == "run" else "")
    free = (
        {"versions", "models", "example", "sampling"} if command not in {"plan", "selfcheck"} else set()
    )  # names inside are data
    for call in calls[command]:
        found = json.loads(CliRunner().invoke(app, [*call, "--json"]).stdout)
        named = keys(found)
        for name, value in found.items():
            if name in free and isinstance(value, dict):
                named -= keys(value) - set(found)
        named -= {"max_tokens", "stop", "temperature", "top_k", "top_p"}  # those of a study
        for name in named:
            assert f"`{name}`" in section, (command, name)


def test_modules_that_the_pages_import_exist():
    for page in (*DOCS.glob("*.md"), ROOT / "README.md"):
        for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            for line in block.splitlines():
                if line.startswith(("import ", "from ")):
                    exec(line, {})  # noqa: S102  our own pages


def test_the_example_of_an_own_benchmark_is_a_right_one(tmp_path):
    (block,) = re.findall(r"```toml\n(name = .*?)```", read("docs/benchmarks.md"), re.DOTALL)
    (tmp_path / "capitals.toml").write_text(block)
    rows = [{"q": f"Capital {n}?", "a": f"City {n}", "continent": "x"} for n in range(3)]
    (tmp_path / "capitals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = CliRunner().invoke(app, ["check", str(tmp_path / "capitals.toml")])
    assert result.exit_code == 0, result.output


def test_every_name_that_a_user_can_type_is_documented():
    text = "\n".join(p.read_text("utf-8") for p in DOCS.glob("*.md"))
    for name in (*catalog.names(), *FORMULATIONS, *NORMALISATIONS, *SCORERS):
        assert f"`{name}`" in text, name
    for name in catalog.names():
        for template in templates(name):
            if name != "simulated":
                assert f"`{template}`" in text, (name, template)


def test_links_between_documents_lead_somewhere():
    for page in (*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), (page.name, target)


def modules() -> list[str]:
    found = pkgutil.walk_packages(steelyard.__path__, "steelyard.")
    return [m.name for m in found if "doctest" not in m.name]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_importing_the_package_and_its_help_loads_nothing_heavy():
    heavy = ["torch", "transformers", "scipy.stats", "pyarrow", "duckdb"]
    for code in (
        "import steelyard",
        (
            "from typer.testing import CliRunner; from steelyard.cli.main import app;"
            "r = CliRunner().invoke(app, ['--help']); assert r.exit_code == 0, r.output;"
            "r = CliRunner().invoke(app, ['run', '--help']); assert r.exit_code == 0, r.output"
        ),
    ):
        check = f"{code}; import sys; print([m for m in {heavy!r} if m in sys.modules])"
        out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
        assert out.strip() == "[]", code


def test_the_public_names_are_those_promised():
    for name in ("run", "open", "report", "Study"):
        assert callable(getattr(steelyard, name))
        assert name in steelyard.__all__
    assert steelyard.stats.score_interval([1, 0, 1]).n_items == 3
    with pytest.raises(AttributeError):
        _ = steelyard.nothing_of_that_name
