"""The conformance suite passes on backends that are right, and each of its checks fails on its fault."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from steelyard.core.errors import UnknownNameError
from steelyard.core.types import Finish, Generate, Likelihood, Response, Sampling, Work
from steelyard.engine.simulated import open_simulated
from steelyard.testing import conformance
from steelyard.testing.compare import compare
from steelyard.testing.tolerance import FULL, Tolerance

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
LAW = {"likelihoods_add_up": "the simulated law scores options whole, not token by token"}


@pytest.mark.parametrize("check", conformance.pytest_params())
def test_a_plug_in_conforms(check, bigram):
    check(bigram, reference=bigram)


@pytest.mark.parametrize("check", conformance.pytest_params(skip=LAW))
def test_the_simulated_backend_conforms(check):
    check(open_simulated, reference=open_simulated)


FAULTS = {
    "the identity changes": "identity_is_stable",
    "the last is forgotten": "every_request_is_answered_once",
    "one is answered twice": "every_request_is_answered_once",
    "bytes are characters": "every_request_is_answered_once",
    "a positive log-probability": "every_request_is_answered_once",
    "one token too many": "every_request_is_answered_once",
    "scored from one token before": "every_request_is_answered_once",
    "the last token is left out": "likelihoods_add_up",
    "the first request is off": "order_does_not_matter",
    "the batch is felt": "batch_size_does_not_matter",
    "the stream is that of the batch": "draws_have_streams_of_their_own",
    "each run is another": "resuming_gives_the_same",
    "done is done again": "resuming_gives_the_same",
    "does not stop": "cancelling_ends_the_run_early",
    "no look at the ids": "an_id_given_twice_is_refused",
    "no look at the size": "a_batch_size_below_one_is_refused",
    "too little is counted as computed": "counters_add_up",
    "heads are not counted": "counters_add_up",
    "new tokens are not counted": "counters_add_up",
    "an asked token too many": "counters_add_up",
    "negative time": "counters_add_up",
    "memory sinks": "counters_add_up",
    "an empty continuation is taken": "an_empty_continuation_is_refused",
    "what is not ASCII fails": "unicode_is_scored_as_it_is",
    "what is too long is cut": "too_long_is_an_error_and_never_cut",
    "stops are ignored": "texts_end_before_the_first_stop_string",
    "only stops of one character": "texts_end_before_the_first_stop_string",
    "only the first stop": "texts_end_before_the_first_stop_string",
    "the stop is kept": "texts_end_before_the_first_stop_string",
    "the end is called a limit": "texts_end_with_the_end_of_text",
    "the end depends on the limit": "texts_end_with_the_end_of_text",
    "one stream for all": "draws_have_streams_of_their_own",
    "greedy draws are drawn": "greedy_texts_take_no_seed",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_the_check_that_is_meant_for_it(fault, faulty):
    (check,) = [check for check in conformance.CHECKS if check.name == FAULTS[fault]]
    with pytest.raises(conformance.NonconformanceError):
        check(partial(faulty, fault))


def test_a_fault_that_raises_is_an_error_with_its_own_traceback(faulty):
    (check,) = [check for check in conformance.CHECKS if check.name == "batch_size_does_not_matter"]
    with pytest.raises(AssertionError):
        check(partial(faulty, "a size must be given"))


def test_the_faulty_backend_without_a_fault_is_none(faulty):
    results = conformance.report(partial(faulty, ""), reference=partial(faulty, ""))
    assert {r.outcome for r in results} == {"passed"}, results


def test_another_model_is_not_its_own_reference(bigram, faulty):
    (check,) = [check for check in conformance.CHECKS if check.name == "agrees_with_the_reference"]
    with pytest.raises(conformance.NonconformanceError, match="against its reference"):
        check(partial(faulty, "the last token is left out"), reference=bigram)
    with pytest.raises(conformance.NotApplicableError, match="no reference"):
        check(bigram)


def test_the_tolerance_is_that_of_the_dtype_unless_one_is_given(faulty):
    class Coarse(faulty):
        """Off by a hundredth of a nat with the width of the batch, as bf16 may be."""

        def __init__(self, dtype):
            super().__init__("the batch is felt")
            self.identity = type(self.identity)(
                model="c", backend="c", weights_digest="w", dtype=dtype, settings={}
            )

        def score(self, piece, ids, start):
            response = super().score(piece, ids, start)
            return type(response)(
                request_id=response.request_id,
                logprob=response.logprob - 0.01 * self.width + 1e-3 * min(self.width, 8),
                n_tokens=response.n_tokens,
                n_bytes=response.n_bytes,
            )

    (check,) = [check for check in conformance.CHECKS if check.name == "batch_size_does_not_matter"]
    check(partial(Coarse, "bfloat16"))
    with pytest.raises(conformance.NonconformanceError):
        check(partial(Coarse, "float32"))
    check(partial(Coarse, "float32"), tolerance=Tolerance(per_token=0.05))


def test_a_capability_that_is_lacking_skips_with_the_reason(bigram):
    class Writer(bigram):
        @property
        def capabilities(self):
            return type(super().capabilities)(likelihood=False, why_not="it only writes", max_length=96)

    results = {r.name: r for r in conformance.report(Writer, skip={"identity_is_stable": "not today"})}
    assert results["likelihoods_add_up"].outcome == "skipped"
    assert "it only writes" in results["likelihoods_add_up"].message
    assert results["identity_is_stable"].message == "not today"
    assert results["every_request_is_answered_once"].outcome == "passed"
    assert not [r for r in results.values() if r.outcome == "failed"]


def test_excusing_a_check_that_does_not_exist_is_an_error(bigram):
    for wrong in (conformance.pytest_params, partial(conformance.report, bigram)):
        with pytest.raises(UnknownNameError, match="likelihoods_add_up"):
            wrong(skip={"likelihods_add_up": "?"})


def test_every_check_says_what_it_asks_for_and_stands_in_the_page():
    page = PAGE.read_text("utf-8")
    for check in conformance.CHECKS:
        assert f"| `{check.name}` | {check.sentence} |" in page
    for dtype, tolerance in conformance.BY_DTYPE.items():
        assert re.search(rf"\| {dtype} \| {tolerance.per_token:g} \|", page), dtype


def test_the_example_of_the_page_runs_as_it_stands(tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "test_mine.py").write_text(block)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    passed, skipped = (int(re.search(rf"(\d+) {word}", done.stdout)[1]) for word in ("passed", "skipped"))
    assert passed + skipped == len(conformance.CHECKS)
    assert passed >= 20


def test_importing_the_suite_needs_neither_pytest_nor_torch():
    code = (
        "import sys, steelyard.testing.conformance; print({'pytest', 'torch', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


# -------------------------------------------------------------------------------------------------- comparing
def scored(name, value, n=2):
    return Response(request_id=name, logprob=value, n_tokens=n)


def test_the_difference_of_likelihoods_is_per_token_and_missing_answers_are_not_equal():
    work = [Work(name, Likelihood("c", "d")) for name in "abcd"]
    one = {"a": scored("a", -1.0), "b": scored("b", -2.0, 1), "c": scored("c", -1.0)}
    other = {"a": scored("a", -1.5), "b": scored("b", -2.3, 1), "d": scored("d", -1.0)}
    got = compare(work, one, other)
    assert (got.likelihoods, got.furthest, got.outcomes) == (2, "b", ("c", "d"))
    assert got.per_token == pytest.approx(0.3)
    assert got.total == 0.5
    assert len(got.beyond(FULL)) == 2
    assert not compare(work[:2], one, one).beyond(FULL)
    assert compare(work[:1], one, {"a": scored("a", float("nan"))}).beyond(Tolerance(per_token=1e9))
    assert compare(work[:1], one, {"a": scored("a", -1.0, 3)}).outcomes == ("a",)


def test_greedy_and_sampled_texts_are_counted_apart():
    greedy, drawn = Sampling(4), Sampling(4, temperature=1.0)
    work = [Work(f"g{n}", Generate("p", greedy)) for n in range(4)]
    work += [Work(f"s{n}", Generate("p", drawn, n, n)) for n in range(40)]
    one = {p.request_id: Response(request_id=p.request_id, text="x", finish=Finish.EOS) for p in work}
    other = one | {"s3": Response(request_id="s3", text="y", finish=Finish.EOS)}
    got = compare(work, one, other)
    assert (got.greedy, got.sampled, got.greedy_texts, got.sampled_texts) == (4, 40, (), ("s3",))
    assert not got.beyond(FULL)
    other |= {"g0": Response(request_id="g0", text="x", finish=Finish.LENGTH)}
    assert compare(work, one, other).beyond(FULL) == ["1 of 4 greedy texts differ, 0% are allowed"]
