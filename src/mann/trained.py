"""Trained models by name: weights shipped with the package, a run folder, or a file."""

import dataclasses
import logging
import math
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import numpy as np

from mann.data.seen import Fingerprints
from mann.errors import MannError
from mann.files import Damaged, digest, from_arrays, load_arrays, save_arrays, to_arrays
from mann.memory import MemoryConfig
from mann.models import Model, build_model
from mann.training.checkpoint import list_checkpoints
from mann.training.config import Config, from_dict, to_dict
from mann.training.legacy import upgrade_arrays
from mann.training.run import SEEN, Run

log = logging.getLogger(__name__)
PRETRAINED = resources.files("mann") / "pretrained"


class Novelty(NamedTuple):
    """How a learner tells what is new, from numbers that `mann.teaching.calibrate_novelty` found.

    The logarithm of the odds of new against known is a sum; every number is a factor in it.
    """

    stated: float = 1.0
    """Of what the network states, as a logarithm of odds."""
    alike: float = 0.0
    """Of how alike the picture is to the most similar of what is held, a cosine."""
    constant: float = 0.0
    """Of 1."""
    things: float = 0.0
    """Of the logarithm of the number of things known."""
    shows: float = 0.0
    """Of the logarithm of the number of examples of the thing that it is taken for."""
    both: float = 0.0
    """Of the product of these two logarithms."""
    again: float = 0.0
    """Of 1, where that thing was shown more than once."""
    again_things: float = 0.0
    """Of the logarithm of the number of things known, where that thing was shown more than once."""
    threshold: float = 0.5
    """The probability from which on something is called new, unless the learner was told otherwise."""

    def log_odds(self, stated: Any, alike: Any, things: Any, shows: Any) -> Any:
        """Numbers or arrays: of each picture what the network states, how familiar it is, and shows."""
        much, often = np.log(things), np.log(shows)
        usual = self.constant + self.things * much + self.shows * often + self.both * much * often
        again = np.where(np.asarray(shows) > 1, self.again + self.again_things * much, 0.0)
        return self.stated * stated + self.alike * alike + usual + again


class Trained(NamedTuple):
    """A model with the configuration that it was trained with."""

    name: str
    """For people."""
    model: Model
    """The network with its weights."""
    config: Config
    """What it was trained with: `config.task` says what its inputs and outputs mean."""
    description: dict[str, Any]
    """Of a checkpoint, its update and so on; of shipped weights, their card."""
    seen: Fingerprints | None = None
    """Fingerprints of every drawing that it has met; None if they were not recorded."""

    @property
    def novelty(self) -> Novelty:
        """How a learner tells what is new: as calibrated on held-out classes, else as the network says."""
        described = self.description.get("novelty", 0.5)
        numbers = described if isinstance(described, dict) else {"threshold": described}
        if not numbers.keys() <= set(Novelty._fields) or not all(
            isinstance(number, int | float) and math.isfinite(number) for number in numbers.values()
        ):
            raise MannError(f"{self.name} says of novelty what makes no sense: take other weights.")
        return Novelty(**numbers)


def pretrained_names() -> list[str]:
    """The names of the weights that ship with the package.

    Examples:
        >>> "omniglot-5" in pretrained_names()
        True
    """
    return sorted(path.name.removesuffix(".safetensors") for path in _shipped())


@cache
def pretrained_digest(name: str) -> str:
    """The digest of shipped weights, whatever is said of them."""
    with resources.as_file(PRETRAINED / f"{name}.safetensors") as file:
        return digest(load_arrays(file)[0])


def load_trained(name: str | Path) -> Trained:
    """Load a trained model.

    Args:
        name: a shipped name; a run folder, of which the best (else the newest) checkpoint is taken; or a file. A
            `Path`, or a string with a slash such as `./omniglot-5`, never means shipped weights.

    Raises:
        MannError: if there is no such model, or if its file is damaged.

    Examples:
        >>> trained = load_trained("omniglot-5")
        >>> trained.config.task.classes, trained.model.memory.slots
        (5, 128)
    """
    path = Path(name)
    for shipped in _shipped() if isinstance(name, str) else ():
        if shipped.name == f"{name}.safetensors":
            if path.exists():
                log.warning(
                    "mann: %s means the shipped weights; for the one in this folder give ./%s.", name, name
                )
            with resources.as_file(shipped) as file:
                return _load(str(name), file)
    if Run.exists(path):
        return _load_run(str(name), Run(path))
    if path.is_file():
        return _load(str(name), path)
    known = ", ".join(pretrained_names()) or "none yet"
    raise MannError(
        f"There is no model {str(name)!r}: give a run folder, a .safetensors file, or a shipped name ({known})."
    )


def _load_run(name: str, run: Run) -> Trained:
    checkpoints = list_checkpoints(run.checkpoints)
    if not run.best.exists():
        if not checkpoints:
            raise MannError(f"The run {run.folder} has no checkpoint yet: train it first.")
        return _load(name, checkpoints[0])
    try:
        return _load(name, run.best)
    except Damaged as error:
        instead = (
            f" The newest checkpoint is {checkpoints[0]}: give that file instead." if checkpoints else ""
        )
        raise Damaged(f"{error}{instead}") from None


def with_slots(trained: Trained, slots: int) -> Trained:
    """The same weights with another number of slots: no weight depends on it.

    Args:
        trained: what `load_trained` returned.
        slots: of the memory.

    Raises:
        MannError: for a memory without slots.
    """
    return _with_memory(trained, trained.config.model.memory.with_slots(slots))


def with_neighbours(trained: Trained, neighbours: int) -> Trained:
    """The same weights, where every head reads only from its most similar slots.

    Args:
        trained: what `load_trained` returned.
        neighbours: slots that a head reads from (K).

    Raises:
        MannError: for a memory that has no such form.
    """
    return _with_memory(trained, trained.config.model.memory.with_neighbours(neighbours))


def with_precision(trained: Trained, precision: Literal["float32", "bfloat16", "auto"]) -> Trained:
    """The same weights, used in another precision.

    Args:
        trained: what `load_trained` returned.
        precision: of the factors of products.
    """
    return _with_model(trained, precision=precision)


def _with_memory(trained: Trained, memory: MemoryConfig) -> Trained:
    """The same weights in another memory, whose weights have the same names and shapes."""
    return _with_model(trained, memory=memory)


def _with_model(trained: Trained, **changes: Any) -> Trained:
    """The same weights in a model with other fields of its configuration."""
    config = dataclasses.replace(trained.config, model=dataclasses.replace(trained.config.model, **changes))
    return trained._replace(model=from_arrays(_shape(config), to_arrays(trained.model)), config=config)


def _shape(config: Config) -> Model:
    """A model of a configuration, with shapes in place of arrays."""
    model: Model = eqx.filter_eval_shape(
        lambda: build_model(config.model, config.task, config.data.format, key=jax.random.key(0))
    )
    return model


def save_trained(path: Path, trained: Trained, *, half: bool = False) -> None:
    """Write a trained model to one file, weights alone (no optimiser), as they ship; `load_trained` reads it.

    Args:
        path: of the file, by convention with the suffix .safetensors; it is replaced as a whole.
        trained: the model, with its configuration.
        half: keep weights in half precision, which takes half of the room; they are used in float32.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "mine.safetensors"
        ...     save_trained(file, load_trained("omniglot-5"))
        ...     load_trained(file).config.task.classes
        5
    """
    weights = to_arrays(trained.model)
    if half:
        weights = {key: value.astype(np.float16) for key, value in weights.items()}
    arrays = {f"model.{key}": value for key, value in weights.items()}
    if trained.seen is not None:
        arrays[SEEN] = trained.seen
    save_arrays(path, arrays, trained.description | {"config": to_dict(trained.config)})


def _shipped() -> list[Any]:
    return [path for path in PRETRAINED.iterdir() if path.name.endswith(".safetensors")]


def _load(name: str, path: Path) -> Trained:
    arrays, description = load_arrays(path)
    return from_content(name, arrays, description, str(path))


def from_content(
    name: str, arrays: dict[str, np.ndarray], description: dict[str, Any], source: str
) -> Trained:
    """A model from the content of a file.

    Args:
        name: of the model, for people.
        arrays: the weights, by name, among others.
        description: with the configuration under `config`.
        source: what errors call the file.

    Raises:
        MannError: if it holds no model.
    """
    if "config" not in description:
        raise MannError(f"{source} holds no model: it has no configuration.")
    config = from_dict(description["config"])
    # Averaged weights are what a run evaluates, where it keeps them.
    prefix = "average." if any(key.startswith("average.") for key in arrays) else "model."
    chosen = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
    model = from_arrays(_shape(config), upgrade_arrays(chosen), source)
    return Trained(name, model, config, description, arrays.get(SEEN))
