"""How much of an experiment is run: all of it, a tenth, or just enough to see that it works."""

import dataclasses
from typing import Literal

from mann.data import Glyphs
from mann.training.config import Config

Scale = Literal["smoke", "quick", "full"]
TEST_EPISODES: dict[Scale, int] = {"smoke": 4, "quick": 500, "full": 2000}


def at_scale(config: Config, scale: Scale) -> Config:
    """The same configuration, shortened: a tenth of the updates (quick), or tiny and on glyphs (smoke)."""
    if scale == "full":
        return config
    if scale == "quick":
        updates = max(100, config.updates // 1000 * 100)
        every = min(config.evaluate_every, updates // 5 // config.dispatch * config.dispatch)
        curriculum = config.curriculum
        if curriculum.every:
            curriculum = dataclasses.replace(curriculum, every=curriculum.every // 100 * 10)
        return dataclasses.replace(config, updates=updates, evaluate_every=every, curriculum=curriculum)
    task, curriculum = config.task, config.curriculum
    if curriculum.every:
        task = task.resized(classes=4)
        curriculum = dataclasses.replace(curriculum, start=3, every=2)
    else:
        task = task.smallest()
    model = dataclasses.replace(
        config.model,
        controller=config.model.controller.smallest(),
        memory=config.model.memory.smallest(),
    )
    return dataclasses.replace(
        config,
        task=task,
        curriculum=curriculum,
        model=model,
        data=Glyphs(classes=100, validation=15) if task.needs_data else config.data,
        optimiser=dataclasses.replace(config.optimiser, warmup=0),
        updates=4,
        batch=2,
        dispatch=2,
        evaluate_every=2,
        evaluate_episodes=4,
    )
