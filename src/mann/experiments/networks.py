"""The networks that the paper compares, and the tasks that it compares them on, as entries by name."""

import dataclasses
from typing import Any

from mann.baselines.autoencoder import AutoencoderConfig
from mann.controllers import FeedForwardConfig
from mann.encoders import ConvConfig, NoEncoder
from mann.experiments.entries import Condition, Neighbours, Network
from mann.experiments.scales import Scale, at_scale
from mann.memory import NoMemoryConfig, NTMConfig
from mann.tasks import Classification
from mann.training.config import Config
from mann.training.presets import MANY_PIXELS, PRESETS, from_many

SETTINGS = {
    "5-onehot": PRESETS["omniglot-5"],
    "5-strings": PRESETS["omniglot-5-strings"],
    "15-strings": PRESETS["omniglot-15-strings"],
    **{name: PRESETS[name] for name in ("gp-1d", "gp-2d", "gp-3d", "asking-3")},
}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "mann": ("MANN, LSTM", {}),
    "mann-feedforward": ("MANN, feed-forward", {"controller": FeedForwardConfig()}),
    "ntm": ("MANN (NTM access, even start), LSTM", {"memory": NTMConfig()}),
    "ntm-moving": (  # the start that did better on held-out classes (experiment `learning_rates`)
        "MANN (NTM access), LSTM",
        {"memory": NTMConfig(initial_strength=10.0, initial_heads="moving")},
    ),
    "lstm": ("LSTM", {"memory": NoMemoryConfig()}),
    "feedforward": ("Feed-forward", {"controller": FeedForwardConfig(), "memory": NoMemoryConfig()}),
}

LEARNING_RATES = {"lstm": 3e-3}
"""Where another rate than the preset's did better on held-out classes (experiment `learning_rates`)."""

PAPER_UPDATES = 6250  # of 16 episodes: the paper's 100 000 episodes

READINGS = (Condition(), Condition(repeats=True))
"""The paper does not say whether a drawing may return within an episode: both are tested."""


def seeds(scale: Scale) -> tuple[int, ...]:
    """The MANN rows are the mean of several runs."""
    return (0, 1) if scale == "full" else (0,)


def with_changes(config: Config, **changes: Any) -> Config:
    """A configuration with other values for some fields, given as `task__classes=7` or `updates=100`."""
    for path, value in changes.items():
        parts = path.split("__")
        targets = [config]
        for part in parts[:-1]:
            targets.append(getattr(targets[-1], part))
        for target, part in zip(reversed(targets), reversed(parts), strict=True):
            value = dataclasses.replace(target, **{part: value})
        config = value
    return config


def network(
    setting: str,
    model: str,
    scale: Scale,
    /,
    seed: int = 0,
    *,
    suffix: str = "",
    label: str = "",
    tests: tuple[Condition, ...] | None = None,
    **changes: Any,
) -> Network:
    """One of `MODELS` on one of `SETTINGS`, with whatever else is changed.

    Tested under both `READINGS` unless told otherwise; at the scale `smoke` under the first.
    """
    name, choices = MODELS[model]
    config = with_changes(SETTINGS[setting], seed=seed)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, **choices))
    if model in LEARNING_RATES:
        config = with_changes(config, optimiser__learning_rate=LEARNING_RATES[model])
    config = with_changes(config, **changes)
    full_name = f"{setting}-{model}{suffix}-seed{seed}"
    if tests is None:
        tests = READINGS[:1] if scale == "smoke" else READINGS
    return Network(full_name, label or name, at_scale(config, scale), tests)


def network_100k(setting: str, scale: Scale, seed: int = 0) -> Network:
    """The MANN trained for exactly 100 000 episodes, with the schedule fitted to them."""
    return network(setting, "mann", scale, seed, suffix="-100k", updates=PAPER_UPDATES)


def framed(setting: str, scale: Scale, seed: int = 0) -> Network:
    """Beyond the paper: the same MANN, its pixels framed first."""
    return network(
        setting,
        "mann",
        scale,
        seed,
        suffix="-framed",
        label="MANN, LSTM, framed pixels",
        model__encoder=NoEncoder(framed=True),
        model__precision="auto",
    )


def keyvalue(setting: str, scale: Scale, seed: int = 0) -> Network:
    """Beyond the paper: the memory that scales, from the weights of `omniglot-many-pixels`, trained for the task.

    Its pixels are the paper's, framed; three fully connected layers make keys of them.
    """
    task = SETTINGS[setting].task
    assert isinstance(task, Classification)
    config = from_many(MANY_PIXELS, task.classes, task.labels, task.length)
    return Network(
        f"{setting}-mann-keyvalue-seed{seed}",
        "MANN, key and value apart, framed pixels",
        at_scale(dataclasses.replace(config, seed=seed), scale),
        READINGS,
        start="omniglot-many-pixels",
    )


def convolutional(setting: str, scale: Scale) -> Network:
    """Beyond the paper: the same MANN behind a small convolutional encoder."""
    return network(
        setting,
        "mann",
        scale,
        suffix="-conv",
        label="MANN, LSTM, convolutions",
        model__encoder=ConvConfig(maps=32),
        updates=20_000,
    )


def neighbours(setting: str, deep: bool, scale: Scale) -> Neighbours:
    """The kNN rows; the autoencoder trains on three times the pictures of the paper's 100 000 episodes."""
    config = at_scale(SETTINGS[setting], scale)
    assert isinstance(config.task, Classification)
    autoencoder = None
    if deep:
        pictures = PAPER_UPDATES * config.batch * config.task.steps
        autoencoder = AutoencoderConfig(images=3 * pictures)
        if scale == "smoke":
            autoencoder = AutoencoderConfig(hidden=8, bottleneck=4, images=40, batch=10)
    kind = "deep" if deep else "raw"
    label = "kNN (deep features)" if deep else "kNN (raw pixels)"
    return Neighbours(f"{setting}-knn-{kind}", label, config.task, config.data, autoencoder)
