"""The parts of the server backend that are pure: reading echoes, cutting texts, judging faults."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from steelyard.core.types import Finish, Likelihood, Sampling
from steelyard.engine.server import faults, generation, likelihood
from steelyard.engine.server.address import Secret, parse_address

plain = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


def echo_of(pieces, made=()):
    tokens = [*pieces, *made]
    values = [None, *(-float(2**i) for i in range(1, len(tokens)))]
    logprobs = {
        "tokens": tokens,
        "token_logprobs": values,
        "text_offset": [0] * len(tokens),
        "top_logprobs": [None, *({"t": value} for value in values[1:])],
    }
    return {"choices": [{"index": 0, "text": "".join(tokens), "logprobs": logprobs}]}


@hypothesis_settings(max_examples=150, deadline=None)
@given(pieces=st.lists(plain, min_size=2, max_size=8), made=st.lists(plain, max_size=2), data=st.data())
def test_exactly_the_tokens_that_reach_into_the_continuation_are_scored(pieces, made, data):
    text = "".join(pieces)
    cut = data.draw(st.integers(0, len(text) - 1))
    request = Likelihood(text[:cut], text[cut:])
    got = likelihood.score("r", request, likelihood.read_echo(echo_of(pieces, made), text))
    join = len(request.context.rstrip())
    ends = [len("".join(pieces[: i + 1])) for i in range(len(pieces))]
    inside = [i for i, end in enumerate(ends) if end > join]
    if inside[0] == 0:
        assert got.finish is Finish.ERROR  # the first token has no probability
        assert got.logprob is None
    else:
        # powers of two: the sum tells which tokens are in it
        assert -got.logprob == sum(2**i for i in inside)
        assert got.n_tokens == len(inside) >= 1
        assert got.greedy is True
        assert got.n_bytes == len(request.continuation.encode())


@hypothesis_settings(max_examples=100, deadline=None)
@given(pieces=st.lists(plain, min_size=1, max_size=5), other=plain)
def test_an_echo_of_another_text_is_refused(pieces, other):
    text = "".join(pieces)
    assume(not text.startswith(other) and not "".join(pieces[1:]).startswith(other))
    with pytest.raises(faults.MisfitError, match="do not spell"):
        likelihood.read_echo(echo_of(pieces), other)


@hypothesis_settings(max_examples=150, deadline=None)
@given(text=st.text("ab\n", max_size=12), stops=st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=6))
def test_a_cut_text_holds_no_stop_and_loses_nothing_before_one(text, stops):
    choice = generation.Choice(text, "stop", "", None)
    got = generation.response("r", choice, Sampling(8, tuple(stops)), 5)
    assert text.startswith(got.text)
    assert not any(stop in got.text for stop in stops)
    rest = text[len(got.text) :]
    assert got.finish is (Finish.STOP if rest else Finish.EOS)
    if rest:
        assert any(rest.startswith(stop) for stop in stops)


@given(st.integers(0, 2**63 - 1))
def test_seeds_fit_into_what_servers_take(seed):
    assert 0 <= generation.seed_of(seed) < 2**31 - 1
    assert generation.seed_of(seed) == seed or seed >= 2**31 - 1


@hypothesis_settings(max_examples=100, deadline=None)
@given(
    data=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["choices", "logprobs", "tokens", "message", "error", "usage", "text", "index"]
                )
                | st.text(max_size=3),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
    status=st.integers(100, 599),
)
def test_no_answer_whatever_breaks_the_reader(data, status):
    faults.classify(status, json.dumps(data).encode(), str)
    if not isinstance(data, dict):
        return
    for read in (
        lambda: generation.read_choices(data, "chat"),
        lambda: generation.read_choices(data, "completions"),
        lambda: likelihood.read_echo(data, "a text"),
    ):
        with pytest.raises(faults.MisfitError):
            read()


def test_retry_after_is_read_as_seconds_or_as_a_date():
    assert faults.retry_after("3") == 3
    assert faults.retry_after("-3") == 0
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert 90 < faults.retry_after(later) <= 100
    for nothing in ("", "soon", "nan", "inf"):
        assert faults.retry_after(nothing) is None


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://Host:80/v1/", "http://host/v1"),
        ("https://host:443", "https://host"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
    ],
)
def test_one_server_has_one_address(url, base):
    address = parse_address(f"server:{url}#a/b:c")
    assert (address.base, address.model) == (base, "a/b:c")
    assert address.loopback == ("1" in base.split("/v1")[0])


def test_a_secret_does_not_show_itself():
    secret = Secret('sk-"quoted"-0123456789')
    assert "sk-" not in f"{secret!r} {secret} {[secret]}"
    assert secret.is_in({"a": ['x sk-"quoted"-0123456789 y']})
    assert not Secret("EMPTY").is_in({"a": "EMPTY"})
    assert Secret("").headers() == {}
