"""Turns work into questions to the server and its answers into responses."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from steelyard.core.errors import BackendError, RefusedError, SteelyardError
from steelyard.core.types import Finish, Generate, Likelihood, Response, Work
from steelyard.engine.server import generation, likelihood
from steelyard.engine.server.client import Client
from steelyard.engine.server.faults import Failure, Kind, MisfitError

Group = tuple[Work, ...]
"""Draws of one prompt with one sampling that are asked in one request, or a single request."""
Answered = tuple[tuple[Response, ...], int]
"""Responses, and the tokens that they cost."""


class Asker:
    """Asks one model of one server, in one way.

    Args:
        client: the connection.
        model: the model's id at the server.
        api: completions or chat.
        system: the system message of a chat.
        extra: further fields of a generation request.
    """

    def __init__(
        self, client: Client, model: str, *, api: generation.Api, system: str | None, extra: Mapping[str, Any]
    ) -> None:
        self._client, self._model = client, model
        self._api, self._system, self._extra = api, system, dict(extra)
        self._limit_field = "max_tokens"
        self._echo_tokens: int | None = None  # max_tokens for echoes, found by the probe
        self._why_not: str | None = None

    async def why_not(self) -> str:
        """Why the server cannot give likelihoods, "" if it can; asks it once."""
        if self._why_not is None:
            self._why_not = await self._probe()
        return self._why_not

    async def ask_all(
        self, groups: Sequence[Group], ready: queue.SimpleQueue[Answered | None], *, concurrency: int
    ) -> None:
        """Answer all groups, several at once, and put what comes back into `ready`."""
        if any(isinstance(group[0].request, Likelihood) for group in groups):
            await self.why_not()
        rest = iter(groups)

        async def worker() -> None:
            for group in rest:  # one iterator for all workers: each group is taken once
                ready.put(await self._answer(group))

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(concurrency, len(groups))):
                    tasks.create_task(worker())
        except BaseExceptionGroup as errors:
            # the first is enough: all of them say that the run cannot go on
            raise _first(errors) from None

    async def _answer(self, group: Group) -> Answered:
        match group[0].request:
            case Generate() as request:
                return await self._generate(group, request)
            case Likelihood() as request:
                return await self._score(group[0].request_id, request)

    async def _generate(self, group: Group, request: Generate) -> Answered:
        n, label = len(group), group[0].request_id
        while True:
            field = self._limit_field
            body = generation.body(
                request,
                api=self._api,
                model=self._model,
                n=n,
                system=self._system,
                limit_field=field,
                extra=self._extra,
            )
            read = partial(generation.read_choices, api=self._api)
            got = await self._client.ask("POST", generation.PATHS[self._api], body, read, label=label)
            if not (
                isinstance(got, Failure) and "max_completion_tokens" in got.reason and field == "max_tokens"
            ):
                break
            # OpenAI's reasoning models want the new name, most other servers know the old one only
            self._limit_field = "max_completion_tokens"
        if isinstance(got, Failure):
            return tuple(_failed(piece.request_id, got) for piece in group), 0
        choices, usage = got
        responses = []
        for index, piece in enumerate(group):
            if index >= len(choices):
                reason = (
                    f"asked for {n} texts at once, got {len(choices)}: this server does not do n; "
                    "ask without it (use_n=False)"
                )
                responses.append(Response(request_id=piece.request_id, finish=Finish.ERROR, error=reason))
                continue
            # the usage is of all choices together: it is one text's only when there is one
            tokens = usage.completion if n == 1 and usage.completion else None
            responses.append(generation.response(piece.request_id, choices[index], request.sampling, tokens))
        return tuple(responses), usage.prompt + usage.completion

    async def _score(self, request_id: str, request: Likelihood) -> Answered:
        if self._why_not or self._echo_tokens is None:
            raise RefusedError(f"This server cannot give log-likelihoods: {self._why_not}")
        if not request.continuation:
            failure = Failure(Kind.REJECTED, "the continuation to score is empty; an option needs a text")
            return (_failed(request_id, failure),), 0
        text = request.context + request.continuation
        body = likelihood.body(text, model=self._model, max_tokens=self._echo_tokens)
        spent = 0

        def read(data: Mapping[str, Any]) -> likelihood.Echo:
            nonlocal spent
            usage = generation.read_usage(data)
            spent = usage.prompt + usage.completion
            return likelihood.read_echo(data, text)

        got = await self._client.ask("POST", generation.PATHS["completions"], body, read, label=request_id)
        if isinstance(got, Failure):
            return (_failed(request_id, got),), spent
        return (likelihood.score(request_id, request, got),), spent

    async def _probe(self) -> str:
        """Why there are no likelihoods here, "" if there are."""
        if self._api == "chat":
            return f"a chat server gives no log-probabilities of a prompt. {likelihood.WAY_OUT}"
        reason = ""
        for max_tokens in (0, 1):  # some servers refuse 0, some treat it as "no limit" or 1

            def read(data: Mapping[str, Any]) -> likelihood.Echo | str:
                # a misfit is the finding here, not a fault to be retried
                try:
                    return likelihood.read_echo(data, likelihood.PROBE)
                except MisfitError as error:
                    return str(error)

            body = likelihood.body(likelihood.PROBE, model=self._model, max_tokens=max_tokens)
            got = await self._client.ask("POST", generation.PATHS["completions"], body, read, label="probe")
            if isinstance(got, likelihood.Echo):
                if len(got.ends) < 2 or got.logprobs[-1] is None:
                    return f"it gave the whole probe as one token. {likelihood.WAY_OUT}"
                self._echo_tokens = max_tokens
                return ""
            if isinstance(got, Failure) and got.kind is Kind.EXHAUSTED:
                raise BackendError(
                    f"The server could not be asked whether it gives log-probabilities of prompts: {got.reason}. "
                    "See that it runs, then run again."
                )
            # the server's own words on a refusal say more than the second try's
            reason = reason or (got.reason if isinstance(got, Failure) else got)
        return (
            "asked to echo a known text with log-probabilities (completions, echo, logprobs), "
            f"this server did not: {reason}. {likelihood.WAY_OUT}"
        )


def _failed(request_id: str, failure: Failure) -> Response:
    if failure.kind is Kind.FILTERED:
        return Response(request_id=request_id, finish=Finish.REFUSED, error=failure.reason)
    prefix = "overlong: " if failure.kind is Kind.OVERLONG else ""
    return Response(request_id=request_id, finish=Finish.ERROR, error=prefix + failure.reason)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """One error of a group, the user's kind first."""
    flat = [_first(e) if isinstance(e, BaseExceptionGroup) else e for e in errors.exceptions]
    return next((error for error in flat if isinstance(error, SteelyardError)), flat[0])
