"""The vocabulary: items, references, requests, responses, runs. Frozen values, no behaviour beyond naming.

Data move one way: item -> rendered form -> request -> response -> score -> estimate. The engine sees
`Work` (token sequences or text) and never a benchmark; statistics see arrays and never a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

EMPTY: Mapping[str, Any] = MappingProxyType({})


# ---------------------------------------------------------------------------------------------- references
@dataclass(frozen=True, slots=True)
class TextAnswer:
    """A short free text; every alias counts as right, the first one is the gold that is scored or shown."""

    aliases: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data, for hashing and for the items table."""
        return {"type": "text", "aliases": list(self.aliases)}


@dataclass(frozen=True, slots=True)
class NumberAnswer:
    """A number, with its worked solution where the benchmark has one.

    Attributes:
        value: the exact number.
        text: the number as the benchmark writes it ("1,000").
        worked: the whole solution text that ends in the number (GSM8K: steps, then "#### 18"), or None.
    """

    value: Decimal
    text: str
    worked: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data, for hashing and for the items table."""
        return {"type": "number", "value": str(self.value), "text": self.text, "worked": self.worked}


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """An index into the benchmark's own options, which are kept in their own order."""

    index: int
    options: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data, for hashing and for the items table."""
        return {"type": "choice", "index": self.index, "options": list(self.options)}


@dataclass(frozen=True, slots=True)
class ProgramAnswer:
    """A program: the canonical body, the function to call, and the tests. All of it is data here, never run."""

    solution: str
    entry_point: str
    tests: str

    def to_json(self) -> dict[str, Any]:
        """As plain data, for hashing and for the items table."""
        return {
            "type": "program",
            "solution": self.solution,
            "entry_point": self.entry_point,
            "tests": self.tests,
        }


Reference = TextAnswer | NumberAnswer | ChoiceAnswer | ProgramAnswer
AnswerType = Literal["text", "number", "choice", "program"]


def reference_from_json(data: Mapping[str, Any]) -> Reference:
    """The inverse of `to_json`. Raises ValueError on an unknown type."""
    match data.get("type"):
        case "text":
            return TextAnswer(tuple(data["aliases"]))
        case "number":
            return NumberAnswer(Decimal(data["value"]), data["text"], data["worked"])
        case "choice":
            return ChoiceAnswer(data["index"], tuple(data["options"]))
        case "program":
            return ProgramAnswer(data["solution"], data["entry_point"], data["tests"])
        case other:
            raise ValueError(f"unknown reference type {other!r}")


# --------------------------------------------------------------------------------------------------- items
@dataclass(frozen=True, slots=True)
class Option:
    """A candidate answer to choose among.

    Attributes:
        full: the text scored when the target is ``full`` (a whole worked solution, a whole function body).
        answer: the text scored when the target is ``answer`` (the number alone); equals `full` elsewhere.
        source: where it comes from: "gold", "data" (the benchmark's own or smart distractor), "item:<id>".
    """

    full: str
    answer: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What is asked, without prompt text.

    Attributes:
        item_id: unique in its benchmark and stable: the source's own id, else split and row ("test-00007").
        benchmark: name in the catalog.
        question: the question itself.
        reference: what counts as right.
        distractors: smart wrong options that the data bring, for items that are not choices by birth.
        group: items that share it are not independent (one passage, one subject); None stands alone.
        fields: what templates may show beside the question ("passage", "subject", "title", ...). Text only.
        content_hash: see `ids.content_hash`; filled by the loader.
    """

    item_id: str
    benchmark: str
    question: str
    reference: Reference
    distractors: tuple[Option, ...] = ()
    group: str | None = None
    fields: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    content_hash: str = ""

    @property
    def gold(self) -> Option:
        """The right answer as an option."""
        match self.reference:
            case TextAnswer(aliases):
                return Option(aliases[0], aliases[0], "gold")
            case NumberAnswer(text=text, worked=worked):
                return Option(worked if worked is not None else text, text, "gold")
            case ChoiceAnswer(index, options):
                return Option(options[index], options[index], "gold")
            case ProgramAnswer(solution=solution):
                return Option(solution, solution, "gold")

    @property
    def answer_type(self) -> AnswerType:
        """The type of the reference."""
        kind: AnswerType = self.reference.to_json()["type"]
        return kind


# ------------------------------------------------------------------------------------------------ requests
@dataclass(frozen=True, slots=True)
class Sampling:
    """How to generate.

    Attributes:
        max_tokens: new tokens at most.
        stop: the text is cut before the first occurrence of any of these, per request.
        temperature: 0 is greedy.
        top_p: nucleus mass in (0, 1].
        top_k: keep only the k likeliest tokens; None keeps all.
    """

    max_tokens: int
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None

    def key(self) -> dict[str, Any]:
        """What enters a request id; stop strings are a set, so their order does not count."""
        return {
            "max_tokens": self.max_tokens,
            "stop": sorted(self.stop),
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
        }


@dataclass(frozen=True, slots=True)
class Generate:
    """Continue a prompt. `draw` is the index of the sample; `seed` its own random stream (None when greedy)."""

    prompt: str
    sampling: Sampling
    draw: int = 0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Likelihood:
    """log p(continuation | context): the sum over the continuation's tokens, natural logarithm."""

    context: str
    continuation: str


Request = Generate | Likelihood


class Role(StrEnum):
    """Why a request is asked. It is stored with the cell, so that nothing is guessed from counts later."""

    GENERATE = "generate"
    GOLD = "gold"  # the right option, or the gold text whose likelihood is the score
    DISTRACTOR = "distractor"
    NULL_GOLD = "null_gold"  # the right option after the null context (pmi)
    NULL_DISTRACTOR = "null_distractor"


@dataclass(frozen=True, slots=True)
class Tokens:
    """A request as the model reads it.

    Attributes:
        ids: token ids, with BOS where the tokenizer wants it.
        start: index of the first scored token; ``len(ids)`` for a prompt that is continued.
        moved: a token spans the join of context and continuation, so the boundary was moved back.
    """

    ids: tuple[int, ...]
    start: int
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """One request for a backend. `tokens` is None where the backend has no tokenizer of ours (servers)."""

    request_id: str
    request: Request
    tokens: Tokens | None = None


# ----------------------------------------------------------------------------------------------- responses
class Finish(StrEnum):
    """How a response ended."""

    STOP = "stop"  # a stop string
    EOS = "eos"  # the model ended its text
    LENGTH = "length"  # cut at max_tokens
    SCORED = "scored"  # a likelihood
    ERROR = "error"  # see Response.error; asked again by the next run
    REFUSED = "refused"  # the server's content filter or policy declined


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Facts only; judgements are scores.

    Attributes:
        request_id: of the request answered.
        text: what was generated, cut at the first stop string; None for a likelihood.
        logprob: nats, summed over the scored tokens; None for a generation whose backend does not tell.
        greedy: whether every scored token was the argmax; None for a generation.
        token_logprobs: nats per scored token, only where asked for.
        n_tokens: scored or generated tokens.
        n_bytes: UTF-8 bytes of the continuation scored or of the text generated.
        finish: how it ended.
        error: what went wrong, else None.
    """

    request_id: str
    text: str | None = None
    logprob: float | None = None
    greedy: bool | None = None
    token_logprobs: tuple[float, ...] | None = None
    n_tokens: int = 0
    n_bytes: int = 0
    finish: Finish = Finish.SCORED
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one step of an engine brought, with its work counted exactly.

    Attributes:
        responses: in any order.
        asked: tokens in all its requests, each taken whole (prompt and continuation or new tokens).
        computed: token positions the model ran, padding included; 0 where unknown (servers).
        trie: nodes of the trie of its distinct prefixes: the least that sharing could compute.
        scored: positions at which the vocabulary layer was run.
        steps: forward passes.
        seconds: wall time.
        new_tokens: tokens generated, those that ended a text included; 0 where nothing was or it is unknown.
        peak_memory: bytes, the most that the process or device had in use so far; 0 where unknown.
        prefill_rate: tokens/s of the library's own plain forward, measured in this run; None where it was not.
    """

    responses: tuple[Response, ...]
    asked: int = 0
    computed: int = 0
    trie: int = 0
    scored: int = 0
    steps: int = 0
    seconds: float = 0.0
    new_tokens: int = 0
    peak_memory: int = 0
    prefill_rate: float | None = None


# ---------------------------------------------------------------------------------------------------- runs
@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who answers: one model and checkpoint with one engine configuration.

    Attributes:
        model: the name used in reports, such as "smollm2" or "server:http://host/v1#name".
        backend: "transformers", "server" or "simulated".
        weights_digest: hash of the weights; for a server, of what it says it serves (never of a path alone).
        tokenizer_digest: hash of the tokenizer, "" for servers.
        dtype: "float32", ...; "" where unknown.
        settings: engine settings that can change an answer (never batch size or device count).
        step: training step of a checkpoint, if any. tokens_seen, flops: likewise.
    """

    model: str
    backend: str
    weights_digest: str
    tokenizer_digest: str = ""
    dtype: str = ""
    settings: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    step: int | None = None
    tokens_seen: int | None = None
    flops: float | None = None

    def key(self) -> dict[str, Any]:
        """All that can change an answer. The model's name and path are not in it: the weights are."""
        return {
            "backend": self.backend,
            "weights": self.weights_digest,
            "tokenizer": self.tokenizer_digest,
            "dtype": self.dtype,
            "settings": dict(self.settings),
        }


# -------------------------------------------------------------------------------------------------- scores
class Status(StrEnum):
    """The state of a cell. Only the first three have a value; missing is null with a status, never 0."""

    OK = "ok"
    UNPARSED = "unparsed"  # the model answered, no answer could be read from it: counts as 0 and is reported
    CUT = "cut"  # the same, and the text hit the token limit
    OVERLONG = "overlong"  # did not fit the context; not asked
    ERROR = "error"
    REFUSED = "refused"
    UNSCORED = "unscored"  # no scorer for it yet (programs without a sandbox)


@dataclass(frozen=True, slots=True)
class Ask:
    """A cell's use of a request: several cells may use one, which is then answered once.

    Attributes:
        role: why it is asked. option: position among the options, None for a generation or a gold text.
        text: the option's or gold's text without the joining delimiter, "" for a generation.
        source: where the option comes from (see `Option.source`), "" for a generation.
        request_id: None when the cell is not asked (flags say why).
        flags: "overlong", "moved" (token boundary), "shots_dropped:N", "short:N" (N distractors missing),
            "left:N" (N distractors more than are taken), "truncated:N" (tokens).
    """

    cell_id: str
    run_id: str
    item_id: str
    form_id: str
    sample: int
    role: Role
    option: int | None
    text: str
    source: str
    request_id: str | None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Score:
    """A judgement about one cell by one scorer.

    Attributes:
        value: None unless the status has a value; fractions in [0, 1], or nats and the like for likelihoods.
        extracted: the answer that was read from the text, or the chosen option.
        detail: what an estimate may need beside the value ("chance", "tie", "bytes", corpus counts); JSON.
    """

    cell_id: str
    run_id: str
    item_id: str
    form_id: str
    sample: int
    scorer: str
    status: Status
    value: float | None
    extracted: str | None = None
    detail: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
