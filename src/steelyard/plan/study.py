"""A study: what to measure, as a validated object. YAML and flags are two spellings of it."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from steelyard.core.errors import StudyError


def _names(value: object) -> object:
    """A list, or one text with commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _ids(value: object) -> object:
    """As `_names`; ids that hold commas come as a list, which may be a JSON text, and a number names: 7 is "7"."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError("a text that begins with [ must be a JSON list of ids") from None
    listed = value if isinstance(value, list | tuple) else (value,) if type(value) is int else None
    return _names(value) if listed is None else tuple(str(v) if type(v) is int else v for v in listed)


def _models(value: object) -> object:
    """As `_names`; the commas between a model's own options ("simulated:ability=1,seed=2") do not split it."""
    if not isinstance(value, str):
        return value
    models: list[str] = []
    for part in value.split(","):
        if models and re.fullmatch(r"\s*\w+=.*", part):
            models[-1] += f",{part.strip()}"
        elif part.strip():
            models.append(part.strip())
    return tuple(models)


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Ids = Annotated[tuple[str, ...], BeforeValidator(_ids)]
Models = Annotated[tuple[str, ...], BeforeValidator(_models)]


class Study(BaseModel):
    """What to measure: models x tasks x forms x templates x items x draws.

    Every field is a key of the YAML file and a flag of `steelyard run`. Unknown keys are errors.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Models = Field(
        min_length=1, description="smollm2, hf:org/name[@revision], a folder, server:URL#model, vllm:..."
    )
    tasks: Names = Field(min_length=1, description="benchmarks, groups (arc, mini) or own .toml files")
    forms: Names = Field(default=("nlg", "mc_rnd", "ll"), min_length=1, description="how each item is asked")
    templates: Names = Field(default=(), description="template names, 'all', or none for each task's default")
    shots: int | None = Field(
        default=None, ge=0, description="examples before each question; none: the task's own"
    )
    shot_mode: Literal["fixed", "per_item"] = Field(default="fixed", description="one set, or drawn per item")
    options: int = Field(default=3, ge=1, le=25, description="random distractors per item (mc_rnd)")
    repeats: int = Field(default=1, ge=1, description="draws per item of generative forms")
    temperature: float | None = Field(default=None, ge=0, description="none: 0 for one draw, 0.7 for several")
    top_p: float = Field(default=1.0, gt=0, le=1, description="nucleus mass")
    top_k: int | None = Field(default=None, ge=1, description="keep the k likeliest tokens")
    max_tokens: int | None = Field(default=None, ge=1, description="new tokens; none: the template's own")
    limit: int | None = Field(default=None, ge=1, description="a seeded random, nested subset of the items")
    items: Ids = Field(default=(), description="item ids, in any order, instead of a limit")
    seed: int = Field(default=0, ge=0, description="names every random stream of the study")
    chat: bool = Field(default=False, description="ask through the model's chat template")
    system: str | None = Field(default=None, description="system message of the chat")
    overlong: Literal["fail", "skip", "truncate"] = Field(
        default="skip", description="prompts that do not fit"
    )
    skip_refused: bool = Field(default=False, description="leave out forms that make no sense for a task")
    data: Path | None = Field(default=None, description="folder or file with benchmark data; else the hub")
    revision: str | None = Field(default=None, description="of the data on the hub; none: the pinned commit")
    store: Path = Field(default=Path("runs/study"), description="folder of the tables")
    engine: Literal["shared", "plain"] = Field(
        default="shared",
        description="shared prefixes computed once, or one request at a time (the reference)",
    )
    batch_size: int | None = Field(
        default=None, ge=1, description="requests at once; none: the backend's own"
    )
    device: str = Field(default="auto", description="auto, cpu, cuda, ...; spread: over all GPUs")
    dtype: str = Field(default="float32", description="of weights and activations; scores are always fp32")
    max_length: int | None = Field(default=None, ge=8, description="context length; none: the model's own")
    threads: int | None = Field(default=None, ge=1, description="CPU threads")
    api: Literal["completions", "chat"] = Field(default="completions", description="of a server")
    concurrency: int = Field(default=8, ge=1, description="requests in flight to a server")
    rate_limit: float | None = Field(default=None, gt=0, description="requests per second to a server")
    use_n: bool = Field(
        default=False, description="several draws per server request; not reproducible by draw"
    )

    @model_validator(mode="before")
    @classmethod
    def _no_booleans_for_numbers(cls, values: Any) -> Any:  # noqa: ANN401  pydantic hands over raw input
        if isinstance(values, Mapping):
            wrong = [
                f"{name} cannot be a truth value; got {value}"
                for name, value in values.items()
                if isinstance(value, bool) and name not in {"chat", "skip_refused", "use_n"}
            ]
            if wrong:
                raise ValueError("\n  ".join(wrong))
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Study:
        if self.repeats > 1 and self.temperature == 0:
            raise ValueError(
                f"repeats is {self.repeats} and temperature is 0: greedy draws are all the same. "
                "Give a temperature above 0, or repeats 1"
            )
        if self.limit is not None and self.items:
            raise ValueError("limit and items exclude each other: give one of them")
        if len(set(self.items)) < len(self.items):
            raise ValueError("items names an id twice")
        if self.system is not None and not self.chat and self.api != "chat":
            raise ValueError("system is a message of a chat: add chat: true (--chat)")
        return self

    @property
    def sampling_temperature(self) -> float:
        """The temperature in force: 0 for one draw and 0.7 for several, unless given."""
        if self.temperature is not None:
            return self.temperature
        return 0.7 if self.repeats > 1 else 0.0


def load_study(path: Path | None, overrides: Mapping[str, Any]) -> Study:
    """Read a YAML file, lay the given flags over it, and validate.

    Raises:
        StudyError: naming every key that is wrong, with near misses for unknown ones.
    """
    values: dict[str, Any] = {}
    if path is not None:
        values = _read_yaml(path)
    values |= {name: value for name, value in overrides.items() if value is not None}
    try:
        return Study.model_validate(values)
    except ValidationError as error:
        where = str(path) if path else "the study"
        raise StudyError(
            f"{where} does not fit:\n" + "\n".join(_explain(e) for e in error.errors())
        ) from None


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        text = path.read_text("utf-8")
        loaded = yaml.safe_load(text)
        twice = _repeated(yaml.compose(text, Loader=yaml.SafeLoader))
    except FileNotFoundError:
        raise StudyError(
            f"There is no study file {path}. Give a YAML file, or flags (steelyard run --help)."
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise StudyError(f"{path} cannot be read as YAML: {error}") from None
    if not isinstance(loaded, dict):
        raise StudyError(
            f"{path} must hold keys and values (model:, tasks:, ...); got {type(loaded).__name__}."
        )
    if twice:
        # YAML forbids it, but its reader keeps the last value without a word
        raise StudyError(f"{path} gives {', '.join(twice)} more than once. Keep one of them.")
    if wrong := [key for key in loaded if not isinstance(key, str)]:
        raise StudyError(
            f"{path} has the key {wrong[0]!r}, which is no text. Known: {', '.join(Study.model_fields)}."
        )
    # a study file can be run from anywhere: its paths are relative to itself
    here = path.parent
    for key in ("data", "store"):
        if isinstance(loaded.get(key), str):
            loaded[key] = here / Path(loaded[key]).expanduser()
    loaded |= {
        key: [change(name, here) if isinstance(name, str) else name for name in names]
        for key, split, change in (("tasks", _names, _own_task), ("model", _models, _own_model))
        if isinstance(names := split(loaded.get(key)), list | tuple)
    }
    return loaded


def _own_task(name: str, here: Path) -> str:
    return str(here / Path(name).expanduser()) if name.endswith(".toml") else name


def _own_model(name: str, here: Path) -> str:
    # a name of a model looks like that of a folder, so the folder must be there
    folder = here / Path(name).expanduser()
    return str(folder) if (folder / "config.json").is_file() else name


def _repeated(root: Any) -> list[str]:  # noqa: ANN401  a node of yaml, which is imported late
    names = (
        [str(key.value) for key, _ in root.value] if hasattr(root, "value") and root.id == "mapping" else []
    )
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _explain(error: Any) -> str:  # noqa: ANN401  pydantic's own error record
    name = ".".join(str(part) for part in error["loc"])
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, list(Study.model_fields), n=2)
        hint = f" Did you mean {' or '.join(near)}?" if near else f" Known: {', '.join(Study.model_fields)}."
        return f"  {name}: no such key.{hint}"
    if error["type"] == "missing":
        return f"  {name}: is missing ({Study.model_fields[name].description})."
    if error["type"] in {"tuple_type", "string_type"}:
        # pydantic speaks of tuples; a study has names
        advice = ", in quotes where YAML would read a number" if error["type"] == "string_type" else ""
        many = " or a list of texts" if error["type"] == "tuple_type" else ""
        message = f"should be a text{many}{advice}"
    if error["type"] == "too_short":
        message = "names nothing"
    return f"  {name}: {message}; got {error['input']!r}." if name else f"  {message}."
