"""What a reader of a report must know beside its numbers: selections, changed content, what is missing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from steelyard.reporting.model import ScoreRow
from steelyard.store.escape import restore
from steelyard.store.reader import Store
from steelyard.store.rows import SourceRow


def notes(rows: Sequence[ScoreRow], store: Store, waiting: int, unjudged: int) -> Iterator[str]:
    """Sentences about a store.

    Args:
        rows: of its report.
        store: the tables.
        waiting: cells that wait for an answer.
        unjudged: cells that are answered and have no score.
    """
    sources = store.sources()
    yield from dict.fromkeys(_selections(store, sources))
    contents = defaultdict(set)
    for source in sources:
        contents[source.benchmark].add(source.content_hash)
    for benchmark, hashes in contents.items():
        if len(hashes) > 1:
            yield f"{benchmark}: its content changed between runs ({', '.join(sorted(hashes))})"
    if waiting:
        yield f"{waiting} cells have no answer yet; the same run command asks them"
    if unjudged:
        yield f"{unjudged} cells are answered and not judged yet; judge them with: steelyard score {store.path}"
    if not rows:
        yield "nothing is judged yet"


def _selections(store: Store, sources: Sequence[SourceRow]) -> Iterator[str]:
    """Which items were taken. Only the latest selection is kept, and an earlier one may have taken more."""
    table = store.query(
        "SELECT a.run_id, f.benchmark, count(DISTINCT a.item_id) AS items FROM asks a "
        "JOIN forms f ON f.form_id = a.form_id GROUP BY ALL"
    )
    asked = {(restore(r["run_id"]), restore(r["benchmark"])): r["items"] for r in table.to_pylist()}
    contents = Counter((s.run_id, s.benchmark) for s in sources)
    for source in sources:
        key = (source.run_id, source.benchmark)
        taken = asked.get(key, 0)
        if contents[key] == 1 and taken > source.n_selected:
            yield (
                f"{source.benchmark}: {taken} of {source.n_items} items over several runs, the last of which "
                f"took: {source.selection}"
            )
        else:
            yield f"{source.benchmark}: {source.selection}"
