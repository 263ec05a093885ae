"""How many things a learner knows, and whether it can tell what is new."""

from mann.teaching.novelty import NoveltyRates as NoveltyRates
from mann.teaching.novelty import calibrate_novelty as calibrate_novelty
from mann.teaching.novelty import fit_novelty as fit_novelty
from mann.teaching.novelty import novelty_rates as novelty_rates
from mann.teaching.once import TaughtOnce as TaughtOnce
from mann.teaching.once import teach_once as teach_once
