"""A backend as a plug-in would bring it, and one with faults that can be switched on."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from steelyard.core.errors import InputError
from steelyard.core.prefixes import distinct_prefixes
from steelyard.core.rng import stream
from steelyard.core.types import Batch, Finish, Generate, Identity, Likelihood, Response, Tokens
from steelyard.engine.backend import Capabilities, check_run

START, END, SIZE = 256, 257, 258


def as_bytes(text):
    return text.encode("utf-8", "surrogatepass")


class Bigram:
    """p(byte | byte before it) is a fixed table; a text begins with START and ends with END."""

    def __init__(self, max_length=96, **identity):
        self.max_length = max_length
        logits = stream(0, "bigram").normal(0, 3, (SIZE, SIZE))
        logits[:, START] = -math.inf  # never written
        logits[:, 128:256] -= 6  # seldom: half of a character is no text to stop at
        self.table = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        known = {"model": "bigram", "backend": "bigram", "weights_digest": "w", "dtype": "float64"}
        self.identity = Identity(**{**known, **identity})

    @property
    def capabilities(self):
        return Capabilities(max_length=self.max_length)

    def encode(self, request):
        if isinstance(request, Generate):
            ids = (START, *as_bytes(request.prompt))
            return Tokens(ids, len(ids))
        if not request.continuation:
            raise InputError("The continuation to score is empty.")
        before = (START, *as_bytes(request.context))
        return Tokens((*before, *as_bytes(request.continuation)), len(before))

    def chat_prompt(self, text, system=None):
        return text

    def run(self, work, done=frozenset(), *, batch_size, cancelled=lambda: False):
        batch_size = check_run(work, batch_size, 4)
        left = [piece for piece in work if piece.request_id not in done]
        for at in range(0, len(left), batch_size):
            if cancelled():
                return
            yield self.batch(left[at : at + batch_size])

    def close(self):
        pass

    def batch(self, pieces):
        answers, texts, heads, new = [], [], 0, 0
        for piece in pieces:
            tokens = piece.tokens or self.encode(piece.request)
            response, made = self.answer(piece, tokens)
            answers.append(response)
            texts.append((*tokens.ids, *made))
            heads += len(made) or len(tokens.ids) - tokens.start
            new += len(made)
        asked, computed = sum(map(len, texts)), distinct_prefixes(texts)
        return Batch(
            responses=tuple(answers),
            asked=asked,
            computed=computed,
            trie=computed,
            scored=min(heads, computed),
            steps=1,
            new_tokens=new,
        )

    def answer(self, piece, tokens):
        if len(tokens.ids) + isinstance(piece.request, Generate) > self.max_length:
            return Response(request_id=piece.request_id, finish=Finish.ERROR, error="overlong"), ()
        if isinstance(piece.request, Likelihood):
            return self.score(piece, tokens.ids, tokens.start), ()
        return self.write(piece, tokens.ids)

    def score(self, piece, ids, start):
        rows = self.table[list(ids[start - 1 : -1])]
        values = rows[range(len(rows)), list(ids[start:])]
        return Response(
            request_id=piece.request_id,
            logprob=min(math.fsum(values), 0.0),
            greedy=bool((values >= rows.max(axis=1)).all()),
            n_tokens=len(values),
            n_bytes=len(as_bytes(piece.request.continuation)),
        )

    def write(self, piece, ids):
        sampling, made, text, finish = piece.request.sampling, [], "", Finish.LENGTH
        noise = stream(piece.request.seed or 0, "draw").random(sampling.max_tokens)
        for n in range(min(sampling.max_tokens, self.max_length - len(ids))):
            row = self.table[made[-1] if made else ids[-1]]
            greedy = sampling.temperature == 0 or piece.request.seed is None
            made.append(int(row.argmax() if greedy else np.exp(row).cumsum().searchsorted(noise[n])))
            if made[-1] == END:
                finish = Finish.EOS
                break
            text = bytes(made).decode("utf-8", "replace")
            found = [at for stop in sampling.stop if (at := text.find(stop)) >= 0]
            if found:
                text, finish = text[: min(found)], Finish.STOP
                break
        return self.written(piece, text, len(made) - (finish is Finish.EOS), finish), made

    def written(self, piece, text, n_tokens, finish):
        return Response(
            request_id=piece.request_id,
            text=text,
            n_tokens=n_tokens,
            n_bytes=len(as_bytes(text)),
            finish=finish,
        )


class Faulty(Bigram):
    """As its parent but for one fault; each method breaks the rule that its name says."""

    def __init__(self, fault):
        super().__init__()
        self.fault, self.runs = fault, 0

    def encode(self, request):
        if self.fault == "an empty continuation is taken" and request == Likelihood("Q:", ""):
            return Tokens((START, 81), 1)
        return super().encode(request)

    def run(self, work, done=frozenset(), *, batch_size, cancelled=lambda: False):
        self.runs += 1
        if self.fault == "the identity changes":
            self.identity = replace(self.identity, settings={"runs": self.runs})
        if self.fault == "a size must be given":
            assert batch_size is not None
        if self.fault == "no look at the size":
            batch_size = max(batch_size or 4, 1)
        if self.fault == "no look at the ids":
            work = list({piece.request_id: piece for piece in work}.values())
        if self.fault == "done is done again":
            done = frozenset()
        if self.fault == "does not stop":
            cancelled = bool
        if self.fault == "the last is forgotten":
            work = work[:-1] if len(work) > 1 else work
        self.first = work[0].request_id if work else ""
        yield from super().run(work, done, batch_size=batch_size, cancelled=cancelled)

    def batch(self, pieces):
        self.width = len(pieces)
        batch = super().batch(pieces)
        if self.fault == "one is answered twice" and len(pieces) > 1:
            return replace(batch, responses=(*batch.responses[:-1], batch.responses[0]))
        counts = {
            "too little is counted as computed": {"computed": 1, "scored": 1, "trie": 1},
            "heads are not counted": {"scored": 0},
            "new tokens are not counted": {"new_tokens": 0},
            "an asked token too many": {"asked": batch.asked + 1},
            "negative time": {"seconds": -1.0},
            "memory sinks": {"peak_memory": 1000 - self.runs_of_batch()},
        }
        return replace(batch, **counts.get(self.fault, {}))

    def runs_of_batch(self):
        self.count = getattr(self, "count", 0) + 1
        return self.count

    def answer(self, piece, tokens):
        if self.fault == "what is too long is cut" and len(tokens.ids) >= self.max_length:
            keep = self.max_length - 20
            start = max(tokens.start - len(tokens.ids) + keep, 1)
            tokens = Tokens(tokens.ids[-keep:], start if isinstance(piece.request, Likelihood) else keep)
        return super().answer(piece, tokens)

    def score(self, piece, ids, start):
        if self.fault == "scored from one token before" and start > 1:
            start -= 1
        response = super().score(piece, ids, start)
        if self.fault == "what is not ASCII fails" and max(ids[1:]) > 127:
            return Response(request_id=piece.request_id, finish=Finish.ERROR, error="no such character")
        shift = {
            "the first request is off": 0.01 * (piece.request_id == self.first),
            "the batch is felt": 0.01 * self.width,
            "each run is another": 1e-9 * self.runs,
            "the last token is left out": super().score(piece, ids[:-1], start).logprob - response.logprob
            if len(ids) - start > 1
            else 0.0,
            "a positive log-probability": 100.0,
        }
        if self.fault == "bytes are characters":
            return replace(response, n_bytes=len(piece.request.continuation))
        shifted = response.logprob + shift.get(self.fault, 0.0)
        return replace(response, logprob=shifted)

    def write(self, piece, ids):
        request = piece.request
        sampling = request.sampling
        changes = {
            "one token too many": {"sampling": replace(sampling, max_tokens=sampling.max_tokens + 1)},
            "stops are ignored": {"sampling": replace(sampling, stop=())},
            "only stops of one character": {
                "sampling": replace(sampling, stop=tuple(s for s in sampling.stop if len(s) == 1))
            },
            "only the first stop": {"sampling": replace(sampling, stop=sampling.stop[:1])},
            "one stream for all": {"seed": request.seed and 7},
            "the stream is that of the batch": {"seed": request.seed and request.seed + self.width},
            "greedy draws are drawn": {"sampling": replace(sampling, temperature=1.0)},
        }
        piece = replace(piece, request=replace(request, **changes.get(self.fault, {})))
        response, made = super().write(piece, ids)
        if self.fault == "the stop is kept" and response.finish is Finish.STOP:
            response = self.written(piece, response.text + sampling.stop[0], response.n_tokens, Finish.STOP)
        if self.fault == "the end is called a limit" and response.finish is Finish.EOS:
            response = replace(response, finish=Finish.LENGTH)
        if self.fault == "the end depends on the limit" and response.finish is Finish.EOS:
            response = self.written(
                piece, f"{response.text}{sampling.max_tokens}", response.n_tokens, Finish.EOS
            )
        return response, made


@pytest.fixture(scope="session")
def bigram():
    return Bigram


@pytest.fixture(scope="session")
def faulty():
    return Faulty
