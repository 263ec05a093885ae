"""Named configurations for `mann train`."""

import dataclasses
from typing import Any, Literal

from mann.controllers import LSTMConfig, NoControllerConfig
from mann.data import DataConfig, Glyphs, Letters, Mixture, NoData, Objects, Omniglot, Textures
from mann.data.functions import GaussianProcess, UnknownProcess
from mann.encoders import ConvStackConfig, EncoderConfig, MLPConfig
from mann.memory import KeyValueConfig, LeastSquaresConfig, LRUAConfig, MemoryConfig
from mann.models import PAPER_MODEL, ModelConfig
from mann.tasks import Asking, Classification, ManyThings, Regression, Roaming, Task, UnknownFunctions
from mann.tasks.pool import PoolConfig
from mann.training.config import Config
from mann.training.optimisers import AdamW, Muon, RMSProp

FUNCTIONS = {
    dimensions: Regression(dimensions=dimensions, process=GaussianProcess(length_scale=length_scale))
    for dimensions, length_scale in ((1, 0.5), (2, 1.0), (3, 1.5))
}
"""By dimensions. The more, the smoother the functions, so that 50 samples still tell much of one."""


def _gp(dimensions: int, updates: int) -> Config:
    """Regression with the paper's network; the more variables, the longer it learns.

    The key strength starts low: where classification looks up one sample, this blends several close ones. The loss
    is over all that the exact process holds possible, since the sample drawn is mostly noise to a network that is
    nearly as good.
    """
    return Config(
        task=dataclasses.replace(FUNCTIONS[dimensions], loss_over="process"),
        model=ModelConfig(memory=LRUAConfig(initial_strength=3.0), precision="auto"),
        data=NoData(),
        optimiser=Muon(learning_rate=6e-3, warmup=100),
        updates=updates,
        evaluate_every=500,
        averaging=0.999,
    )


def _least_squares(
    task: Task, memory: LeastSquaresConfig, updates: int, learning_rate: float = 2e-2
) -> Config:
    """The best network for functions: the memory alone, which takes x and y straight from the input."""
    return Config(
        task=task,
        model=ModelConfig(controller=NoControllerConfig(), memory=memory, reads_to_controller=False),
        data=NoData(),
        optimiser=AdamW(learning_rate=learning_rate, warmup=50),
        updates=updates,
        evaluate_every=200,
        evaluate_episodes=400,
        averaging=0.99,
    )


def _unknown(
    dimensions: int,
    length_scale: tuple[float, float],
    period: tuple[float, float],
    updates: int = 800,
    learning_rate: float = 2e-2,
    **memory: Any,
) -> Config:
    """Functions that are not known in advance: more heads, each for another kind (`memory`).

    x has a wider range than that which a `FunctionLearner` brings samples to, so that it may ask beyond them.
    """
    heads = LeastSquaresConfig(
        shortest=length_scale[0],
        longest=length_scale[1],
        shortest_period=period[0],
        longest_period=period[1],
        **memory,
    )
    process = UnknownProcess(length_scale=length_scale, period=period)
    task = UnknownFunctions(dimensions=dimensions, low=-3.0, high=3.0, unknown=process)
    return _least_squares(task, heads, updates, learning_rate)


KEYS = KeyValueConfig(slots=256, width=128, heads=1, projected=False, balanced=True)
"""What the encoder says is the key: with one more layer, which Muon turns as fast as any other, it learns less.
Labels count alike, however often each was shown."""


def _many(
    encoder: EncoderConfig,
    side: int,
    updates: int,
    distortion: float = 0.1,
    bend: float = 0.0,
    memory: MemoryConfig = KEYS,
    averaging: float = 0.998,
) -> Config:
    """Few things or many: keys straight from the encoder, apart from the labels, and novelty as an output.

    Four episodes share 512 pictures, since the encoder is most of the work. Half of the pools are of whole
    alphabets, whose characters resemble each other.
    """
    return Config(
        task=ManyThings(
            classes=128,
            fewest=3,
            quizzed=0.5,
            contrast=3.0,
            length=256,
            alphabets="mixed",
            pool=PoolConfig(episodes=4, classes=128, drawings=4, distortion=distortion, bend=bend),
        ),
        model=ModelConfig(
            encoder=encoder,
            controller=LSTMConfig(hidden=64),
            memory=memory,
            reads_to_controller=False,
            precision="auto",
        ),
        data=Omniglot(mirror=True, side=side),
        optimiser=Muon(learning_rate=2e-3, warmup=100),
        updates=updates,
        batch=4,
        evaluate_every=500,
        evaluate_episodes=40,
        averaging=averaging,
    )


CONVOLUTIONS = ConvStackConfig(
    maps=(32, 48, 64, 96, 128, 128), strides=(2, 1, 2, 1, 2, 1), features=128, framed=True
)
"""Many narrow layers for 40×40 pixels: on held-out classes better than fewer wide ones at the same cost."""


MANY = _many(CONVOLUTIONS, side=40, updates=5000, bend=0.025)
MANY_PIXELS = _many(
    MLPConfig(hidden=512, layers=3, features=256, framed=True),
    side=20,
    updates=12_000,
    distortion=0.15,
    memory=KeyValueConfig(slots=256, width=128, heads=1),
    averaging=0.999,
)


def from_many(
    many: Config,
    classes: int,
    labels: Literal["onehot", "strings"],
    length: int = 0,
) -> Config:
    """The paper's task for one number of classes, to be trained from the weights of `many`.

    Labels count alike. A one-hot label that is in use is no longer possible for something new; of strings there are
    thousands.
    """
    assert isinstance(many.task, ManyThings) and isinstance(many.model.memory, KeyValueConfig)
    pool = dataclasses.replace(many.task.pool, episodes=16, classes=50, drawings=10, bend=0.0)
    memory = dataclasses.replace(many.model.memory, rules_out=labels == "onehot", balanced=True)
    task = Classification(classes=classes, length=length, pool=pool)
    if labels == "strings":
        task = ManyThings(classes=classes, fewest=classes, length=length, pool=pool)
    return dataclasses.replace(
        many,
        task=task,
        model=dataclasses.replace(many.model, memory=memory),
        optimiser=Muon(learning_rate=3e-4, warmup=100),
        updates=1500,
        batch=16,
        evaluate_episodes=160,
        averaging=0.998,
    )


SMALL_CONVOLUTIONS = ConvStackConfig(maps=(16, 32, 32, 64, 64), strides=(2, 1, 2, 1, 2), features=128)
"""A fraction of the work of `CONVOLUTIONS`, for 28×28 pixels."""

STREAMING_CONVOLUTIONS = ConvStackConfig(
    maps=(32, 32, 64, 64, 96, 128), strides=(1, 2, 1, 2, 1, 2), features=128
)
"""For the 28×28 pixels of RoamingOmniglot."""


def mixed(data: DataConfig) -> Config:
    """Many kinds of pictures in one network: the recipe of `omniglot-many` with a smaller encoder."""
    many = _many(SMALL_CONVOLUTIONS, side=data.side, updates=1500)
    return dataclasses.replace(many, data=data)


def _roaming() -> Config:
    """Streams that wander (RoamingOmniglot), with the network of `omniglot-many` and the published split.

    Four streams are 600 pictures, about as many as an update of `omniglot-many` encodes. What hides a part of every
    picture counts as ink, so that they are not framed.
    """
    return dataclasses.replace(
        _many(STREAMING_CONVOLUTIONS, side=28, updates=3000),
        task=Roaming(contrast=3.0),
        data=Omniglot(split="roaming", mirror=True, side=28),
        batch=4,
        evaluate_every=300,
    )


PRESETS: dict[str, Config] = {
    "omniglot-5": Config(
        task=Classification(classes=5),
        data=Omniglot(mirror=True),
        updates=40_000,
        evaluate_every=500,
        averaging=0.999,
    ),
    "omniglot-5-strings": Config(
        task=Classification(classes=5, labels="strings"),
        data=Omniglot(mirror=True),
        updates=20_000,
        evaluate_every=500,
        averaging=0.999,
    ),
    "omniglot-15-strings": Config(
        task=Classification(classes=15, length=100, labels="strings"),
        data=Omniglot(mirror=True),
        updates=35_000,
        evaluate_every=500,
        averaging=0.999,
    ),
    "omniglot-5-conv": from_many(MANY, classes=5, labels="onehot"),
    "omniglot-20-strings-conv": from_many(MANY, classes=20, labels="strings"),
    "omniglot-many": MANY,
    "omniglot-many-pixels": MANY_PIXELS,
    "asking-3": Config(
        task=Asking(classes=3),
        model=ModelConfig(memory=LRUAConfig(slots=32)),
        data=Omniglot(mirror=True),
        updates=10_000,
        batch=32,
        evaluate_every=500,
        averaging=0.999,
    ),
    "omniglot-roaming": _roaming(),
    "mixture": mixed(Mixture(side=28, validation=50, mirror=True)),
    "photographs": mixed(
        Mixture(
            sources=(Omniglot(), Glyphs(), Letters(), Textures(), Objects()),
            side=32,
            validation=50,
            drawings=10,
        )  # more drawings, or mirrored ones, are more than the device can address
    ),
    "glyphs-5": Config(
        task=Classification(classes=5),
        data=Glyphs(),
        updates=6250,
        evaluate_every=500,
        averaging=0.999,
    ),
    "paper": Config(
        task=Classification(classes=5),
        model=PAPER_MODEL,
        optimiser=RMSProp(learning_rate=1e-4, warmup=0, schedule="constant", clip=0.0),
        updates=6250,
    ),
    "gp-1d": _gp(1, 10_000),
    "gp-2d": _gp(2, 40_000),
    "gp-3d": _gp(3, 30_000),
    "gp-1d-best": _least_squares(FUNCTIONS[1], LeastSquaresConfig(frequencies=24, heads=2), updates=1000),
    "gp-2d-best": _least_squares(FUNCTIONS[2], LeastSquaresConfig(frequencies=64, heads=1), updates=600),
    "gp-3d-best": _least_squares(FUNCTIONS[3], LeastSquaresConfig(frequencies=64, heads=1), updates=600),
    "functions-1d": _unknown(
        1,
        (0.25, 2.0),
        (1.0, 4.0),
        updates=400,
        learning_rate=4e-3,  # the heads start close to where they belong
        frequencies=20,
        heads=64,
        rough=8,
        periodic=32,
        sawtooth=16,
        span=12.0,
        noise=0.16,
    ),
    "functions-2d": _unknown(2, (0.5, 3.0), (1.5, 6.0), frequencies=64, heads=6, sawtooth=2),
    "functions-3d": _unknown(3, (0.75, 4.0), (2.0, 8.0), frequencies=64, heads=6, sawtooth=2),
}
"""The first three train the models that the paper tables; the two that end in `conv` are for the same task with an
encoder, and start from `omniglot-many` (`STARTS`); `omniglot-many` and `omniglot-many-pixels` are for few things or
many, with keys apart from values, by convolutions and from pixels alone, `omniglot-roaming` for streams that wander
between alphabets, `asking-3` for asking which labels to be told (docs/asking.md); `mixture` and `photographs` are
trained on many kinds of pictures, grey and in colour; `paper` is the literal cell and optimiser; `gp-1d` to `gp-3d`
are the paper's regression (docs/regression.md says why these length scales), those that end in `best` the same
functions with a memory by least squares, and `functions-1d` to `functions-3d` functions that are not known in
advance."""

STARTS = {"omniglot-5-conv": "omniglot-many", "omniglot-20-strings-conv": "omniglot-many"}
"""The weights that `mann train` starts from, where they are not random."""

QUICKSTART = Config(
    task=Classification(classes=5),
    model=ModelConfig(controller=LSTMConfig(hidden=128), memory=LRUAConfig(slots=64, width=32)),
    data=Glyphs(),
    updates=4000,
    evaluate_every=500,
    averaging=0.99,
)
"""What `mann quickstart` trains: smaller than the paper's network, for a few minutes on two cores."""


def describe() -> str:
    """One line for each preset, with what was measured of it (`measured.json`)."""
    import json
    from importlib import resources

    measured = json.loads((resources.files("mann") / "training" / "measured.json").read_text())
    lines = []
    for name, config in PRESETS.items():
        line = f"  {name:<21}{config.updates:>6} updates"
        if result := measured.get(name):
            scores = " ".join(f"{100 * value:.1f}" for value in result.get("accuracy", []))
            line += f", {result['minutes']:>3.0f} min:  {scores or format(result['late_gap'], '.3f')}"
        lines.append(line)
    return "\n".join(lines)
