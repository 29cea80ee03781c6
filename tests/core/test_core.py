"""Ids, streams and the error that names near misses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core import ids, rng
from steelyard.core.errors import UnknownNameError
from steelyard.core.text import answer_class, normalise_answer
from steelyard.core.types import Generate, Identity, Likelihood, Sampling, Tokens

IDENTITY = Identity(
    model="m", backend="transformers", weights_digest="w", tokenizer_digest="t", dtype="float32"
)
GENERATE = Generate("p", Sampling(max_tokens=5, stop=("a", "b"), temperature=0.7), draw=1, seed=3)
TOKENS = Tokens((1, 2, 3), 3)


def test_a_request_id_is_the_same_in_another_process():
    code = (
        "from steelyard.core import ids; from steelyard.core.types import *;"
        "i=Identity(model='m',backend='transformers',weights_digest='w',tokenizer_digest='t',dtype='float32');"
        "print(ids.request_id(i, Likelihood('c','d'), None))"
    )
    outside = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert outside == ids.request_id(IDENTITY, Likelihood("c", "d"), None)


@pytest.mark.parametrize(
    "changed",
    [
        replace(GENERATE, draw=2),
        replace(GENERATE, seed=4),
        replace(GENERATE, sampling=replace(GENERATE.sampling, temperature=0.8)),
        replace(GENERATE, sampling=replace(GENERATE.sampling, top_p=0.9)),
        replace(GENERATE, sampling=replace(GENERATE.sampling, top_k=4)),
        replace(GENERATE, sampling=replace(GENERATE.sampling, max_tokens=6)),
        replace(GENERATE, sampling=replace(GENERATE.sampling, stop=("a",))),
    ],
)
def test_every_field_of_a_generation_enters_its_id(changed):
    assert ids.request_id(IDENTITY, changed, TOKENS) != ids.request_id(IDENTITY, GENERATE, TOKENS)


def test_every_field_of_sampling_is_covered_above():
    assert {f.name for f in fields(Sampling)} == {"temperature", "top_p", "top_k", "max_tokens", "stop"}


@pytest.mark.parametrize("field", ["weights_digest", "tokenizer_digest", "dtype", "backend", "settings"])
def test_every_field_that_can_change_an_answer_enters_the_id(field):
    other = replace(IDENTITY, **{field: {"x": 1} if field == "settings" else "other"})
    assert ids.request_id(other, GENERATE, TOKENS) != ids.request_id(IDENTITY, GENERATE, TOKENS)


def test_the_name_or_path_of_a_model_does_not_enter_a_request_id():
    moved = replace(IDENTITY, model="/elsewhere", step=7)
    assert ids.request_id(moved, GENERATE, TOKENS) == ids.request_id(IDENTITY, GENERATE, TOKENS)


def test_the_order_of_stop_strings_does_not_matter():
    swapped = replace(GENERATE, sampling=replace(GENERATE.sampling, stop=("b", "a")))
    assert ids.request_id(IDENTITY, swapped, TOKENS) == ids.request_id(IDENTITY, GENERATE, TOKENS)


def test_the_split_of_the_same_tokens_is_another_question():
    one = ids.request_id(IDENTITY, Likelihood("a", "b c"), Tokens((1, 2, 3), 1))
    two = ids.request_id(IDENTITY, Likelihood("a b", "c"), Tokens((1, 2, 3), 2))
    assert one != two


@given(st.dictionaries(st.text(), st.integers() | st.text(st.characters(codec=None)), max_size=6))
def test_digests_do_not_depend_on_the_order_of_keys(value):
    assert ids.digest(value) == ids.digest(dict(reversed(value.items())))


@given(st.lists(st.text(), min_size=1, max_size=400, unique=True), st.integers(0, 9))
def test_removing_a_candidate_moves_no_other(names, seed):
    whole = [names[p] for p in rng.ranked(seed, "draw", ids=rng.keys(names))]
    assert sorted(whole) == sorted(names)
    rest = [n for n in names if n != whole[0]]
    again = [rest[p] for p in rng.ranked(seed, "draw", ids=rng.keys(rest))]
    assert again == whole[1:]


def test_ranks_are_close_to_uniform():
    names = rng.keys(str(n) for n in range(300))
    first = np.bincount([next(rng.ranked(0, "draw", n, ids=names)) for n in range(3000)], minlength=300)
    # 3000 draws over 300 cells: chi-square with 299 degrees of freedom stays below 400 but once in 10^4
    assert ((first - 10) ** 2 / 10).sum() < 400


def test_an_unknown_name_lists_near_misses():
    with pytest.raises(UnknownNameError, match="Did you mean gsm8k"):
        raise UnknownNameError("benchmark", "gsm8", ["gsm8k", "mmlu"])


@given(st.text())
def test_normal_forms_are_idempotent(text):
    assert normalise_answer(normalise_answer(text)) == normalise_answer(text)
    assert answer_class(text) == "" or text.strip()
