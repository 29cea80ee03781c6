"""Free text against references: BLEU and chrF (sacreBLEU's definitions), ROUGE (rouge-score's F1).

BLEU and chrF of a corpus are functions of summed counts, not means over items. Every verdict carries the counts
of its item, so that a corpus score, or a thousand resampled ones, needs sums and no text.

Counts of ``bleu`` (10): hypothesis length, reference length, matches of order 1-4, n-grams of order 1-4.
Counts of ``chrf`` (18): for orders 1-6 the n-grams of the hypothesis, of the best reference, and the matches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from steelyard.core.errors import InputError, UnknownNameError
from steelyard.core.types import Finish
from steelyard.scoring.verdict import Verdict, failed, read, unread, unscored

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu.metrics.bleu import BLEU

N_STATS = {"bleu": 10, "chrf": 18}
_ROUGE = ("rouge1", "rouge2", "rougeL")
_ORDER = 6  # chrF2: characters 1 to 6, no words, beta 2 (Popović 2015; sacreBLEU's default)
_BETA_SQUARED = 4.0
_Floats = npt.NDArray[np.float64]


def judge_corpus(scorer: str, text: str, finish: Finish, golds: Sequence[str]) -> Verdict:
    """Judge one text by ``bleu``, ``chrf``, ``rouge1``, ``rouge2`` or ``rougeL``, in [0, 1].

    The value of an item is its sentence score (BLEU: effective order, exponential smoothing), the best reference
    for ROUGE and chrF, clipped counts over all references for BLEU. An empty text is unparsed and still has its
    counts: left out, it would lift the corpus score.
    """
    golds = [gold for gold in golds if gold.strip()]
    if not golds:
        return failed("the reference holds no text to compare with")
    if scorer in _ROUGE:
        if not any(char.isascii() and char.isalnum() for gold in golds for char in gold.lower()):
            # its tokenizer keeps a-z and 0-9 only: Chinese would score 0, which would not be a finding
            return unscored("rouge-score reads ASCII letters and digits only; the reference has none")
        return read(_rouge(scorer, text, golds), None, finish) if text.strip() else unread(finish)
    if scorer == "bleu":
        value, stats = _bleu(text, golds)
    elif scorer == "chrf":
        value, stats = _chrf(text, golds)
    else:
        raise UnknownNameError("free-text scorer", scorer, (*N_STATS, *_ROUGE))
    return read(value, None, finish, stats=stats) if text.strip() else unread(finish, stats=stats)


def corpus_score(name: str, stats: npt.ArrayLike) -> float:
    """BLEU or chrF of a corpus from its items' counts, as a fraction.

    Args:
        name: "bleu" or "chrf".
        stats: (n_items, n_stats) counts of the items, or (n_stats,) their sum.

    Raises:
        InputError: no items, or another number of counts.
        UnknownNameError: for another name.
    """
    counts = np.asarray(stats, dtype=np.float64)
    if counts.ndim == 2:
        if counts.shape[0] == 0:
            raise InputError(f"A corpus {name} needs at least one item, and got none.")
        counts = counts.sum(axis=0)
    return float(scores_of_sums(name, counts))


def scores_of_sums(name: str, sums: npt.ArrayLike) -> _Floats:
    """BLEU or chrF of many corpora at once, as fractions.

    Args:
        name: "bleu" or "chrf".
        sums: (..., n_stats) summed counts, such as ``weights @ stats`` with (resamples, items) weights.

    Returns:
        (...) scores; equal to sacreBLEU's corpus scores (BLEU: tokenizer 13a, exponential smoothing).
    """
    if name not in N_STATS:
        raise UnknownNameError("corpus score", name, N_STATS)
    counts = np.asarray(sums, dtype=np.float64)
    if counts.ndim == 0 or counts.shape[-1] != N_STATS[name]:
        raise InputError(
            f"Corpus {name} needs {N_STATS[name]} counts per row, and got an array of shape {counts.shape}."
        )
    return _bleu_of(counts) if name == "bleu" else _chrf_of(counts)


def _bleu_of(counts: _Floats) -> _Floats:
    """Papineni et al. 2002, equation 3, with the smoothing of Chen and Cherry 2014, method 3."""
    system, reference = counts[..., 0], counts[..., 1]
    matches, totals = counts[..., 2:6], counts[..., 6:10]
    # the k-th order without a match gets 1 / (2^k total) instead of 0
    halvings = np.cumsum(matches == 0, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(matches > 0, matches, 0.5**halvings) / totals
        mean_log = np.mean(np.log(precision), axis=-1)
        penalty = np.where(system < reference, np.exp(1.0 - reference / system), 1.0)
        score = penalty * np.exp(mean_log)
    # no match at all, or texts too short for some order: 0
    defined = (matches > 0).any(axis=-1) & (totals > 0).all(axis=-1)
    return np.where(defined, score, 0.0)


def _chrf_of(counts: _Floats) -> _Floats:
    """Popović 2015: F-beta of precision and recall averaged over the orders that both texts have."""
    triples = counts.reshape(*counts.shape[:-1], _ORDER, 3)
    hypothesis, reference, matches = triples[..., 0], triples[..., 1], triples[..., 2]
    used = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(used.sum(axis=-1), 1)
    precision = np.where(used, matches / np.where(used, hypothesis, 1.0), 0.0).sum(axis=-1) / orders
    recall = np.where(used, matches / np.where(used, reference, 1.0), 0.0).sum(axis=-1) / orders
    bottom = _BETA_SQUARED * precision + recall
    top = (1.0 + _BETA_SQUARED) * precision * recall
    return np.asarray(np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), 0.0))


@cache
def _bleu_metric() -> BLEU:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(effective_order=True)


def _bleu(text: str, golds: Sequence[str]) -> tuple[float, list[int]]:
    score = _bleu_metric().sentence_score(text, list(golds))
    return score.score / 100, [score.sys_len, score.ref_len, *score.counts, *score.totals]


def _ngrams(text: str) -> list[Counter[str]]:
    joined = "".join(text.split())
    return [Counter(joined[i : i + n] for i in range(len(joined) - n + 1)) for n in range(1, _ORDER + 1)]


def _chrf(text: str, golds: Sequence[str]) -> tuple[float, list[int]]:
    # sacreBLEU has no public way to an item's chrF counts; the tests hold these against its corpus scores
    mine = _ngrams(text)
    candidates: list[tuple[float, list[int]]] = []
    for gold in golds:
        stats: list[int] = []
        for hypothesis, reference in zip(mine, _ngrams(gold), strict=True):
            # an order that the reference lacks does not count against the hypothesis
            size = hypothesis.total() if reference else 0
            stats += [size, reference.total(), (hypothesis & reference).total()]
        candidates.append((float(_chrf_of(np.asarray(stats, dtype=np.float64))), stats))
    return max(candidates, key=lambda candidate: candidate[0])  # the first of equals, as sacreBLEU does


@cache
def _rouge_scorer(name: str) -> RougeScorer:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer([name], use_stemmer=False)


def _rouge(name: str, text: str, golds: Sequence[str]) -> float:
    return float(_rouge_scorer(name).score_multi(list(golds), text)[name].fmeasure)
