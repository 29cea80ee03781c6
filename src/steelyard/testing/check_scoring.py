"""Checks of likelihoods: awkward texts, lengths at their limits, and that sums are sums."""

from __future__ import annotations

from steelyard.core.errors import InputError
from steelyard.core.types import Finish, Generate, Likelihood, Request, Response, Sampling, Tokens, Work
from steelyard.testing import requests
from steelyard.testing.subject import NotApplicableError, Subject, answered, fail, require, show

OPTIONS = 4096  # of one item
_LONGEST = 1 << 17  # tokens of a context that is filled to find its end; longer ones are left alone


def an_empty_continuation_is_refused(subject: Subject) -> None:
    """There is nothing to score: InputError when encoding, and never a number when asked all the same."""
    subject.can([Likelihood("Q:", " a")])
    request = Likelihood("Q:", "")
    try:
        subject.backend.encode(request)
    except InputError:
        pass
    else:
        fail("Encoding an empty continuation was to raise InputError.")
    for response in _at_all(subject, Work("empty", request)):
        require(response.finish is Finish.ERROR, f"An empty continuation was answered with {response}.")


def an_empty_context_is_scored_or_explained(subject: Subject) -> None:
    """A text may be scored from its first token on, or the error says why not; it is never 0."""
    work = Work("empty", *_encoded(subject, Likelihood("", "The capital of France")))
    for response in _at_all(subject, work):
        if response.finish is Finish.ERROR:
            require(bool(response.error), "An error without a reason.")
        else:
            answered(work, response)
            require((response.logprob or 0) < 0, f"Nothing is certain without a context: {response}.")


def unicode_is_scored_as_it_is(subject: Subject) -> None:
    """Emoji, combining marks, CJK and odd spaces in context and continuation, byte counts included."""
    pairs: list[Request] = [
        Likelihood(f"Say{text}:", other) for text in requests.UNICODE for other in (text, " a")
    ]
    answers = subject.ask(subject.can(pairs))
    alone = subject.ask(subject.can(pairs), batch_size=1)
    for request, one, other in zip(pairs, answers, alone, strict=True):
        work = [Work("u", request)]
        subject.same(work, {"u": one}, {"u": other}, "Batch size 8 against 1")


def half_a_character_ends_in_an_answer_or_an_error(subject: Subject) -> None:
    """A lone surrogate, which hostile data hold, is answered or explained, and harms no neighbour."""
    subject.can([Likelihood("Q:", " a")])
    good = subject.work([Likelihood("Q:", " a")])
    for context, text in (("Q: \ud83d", " a"), ("Q:", " a\udc00b")):
        try:
            bad = Work("half", *_encoded(subject, Likelihood(context, text)))
        except InputError:
            continue
        found = subject.answers([bad, *good])
        require(found["half"].finish in {Finish.SCORED, Finish.ERROR}, f"It became {found['half']}.")
        answered(good[0], found[good[0].request_id])


def one_token_is_scored(subject: Subject) -> None:
    """A continuation of a single token, where logits of exactly one position are read."""
    texts = (" a", "a", " 8", "8", ".", "\n", " is")
    pairs = subject.can([Likelihood(context, text) for context in requests.CONTEXTS for text in texts])
    work = [p for p in subject.work(pairs) if p.tokens is None or len(p.tokens.ids) - p.tokens.start == 1]
    if not work:
        raise NotApplicableError("none of the short continuations is one token to this tokenizer")
    found, alone = subject.answers(work), subject.answers(work, batch_size=1)
    for piece in work:
        answered(piece, found[piece.request_id])
    subject.same(work, found, alone, "Batch size 8 against 1")


def an_item_may_have_thousands_of_options(subject: Subject) -> None:
    """4,096 options of one item: each answered once, and as when asked alone."""
    options = subject.can([Likelihood("Pick a number:", f" {n}") for n in range(OPTIONS)])
    work = subject.work(options)
    found = subject.answers(work, batch_size=None)
    some = work[:: OPTIONS // 8]
    for piece in some:
        answered(piece, found[piece.request_id])
        subject.same([piece], found, subject.answers([piece]), "Among 4,096 options against alone")


def likelihoods_add_up(subject: Subject) -> None:
    """The log p of a text is that of its beginning and that of the rest after it, whatever the cut.

    So a continuation is scored from its own first token to its own last one, after its whole context: this
    finds positions that are off by one, and logits that a cache of prefixes dropped.
    """
    work = subject.work(subject.can(requests.scoring()))
    if work[0].tokens is None:
        raise NotApplicableError("the server has the tokenizer, so tokens cannot be given")
    parts: list[Work] = []
    cuts: list[tuple[Work, Work, Work]] = []
    for n, whole in enumerate(work):
        tokens = whole.tokens
        if tokens is None or len(tokens.ids) - tokens.start < 2:
            continue
        for cut in {tokens.start + 1, len(tokens.ids) - 1}:
            first = Work(f"first {n} {cut}", whole.request, Tokens(tokens.ids[:cut], tokens.start))
            second = Work(f"second {n} {cut}", whole.request, Tokens(tokens.ids, cut))
            parts += [first, second]
            cuts.append((whole, first, second))
    found = subject.answers([*work, *parts])
    for whole, *pair in cuts:
        total = found[whole.request_id]
        values = [found[p.request_id].logprob for p in pair]
        if total.logprob is None or None in values:
            fail(f"{show(whole.request)} or a part of it was not scored: {total}.")
        apart = abs(total.logprob - sum(v for v in values if v is not None))
        allowed = 2 * subject.tolerance.per_token * total.n_tokens
        require(
            apart <= allowed,
            f"{show(whole.request)} has {total.logprob} nats, its parts {values}: {apart:.2g} apart, "
            f"{allowed:.2g} are allowed.",
        )


def too_long_is_an_error_and_never_cut(subject: Subject) -> None:
    """A request that does not fit is answered with an error that says so; its neighbours are answered."""
    limit = subject.backend.capabilities.max_length
    if limit is None:
        raise NotApplicableError("the backend does not know its context length")
    if limit > _LONGEST:
        raise NotApplicableError(f"the context of {limit} tokens is too long to be filled here")
    # numbered words: whatever the tokenizer, each is a token or more
    text = " ".join(map(str, range(limit + 8)))
    long = subject.can([Likelihood(text, " a"), Likelihood("Q:", " " + text), Generate(text, Sampling(2))])
    short = subject.can([*requests.scoring()[:3], *requests.writing()[:2]])
    bad, good = subject.work(long), subject.work(short)
    found = subject.answers([*bad[:1], *good, *bad[1:]])
    for piece in bad:
        response = found[piece.request_id]
        require(
            response.finish is Finish.ERROR and bool(response.error) and response.logprob is None,
            f"{show(piece.request)} has more than {limit} tokens and was answered with {response}.",
        )
    for piece in good:
        answered(piece, found[piece.request_id])


def _encoded(subject: Subject, request: Request) -> tuple[Request, Tokens | None]:
    subject.can([request])
    return request, subject.backend.encode(request)


def _at_all(subject: Subject, work: Work) -> list[Response]:
    """The response, or none where the backend refuses the whole run with InputError."""
    try:
        return list(subject.answers([work]).values())
    except InputError:
        return []
