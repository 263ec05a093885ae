"""Trained models by name: weights shipped with the package, a run folder, or a file."""

from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax

from mann.errors import MannError
from mann.models import Model, build_model
from mann.training.checkpoint import from_arrays, load_arrays, save_arrays, to_arrays
from mann.training.config import Config, from_dict, to_dict
from mann.training.run import Run

PRETRAINED = resources.files("mann") / "pretrained"


class Trained(NamedTuple):
    """A model with the configuration that it was trained with."""

    name: str
    model: Model
    config: Config
    description: dict[str, Any]  # for a checkpoint: its update and so on; for shipped weights: their card


def pretrained_names() -> list[str]:
    """The weights that ship with the package."""
    return sorted(path.name.removesuffix(".safetensors") for path in _shipped())


def load_trained(name: str | Path) -> Trained:
    """Load shipped weights by name, the best (else the newest) checkpoint of a run folder, or one file."""
    for shipped in _shipped():
        if shipped.name == f"{name}.safetensors":
            with resources.as_file(shipped) as path:
                return _load(str(name), path)
    path = Path(name)
    if Run.exists(path):
        run = Run(path)
        found = [run.best] if run.best.exists() else sorted(run.checkpoints.glob("update-*"), reverse=True)
        if not found:
            raise MannError(f"The run {path} has no checkpoint yet: train it first.")
        return _load(str(name), found[0])
    if path.is_file():
        return _load(str(name), path)
    known = ", ".join(pretrained_names()) or "none yet"
    raise MannError(
        f"There is no model {str(name)!r}: give a run folder, a .safetensors file, or a shipped name ({known})."
    )


def save_trained(path: Path, trained: Trained) -> None:
    """Write the weights alone (no optimiser), as they ship."""
    arrays = {f"model.{key}": value for key, value in to_arrays(trained.model).items()}
    save_arrays(path, arrays, trained.description | {"config": to_dict(trained.config)})


def _shipped() -> list[Any]:
    return [path for path in PRETRAINED.iterdir() if path.name.endswith(".safetensors")]


def _load(name: str, path: Path) -> Trained:
    arrays, description = load_arrays(path)
    if "config" not in description:
        raise MannError(f"{path} holds no model: it has no configuration.")
    config = from_dict(description["config"])
    # Averaged weights are what a run evaluates, where it keeps them.
    prefix = "average." if any(key.startswith("average.") for key in arrays) else "model."
    chosen = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
    like = eqx.filter_eval_shape(lambda: build_model(config.model, config.task, key=jax.random.key(0)))
    return Trained(name, from_arrays(like, chosen, str(path)), config, description)
