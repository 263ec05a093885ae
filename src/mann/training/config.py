"""One frozen tree of dataclasses: the same in Python, in `config.json` and on the command line."""

import dataclasses
import types
import typing
from typing import Any, Literal, TypeVar

from mann.episodes import Classification, Regression, Task
from mann.errors import MannError
from mann.models import ModelConfig

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Which pictures, and which of their training classes are held out to watch the training."""

    name: Literal["omniglot", "glyphs", "folder"] = "omniglot"
    """Omniglot, the built-in procedural glyphs, or a folder of your own with one folder a class."""
    path: str = ""
    """Where the data is: needed for a folder; for Omniglot, empty means $MANN_DATA, the cache, a download."""
    classes: int = 1623
    """Classes to make (glyphs only)."""
    validation: int = 100
    """Training classes, the last ones, that are never trained on: the live accuracy and the best checkpoint
    are measured on them. At most a quarter of the training classes. Test classes are not touched."""
    mirror: bool = False
    """Train on the mirror image of every class, too, as a class of its own: the paper makes new classes by
    quarter turns, this doubles them. Validation and test are not mirrored."""


@dataclasses.dataclass(frozen=True)
class OptimiserConfig:
    """How gradients become updates."""

    name: Literal["muon", "adamw", "rmsprop"] = "muon"
    """Muon for the weight matrices and AdamW for the rest; AdamW alone; or centred RMSProp with momentum as in
    the paper (after Graves 2013)."""
    learning_rate: float = 1e-3
    warmup: int = 300
    """Updates over which the learning rate rises from zero."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """After the warm-up: fall to zero along a cosine over the whole run, or stay."""
    clip: float = 10.0
    """Largest norm of the gradient of all weights together; 0 means no clipping."""
    weight_decay: float = 0.0
    beta2: float = 0.999
    """AdamW (also for what Muon leaves to it): decay of the second moment."""
    decay: float = 0.95
    """RMSProp: decay of the moving averages of the gradient and of its square."""
    momentum: float = 0.9
    """RMSProp: momentum."""

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise MannError(f"The learning rate must be positive, not {self.learning_rate}.")
        if self.warmup < 0 or self.clip < 0 or self.weight_decay < 0:
            raise MannError("Warm-up, clipping and weight decay must not be negative.")


@dataclasses.dataclass(frozen=True)
class CurriculumConfig:
    """Episodes that grow while training: one class more every so often, and the length with it."""

    every: int = 0
    """Updates between one class more and the next; 0 means no curriculum."""
    start: int = 15
    """Classes at the beginning; the task's number of classes is the end."""

    def __post_init__(self) -> None:
        if self.every < 0 or self.start < 1:
            raise MannError("A curriculum starts with at least 1 class and grows every 1 or more updates.")


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that decides the result of a training run."""

    task: Task
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    updates: int = 6250
    """Length of the run; 6250 updates of 16 are the paper's 100 000 episodes."""
    batch: int = 16
    """Episodes in an update, over all devices and machines together."""
    seed: int = 0
    persistent: bool = False
    """Do not wipe the memory between episodes (the paper's section on interference)."""
    averaging: float = 0.0
    """Decay of a moving average of the weights that is used for evaluation, such as 0.999; 0 means none."""
    evaluate_every: int = 250
    """Updates between evaluations on the held-out classes; a checkpoint is written with each."""
    evaluate_episodes: int = 160
    dispatch: int = 10
    """Updates in one call to the device."""

    def __post_init__(self) -> None:
        for field in ("updates", "batch", "evaluate_every", "evaluate_episodes", "dispatch"):
            if getattr(self, field) < 1:
                raise MannError(f"{field} must be at least 1, not {getattr(self, field)}.")
        if self.seed < 0 or self.seed >= 2**31:
            raise MannError(f"The seed must lie between 0 and 2³¹ − 1, not {self.seed}.")
        if not 0 <= self.averaging < 1:
            raise MannError(f"The decay of the averaged weights must lie in [0, 1), not {self.averaging}.")
        if self.evaluate_every % self.dispatch:
            raise MannError(
                f"evaluate_every ({self.evaluate_every}) must be a multiple of dispatch ({self.dispatch})."
            )
        if self.curriculum.every:
            if not isinstance(self.task, Classification) or self.task.length:
                raise MannError("A curriculum needs a classification task of length 0 (10 per class).")
            if self.curriculum.start > self.task.classes:
                raise MannError(
                    f"The curriculum starts with {self.curriculum.start} classes but the task has only "
                    f"{self.task.classes}: raise task.classes or lower curriculum.start."
                )
            if self.curriculum.every % self.dispatch:
                raise MannError(
                    f"curriculum.every ({self.curriculum.every}) must be a multiple of dispatch "
                    f"({self.dispatch})."
                )
        if self.persistent and self.model.memory == "none":
            raise MannError("A model without a memory has nothing that could persist.")


TASKS: dict[str, type[Classification] | type[Regression]] = {
    "classification": Classification,
    "regression": Regression,
}


def to_dict(config: Config) -> dict[str, Any]:
    """Plain dictionaries for JSON; the task is tagged with its kind."""
    kind = next(name for name, cls in TASKS.items() if isinstance(config.task, cls))
    content = dataclasses.asdict(config)
    return content | {"task": {"kind": kind} | content["task"]}


def from_dict(content: dict[str, Any]) -> Config:
    """The inverse of `to_dict`. Unknown fields and wrong types are refused."""
    return _build(Config, content, "config")


def _build(cls: type[T], content: Any, where: str) -> T:
    if not isinstance(content, dict):
        raise MannError(f"{where} should hold named fields, not {content!r}.")
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, value in content.items():
        if name not in hints:
            raise MannError(f"{where} has an unknown field {name!r}: remove it or check its spelling.")
        values[name] = _convert(hints[name], value, f"{where}.{name}")
    try:
        return cls(**values)
    except TypeError as error:
        raise MannError(f"{where} is incomplete: {error}.") from None


def _convert(hint: Any, value: Any, where: str) -> Any:
    if isinstance(hint, types.UnionType):  # the task
        if not isinstance(value, dict) or value.get("kind") not in TASKS:
            raise MannError(f"{where}.kind must be one of {', '.join(TASKS)}.")
        return _build(TASKS[value["kind"]], {k: v for k, v in value.items() if k != "kind"}, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _build(hint, value, where)
    if typing.get_origin(hint) is Literal:
        options = typing.get_args(hint)
        if value not in options:
            raise MannError(f"{where} is {value!r}: choose one of {', '.join(map(repr, options))}.")
        return value
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise MannError(f"{where} should be a {hint.__name__}, not {value!r}.")
    return value
