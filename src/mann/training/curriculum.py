"""Episodes that grow while training, without a new compilation at every step.

The network is compiled for a few lengths only; within one, the number of classes and the length are ordinary
values, and the steps beyond them are masked (`Task.stage`).
"""

from mann.tasks import Stage
from mann.training.config import Config


def stage_at(config: Config, update: int) -> Stage | None:
    """The stage of the curriculum at an update; None where there is no curriculum."""
    if not config.curriculum.every:
        return None
    return config.task.stage(config.curriculum.start + update // config.curriculum.every)
