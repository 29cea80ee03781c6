"""The conformance suite: what every backend has to do, as checks that a plug-in runs with a few lines of pytest.

    @pytest.mark.parametrize("check", conformance.pytest_params())
    def test_conforms(check):
        check(make_backend)

See docs/conformance.md. A check opens a backend, asks it, and closes it; it raises NonconformanceError (an
AssertionError) when the backend does not do what `engine.backend.Backend` says, and NotApplicableError when
there is nothing to look at, such as likelihoods of a chat server. Nothing here needs pytest but `pytest_params`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from steelyard.core.errors import UnknownNameError
from steelyard.core.types import EMPTY
from steelyard.engine.backend import Backend
from steelyard.testing import check_batches, check_scoring, check_writing
from steelyard.testing.subject import NonconformanceError, NotApplicableError, Subject
from steelyard.testing.tolerance import BY_DTYPE, Tolerance, tolerance_for

__all__ = [
    "BY_DTYPE",
    "CHECKS",
    "Check",
    "NonconformanceError",
    "NotApplicableError",
    "Result",
    "Tolerance",
    "pytest_params",
    "report",
    "tolerance_for",
]

MakeBackend = Callable[[], Backend]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a backend has to do.

    Attributes:
        name: such as "order_does_not_matter".
        sentence: what it asks for.
    """

    name: str
    sentence: str
    _look: Callable[[Subject], None]

    def __call__(
        self,
        make_backend: MakeBackend,
        *,
        reference: MakeBackend | None = None,
        tolerance: Tolerance | None = None,
    ) -> None:
        """Look at one backend.

        Args:
            make_backend: opens the backend; it is closed here.
            reference: opens a backend whose answers are right; only `agrees_with_the_reference` asks it.
            tolerance: between configurations and to the reference; None takes that of the backend's dtype.

        Raises:
            NonconformanceError: it does not do this.
            NotApplicableError: it cannot be looked at, and why.
        """
        with contextlib.ExitStack() as open_ones:
            backend = make_backend()
            open_ones.callback(backend.close)
            right = None
            if reference is not None and self.name == "agrees_with_the_reference":
                right = reference()
                open_ones.callback(right.close)
            allowed = tolerance if tolerance is not None else tolerance_for(backend.identity.dtype)
            self._look(Subject(backend=backend, tolerance=allowed, reference=right))


def _check(look: Callable[[Subject], None]) -> Check:
    return Check(look.__name__, (look.__doc__ or "").partition("\n")[0], look)


CHECKS: tuple[Check, ...] = tuple(
    map(
        _check,
        (
            check_batches.identity_is_stable,
            check_batches.every_request_is_answered_once,
            check_batches.agrees_with_the_reference,
            check_batches.order_does_not_matter,
            check_batches.batch_size_does_not_matter,
            check_batches.neighbours_do_not_matter,
            check_batches.resuming_gives_the_same,
            check_batches.cancelling_ends_the_run_early,
            check_batches.an_id_given_twice_is_refused,
            check_batches.a_batch_size_below_one_is_refused,
            check_batches.counters_add_up,
            check_scoring.an_empty_continuation_is_refused,
            check_scoring.an_empty_context_is_scored_or_explained,
            check_scoring.unicode_is_scored_as_it_is,
            check_scoring.half_a_character_ends_in_an_answer_or_an_error,
            check_scoring.one_token_is_scored,
            check_scoring.an_item_may_have_thousands_of_options,
            check_scoring.likelihoods_add_up,
            check_scoring.too_long_is_an_error_and_never_cut,
            check_writing.texts_end_before_the_first_stop_string,
            check_writing.texts_end_at_their_token_limit,
            check_writing.texts_end_with_the_end_of_text,
            check_writing.draws_have_streams_of_their_own,
            check_writing.greedy_texts_take_no_seed,
        ),
    )
)
"""Every check, in an order in which the first failure says most."""


@dataclass(frozen=True, slots=True)
class Result:
    """How one check ended: "passed", "failed" or "skipped" (not applicable), and why."""

    name: str
    outcome: Literal["passed", "failed", "skipped"]
    message: str = ""


def report(
    make_backend: MakeBackend,
    *,
    reference: MakeBackend | None = None,
    tolerance: Tolerance | None = None,
    skip: Mapping[str, str] = EMPTY,
) -> list[Result]:
    """All checks of one backend, without pytest; arguments as for `Check` and `pytest_params`."""
    _known(skip)
    results = []
    for check in CHECKS:
        if check.name in skip:
            results.append(Result(check.name, "skipped", skip[check.name]))
            continue
        try:
            check(make_backend, reference=reference, tolerance=tolerance)
        except NotApplicableError as why:
            results.append(Result(check.name, "skipped", str(why)))
        except NonconformanceError as what:
            results.append(Result(check.name, "failed", str(what)))
        else:
            results.append(Result(check.name, "passed"))
    return results


def pytest_params(*, skip: Mapping[str, str] = EMPTY) -> list[Any]:
    """The checks as parameters for ``pytest.mark.parametrize``, with their names as ids.

    Each is called like a `Check`; one that is not applicable skips its test with the reason.

    Args:
        skip: names of checks that this backend is excused from, each with its reason.

    Raises:
        UnknownNameError: `skip` names no check.
    """
    import pytest

    _known(skip)

    def param(check: Check) -> Any:  # noqa: ANN401  pytest's own type is private
        def run(
            make_backend: MakeBackend,
            *,
            reference: MakeBackend | None = None,
            tolerance: Tolerance | None = None,
        ) -> None:
            try:
                check(make_backend, reference=reference, tolerance=tolerance)
            except NotApplicableError as why:
                pytest.skip(str(why))

        excused = check.name in skip
        marks = [pytest.mark.skip(reason=skip[check.name])] if excused else []
        return pytest.param(run, id=check.name, marks=marks)

    return [param(check) for check in CHECKS]


def _known(names: Mapping[str, str]) -> None:
    for name in names:
        if name not in {check.name for check in CHECKS}:
            raise UnknownNameError("check", name, [check.name for check in CHECKS])
