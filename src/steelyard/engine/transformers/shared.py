"""Scoring with shared prefixes: every distinct prefix of all requests is computed once.

The requests of a whole plan make one trie (without each one's last token, which is never fed), the trie is cut
into packs, and each pack is one forward pass. Logits are made where a request reads them and nowhere else; where
several read the same place (options that begin alike), once.

Packs are cut from the whole plan, whatever is done already, and a pack is always computed whole: a resumed run
then repeats the very arithmetic of an uninterrupted one. It runs the packs that unanswered requests read, and
those that hold an ancestor of theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from steelyard.core.types import Tokens
from steelyard.engine.packs import Pack, cut, needed, split
from steelyard.engine.transformers.memory import free_memory, out_of_memory
from steelyard.engine.transformers.model import LanguageModel
from steelyard.engine.transformers.pack_pass import Held, PackPass
from steelyard.engine.transformers.reference import Passes, Scored
from steelyard.engine.trie import Ints, Trie, build

if TYPE_CHECKING:
    import torch

_ROWS = 64  # rows of logits at once when they are summed up: 12 MiB of a 49,152-token vocabulary, which a cache holds


@dataclass(frozen=True, slots=True)
class Reads:
    """What the requests read of a trie: parallel arrays, one entry per scored token, ordered by request.

    Attributes:
        request: index of the request.
        node: where its logits are made: the token before it.
        target: the scored token.
    """

    request: Ints
    node: Ints
    target: Ints

    @classmethod
    def of(cls, trie: Trie, batch: Sequence[Tokens]) -> Reads:
        """For requests whose ids without the last one made the trie, in the same order."""
        nodes: list[Ints] = []
        for tokens, last in zip(batch, trie.last.tolist(), strict=True):
            wanted = len(tokens.ids) - tokens.start
            found: list[Ints] = []
            node = last
            while wanted:
                # from the last segment upwards, as far as tokens are scored
                segment = trie.segment(node)
                first = max(int(trie.start[segment]), node + 1 - wanted)
                found.append(np.arange(first, node + 1))
                wanted -= node + 1 - first
                node = int(trie.parent[segment])
            nodes += found[::-1]
        counts = [len(t.ids) - t.start for t in batch]
        return cls(
            np.repeat(np.arange(len(batch)), counts),
            np.concatenate(nodes),
            np.concatenate([np.asarray(t.ids[t.start :], dtype=np.int64) for t in batch]),
        )


@dataclass(frozen=True, slots=True)
class Step:
    """What one pack brought.

    Attributes:
        results: of the requests that it completed, by index.
        passes: what was computed.
        nodes: of the trie.
    """

    results: dict[int, Scored]
    passes: Passes
    nodes: int


class SharedScorer:
    """Scores requests pack by pack.

    Args:
        batch: not empty; each with ``1 <= start < len(ids)``.
        budget: tokens in a pack at most.
    """

    def __init__(self, batch: Sequence[Tokens], budget: int) -> None:
        self.trie = build([t.ids[:-1] for t in batch])
        self._reads = Reads.of(self.trie, batch)
        self._packs = cut(self.trie, budget)
        self._counts = np.bincount(self._reads.request, minlength=len(batch))
        self._first = np.cumsum(self._counts) - self._counts
        self._order = np.argsort(self._reads.node, kind="stable")
        self._sorted = self._reads.node[self._order]

    def run(self, model: LanguageModel, done: Collection[int] = frozenset()) -> Iterator[Step]:
        """One step per pack, the packs that nothing waits for left out.

        A pack for which memory does not suffice is halved, down to one token.

        Args:
            model: is loaded if it is not.
            done: indices of requests that need no answer.
        """
        waiting = np.ones(len(self._counts), dtype=bool)
        waiting[list(done)] = False
        missing = self._counts.copy()
        values = np.zeros(len(self._reads.node))
        best = np.zeros(len(self._reads.node), dtype=bool)
        held = Held(self.trie.deepest)
        queue = self._needed(waiting)
        while queue:
            pack = queue.pop(0)
            entries = self._entries(pack)
            try:
                values[entries], best[entries], scored = self._pass(model, pack, held, entries)
            except Exception as error:
                held.forget()
                if not out_of_memory(error) or len(pack) == 1:
                    raise
            else:
                finished: dict[int, Scored] = {}
                requests, times = np.unique(self._reads.request[entries], return_counts=True)
                missing[requests] -= times
                for request in requests[(missing[requests] == 0) & waiting[requests]].tolist():
                    span = slice(self._first[request], self._first[request] + self._counts[request])
                    finished[request] = Scored(
                        token_logprobs=tuple(values[span].tolist()), greedy=bool(best[span].all())
                    )
                yield Step(finished, Passes(computed=len(pack), scored=scored, steps=1), len(pack))
                continue
            # out of the handler, whose traceback held the tensors that did not fit
            free_memory()
            queue[:0] = split(self.trie, pack)

    def _needed(self, waiting: npt.NDArray[np.bool_]) -> list[Pack]:
        """Packs that a waiting request reads, and packs with an ancestor of theirs."""
        edges = np.array([p.last for p in self._packs])
        read = np.searchsorted(edges, self._reads.node[waiting[self._reads.request]], side="right")
        return [self._packs[i] for i in needed(self.trie, self._packs, set(read.tolist()))]

    def _entries(self, pack: Pack) -> Ints:
        """Indices of what is read in a pack, ordered by node."""
        a, b = np.searchsorted(self._sorted, [pack.first, pack.last])
        return self._order[a:b]

    def _pass(
        self, model: LanguageModel, pack: Pack, held: Held, entries: Ints
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_], int]:
        """Log-probabilities, whether each was the largest, and at how many places logits were made."""
        import torch

        places, which = np.unique(self._reads.node[entries], return_inverse=True)
        device = model.device
        how = PackPass(self.trie, pack, held)
        logits = model.pack_logits(
            torch.from_numpy(self.trie.tokens[pack.first : pack.last].astype(np.int64)).to(device),
            torch.from_numpy(how.positions).to(device),
            torch.from_numpy(places - pack.first).to(device),
            how,
        )
        held.commit()
        values, best = token_logprobs(
            logits,
            torch.from_numpy(which.ravel()).to(device),
            torch.from_numpy(self._reads.target[entries]).to(device),
        )
        return values, best, len(places)


def token_logprobs(
    logits: torch.Tensor, rows: torch.Tensor, targets: torch.Tensor
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Log p of targets in nats, and whether each had the largest logit (a tie for it counts).

    Args:
        logits: shape (places, vocabulary), float32.
        rows: shape (n,): which place.
        targets: shape (n,): which token.
    """
    import torch

    if not len(rows):
        return np.empty(0), np.empty(0, dtype=bool)
    wanted = logits[rows, targets]
    # by few rows: a temporary of the size of all logits costs more than the sums themselves
    sums = torch.cat([part.logsumexp(-1) for part in logits.split(_ROWS)])
    peaks = logits.amax(-1)
    values = (wanted.double() - sums.double()[rows]).cpu().numpy()
    return values, (wanted == peaks[rows]).cpu().numpy()
