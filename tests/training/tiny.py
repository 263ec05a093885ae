"""A configuration small enough to train within a second, in Python and as command-line options."""

import dataclasses

from mann.episodes import Classification
from mann.models import ModelConfig
from mann.training.config import Config, DataConfig, OptimiserConfig

TINY = Config(
    task=Classification(classes=3, length=8),
    model=ModelConfig(hidden=8, slots=6, width=4, heads=2),
    data=DataConfig(name="glyphs", classes=40, validation=6),
    optimiser=OptimiserConfig(warmup=2),
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
    *("--model.hidden", "8", "--model.slots", "6", "--model.width", "4", "--model.heads", "2"),
    *("--data.classes", "40", "--data.validation", "6", "--optimiser.warmup", "2"),
    *("--batch", "4", "--evaluate-every", "6", "--evaluate-episodes", "8", "--dispatch", "2"),
    *("--averaging", "0.9"),
]
