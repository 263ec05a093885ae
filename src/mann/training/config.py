"""One frozen tree of dataclasses: the same in Python, in `config.json` and on the command line."""

import dataclasses
from typing import Any

from mann import parts
from mann.data import DataConfig, Omniglot
from mann.errors import MannError, check_range, check_seed
from mann.models import ModelConfig
from mann.tasks import Task
from mann.training.legacy import upgrade_config
from mann.training.optimisers import Muon, OptimiserConfig

MOST = 10**9  # of anything that is counted; what fits into memory is asked later


@dataclasses.dataclass(frozen=True)
class CurriculumConfig:
    """Episodes that grow while training: one class more every so often, and the length with it."""

    every: int = 0
    """Updates between one class more and the next; 0 means no curriculum."""
    start: int = 15
    """Classes at the beginning; the task's number of classes is the end."""

    def __post_init__(self) -> None:
        check_range("curriculum.every", self.every, 0, MOST)
        check_range("curriculum.start", self.start, 1, MOST)


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that decides the result of a training run.

    Raises:
        MannError: for parts that do not fit together, and numbers that cannot be meant.

    Examples:
        >>> import mann
        >>> config = mann.Config(task=mann.Classification(classes=5), data=mann.Glyphs(), updates=1000)
        >>> from_dict(to_dict(config)) == config
        True
    """

    task: Task
    model: ModelConfig = ModelConfig()
    data: DataConfig = Omniglot()
    optimiser: OptimiserConfig = Muon()
    curriculum: CurriculumConfig = CurriculumConfig()
    updates: int = 6250
    """Length of the run; 6250 updates of 16 are the paper's 100 000 episodes."""
    batch: int = 16
    """Episodes in an update, over all devices and machines together."""
    seed: int = 0
    """Of the weights and of all episodes."""
    persistent: bool = False
    """Do not wipe the memory between episodes (the paper's section on interference)."""
    wiped_after: int = 0
    """Episodes after which a persistent memory is wiped all the same, those of a batch in turn; 0 means never."""
    averaging: float = 0.0
    """Decay of a moving average of the weights that is used for evaluation, such as 0.999; 0 means none."""
    evaluate_every: int = 250
    """Updates between evaluations on the held-out classes; a checkpoint is written with each."""
    evaluate_episodes: int = 160
    """Held-out episodes in an evaluation."""
    dispatch: int = 10
    """Updates in one call to the device."""

    def __post_init__(self) -> None:
        for field in ("updates", "batch", "evaluate_every", "evaluate_episodes", "dispatch"):
            check_range(field, getattr(self, field), 1, MOST)
        check_seed(self.seed)
        if not 0 <= self.averaging < 1:
            raise MannError(f"The decay of the averaged weights must lie in [0, 1), not {self.averaging}.")
        self._check_multiple("evaluate_every", self.evaluate_every)
        if self.batch % self.task.together:
            raise MannError(
                f"{self.task.together} episodes share a pool: make the batch ({self.batch}) a multiple of it."
            )
        if self.curriculum.every:
            if self.task.stage(self.curriculum.start).size[0] < self.curriculum.start:
                raise MannError(
                    f"The curriculum starts with {self.curriculum.start} classes but the task has fewer: raise "
                    "task.classes or lower curriculum.start."
                )
            self._check_multiple("curriculum.every", self.curriculum.every)
        if self.persistent and not self.model.memory.persists:
            raise MannError("A model without a memory has nothing that could persist.")
        check_range("wiped_after", self.wiped_after, 0, MOST)
        if self.wiped_after and not self.persistent:
            raise MannError(
                "A memory that does not persist is wiped after every episode: set --persistent, too."
            )
        if self.task.needs_data and not self.data.has_pictures:
            raise MannError("This task needs pictures: choose a data set, such as omniglot or glyphs.")
        if not self.task.needs_data and self.data.has_pictures:
            raise MannError("This task draws its episodes from no data set: set data to none.")

    @property
    def shares(self) -> int:
        """Into how many shares the batch can be split over devices."""
        return self.batch // self.task.together

    def _check_multiple(self, name: str, value: int) -> None:
        if value % self.dispatch:
            raise MannError(f"{name} ({value}) must be a multiple of dispatch ({self.dispatch}).")


def to_dict(config: Config) -> dict[str, Any]:
    """Plain dictionaries for JSON; every part is tagged with its kind."""
    content: dict[str, Any] = parts.to_dict(config)
    return content


def from_dict(content: Any) -> Config:
    """The inverse of `to_dict`. Unknown fields and wrong types are refused; older forms are read."""
    return parts.from_dict(Config, upgrade_config(content))
