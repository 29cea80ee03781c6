"""A benchmark of one's own: a file of rows and a few lines of TOML that say what its fields mean.

The least that works, with the fields ``question`` and ``answer`` in ``capitals.jsonl``::

    file = "capitals.jsonl"
    answer_type = "text"

Everything else has a default: see `custom_spec`. Rows are read by `custom_rows`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from steelyard.benchmarks.assemble import Source, assemble
from steelyard.benchmarks.base import Benchmark, Capability, Loaded
from steelyard.benchmarks.custom_rows import Layout, parse
from steelyard.benchmarks.custom_spec import Spec, spec_from
from steelyard.benchmarks.rows import Row, read_rows, suffix
from steelyard.core.errors import DataError
from steelyard.core.types import AnswerType

_SCORERS: Mapping[AnswerType, tuple[str, ...]] = {
    "text": ("exact_match",),
    "number": ("numeric",),
    "choice": ("exact_match",),
    "program": ("program",),
}
_PLAIN = {
    "question": "Question: {{ question }}\nAnswer:",
    "letters": "Question: {{ question }}\n{% for o in options %}\n{{ o.letter }}. {{ o.text }}\n{% endfor %}\nAnswer:",
}
_ENDS: Mapping[str, dict[str, Any]] = {
    "text": {"stop": ["\n"], "max_tokens": 48},
    "number": {"stop": ["\n"], "max_tokens": 48},
    "choice": {"stop": ["\n"], "max_tokens": 48},
    "worked": {"stop": ["\n\nQuestion:", "\nQuestion:"], "max_tokens": 400},
    "program": {
        "question": "{{ question }}",
        "delimiter": "",
        "stop": ["\nclass", "\ndef", "\n#", "\nif", "\nprint"],
        "max_tokens": 512,
        "null_context": "\n",
    },
}
_NO_WORKED = "an answer here has no worked solution, so this would equal the form without _ao"
_NO_OPTIONS = (
    "the data bring no wrong answers to choose among: use mc_rnd, or give some under fields.distractors"
)


@dataclass(frozen=True, slots=True)
class Custom:
    """A benchmark of one's own, read from its TOML file and checked; its rows are not read yet.

    Attributes:
        path: of the TOML file, or of the rows when the spec was guessed from them.
        spec: what it says, defaults filled in.
    """

    path: Path
    spec: Spec

    @property
    def templates(self) -> Mapping[str, Any]:
        """The templates table as it stands in the file; without one, a plain template by answer type.

        Empty where `extra` fields are declared and no template shows them: what a question needs is not guessed.
        """
        if self.spec.templates or self.spec.fields.extra:
            return self.spec.templates
        return {"plain": _PLAIN | _ENDS["worked" if self.spec.fields.worked else self.spec.answer_type]}

    def benchmark(self, rows: Sequence[Row] = ()) -> Benchmark:
        """As a benchmark. With `rows`, their field "id" is used if all have it and the file names no other."""
        spec = self.spec
        smart = spec.answer_type == "choice" or spec.fields.distractors is not None
        refuse: dict[str, str] = {}
        if spec.fields.worked is None:
            refuse |= {"mc_ao": _NO_WORKED, "ll_ao": _NO_WORKED}
        if not smart:
            refuse |= {"mc": _NO_OPTIONS, "letters": _NO_OPTIONS} | (
                {} if "mc_ao" in refuse else {"mc_ao": _NO_OPTIONS}
            )
        if spec.answer_type == "program":
            refuse["letters"] = "whole programs as lettered options do not fit a prompt: use mc_rnd"
        return Benchmark(
            name=spec.name,
            title=spec.title,
            capability=Capability(spec.capability),
            answer_type=spec.answer_type,
            parse=partial(parse, self.layout(rows)),
            scorers=tuple(spec.scorers) or _SCORERS[spec.answer_type],
            split=(Path(spec.file).name.removesuffix(suffix(spec.file)),),
            shot_split=(Path(spec.shot_file).name.removesuffix(suffix(spec.shot_file)),)
            if spec.shot_file
            else (),
            shots=spec.shots,
            pool=tuple(spec.pool),
            refuse=refuse,
            shot_match=spec.shot_match,
            card=spec.card,
        )

    def layout(self, rows: Sequence[Row] = ()) -> Layout:
        """How rows are read."""
        fields = self.spec.fields
        named = bool(rows) and all(row.record and row.record.get("id") is not None for row in rows)
        return Layout(
            benchmark=self.spec.name,
            answer_type=self.spec.answer_type,
            question=fields.question,
            reference=fields.reference,
            reference_is=self.spec.reference_is,
            options=fields.options if isinstance(fields.options, str) else tuple(fields.options),
            labels=tuple(fields.labels) if isinstance(fields.labels, list) else fields.labels,
            distractors=tuple(fields.distractors)
            if isinstance(fields.distractors, list)
            else fields.distractors,
            worked=fields.worked,
            tests=fields.tests,
            entry_point=fields.entry_point,
            group=fields.group,
            item_id=fields.id or ("id" if named else None),
            extra=tuple(fields.extra),
        )

    def rows(self) -> tuple[list[Row], list[Row]]:
        """The rows of the file, and those of the shot file (none when it has none)."""
        shot_file = self.spec.shot_file
        read = partial(_read_beside, self.path)
        return read(self.spec.file), read(shot_file) if shot_file else []


def _read_beside(path: Path, name: str) -> list[Row]:
    return read_rows(path.parent / name, name)


def load_custom(path: Path, *, seed: int) -> Loaded:
    """The benchmark that a TOML file describes, with its items. Its templates: ``read_custom(path).templates``.

    Raises:
        DataError: the TOML file or a row does not fit; `check.check_file` tells everything at once.
    """
    custom = read_custom(path)
    rows, shot_rows = custom.rows()
    benchmark = custom.benchmark([*rows, *shot_rows])
    source = Source(
        kind="local",
        location=", ".join(filter(None, (path.name, custom.spec.file, custom.spec.shot_file))),
        split=benchmark.split[0],
        rows=rows,
        shot_split=benchmark.shot_split[0] if shot_rows else "",
        shot_rows=shot_rows,
    )
    return assemble(benchmark, source, seed=seed)


def read_custom(path: Path) -> Custom:
    """What a TOML file says, checked; the rows are not read.

    Raises:
        DataError: it is not there, is no TOML, or says something unknown or contradictory; all faults in one.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"There is no file {str(path)!r}. Expected a TOML file that describes a benchmark."
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{str(path)!r} cannot be read as TOML: {error}.") from None
    return Custom(path, spec_from(table, path))
