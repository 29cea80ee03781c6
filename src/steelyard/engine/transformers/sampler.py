"""Generation with shared prompts: one prefill for each distinct prefix, draws as rows of one running batch.

The prompts of a whole plan make one trie; packs of it are read as rows come to need them. A row that has ended
leaves, and the next one enters. What a row writes depends on the plan and on the row, never on its neighbours (see
`decode`), so it is the same text whatever the number of rows, their order, and what was done before a resume.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from steelyard.core.types import Finish
from steelyard.engine.packs import Pack, cut, needed, split
from steelyard.engine.transformers.decode import (
    PAGE,
    ROWS,
    DecodePass,
    Pages,
    Piece,
    PromptPass,
    Standing,
    pieces,
)
from steelyard.engine.transformers.memory import available, free_memory, out_of_memory
from steelyard.engine.transformers.model import LanguageModel
from steelyard.engine.transformers.pack_pass import Held
from steelyard.engine.transformers.reference import Passes
from steelyard.engine.transformers.rows import Generated, Job, Running, begin, choose
from steelyard.engine.transformers.steady import steady, steady_head
from steelyard.engine.transformers.tokenizer import LocalTokenizer
from steelyard.engine.trie import build

if TYPE_CHECKING:
    import torch

_TOGETHER = 8  # texts handed out at once, so that a store is not written for every one


@dataclass(frozen=True, slots=True)
class Harvest:
    """Texts that have ended, by index of their job, and what was computed since the last harvest."""

    results: dict[int, Generated]
    passes: Passes
    nodes: int


@dataclass(slots=True)
class _Row:
    """A text under way."""

    job: int
    text: Running
    prompt: tuple[Piece, ...]
    slot: int = -1


@dataclass(slots=True)
class _Prompts:
    """Packs that were read and are still needed: their keys and values, and logits after whole prompts."""

    kept: dict[int, dict[int, tuple[torch.Tensor, torch.Tensor]]] = field(default_factory=dict)
    logits: dict[int, torch.Tensor] = field(default_factory=dict)


class SharedSampler:
    """Continues prompts, each by its own settings.

    Args:
        jobs: not empty.
        budget: tokens of prompts read at once at most.
        rows: texts under way at once at most; rounded up to a multiple of 8. There are fewer where half of the
            free memory would not hold the keys and values of so many texts of the greatest length.
    """

    def __init__(self, jobs: Sequence[Job], budget: int, rows: int) -> None:
        self._jobs = jobs
        self.trie = build([job.ids for job in jobs])
        self._packs = cut(self.trie, budget)
        self._order = np.argsort(self.trie.last, kind="stable").tolist()
        wanted = min(rows, len(jobs))
        self._slots = -(-wanted // ROWS) * ROWS

    def run(
        self,
        model: LanguageModel,
        tokenizer: LocalTokenizer,
        done: Collection[int] = frozenset(),
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[Harvest]:
        """Texts as they end, some at a time.

        Where memory does not suffice, half of the rows go back to wait (and begin anew, with the same text), and a
        pack is read in halves.
        """
        run = _Run(self, model, tokenizer, set(done))
        while run.going:
            if cancelled():
                break
            try:
                run.step()
            except Exception:
                if run.ended:
                    yield run.harvest()
                raise
            if len(run.ended) >= _TOGETHER or not run.going:
                yield run.harvest()
        if run.ended:
            yield run.harvest()


class _Run:
    """The state of one run."""

    def __init__(
        self, plan: SharedSampler, model: LanguageModel, tokenizer: LocalTokenizer, done: set[int]
    ) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._jobs, self._trie = plan._jobs, plan.trie  # noqa: SLF001
        self._packs = list(plan._packs)  # noqa: SLF001
        self._slots = self._room = plan._slots  # noqa: SLF001  rows, and rows that memory is known to hold
        self._waiting = [j for j in plan._order if j not in done]  # noqa: SLF001
        self._waiting.reverse()  # the next one is the last
        edges = np.array([p.last for p in self._packs])
        homes = np.searchsorted(edges, self._trie.last[self._waiting], side="right")
        self._unread = needed(self._trie, self._packs, set(homes.tolist()))
        self._home = {j: int(h) for j, h in zip(self._waiting, homes, strict=True)}
        self._held = Held(int(self._trie.deepest))
        self._prompts = _Prompts()
        self._pages = Pages(self._slots)
        self._rows: list[_Row] = []
        self._shrinks = self._slots > ROWS and steady(model.load(), list(range(ROWS, self._slots + 1, ROWS)))
        self._lean_head = steady_head(model.load(), list(range(1, self._slots + 1)))
        self._parts: list[Pack] = []  # of the pack that is being read
        self._measured = False
        self._count, self._nodes = Passes(), 0
        self.ended: dict[int, Generated] = {}

    @property
    def going(self) -> bool:
        """Whether anything is left."""
        return bool(self._waiting or self._rows)

    def harvest(self) -> Harvest:
        """What has ended since the last one."""
        harvest = Harvest(self.ended, self._count, self._nodes)
        self.ended, self._count, self._nodes = {}, Passes(), 0
        return harvest

    def step(self) -> None:
        """A row enters where there is room, else all take one token."""
        if self._waiting and len(self._rows) < self._room:
            try:
                self._enter()
            except Exception as error:
                if not out_of_memory(error) or not self._rows:
                    raise
                self._room = len(self._rows)  # its prompt does not fit beside theirs
            return
        try:
            tokens = self._decode()
        except Exception as error:
            if not out_of_memory(error) or len(self._rows) == 1:
                raise
            tokens = None
        if tokens is None:
            free_memory()
            self._give_way()
            return
        for row, token in zip(self._rows, tokens, strict=True):
            row.text.take(token)
        self._leave()

    # ------------------------------------------------------------------------------------------------- entering
    def _enter(self) -> None:
        """The next job: its prompt is read if it is not, and its first token chosen."""
        job = self._waiting[-1]
        while self._unread and self._unread[0] <= self._home[job]:
            self._read(self._unread[0])
            del self._unread[0]
        node = int(self._trie.last[job])
        row = _Row(job, begin(self._jobs[job], self._model, self._tokenizer), self._pieces(node))
        (token,) = choose(self._prompts.logits[node][None], [row.text])
        self._waiting.pop()
        row.text.take(token)
        if row.text.finish is not None:
            self.ended[job] = row.text.result()
            self._forget()
            return
        row.slot = len(self._rows)
        self._rows.append(row)

    def _pieces(self, node: int) -> tuple[Piece, ...]:
        return pieces(self._trie, self._packs, node)

    def _read(self, index: int) -> None:
        """Reads a pack of prompts."""
        import torch

        # an attempt that memory was too small for goes on where it ended: what is held has moved on
        parts = self._parts = self._parts or [self._packs[index]]
        ends = np.unique(self._trie.last)
        while parts:
            pack = parts[0]
            places = ends[(ends >= pack.first) & (ends < pack.last)]
            how = PromptPass(self._trie, pack, self._held)
            device = self._model.device
            try:
                logits = self._model.pack_logits(
                    torch.from_numpy(self._trie.tokens[pack.first : pack.last].astype(np.int64)).to(device),
                    torch.from_numpy(how.positions).to(device),
                    torch.from_numpy(places - pack.first).to(device),
                    how,
                )
            except Exception as error:
                self._held.forget()
                if not out_of_memory(error) or len(pack) == 1:
                    raise
            else:
                self._held.commit()
                self._keep(index, how.kept)
                self._prompts.logits.update(zip(places.tolist(), logits, strict=True))
                self._add(len(pack), len(places), len(pack))
                del parts[0]
                continue
            free_memory()
            parts[:1] = split(self._trie, pack)

    def _keep(self, index: int, kept: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> None:
        import torch

        before = self._prompts.kept.get(index)
        if before is not None:  # the second half of a pack
            kept = {
                n: (torch.cat([before[n][0], k], 2), torch.cat([before[n][1], v], 2))
                for n, (k, v) in kept.items()
            }
        self._prompts.kept[index] = kept
        if not self._measured:
            self._measured = True
            self._bound(kept)

    def _bound(self, kept: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Fewer rows, where half of what is free does not hold what they may write."""
        free = available(self._model.device)
        if free is None:
            return
        token = sum(t.shape[1] * t.shape[3] * t.element_size() for pair in kept.values() for t in pair)
        longest = max(self._jobs[j].limit for j in self._home)
        fit = free // 2 // (token * -(-longest // PAGE) * PAGE)
        self._slots = self._room = min(self._slots, max(ROWS, fit // ROWS * ROWS))
        self._pages.shrink(self._slots)

    # ------------------------------------------------------------------------------------------------- decoding
    def _decode(self) -> list[int | None]:
        """One step of all rows: their next tokens."""
        import torch

        self._rows.sort(key=lambda r: (self._trie.last[r.job], r.job))
        rows = self._rows
        width = -(-len(rows) // ROWS) * ROWS if self._shrinks else self._slots
        how = DecodePass(
            [Standing(r.slot, r.prompt, len(r.text.job.ids), len(r.text.ids) - 1) for r in rows],
            width,
            self._prompts.kept,
            self._pages,
            self._model.device,
        )
        ids = torch.zeros(width, dtype=torch.int64)
        ids[: len(rows)] = torch.tensor([r.text.ids[-1] for r in rows])
        device = self._model.device
        # filling is computed by the layers; logits of it are made only where their number changes the others' bits
        scored = len(rows) if self._lean_head else width
        logits = self._model.pack_logits(
            ids.to(device), how.positions, torch.arange(scored, device=device), how
        )
        self._add(width, scored, 0)
        return choose(logits[: len(rows)], [r.text for r in rows])

    def _leave(self) -> None:
        """Rows that have ended give their slots to the last ones, so that slots stay 0 .. n - 1."""
        over = [r for r in self._rows if r.text.finish is not None]
        if not over:
            return
        for row in over:
            self.ended[row.job] = row.text.result()
            if row.text.finish is Finish.ERROR:
                self._pages.clear(row.slot)
        self._rows = [r for r in self._rows if r.text.finish is None]
        self._close_up()
        self._forget()

    def _close_up(self) -> None:
        count = len(self._rows)
        free = sorted(set(range(count)) - {r.slot for r in self._rows})
        for row in self._rows:
            if row.slot >= count:
                target = free.pop()
                self._pages.move(row.slot, target)
                row.slot = target

    def _give_way(self) -> None:
        """Half of the rows begin anew later; there are fewer from now on."""
        self._room = len(self._rows) // 2
        back = self._rows[self._room :]
        self._rows = self._rows[: self._room]
        self._waiting += sorted((r.job for r in back), key=lambda j: (-self._trie.last[j], -j))
        self._close_up()
        self._slots = -(-self._room // ROWS) * ROWS
        self._pages.shrink(self._slots)

    def _forget(self) -> None:
        """Drops packs and logits that no row, and no job to come, needs."""
        wanted = {piece.pack for row in self._rows for piece in row.prompt}
        ends = {int(self._trie.last[row.job]) for row in self._rows}
        if self._waiting:
            # jobs come in the order of the trie: what they read is on the path of the next one, or behind it
            following = self._waiting[-1]
            first = int(self._trie.last[following])
            wanted |= {piece.pack for piece in self._pieces(first)}
            wanted |= {p for p in self._prompts.kept if p >= self._home[following]}
            ends |= {n for n in self._prompts.logits if n >= first}
        for pack in set(self._prompts.kept) - wanted:
            del self._prompts.kept[pack]
        for node in set(self._prompts.logits) - ends:
            del self._prompts.logits[node]

    def _add(self, computed: int, scored: int, nodes: int) -> None:
        self._count += Passes(computed=computed, scored=scored, steps=1)
        self._nodes += nodes
