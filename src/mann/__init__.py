"""One-shot learning with memory-augmented neural networks (Santoro et al. 2016).

>>> import jax, mann
>>> task = mann.Classification(classes=5)
>>> drawings = mann.prepare(mann.load("glyphs"))
>>> episode = task.draw(jax.random.key(0), drawings)
>>> model = mann.build_model(mann.ModelConfig(), task, key=jax.random.key(1))
>>> outputs, state = model.unroll(episode.inputs, mann.time_offset(episode.targets))

Names are imported when they are first used, so that `import mann` itself costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mann.data import load as load
    from mann.data.images import ImageSet as ImageSet
    from mann.data.render import Drawings as Drawings
    from mann.data.render import prepare as prepare
    from mann.episodes import Classification as Classification
    from mann.episodes import Episode as Episode
    from mann.episodes import Regression as Regression
    from mann.episodes import time_offset as time_offset
    from mann.errors import MannError as MannError
    from mann.evaluation import evaluate as evaluate
    from mann.models import PAPER as PAPER
    from mann.models import Model as Model
    from mann.models import ModelConfig as ModelConfig
    from mann.models import build_model as build_model
    from mann.online import OneShotLearner as OneShotLearner
    from mann.outputs import output_of as output_of
    from mann.training.config import Config as Config
    from mann.training.loop import train as train
    from mann.training.presets import PRESETS as PRESETS
    from mann.weights import load_trained as load_trained

_HOMES = {
    "load": "mann.data",
    "ImageSet": "mann.data.images",
    "Drawings": "mann.data.render",
    "prepare": "mann.data.render",
    "Classification": "mann.episodes",
    "Episode": "mann.episodes",
    "Regression": "mann.episodes",
    "time_offset": "mann.episodes",
    "MannError": "mann.errors",
    "evaluate": "mann.evaluation",
    "PAPER": "mann.models",
    "Model": "mann.models",
    "ModelConfig": "mann.models",
    "build_model": "mann.models",
    "OneShotLearner": "mann.online",
    "output_of": "mann.outputs",
    "Config": "mann.training.config",
    "train": "mann.training.loop",
    "PRESETS": "mann.training.presets",
    "load_trained": "mann.weights",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mann' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
