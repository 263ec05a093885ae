"""One-shot learning with memory-augmented neural networks (Santoro et al. 2016).

Examples:
    >>> import jax, mann
    >>> task = mann.Classification(classes=5)
    >>> drawings = mann.prepare(mann.Glyphs(classes=40).load())
    >>> episode = task.draw(jax.random.key(0), drawings)
    >>> model = mann.build_model(mann.ModelConfig(), task, drawings.format, key=jax.random.key(1))
    >>> model.unroll(episode.inputs, mann.time_offset(episode.targets)).outputs.shape
    (50, 5)

Names are imported when they are first used, so that `import mann` itself costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mann.cell import State as State
    from mann.controllers import Controller as Controller
    from mann.controllers import ControllerConfig as ControllerConfig
    from mann.controllers import FeedForwardConfig as FeedForwardConfig
    from mann.controllers import LSTMConfig as LSTMConfig
    from mann.controllers import NoControllerConfig as NoControllerConfig
    from mann.data import DataConfig as DataConfig
    from mann.data import Digits as Digits
    from mann.data import Folder as Folder
    from mann.data import Glyphs as Glyphs
    from mann.data import Letters as Letters
    from mann.data import Mixture as Mixture
    from mann.data import NoData as NoData
    from mann.data import Objects as Objects
    from mann.data import Omniglot as Omniglot
    from mann.data import Photographs as Photographs
    from mann.data import Textures as Textures
    from mann.data import load_images as load_images
    from mann.data.functions import GaussianProcess as GaussianProcess
    from mann.data.functions import UnknownProcess as UnknownProcess
    from mann.data.images import ImageSet as ImageSet
    from mann.data.images import PictureFormat as PictureFormat
    from mann.data.render import Drawings as Drawings
    from mann.data.render import prepare as prepare
    from mann.encoders import ConvConfig as ConvConfig
    from mann.encoders import Encoder as Encoder
    from mann.encoders import EncoderConfig as EncoderConfig
    from mann.encoders import MLPConfig as MLPConfig
    from mann.encoders import NoEncoder as NoEncoder
    from mann.episodes import Episode as Episode
    from mann.episodes import time_offset as time_offset
    from mann.errors import MannError as MannError
    from mann.evaluation import Evaluation as Evaluation
    from mann.evaluation import evaluate as evaluate
    from mann.labels import LabelCode as LabelCode
    from mann.layers import Linear as Linear
    from mann.memory import AttentionConfig as AttentionConfig
    from mann.memory import DNCConfig as DNCConfig
    from mann.memory import KeyValueConfig as KeyValueConfig
    from mann.memory import LeastSquaresConfig as LeastSquaresConfig
    from mann.memory import LRUAConfig as LRUAConfig
    from mann.memory import MatchingConfig as MatchingConfig
    from mann.memory import Memory as Memory
    from mann.memory import MemoryConfig as MemoryConfig
    from mann.memory import MemoryTrace as MemoryTrace
    from mann.memory import NoMemoryConfig as NoMemoryConfig
    from mann.memory import NTMConfig as NTMConfig
    from mann.memory import PrototypesConfig as PrototypesConfig
    from mann.memory import SelectiveConfig as SelectiveConfig
    from mann.memory import SlotConfig as SlotConfig
    from mann.memory import SparseConfig as SparseConfig
    from mann.models import PAPER_MODEL as PAPER_MODEL
    from mann.models import Model as Model
    from mann.models import ModelConfig as ModelConfig
    from mann.models import build_model as build_model
    from mann.online import Estimate as Estimate
    from mann.online import Example as Example
    from mann.online import FunctionLearner as FunctionLearner
    from mann.online import Look as Look
    from mann.online import OneShotLearner as OneShotLearner
    from mann.runtime import prepare_jax as prepare_jax
    from mann.runtime import use_devices as use_devices
    from mann.tasks import Asking as Asking
    from mann.tasks import Classification as Classification
    from mann.tasks import ManyThings as ManyThings
    from mann.tasks import Regression as Regression
    from mann.tasks import Roaming as Roaming
    from mann.tasks import Task as Task
    from mann.tasks import UnknownFunctions as UnknownFunctions
    from mann.teaching import TaughtOnce as TaughtOnce
    from mann.teaching import teach_once as teach_once
    from mann.trained import Trained as Trained
    from mann.trained import load_trained as load_trained
    from mann.trained import pretrained_names as pretrained_names
    from mann.trained import save_trained as save_trained
    from mann.trained import with_precision as with_precision
    from mann.trained import with_slots as with_slots
    from mann.training.config import Config as Config
    from mann.training.config import CurriculumConfig as CurriculumConfig
    from mann.training.display import Observer as Observer
    from mann.training.loop import resume as resume
    from mann.training.loop import train as train
    from mann.training.optimisers import AdamW as AdamW
    from mann.training.optimisers import Muon as Muon
    from mann.training.optimisers import OptimiserConfig as OptimiserConfig
    from mann.training.optimisers import RMSProp as RMSProp
    from mann.training.presets import PRESETS as PRESETS

_NAMES = {
    "mann.cell": "State",
    "mann.controllers": "Controller ControllerConfig FeedForwardConfig LSTMConfig NoControllerConfig",
    "mann.data": "DataConfig Digits Folder Glyphs Letters Mixture NoData Objects Omniglot Photographs Textures "
    "load_images",
    "mann.data.functions": "GaussianProcess UnknownProcess",
    "mann.data.images": "ImageSet PictureFormat",
    "mann.data.render": "Drawings prepare",
    "mann.encoders": "ConvConfig Encoder EncoderConfig MLPConfig NoEncoder",
    "mann.episodes": "Episode time_offset",
    "mann.errors": "MannError",
    "mann.evaluation": "Evaluation evaluate",
    "mann.labels": "LabelCode",
    "mann.layers": "Linear",
    "mann.memory": "AttentionConfig DNCConfig KeyValueConfig LRUAConfig LeastSquaresConfig MatchingConfig Memory "
    "MemoryConfig MemoryTrace NTMConfig NoMemoryConfig PrototypesConfig SelectiveConfig SlotConfig SparseConfig",
    "mann.models": "PAPER_MODEL Model ModelConfig build_model",
    "mann.online": "Estimate Example FunctionLearner Look OneShotLearner",
    "mann.runtime": "prepare_jax use_devices",
    "mann.tasks": "Asking Classification ManyThings Regression Roaming Task UnknownFunctions",
    "mann.teaching": "TaughtOnce teach_once",
    "mann.trained": "Trained load_trained pretrained_names save_trained with_precision with_slots",
    "mann.training.config": "Config CurriculumConfig",
    "mann.training.display": "Observer",
    "mann.training.loop": "resume train",
    "mann.training.optimisers": "AdamW Muon OptimiserConfig RMSProp",
    "mann.training.presets": "PRESETS",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from mann.installation import version

        return version()
    if name not in _HOMES:
        raise AttributeError(f"module 'mann' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
