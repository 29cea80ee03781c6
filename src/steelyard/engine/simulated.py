"""A simulated model behind the same protocol as a real one: instant, deterministic, of known ability.

It sees requests and nothing else, and finds in the prompt's text which item is asked with which template;
`core.simulation` holds the law by which it answers. It works on any other text too, with answers that are
noise. A byte is a token.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass

from steelyard.core import simulation
from steelyard.core.errors import InputError, UnknownNameError
from steelyard.core.ids import digest
from steelyard.core.rng import stream
from steelyard.core.simulation import Cell, Simulee
from steelyard.core.types import (
    Batch,
    Finish,
    Generate,
    Identity,
    Likelihood,
    Request,
    Response,
    Tokens,
    Work,
)
from steelyard.engine.backend import Capabilities, check_run
from steelyard.engine.byte_tokens import BOS, read, to_bytes, to_text, trie

NAME = "simulated"
MAX_LENGTH = 65536
_BATCH = 16  # requests at once where nobody says how many

_WORD_NATS = 18.0  # cost of one of the words; above the largest option score, so that log p stays below 0
_BYTE_NATS = 2.0  # cost of a byte of any other text
_LABEL = re.compile(r"^[ \t]*\(?([A-Z])[.):][ \t]+(\S+)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Options:
    """What a name like ``simulated:ability=1,seed=3`` may set."""

    simulee: Simulee
    step: int | None
    max_length: int


class SimulatedBackend:
    """A model that answers by the law of `core.simulation`. Made by `open_simulated`.

    Likelihoods: a word of the simulation costs 18 nats less its option score, so that the likeliest of four
    options is the true one with the probability of a right draw; where the prompt lists lettered options,
    the letter stands for its word. Outside of its item every word costs the same, so that a null context
    (pmi) changes nothing. Other text costs 2 to 3 nats a byte, by a hash.
    """

    def __init__(self, options: _Options) -> None:
        self._model, self._max_length = options.simulee, options.max_length
        standard = asdict(Simulee())
        changed = [f"{k}={v}" for k, v in asdict(self._model).items() if v != standard[k]]
        self._identity = Identity(
            model=f"{NAME}:{','.join(changed)}" if changed else NAME,
            backend=NAME,
            weights_digest=digest({"law": simulation.LAW, **asdict(self._model)}),
            tokenizer_digest=digest("bytes"),
            step=options.step,
        )

    @property
    def simulee(self) -> Simulee:
        """The parameters, for `core.simulation.true_score`."""
        return self._model

    @property
    def identity(self) -> Identity:
        """Who answers: the digest of the "weights" is that of law and parameters."""
        return self._identity

    @property
    def capabilities(self) -> Capabilities:
        """It can do everything."""
        return Capabilities(chat=True, max_length=self._max_length)

    def encode(self, request: Request) -> Tokens:
        """The UTF-8 bytes after one BOS; no token ever spans the join.

        Raises:
            InputError: there is nothing to score.
        """
        match request:
            case Generate(prompt=prompt):
                ids = (BOS, *to_bytes(prompt))
                return Tokens(ids, len(ids))
            case Likelihood(context=context, continuation=continuation):
                if not continuation:
                    raise InputError("The continuation to score is empty; an option needs a text.")
                before = to_bytes(context)
                return Tokens((BOS, *before, *to_bytes(continuation)), 1 + len(before))

    def chat_prompt(self, text: str, system: str | None = None) -> str:
        """The text in a chat template of its own."""
        before = "" if system is None else f"System: {system}\n"
        return f"{before}User: {text}\nAssistant:"

    def run(
        self,
        work: Sequence[Work],
        done: AbstractSet[str] = frozenset(),
        *,
        batch_size: int | None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[Batch]:
        """Answer every request that is not in `done`, in the order of `work`.

        Raises:
            InputError: a batch size below 1, or a request id that comes twice.
        """
        batch_size = check_run(work, batch_size, _BATCH)
        for at in range(0, len(work), batch_size):
            if cancelled():
                return
            start = time.perf_counter()
            batch = [piece for piece in work[at : at + batch_size] if piece.request_id not in done]
            if not batch:
                continue
            answered = [self._answer(piece) for piece in batch]
            texts = [read(piece) for piece in batch]
            made = [answer.n_tokens if answer.text is not None else 0 for answer in answered]
            asked = sum(1 + len(data) for data in texts) + sum(made)
            yield Batch(
                responses=tuple(answered),
                asked=asked,
                computed=asked,
                trie=trie(texts) + sum(made),
                scored=sum(answer.n_tokens for answer in answered),
                steps=1 + max(made),
                seconds=time.perf_counter() - start,
                new_tokens=sum(made),
            )

    def close(self) -> None:
        """Nothing to free."""

    def _answer(self, piece: Work) -> Response:
        tokens = piece.tokens or self.encode(piece.request)
        longest = self._max_length - isinstance(piece.request, Generate)
        if len(tokens.ids) > longest:
            reason = f"overlong: {len(tokens.ids)} tokens, and the model reads {longest} at most"
            return Response(request_id=piece.request_id, finish=Finish.ERROR, error=reason)
        data = read(piece)
        match piece.request:
            case Generate() as request:
                return self._generate(piece.request_id, request, to_text(data))
            case Likelihood():
                # the split is the tokens' one, as for any model: BOS is not part of the text
                cut = max(tokens.start - 1, 0)
                return self._score(piece.request_id, data[:cut], data[cut:])

    def _generate(self, request_id: str, request: Generate, prompt: str) -> Response:
        sampling = request.sampling
        if sampling.temperature > 0:
            seed = 0 if request.seed is None else request.seed
            whole = self._continue(prompt, (seed, request.draw))
        else:
            whole = self._continue(prompt, None)
        room = min(sampling.max_tokens, self._max_length - 1 - len(to_bytes(prompt)))
        text = to_bytes(whole)[:room].decode("utf-8", "ignore")
        finish = Finish.EOS if text == whole else Finish.LENGTH
        found = [at for stop in sampling.stop if (at := text.find(stop)) >= 0]
        if found:
            text, finish = text[: min(found)], Finish.STOP
        size = len(to_bytes(text))
        return Response(request_id=request_id, text=text, n_tokens=size, n_bytes=size, finish=finish)

    def _continue(self, prompt: str, draw: tuple[int, int] | None) -> str:
        """The whole text that follows a prompt; `draw` is the seed and the index, None when greedy."""
        lead = "" if prompt[-1:].isspace() else " "
        cell = simulation.parse(prompt)
        if cell is None:
            generator = stream(self._model.seed, NAME, "unknown", prompt, *(draw or ()))
            word = simulation.Question(int(generator.integers(10**9)), -1).answers[0]
            return f"{lead}{word} {int(generator.integers(100))}"
        if draw is None:
            return lead + simulation.greedy_answer(self._model, cell)
        return lead + simulation.sampled_answer(self._model, cell, *draw)

    def _score(self, request_id: str, before: bytes, scored: bytes) -> Response:
        context, continuation = to_text(before), to_text(scored)
        cell = simulation.parse(context)
        word = continuation.strip()
        greedy_text = self._continue(context, None)
        if cell is not None and (listed := _listed(context).get(word)):
            extra, word = len(scored) - len(to_bytes(word)), listed
            greedy = word == simulation.greedy_answer(self._model, cell)
        else:
            extra, greedy = len(scored) - len(to_bytes(word)), greedy_text.startswith(continuation)
        if simulation.is_word(word):
            logprob = self._word(cell, word) - _BYTE_NATS * extra
        else:
            noise = float(stream(self._model.seed, NAME, "text", context, continuation).random())
            logprob = -(_BYTE_NATS + noise) * len(scored)
        return Response(
            request_id=request_id,
            logprob=logprob,
            greedy=greedy,
            n_tokens=len(scored),
            n_bytes=len(scored),
            finish=Finish.SCORED,
        )

    def _word(self, cell: Cell | None, word: str) -> float:
        return (0.0 if cell is None else simulation.option_score(self._model, cell, word)) - _WORD_NATS


def open_simulated(name: str = NAME) -> SimulatedBackend:
    """Open a simulated model.

    Args:
        name: "simulated", or with options "simulated:ability=1,template_sd=0.3,consistency=0.2,seed=1":
            see `core.simulation.Simulee`; also step (of a training run that is simulated by several models)
            and max_length (tokens, which are bytes).

    Raises:
        InputError: the name, or a value out of range.
        UnknownNameError: another option.
    """
    head, colon, rest = name.partition(":")
    if head != NAME or (colon and not rest):
        raise InputError(f"A simulated model is named {NAME} or {NAME}:ability=0.5,seed=1; got {name!r}.")
    given: dict[str, str] = {}
    for part in rest.split(",") if rest else ():
        option, equals, value = (text.strip() for text in part.partition("="))
        if option not in _KNOWN:
            raise UnknownNameError("option of a simulated model", option, _KNOWN)
        if not equals or not value:
            raise InputError(f"The option {option} needs a value, such as {option}={_KNOWN[option]}.")
        if option in given:
            raise InputError(f"The option {option} is given twice: {given[option]} and {value}.")
        given[option] = value
    simulee = Simulee(
        ability=_real(given, "ability", -math.inf, math.inf),
        template_sd=_real(given, "template_sd", 0, math.inf),
        consistency=_real(given, "consistency", 0, 1),
        seed=_whole(given, "seed", -(2**62)),
    )
    step = _whole(given, "step", 0) if "step" in given else None
    return SimulatedBackend(_Options(simulee, step, _whole(given, "max_length", 2)))


_KNOWN = {"ability": "0.5", "template_sd": "0.3", "consistency": "0", "seed": "0", "step": "1000"} | {
    "max_length": str(MAX_LENGTH)
}
"""Options and their defaults (`step` has none)."""


def _real(given: dict[str, str], option: str, low: float, high: float) -> float:
    text = given.get(option, _KNOWN[option])
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and low <= value <= high):
        within = (
            "" if math.isinf(low) else f" from {low:g} on" if math.isinf(high) else f" in [{low:g}, {high:g}]"
        )
        raise InputError(f"The option {option} must be a number{within}, got {text!r}.")
    return value


def _whole(given: dict[str, str], option: str, low: int) -> int:
    text = given.get(option, _KNOWN[option])
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or int(text) < low:
        raise InputError(f"The option {option} must be a whole number of at least {low}, got {text!r}.")
    return int(text)


def _listed(context: str) -> dict[str, str]:
    """The lettered options that a prompt lists after its last question: letter to text."""
    return dict(_LABEL.findall(context[context.rfind("Simulated item") :]))
