"""Episodes that grow while training, without a new compilation at every step.

The network is compiled for a few lengths only (buckets); within one, the number of classes and the length are
ordinary values, and the steps beyond them are masked.
"""

import dataclasses
from typing import NamedTuple

from mann.episodes import Classification
from mann.training.config import Config

BUCKET = 5  # classes that share one compilation: at most 1 step in 4 is padding at the paper's 15 … 25


class Stage(NamedTuple):
    """What is drawn at one update."""

    classes: int
    length: int
    bucket: int  # classes that the compiled function has room for


def stage_at(config: Config, update: int) -> Stage | None:
    """The stage of the curriculum at an update; None where there is no curriculum."""
    if not config.curriculum.every or not isinstance(config.task, Classification):
        return None
    classes = min(config.curriculum.start + update // config.curriculum.every, config.task.classes)
    bucket = min(-(-classes // BUCKET) * BUCKET, config.task.classes)
    return Stage(classes, 10 * classes, bucket)


def bucket_task(config: Config, stage: Stage | None) -> Classification | None:
    """The task of a stage's bucket: as long as its largest stage."""
    if stage is None or not isinstance(config.task, Classification):
        return None
    return dataclasses.replace(config.task, length=10 * stage.bucket)
