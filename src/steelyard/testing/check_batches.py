"""Checks of the protocol: every request once, whatever the order, the batches, an interruption, a second run."""

from __future__ import annotations

from steelyard.core.errors import InputError
from steelyard.core.prefixes import distinct_prefixes
from steelyard.core.rng import stream
from steelyard.core.types import Batch, Generate, Likelihood, Response, Work
from steelyard.testing import requests
from steelyard.testing.subject import NotApplicableError, Subject, answered, fail, once, require


def identity_is_stable(subject: Subject) -> None:
    """Identity, capabilities and tokens are the same each time they are looked at, and after work was done."""
    backend = subject.backend
    some = subject.can(requests.everything())[:6]
    before, tokens = backend.identity, [backend.encode(request) for request in some]
    subject.ask(some)
    require(backend.identity == before, f"The identity was {before}, after a run it is {backend.identity}.")
    require([backend.encode(r) for r in some] == tokens, "The same text was encoded into other tokens.")
    capabilities = backend.capabilities
    require(
        capabilities.likelihood or bool(capabilities.why_not),
        "A backend that gives no likelihoods must say why, and the way out, in capabilities.why_not.",
    )


def every_request_is_answered_once(subject: Subject) -> None:
    """Each id has exactly one response, of the kind that was asked for, with true counts."""
    work = subject.work(subject.can(requests.everything()))
    found = subject.answers(work, batch_size=5)
    for piece in work:
        answered(piece, found[piece.request_id])


def agrees_with_the_reference(subject: Subject) -> None:
    """The answers are those of the reference backend, within the tolerance."""
    if subject.reference is None:
        raise NotApplicableError("no reference backend was given")
    other = Subject(backend=subject.reference, tolerance=subject.tolerance)
    wanted = other.can(subject.can(requests.everything()))
    ours = subject.work(wanted)
    answers, right = subject.answers(ours), other.answers(other.work(wanted))
    # the two may name requests differently: another backend is another identity
    renamed = {piece.request_id: right[other.piece(piece.request).request_id] for piece in ours}
    subject.same(ours, answers, renamed, "The backend against its reference")


def order_does_not_matter(subject: Subject) -> None:
    """The same work in another order has the same answers."""
    work = subject.work(subject.can(requests.everything()))
    straight = subject.answers(work)
    for seed in range(2):
        order = stream(seed, "conformance", "order").permutation(len(work))
        mixed = subject.answers([work[n] for n in order])
        subject.same(work, straight, mixed, "The same work in another order")


def batch_size_does_not_matter(subject: Subject) -> None:
    """One at a time, three, 64, or as many as the backend likes: the same answers."""
    work = subject.work(subject.can(requests.everything()))
    alone = subject.answers(work, batch_size=1)
    for size in (3, 64, None):
        together = subject.answers(work, batch_size=size)
        subject.same(work, alone, together, f"Batch size 1 against {size}")


def neighbours_do_not_matter(subject: Subject) -> None:
    """A request has the answer that it has when nothing else is asked."""
    work = subject.work(subject.can(requests.everything()))
    together = subject.answers(work)
    for piece in work[:: max(1, len(work) // 8)]:
        alone = subject.answers([piece])
        subject.same([piece], alone, together, "Alone against among others")


def resuming_gives_the_same(subject: Subject) -> None:
    """A run that was interrupted and taken up again ends with the answers of one in a single go."""
    work = subject.work(subject.can(requests.everything()))
    whole = subject.answers(work, batch_size=4)
    exact = subject.tolerance.resumed
    for after in (1, 3):
        first = _some(subject, work, after)
        parts = {r.request_id: r for batch in first for r in batch.responses}
        backwards = work[::-1]  # a plan made again may come in another order
        rest = subject.answers(backwards, parts.keys(), batch_size=4)
        subject.same(work, whole, parts | rest, "In one go against interrupted", per_token=exact)
    # an answer may be there for any reason, not only since a batch ended
    some = {piece.request_id for piece in work[::3]}
    rest = subject.answers(work, some, batch_size=4)
    left = [piece for piece in work if piece.request_id not in some]
    subject.same(left, whole, rest, "With a third of the work done already")
    require(not subject.batches(work, set(whole)), "Everything was done, and still a batch came.")
    require(not subject.batches([]), "There was no work, and still a batch came.")


def _some(subject: Subject, work: list[Work], count: int) -> list[Batch]:
    """The batches of a run that is told to stop when it has brought so many."""
    came: list[Batch] = []
    for batch in subject.backend.run(work, batch_size=4, cancelled=lambda: len(came) >= count):
        came.append(batch)  # noqa: PERF402  `cancelled` looks at it meanwhile
    return came


def cancelling_ends_the_run_early(subject: Subject) -> None:
    """When told to stop, the iterator ends: what came is whole, and the backend can be asked again."""
    work = subject.work(subject.can(requests.everything()))
    came: list[Batch] = []
    for batch in subject.backend.run(work, batch_size=1, cancelled=lambda: bool(came)):
        came.append(batch)  # noqa: PERF402  `cancelled` looks at it meanwhile
    found = {r.request_id: r for batch in came for r in batch.responses}
    for piece in work:
        if piece.request_id in found:
            answered(piece, found[piece.request_id])
    # a server's answers may all have been on their way
    here = work[0].tokens is not None
    require(not here or len(found) < len(work), "Told to stop after the first batch, it answered everything.")
    run = iter(subject.backend.run(work, batch_size=1))
    next(run)
    close = getattr(run, "close", None)
    if close is not None:
        close()  # abandoned, as when the disk is full
    subject.same(work, subject.answers(work), subject.answers(work), "Twice after an abandoned run")


def an_id_given_twice_is_refused(subject: Subject) -> None:
    """Two requests with one id cannot both be answered: InputError, before anything is asked."""
    work = subject.work(subject.can(requests.everything()))
    try:
        batches = subject.batches([*work, work[0]])
    except InputError:
        return
    fail(f"An id that came twice was to raise InputError; {len(batches)} batches came.")


def a_batch_size_below_one_is_refused(subject: Subject) -> None:
    """Nothing can be asked zero at a time: InputError."""
    work = subject.work(subject.can(requests.everything()))[:2]
    for size in (0, -1):
        try:
            subject.batches(work, batch_size=size)
        except InputError:
            continue
        fail(f"The batch size {size} was to raise InputError.")


def counters_add_up(subject: Subject) -> None:
    """Tokens asked, computed and scored are those of the requests; no count is impossible."""
    work = subject.work(subject.can(requests.everything()))
    batches = subject.batches(work)
    found = once(work, frozenset(), batches)
    peak = 0
    for batch in batches:
        counts = ("asked", "computed", "trie", "scored", "steps", "seconds", "new_tokens", "peak_memory")
        if wrong := [name for name in counts if not getattr(batch, name) >= 0]:
            fail(f"A batch counts less than nothing: {', '.join(wrong)} of {_bare(batch)}.")
        require(
            batch.scored <= batch.computed or not batch.computed,
            f"More scored than computed: {_bare(batch)}.",
        )
        require(batch.trie <= batch.asked, f"Distinct prefixes are more than tokens asked: {_bare(batch)}.")
        require(
            batch.steps >= 1 or not batch.computed, f"Tokens were computed without a step: {_bare(batch)}."
        )
        require(batch.prefill_rate is None or batch.prefill_rate > 0, f"No such rate: {_bare(batch)}.")
        require(batch.peak_memory >= peak or not batch.peak_memory, "The peak of memory sank within a run.")
        peak = max(peak, batch.peak_memory)
    if not any(batch.computed for batch in batches):
        raise NotApplicableError("the backend does not count the tokens that it computes")
    _whole(work, batches, found)
    lengths = sum(len(p.tokens.ids) for p in work if p.tokens is not None)
    new = sum(batch.new_tokens for batch in batches)
    asked = sum(batch.asked for batch in batches)
    require(asked == lengths + new, f"{asked} tokens asked; the requests have {lengths} and {new} are new.")


def _whole(work: list[Work], batches: list[Batch], found: dict[str, Response]) -> None:
    """What a whole run cannot do with less of."""
    scored = [p.tokens for p in work if p.tokens is not None and isinstance(p.request, Likelihood)]
    prompts = [p.tokens.ids for p in work if p.tokens is not None and isinstance(p.request, Generate)]
    # the last token of a likelihood is asked about and never read
    least = distinct_prefixes([t.ids[:-1] for t in scored] + prompts)
    computed = sum(batch.computed for batch in batches)
    require(computed >= least, f"{computed} tokens computed; the distinct prefixes alone are {least}.")
    places = {t.ids[:n] for t in scored for n in range(t.start, len(t.ids))}
    heads = sum(batch.scored for batch in batches)
    require(heads >= len(places), f"{heads} positions scored; {len(places)} different ones are asked for.")
    new = sum(batch.new_tokens for batch in batches)
    told = sum(r.n_tokens for r in found.values() if r.text is not None)
    require(new >= told, f"{new} new tokens counted; the texts have {told}.")


def _bare(batch: Batch) -> str:
    names = (name for name in Batch.__slots__ if name != "responses")
    return ", ".join(f"{name}={getattr(batch, name)}" for name in names)
