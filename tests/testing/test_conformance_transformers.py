"""The local backend under the conformance suite: with shared prefixes against the plain path, and the plain path."""

from __future__ import annotations

from functools import partial

import pytest

from steelyard.engine.transformers.backend import open_transformers
from steelyard.testing import conformance

FROM_THE_FIRST_TOKEN_ON = (
    "agrees_with_the_reference",
    "counters_add_up",
    "an_empty_context_is_scored_or_explained",
    "one_token_is_scored",
    "likelihoods_add_up",
)


@pytest.fixture(scope="module")
def opened(tiny, tiny_bos):
    folders = {"no BOS": str(tiny), "BOS": str(tiny_bos)}
    return lambda name, engine: partial(open_transformers, folders[name], engine=engine)


@pytest.mark.parametrize("engine", ["shared", "plain"])
@pytest.mark.parametrize("check", conformance.pytest_params())
def test_the_local_backend_conforms(check, engine, opened):
    check(opened("no BOS", engine), reference=opened("no BOS", "plain"))


@pytest.mark.parametrize("check", [p for p in conformance.pytest_params() if p.id in FROM_THE_FIRST_TOKEN_ON])
def test_shared_prefixes_conform_where_the_tokenizer_writes_a_bos(check, opened):
    check(opened("BOS", "shared"), reference=opened("BOS", "plain"))
