"""Named configurations for `mann train`."""

from mann.episodes import Classification
from mann.models import PAPER, ModelConfig
from mann.training.config import Config, DataConfig, OptimiserConfig

PRESETS: dict[str, Config] = {
    "omniglot-5": Config(
        task=Classification(classes=5),
        updates=25_000,
        evaluate_every=500,
        averaging=0.999,
    ),
    "omniglot-5-strings": Config(
        task=Classification(classes=5, labels="strings"),
        updates=25_000,
        evaluate_every=500,
        averaging=0.999,
    ),
    "omniglot-15-strings": Config(
        task=Classification(classes=15, length=100, labels="strings"),
        updates=25_000,
        evaluate_every=500,
        averaging=0.999,
    ),
    "glyphs-5": Config(
        task=Classification(classes=5),
        data=DataConfig(name="glyphs"),
        updates=6250,
        averaging=0.999,
    ),
    "paper": Config(
        task=Classification(classes=5),
        model=PAPER,
        optimiser=OptimiserConfig(
            name="rmsprop", learning_rate=1e-4, warmup=0, schedule="constant", clip=0.0
        ),
        updates=6250,
    ),
}
"""The first three train the models that the paper tables; `paper` is its literal cell and optimiser."""

SMALL = ModelConfig(hidden=64, slots=32, width=20, heads=2)
