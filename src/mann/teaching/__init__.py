"""How many things a learner knows, and whether it can tell what is new."""

from mann.teaching.novelty import NoveltyRates, calibrate_novelty, fit_novelty, novelty_rates
from mann.teaching.once import TaughtOnce, teach_once

__all__ = ["NoveltyRates", "TaughtOnce", "calibrate_novelty", "fit_novelty", "novelty_rates", "teach_once"]
