"""Checks of generated texts: where they end, and that each draw has a stream of its own."""

from __future__ import annotations

from dataclasses import replace

from steelyard.core.rng import key
from steelyard.core.types import Finish, Generate, Request, Response, Sampling
from steelyard.testing import requests
from steelyard.testing.subject import NotApplicableError, Subject, require, show

_WINDOWS = (1, 2, 3, 5, 8)  # characters of a stop string: within a token, and across several


def texts_end_before_the_first_stop_string(subject: Subject) -> None:
    """A text is cut before the first of its stop strings, within a token or across several, per request.

    The stop strings are taken from what the model writes without them.
    """
    free = [r for r in requests.writing() if isinstance(r, Generate)]
    subject.can(free)
    asked: list[Generate] = []
    whole: list[Response] = []
    for request, answer in zip(free, subject.ask(free), strict=True):
        for stop in _windows(answer.text or ""):
            asked.append(replace(request, sampling=replace(request.sampling, stop=(stop,))))
            whole.append(answer)
        if asked and asked[-1].prompt == request.prompt and len(answer.text or "") > 2:
            # several at once, in an order that is not that of the text, and one that never comes
            stops = (*sorted(_windows(answer.text or ""), reverse=True), "\x00never\x00")
            asked.append(replace(request, sampling=replace(request.sampling, stop=stops)))
            whole.append(answer)
    if not asked:
        raise NotApplicableError("the model writes nothing that a stop string could be taken from")
    never = [replace(r, sampling=replace(r.sampling, stop=("\x00never\x00",))) for r in free]
    for request, response, answer in zip(asked, subject.ask(asked), whole, strict=True):
        text = answer.text or ""
        first = min(at for stop in request.sampling.stop if (at := text.find(stop)) >= 0)
        require(
            response.text == text[:first] and response.finish in _stopped(subject, request),
            f"{show(request)} was to end with STOP after {text[:first]!a}; it became {response}. Without stop "
            f"strings the text is {text!a}.",
        )
    for request, one, other in zip(free, subject.ask(never), subject.ask(free), strict=True):
        require(
            (one.text, one.finish) == (other.text, other.finish),
            f"A stop string that never comes changed {show(request)} from {other} to {one}.",
        )


def texts_end_at_their_token_limit(subject: Subject) -> None:
    """max_tokens is kept, from 1 on, and a shorter text is the beginning of the longer one."""
    subject.can(requests.writing())
    limits = (1, 2, 5, requests.NEW)
    by_limit = [subject.ask(requests.writing(max_tokens=limit)) for limit in limits]
    for limit, answers in zip(limits, by_limit, strict=True):
        for prompt, short, long in zip(requests.PROMPTS, answers, by_limit[-1], strict=True):
            # a character cut in two by the limit shows as U+FFFD until its rest has come
            kept = (short.text or "").rstrip("\ufffd")
            require(
                (long.text or "").startswith(kept),
                f"{prompt!a} with {limit} new tokens became {short}, which does not begin {long}.",
            )
            require(
                short.finish is not Finish.LENGTH or short.n_tokens in {0, limit},
                f"{prompt!a} ended at its limit of {limit} tokens with {short}.",
            )


def texts_end_with_the_end_of_text(subject: Subject) -> None:
    """A text that the model ends itself is EOS, and the same with a higher limit."""
    draws = requests.drawing(48, max_tokens=32, prompts=requests.PROMPTS[:2])
    answers = subject.ask(subject.can(draws), batch_size=None)
    if (subject.backend.capabilities.max_length or requests.ROOM) >= requests.ROOM:
        for request, answer in zip(draws, answers, strict=True):
            require(
                answer.finish is not Finish.LENGTH or answer.n_tokens in {0, 32},
                f"{show(request)} was said to end at its limit of 32 tokens, as {answer}.",
            )
    ended = [
        (request, answer)
        for request, answer in zip(draws, answers, strict=True)
        if answer.finish is Finish.EOS and isinstance(request, Generate)
    ]
    if not ended:
        raise NotApplicableError(f"none of {len(draws)} draws ended by itself within 32 tokens")
    ended = ended[:6]
    more = [replace(request, sampling=replace(request.sampling, max_tokens=48)) for request, _ in ended]
    for (request, before), after in zip(ended, subject.ask(more), strict=True):
        require(
            (after.text, after.finish) == (before.text, Finish.EOS),
            f"{show(request)} ended by itself as {before}; with more tokens allowed it became {after}.",
        )


def draws_have_streams_of_their_own(subject: Subject) -> None:
    """A draw depends on its seed, not on its batch or its neighbours, and other seeds give other texts."""
    draws = requests.drawing(6)
    subject.can(draws)
    together = subject.work(draws)
    found = subject.answers(together, batch_size=None)
    for size in (1, 5):
        again = subject.answers(together[::-1], batch_size=size)
        subject.same(together, found, again, f"Draws in one run against batch size {size} and another order")
    texts = [found[piece.request_id].text for piece in together]
    require(
        len(set(texts)) > len(requests.PROMPTS), f"Draws with different seeds are all the same: {texts[:6]}."
    )


def greedy_texts_take_no_seed(subject: Subject) -> None:
    """At temperature 0 every draw is the same text, with a seed or without."""
    sampling = Sampling(max_tokens=requests.NEW)
    seeds = (None, key(0, "conformance", "a"), key(0, "conformance", "b"))
    draws: list[Request] = [
        Generate(prompt, sampling, n, seed) for prompt in requests.PROMPTS for n, seed in enumerate(seeds)
    ]
    answers = subject.ask(subject.can(draws))
    for n in range(0, len(draws), len(seeds)):
        texts = {answer.text for answer in answers[n : n + len(seeds)]}
        require(len(texts) == 1, f"Greedy draws of {show(draws[n])} differ: {sorted(map(ascii, texts))}.")


def _stopped(subject: Subject, request: Generate) -> set[Finish]:
    # a server that cuts the text itself calls it "stop", and the end of a text as well
    return {Finish.STOP} if subject.backend.encode(request) is not None else {Finish.STOP, Finish.EOS}


def _windows(text: str) -> list[str]:
    """Pieces of a text to stop at, a few of each length; half characters are not taken."""
    found: list[str] = []
    for width in _WINDOWS:
        for at in {0, len(text) // 3, len(text) - width}:
            piece = text[at : at + width] if at >= 0 else ""
            if len(piece) == width and "\ufffd" not in piece:
                found.append(piece)
    return list(dict.fromkeys(found))
