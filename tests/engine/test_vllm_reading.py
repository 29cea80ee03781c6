"""Reading vLLM's answers: recorded ones of a real run, and what must not pass for an answer."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.errors import InputError
from steelyard.core.types import Finish, Generate, Likelihood, Sampling, Tokens, Work
from steelyard.engine.vllm import generation, likelihood
from steelyard.engine.vllm.rows import Scored, Written, cut, score, write

RECORDS = json.loads((Path(__file__).parent / "vllm_records" / "smollm2.json").read_text("utf-8"))
BLOCK = 4


# ---------------------------------------------------------------------------------------------- recorded objects
def entries(recorded):
    if recorded is None:
        return None
    return {int(i): SimpleNamespace(logprob=p, rank=r, decoded_token=t) for i, (p, r, t) in recorded.items()}


def revive(recorded):
    """An output as vLLM's classes had it, from the JSON of its fields."""
    fields = copy.deepcopy(recorded)
    for made in fields["outputs"]:
        made["logprobs"] = None if made["logprobs"] is None else [entries(e) for e in made["logprobs"]]
    fields["outputs"] = [SimpleNamespace(**made) for made in fields["outputs"]]
    if fields["prompt_logprobs"] is not None:
        fields["prompt_logprobs"] = [entries(e) for e in fields["prompt_logprobs"]]
    return SimpleNamespace(**fields)


class Replay:
    """Answers with what was recorded, and fails on any request that was not."""

    def __init__(self) -> None:
        self.left = [one for call in RECORDS["calls"] for one in call]

    def params(self, **given):
        if given["temperature"] > 2:
            raise InputError("vLLM does not take these settings: temperature must be in [0, 2].")
        return given

    def ask(self, prompts, params):
        return [self.answer(list(ids), given) for ids, given in zip(prompts, params, strict=True)]

    def answer(self, ids, given):
        for one in self.left:
            asked = one["request"]
            if asked["prompt_token_ids"] == ids and all(
                asked["params"][k] == v for k, v in given.items() if k != "stop_token_ids"
            ):
                self.left.remove(one)
                return revive(one["output"])
        raise AssertionError(f"not recorded: {ids[:8]}... {given}")


def request_of(work):
    asked = dict(work["request"])
    if "prompt" not in asked:
        return Likelihood(**asked)
    sampling = asked.pop("sampling")
    return Generate(sampling=Sampling(**{**sampling, "stop": tuple(sampling["stop"])}), **asked)


WORK = [Work(w["request_id"], request_of(w), Tokens(tuple(w["ids"]), w["start"])) for w in RECORDS["work"]]
SCORED = [Scored(w, w.request, w.tokens) for w in WORK if isinstance(w.request, Likelihood)]
ANSWERS = {r["request_id"]: r for r in RECORDS["responses"]}


def facts(response):
    names = ("request_id", "text", "logprob", "greedy", "n_tokens", "finish")
    return {name: getattr(response, name) for name in names}


def test_recorded_likelihoods_are_read_as_in_the_run_that_made_them():
    (rows,) = cut(SCORED, [], 100)
    batch = score(Replay(), rows, token_logprobs=True)
    assert len(batch.responses) == len(SCORED)
    for response in batch.responses:
        before = ANSWERS[response.request_id]
        assert facts(response) == {name: before[name] for name in facts(response)}
        assert list(response.token_logprobs) == before["token_logprobs"]
    outputs = [one["output"] for call in RECORDS["calls"][:2] for one in call]
    cached = sum(o["num_cached_tokens"] for o in outputs)
    assert cached > 400  # the records show sharing, or they would show nothing
    assert batch.asked == sum(len(row.tokens.ids) for row in SCORED)
    assert batch.computed == sum(len(o["prompt_token_ids"]) for o in outputs) - cached
    assert batch.trie <= batch.computed < batch.asked


def test_the_records_hold_the_trap_they_were_made_for():
    """A cached place is not empty: it holds what the memory held, often a number that could be one."""
    places = [
        one["output"]["prompt_logprobs"][i]
        for one in RECORDS["calls"][0]
        for i in range(1, one["output"]["num_cached_tokens"] + 1)
    ]
    assert None not in places
    assert sum(all(value <= 0 for value, *_ in place.values()) for place in places) > 100
    # and the scored ones of two requests reach into the cached part: taken from a neighbour, and asked again
    first = {
        tuple(o["request"]["prompt_token_ids"]): o["output"]["num_cached_tokens"] for o in RECORDS["calls"][0]
    }
    assert sum(first[row.tokens.ids] >= row.tokens.start for row in SCORED) == 2
    assert len(RECORDS["calls"][1]) == 1


@pytest.mark.model
def test_recorded_generations_are_read_as_in_the_run_that_made_them(smollm2):
    from steelyard.engine.transformers.tokenizer import LocalTokenizer

    tokenizer = LocalTokenizer(smollm2)
    eos = frozenset({tokenizer.eos_id})
    rows = []
    for work in WORK:
        request = work.request
        if isinstance(request, Generate) and generation.check(request.sampling, request.seed) is None:
            ends = generation.ending(request.sampling, tokenizer, eos, request.sampling.max_tokens)
            params = generation.params(request.sampling, request.seed, ends)
            rows.append(Written(work, work.tokens, ends, params))
    batch = write(Replay(), rows, tokenizer)
    assert {r.finish for r in batch.responses} == {Finish.STOP, Finish.EOS, Finish.LENGTH, Finish.ERROR}
    for response in batch.responses:
        before = ANSWERS[response.request_id]
        assert facts(response) == {name: before[name] for name in facts(response)}
    # a text that vLLM made itself agrees with ours, up to the stop string that both leave out
    for one in RECORDS["calls"][2]:
        if one["request"]["params"]["detokenize"]:
            text = one["output"]["outputs"][0]["text"]
            assert any(r.text == text for r in batch.responses)
    assert batch.new_tokens == sum(
        len(o["token_ids"]) for one in RECORDS["calls"][2] for o in one["output"]["outputs"]
    )


# ------------------------------------------------------------------------------------- likelihoods, gone wrong
def whole(**changes):
    """A recorded answer that was computed whole, with changes."""
    recorded = next(one for one in RECORDS["calls"][0] if one["output"]["num_cached_tokens"] == 0)
    output = revive(recorded["output"])
    for name, value in changes.items():
        setattr(output, name, value)
    return output.prompt_token_ids, output


def test_a_whole_answer_has_every_place_but_the_first():
    ids, output = whole()
    found = likelihood.places(ids, output, reads_cache=True)
    assert found[0] is None
    assert None not in found[1:]


@pytest.mark.parametrize("lost", [1, 2])
def test_a_list_that_is_too_short_is_no_answer(lost):
    ids, output = whole()
    for short in (output.prompt_logprobs[:-lost], output.prompt_logprobs[lost:]):
        output.prompt_logprobs = short
        with pytest.raises(likelihood.MisfitError, match="returned"):
            likelihood.places(ids, output, reads_cache=True)


def test_a_short_list_is_aligned_at_its_end_when_as_many_tokens_are_cached():
    ids, output = whole()
    full = likelihood.places(ids, output, reads_cache=True)
    output.num_cached_tokens = 3
    output.prompt_logprobs = [None, *output.prompt_logprobs[4:]]
    assert likelihood.places(ids, output, reads_cache=True) == [None] * 4 + full[4:]


def test_a_place_that_is_none_stays_missing():
    ids, output = whole()
    output.prompt_logprobs[-2] = None
    found = likelihood.places(ids, output, reads_cache=True)
    assert [i for i, place in enumerate(found) if place is None] == [0, len(ids) - 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_logprobs": None}, "no prompt log-probabilities"),
        ({"prompt_token_ids": [1, 2, 3]}, "another prompt"),
        ({"prompt_token_ids": None}, "another prompt"),
        ({"num_cached_tokens": -1}, "cached tokens"),
        ({"num_cached_tokens": 10**6}, "cached tokens"),
    ],
)
def test_an_answer_to_another_question_is_found_out(change, message):
    ids, output = whole()
    output = whole(**change)[1]
    with pytest.raises(likelihood.MisfitError, match=message):
        likelihood.places(ids, output, reads_cache=True)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.5, "-1.0", None])
def test_a_number_that_is_no_log_probability_is_found_out(value):
    ids, output = whole()
    output.prompt_logprobs[-1][ids[-1]].logprob = value
    with pytest.raises(likelihood.MisfitError, match="expected a number"):
        likelihood.places(ids, output, reads_cache=True)


def test_the_probability_of_another_token_is_found_out():
    ids, output = whole()
    output.prompt_logprobs[-1] = {ids[-1] + 1: SimpleNamespace(logprob=-1.0)}
    with pytest.raises(likelihood.MisfitError, match="own token at position"):
        likelihood.places(ids, output, reads_cache=True)


def test_without_a_count_of_cached_tokens_only_a_request_that_skipped_the_cache_is_believed():
    ids, output = whole(num_cached_tokens=None)
    assert set(likelihood.places(ids, output, reads_cache=True)) == {None}
    assert None not in likelihood.places(ids, output, reads_cache=False)[1:]


def test_a_tie_for_the_likeliest_token_counts_as_greedy():
    ids, output = whole()
    output.prompt_logprobs[-1] = {
        ids[-1]: SimpleNamespace(logprob=-1.0, rank=2),
        ids[-1] + 1: SimpleNamespace(logprob=-1.0, rank=1),
    }
    assert likelihood.places(ids, output, reads_cache=True)[-1].top


# ------------------------------------------------------------------------------- likelihoods, whatever the cache
def truth(prefix):
    """The log-probability of a prefix's last token, and whether it is the likeliest."""
    number = int.from_bytes(hashlib.blake2b(bytes(prefix), digest_size=4).digest(), "big")
    return -(number % 10_000) / 100, number % 3 == 0


class Cached:
    """An engine with a prefix cache that hides positions in the way of either runner, or worse."""

    def __init__(self, style: str, *, obeys: bool = True) -> None:
        self.style, self.obeys = style, obeys
        self.cache: set[tuple[int, ...]] = set()
        self.computed = 0

    def params(self, **given):
        return given

    def ask(self, prompts, params):
        return [self.answer(tuple(p), q) for p, q in zip(prompts, params, strict=True)]

    def answer(self, ids, given):
        cached = 0
        if not (given["skip_reading_prefix_cache"] and self.obeys):
            while cached + BLOCK < len(ids) and ids[: cached + BLOCK] in self.cache:
                cached += BLOCK
        self.cache |= {ids[:n] for n in range(BLOCK, len(ids) + 1, BLOCK)}
        self.computed += len(ids) - cached
        found = [None] + [self.entry(ids[: i + 1]) for i in range(1, len(ids))]
        if self.style == "v1":
            # the nastiest memory there is: the right token, and a plausible number
            for i in range(1, cached + 1):
                found[i] = {ids[i]: SimpleNamespace(logprob=0.0)}
        elif self.style == "v2":
            found = [None, *found[cached + 1 :]]
        return SimpleNamespace(
            prompt_token_ids=list(ids),
            prompt_logprobs=found,
            num_cached_tokens=cached,
            finished=True,
            outputs=[SimpleNamespace(token_ids=[0])],
        )

    def entry(self, prefix):
        value, top = truth(prefix)
        own = {prefix[-1]: SimpleNamespace(logprob=value)}
        return own if top else own | {200: SimpleNamespace(logprob=value + 0.01 if value < 0 else 1e-4)}


sequences = st.lists(st.integers(0, 1), min_size=2, max_size=14)


@settings(max_examples=120)
@given(
    style=st.sampled_from(["v1", "v2"]),
    asked=st.lists(st.tuples(sequences, st.integers(0, 100)), min_size=1, max_size=12),
)
def test_whatever_the_cache_hides_every_likelihood_is_the_true_one(style, asked):
    rows = []
    for number, (ids, at) in enumerate(asked):
        request, tokens = Likelihood("c", "x"), Tokens(tuple(ids), 1 + at % (len(ids) - 1))
        rows.append(Scored(Work(str(number), request, tokens), request, tokens))
    engine = Cached(style)
    (ordered,) = cut(rows, [], 100)
    batch = score(engine, ordered, token_logprobs=True)
    tokens_of = {row.work.request_id: row.tokens for row in rows}
    assert {r.request_id for r in batch.responses} == set(tokens_of)
    for response in batch.responses:
        tokens = tokens_of[response.request_id]
        expected = [truth(tokens.ids[: i + 1]) for i in range(tokens.start, len(tokens.ids))]
        assert response.finish is Finish.SCORED
        assert response.token_logprobs == tuple(value for value, _ in expected)
        assert response.greedy == all(top for _, top in expected)
    assert batch.computed == batch.scored == engine.computed >= batch.trie - len(rows)


def test_what_stays_hidden_is_an_error_and_no_number():
    request, tokens = Likelihood("c", "x"), Tokens(tuple(range(12)), 2)
    row = Scored(Work("a", request, tokens), request, tokens)
    engine = Cached("v1", obeys=False)
    engine.answer(tokens.ids, {"skip_reading_prefix_cache": False})
    (response,) = score(engine, [row], token_logprobs=True).responses
    assert response.finish is Finish.ERROR
    assert response.logprob is None
    assert response.token_logprobs is None
    assert "no log-probability for 7 of 10 scored tokens" in response.error


def test_one_bad_answer_spoils_no_other():
    good, bad = SCORED[2], SCORED[3]

    class Spoilt(Replay):
        def answer(self, ids, given):
            output = super().answer(ids, given)
            if ids == list(bad.tokens.ids):
                output.prompt_logprobs = output.prompt_logprobs[:-1]
            return output

    found = {r.request_id: r for r in score(Spoilt(), [good, bad], token_logprobs=False).responses}
    assert found[bad.work.request_id].finish is Finish.ERROR
    assert found[bad.work.request_id].logprob is None
    assert "prompt log-probabilities for 115 tokens" in found[bad.work.request_id].error
    assert found[good.work.request_id].logprob == ANSWERS[good.work.request_id]["logprob"]


# -------------------------------------------------------------------------------------------------- generations
class Letters:
    """Token 0 ends the text, 1 is a special token, the others are letters."""

    special_ids = {"<end>": 0, "<turn>": 1}  # noqa: RUF012 - read only

    def decode(self, ids):
        return "".join(chr(97 + i) for i in ids if i > 1)


def made(text_ids, *, reason="length", stop_reason=None, logprob=-1.0, **changes):
    text = SimpleNamespace(
        index=0, token_ids=text_ids, cumulative_logprob=logprob, finish_reason=reason, stop_reason=stop_reason
    )
    return SimpleNamespace(**({"outputs": [text], "finished": True} | changes))


def read(output, *, stop=(), limit=5):
    request = Generate("p", Sampling(limit, stop=stop))
    ends = generation.ending(request.sampling, Letters(), frozenset({0}), limit)
    return generation.response(Work("r", request), output, Letters(), ends)


@pytest.mark.parametrize(
    ("ids", "reason", "stop", "expected"),
    [
        ([2, 3, 4, 5, 6], "length", (), ("cdefg", 5, Finish.LENGTH)),
        ([2, 3, 0], "stop", (), ("cd", 2, Finish.EOS)),
        ([0], "stop", (), ("", 0, Finish.EOS)),
        ([2, 3, 1], "stop", ("<turn>",), ("cd", 2, Finish.STOP)),
        ([2, 3, 0], "stop", ("<end>",), ("cd", 2, Finish.EOS)),
        ([2, 3, 4], "stop", ("de",), ("c", 1, Finish.STOP)),
        ([2, 3, 4, 5, 6], "length", ("g",), ("cdef", 4, Finish.STOP)),
        ([2, 1, 3, 4, 5], "length", (), ("cdef", 5, Finish.LENGTH)),
    ],
)
def test_a_text_ends_where_its_tokens_say_so(ids, reason, stop, expected):
    text, n_tokens, finish = expected
    response = read(made(ids, reason=reason), stop=stop)
    assert (response.text, response.n_tokens, response.finish) == (text, n_tokens, finish)
    assert response.n_bytes == len(text)
    assert response.error is None


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (made([2], outputs=[]), "returned 0 texts"),
        (made([2], outputs=[made([2]).outputs[0]] * 2), "returned 2 texts"),
        (made([2, 3, 4, 5, 6], finished=False), "not finished"),
        (made([2, 3, 4, 5, 6], reason=None), "not finished"),
        (made([2, 3], reason="abort"), "early ('abort')"),
        (made([2, 3], reason="error"), "early ('error')"),
        (made([2, 3], reason="repetition"), "early ('repetition')"),
        (made([2, 3, 4, 5, 6], logprob=math.nan), "not finite"),
        (made([2, 3, 4, 5, 6], logprob=None), "not finite"),
        (made([2, 3, 4], reason="stop", stop_reason="xyz"), "at 'xyz', which is not in it"),
        (made([2, 3, 4]), "after 3 of 5 tokens"),
        (made([]), "after 0 of 5 tokens"),
    ],
)
def test_a_text_that_does_not_hold_together_is_an_error(output, message):
    response = read(output)
    assert response.finish is Finish.ERROR
    assert response.text is None
    assert message in response.error


def test_every_draw_is_a_request_with_its_own_seed_and_our_end_tokens():
    sampling = Sampling(7, stop=("<turn>", "x"), temperature=0.7, top_p=0.9, top_k=5)
    ends = generation.ending(sampling, Letters(), frozenset({0}), 7)
    given = generation.params(sampling, 2**62 + 1, ends)
    assert given["n"] == 1
    assert given["seed"] == 2**62 + 1
    assert (given["temperature"], given["top_p"], given["top_k"]) == (0.7, 0.9, 5)
    assert given["ignore_eos"]
    assert given["stop_token_ids"] == [0, 1]
    assert given["stop"] == ["x"]
    greedy = generation.params(Sampling(7, top_p=0.5, top_k=3), 5, ends)
    assert (greedy["seed"], greedy["temperature"], greedy["top_p"], greedy["top_k"]) == (None, 0, 1.0, 0)


def test_a_temperature_that_vllm_would_change_is_refused():
    assert "0.01" in generation.check(Sampling(5, temperature=0.001), 1)
    assert generation.check(Sampling(5, temperature=0.01), 1) is None
    assert "seed" in generation.check(Sampling(5, temperature=0.5), None)


def test_the_cut_does_not_depend_on_the_order_and_keeps_like_beginnings_together():
    rows = cut(SCORED, [], 3)
    assert cut(SCORED[::-1], [], 3) == rows
    assert [len(batch) for batch in rows] == [3, 3, 2]
    ids = [row.tokens.ids for batch in rows for row in batch]
    assert ids == sorted(ids)
