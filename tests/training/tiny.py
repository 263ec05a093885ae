"""A configuration small enough to train within a second, in Python and as command-line options."""

import dataclasses

from mann.data import Glyphs
from mann.tasks import Classification
from mann.training.config import Config
from mann.training.optimisers import Muon
from tests.networks import network

TINY = Config(
    task=Classification(classes=3, length=8),
    model=network(hidden=8, slots=6, width=4, heads=2),
    data=Glyphs(classes=40, validation=6),
    optimiser=Muon(warmup=2),
    updates=24,
    batch=4,
    evaluate_every=6,
    evaluate_episodes=8,
    dispatch=2,
    averaging=0.9,
)


def change(**fields: object) -> Config:
    """TINY with some fields changed."""
    return dataclasses.replace(TINY, **fields)


OPTIONS = [
    "glyphs-5",
    *("--task.classes", "3", "--task.length", "8"),
    *("--model.controller.hidden", "8", "--model.memory.slots", "6"),
    *("--model.memory.width", "4", "--model.memory.heads", "2"),
    *("--data.classes", "40", "--data.validation", "6", "--optimiser.warmup", "2"),
    *("--batch", "4", "--evaluate-every", "6", "--evaluate-episodes", "8", "--dispatch", "2"),
    *("--averaging", "0.9"),
]
