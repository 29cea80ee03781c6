"""Estimates with honest uncertainty: arrays in, frozen results out; never a table, a model or a file.

Start with `score_interval` for scores in [0, 1], `mean_t` for other ranges, `ratio_bootstrap` and
`corpus_bootstrap` for scores that are no means. Every one returns an `Estimate`.
"""

from __future__ import annotations

from steelyard.stats.bootstrap import corpus_bootstrap as corpus_bootstrap
from steelyard.stats.bootstrap import ratio_bootstrap as ratio_bootstrap
from steelyard.stats.chance import chance_level as chance_level
from steelyard.stats.estimate import Estimate as Estimate
from steelyard.stats.mean import score_interval as score_interval
from steelyard.stats.quantiles import wilson as wilson
from steelyard.stats.unbounded import mean_t as mean_t
from steelyard.stats.unbounded import total_t as total_t
