"""Estimates with honest uncertainty: arrays in, frozen results out; never a table, a model or a file.

Start with `score_interval` for scores in [0, 1], `mean_t` for other ranges, `ratio_bootstrap` and
`corpus_bootstrap` for scores that are no means. Every one returns an `Estimate`. `pass_at_k` and its kin say what k
draws of an item would bring, `consistency` how far its draws agree.
"""

from __future__ import annotations

from steelyard.stats.bootstrap import corpus_bootstrap as corpus_bootstrap
from steelyard.stats.bootstrap import ratio_bootstrap as ratio_bootstrap
from steelyard.stats.chance import chance_level as chance_level
from steelyard.stats.consistency import Consistency as Consistency
from steelyard.stats.consistency import consistency as consistency
from steelyard.stats.draws import g_pass_at_k as g_pass_at_k
from steelyard.stats.draws import majority_at_k as majority_at_k
from steelyard.stats.draws import mg_pass_at_k as mg_pass_at_k
from steelyard.stats.draws import pass_at_k as pass_at_k
from steelyard.stats.draws import pass_hat_k as pass_hat_k
from steelyard.stats.estimate import Estimate as Estimate
from steelyard.stats.mean import score_interval as score_interval
from steelyard.stats.quantiles import wilson as wilson
from steelyard.stats.unbounded import mean_t as mean_t
from steelyard.stats.unbounded import total_t as total_t
