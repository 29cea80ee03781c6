"""Write tests/golden/harness.json: our made-up documents as lm-eval's own task files render them.

    pip download --no-deps lm-eval==0.4.13 && unzip lm_eval-0.4.13-*.whl -d lm-eval
    python bench/harness_golden.py lm-eval

The oracle is the package's YAML (doc_to_text, doc_to_target, doc_to_choice, description), rendered by Jinja as
lm-eval does it; nothing of it is kept here but the rendered made-up documents.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path

import jinja2
import yaml

TASKS = {
    "gsm8k": ("gsm8k/gsm8k.yaml",),
    "triviaqa": ("triviaqa/default.yaml",),
    "humaneval": ("humaneval/humaneval.yaml",),
    "boolq": ("super_glue/boolq/default.yaml",),
    "arc_easy": ("arc/arc_easy.yaml",),
    "hellaswag": ("hellaswag/hellaswag.yaml",),
    "mmlu": ("mmlu/continuation/_continuation_template_yaml",),
    "mmlu letters": ("mmlu/default/_default_template_yaml",),
}


class Loader(yaml.SafeLoader):
    """Reads the task files without running what they import."""


Loader.add_multi_constructor("!function", lambda _loader, suffix, _node: f"function {suffix}")


def main(root: Path) -> None:
    """Render every document of tests/golden/docs.json."""
    here = Path(__file__).resolve().parent.parent / "tests" / "golden"
    documents = json.loads((here / "docs.json").read_text("utf-8"))
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    out = {}
    for name, (file,) in TASKS.items():
        task = yaml.load((root / "lm_eval" / "tasks" / file).read_text("utf-8"), Loader=Loader)
        rows = documents[name.split()[0]]
        if name == "hellaswag":
            rows = [process_hellaswag(root, row) for row in rows]
        out[name] = [render(environment, task, description(root, name, row), row) for row in rows]
    out["generation"] = {
        name: yaml.load((root / "lm_eval" / "tasks" / file).read_text("utf-8"), Loader=Loader)[
            "generation_kwargs"
        ]
        for name, (file,) in TASKS.items()
        if name in {"gsm8k", "triviaqa", "humaneval"}
    }
    (here / "harness.json").write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n", "utf-8")


def render(environment: jinja2.Environment, task: dict, before: str, row: dict) -> dict:
    def text(template: str) -> str:
        return row[template] if template in row else environment.from_string(template).render(row)

    choices = task.get("doc_to_choice")
    if isinstance(choices, str) and choices in row:
        choices = row[choices]
    elif isinstance(choices, str):
        import ast

        choices = ast.literal_eval(environment.from_string(choices).render(row))
    delimiter = task.get("target_delimiter", " ")
    return {
        "context": before + text(task["doc_to_text"]),
        "continuations": [delimiter + c for c in choices] if choices else None,
    }


def description(root: Path, name: str, row: dict) -> str:
    if not name.startswith("mmlu"):
        return ""
    folder = "default" if "letters" in name else "continuation"
    file = root / "lm_eval" / "tasks" / "mmlu" / folder / f"mmlu_{row['subject']}.yaml"
    return yaml.load(file.read_text("utf-8"), Loader=Loader)["description"]


def process_hellaswag(root: Path, row: dict) -> dict:
    # the task's own pre-processing function, loaded without the packages that its module imports
    sys.modules.setdefault("datasets", types.ModuleType("datasets"))
    sys.modules["datasets"].Dataset = object
    spec = importlib.util.spec_from_file_location("u", root / "lm_eval" / "tasks" / "hellaswag" / "utils.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    class One:
        def map(self, function):
            return function(row)

    return module.process_docs(One())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
