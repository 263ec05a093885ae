"""What else lifts the paper's network at its own sizes: short runs, judged on held-out training classes.

    python benchmarks/lifts.py [--preset omniglot-5] [--updates 5000] [NAME …] [--seeds 0 1]

Prints a Markdown table: accuracy in % by instance over 2000 episodes of the classes that watch a training, but not
the episodes that it watches. Every run has its own schedule. NAME chooses rows; without any, all of them.
"""

import argparse
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mann import PRESETS, Classification, Config, Model
from mann.encoders import NoEncoder
from mann.experiments.networks import with_changes
from mann.metrics import accuracy_by_instance
from mann.runtime import prepare_jax
from mann.text import ordinal
from mann.training import distributed
from mann.training.trainer import Trainer

SEED, EPISODES, CHUNK = 777, 2000, 250
SHOWN = (1, 2, 3, 5, 10)


@dataclasses.dataclass(frozen=True)
class Smoothed(Classification, kind="smoothed"):
    """Label smoothing: a share of the probability that is asked for is spread over all labels."""

    share: float = 0.1

    def loss(self, outputs: Any, episodes: Any) -> Any:
        evenly = jnp.ones_like(episodes.targets) / self.label_code.alphabet
        spread = jnp.where(episodes.mask, self.output.nll(outputs, evenly), 0.0)
        spread = jnp.sum(spread, axis=-1) / jnp.sum(episodes.mask, axis=-1)
        return (1 - self.share) * super().loss(outputs, episodes) + self.share * spread


@dataclasses.dataclass(frozen=True)
class Specked(Classification, kind="specked"):
    """Dropout on pixels: a share of those of every training picture is blank."""

    share: float = 0.1

    def draw_training(self, keys: Any, source: Any = None, size: Any = None) -> Any:
        episodes = super().draw_training(keys, source, size)
        kept = jax.random.bernoulli(jax.random.fold_in(keys[0], 1), 1 - self.share, episodes.inputs.shape)
        return episodes._replace(inputs=episodes.inputs * kept)


def with_task(kind: Callable[..., Classification]) -> Callable[[Config], Config]:
    """The same task of another class."""

    def change(config: Config) -> Config:
        task = {field.name: getattr(config.task, field.name) for field in dataclasses.fields(config.task)}
        return dataclasses.replace(config, task=kind(**task))

    return change


def fields(**changes: Any) -> Callable[[Config], Config]:
    return partial(with_changes, **changes)


class Recipe(NamedTuple):
    """A row of the table."""

    name: str
    label: str
    change: Callable[[Config], Config]


RECIPES = (
    Recipe("default", "as the preset", fields()),
    Recipe("twice", "twice as many updates", lambda config: with_changes(config, updates=2 * config.updates)),
    Recipe("constant", "learning rate constant after the warm-up", fields(optimiser__schedule="constant")),
    Recipe("smoothing", "label smoothing, 0.1", with_task(Smoothed)),
    Recipe("specked", "a tenth of the pixels dropped", with_task(Specked)),
    Recipe("heads", "8 read heads", fields(model__memory__heads=8)),
    Recipe("decay", "weight decay 0.01", fields(optimiser__weight_decay=0.01)),
    Recipe("framed", "framed pixels", fields(model__encoder=NoEncoder(framed=True))),
)


@eqx.filter_jit
def tally(models: tuple[Model, ...], task: Classification, source: Any, keys: Any) -> Any:
    """Counts by instance of networks together: the mean of their probabilities."""
    episodes = task.draw_batch(keys, source)
    outputs = [task.output.log_probabilities(task.unroll(model, episodes)[0]) for model in models]
    together = jax.nn.logsumexp(jnp.stack(outputs), axis=0) - jnp.log(len(models))
    return task.tally(together.reshape(*together.shape[:-2], -1), episodes).counts


def measure(models: tuple[Model, ...], config: Config, source: Any) -> list[float]:
    """Accuracy in % of `SHOWN`."""
    keys = jax.random.split(jax.random.key(SEED), EPISODES)
    parts = [tally(models, config.task, source, keys[i : i + CHUNK]) for i in range(0, EPISODES, CHUNK)]
    counts = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    cells = accuracy_by_instance(counts)
    return [100 * cells[instance - 1].value for instance in SHOWN]


def row(label: str, runs: list[list[float]]) -> str:
    """The mean over seeds, and their range where there are several."""
    cells = []
    for values in zip(*runs, strict=True):
        spread = f" [{min(values):.1f}, {max(values):.1f}]" if len(values) > 1 else ""
        cells.append(f"{np.mean(values):.1f}{spread}")
    return f"| {' | '.join([label, *cells])} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(r.name for r in RECIPES))
    parser.add_argument("--preset", default="omniglot-5")
    parser.add_argument("--updates", type=int, default=5000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    options = parser.parse_args()
    known = {recipe.name for recipe in RECIPES}
    if unknown := set(options.names) - known:
        parser.error(
            f"There is no recipe {', '.join(sorted(unknown))}: choose from {', '.join(sorted(known))}."
        )
    prepare_jax(1)
    base = with_changes(PRESETS[options.preset], updates=options.updates)
    sources = base.task.load(base.data)
    print(f"| {options.preset}, {options.updates} updates | {' | '.join(map(ordinal, SHOWN))} |")
    print("|---" * (1 + len(SHOWN)) + "|", flush=True)
    for recipe in RECIPES:
        if options.names and recipe.name not in options.names:
            continue
        averaged, last = [], []
        for seed in options.seeds:
            config = recipe.change(with_changes(base, seed=seed))
            trainer = Trainer(config, sources.train, sources.held_out, distributed.make_mesh(config.shares))
            state = trainer.initial_state()
            while int(state.update) < config.updates:
                state, _ = trainer.advance(state, config.dispatch)
            averaged.append(trainer.evaluated_model(state))
            last.append(trainer.evaluated_model(state._replace(average=None)))
        test = partial(measure, config=base, source=sources.held_out)
        print(row(recipe.label, [test((model,)) for model in averaged]), flush=True)
        if recipe.name == "default":
            print(row("without averaging the weights", [test((model,)) for model in last]), flush=True)
            if len(averaged) > 1:
                print(row(f"{len(averaged)} networks together", [test(tuple(averaged))]), flush=True)


if __name__ == "__main__":
    main()
