"""Recipes of training compared in short runs, by the gap to the exact process on functions never trained on.

    python benchmarks/recipes.py [--preset gp-1d] [--updates 800] [CHANGES …]

CHANGES are fields of the preset with other values, such as optimiser.learning_rate=0.012,model.query=cell; without
any the preset itself. Every run has its own schedule. The functions are neither those of a test nor those that
training watches.
"""

import argparse
import json
from typing import Any

import equinox as eqx
import jax
import numpy as np

from mann import PRESETS, Config
from mann.runtime import prepare_jax
from mann.training import distributed
from mann.training.config import from_dict, to_dict
from mann.training.trainer import Trainer

SEED, FUNCTIONS, LATE = 777, 1000, 20


def changed(config: Config, changes: str) -> Config:
    """With other values for some fields, each as JSON or as a plain word."""
    content = to_dict(config)
    for change in filter(None, changes.split(",")):
        path, _, text = change.partition("=")
        *parents, field = path.split(".")
        place: Any = content
        for parent in parents:
            place = place[parent]
        try:
            place[field] = json.loads(text)
        except json.JSONDecodeError:
            place[field] = text
    return from_dict(content)


def gaps(config: Config) -> np.ndarray:
    """By function and step, after training."""
    sources = config.task.load(config.data)
    trainer = Trainer(config, sources.train, sources.held_out, distributed.make_mesh(config.shares))
    state = trainer.initial_state()
    while int(state.update) < config.updates:
        state, _ = trainer.advance(state, config.dispatch)
    keys = jax.random.split(jax.random.key(SEED), FUNCTIONS)
    model = distributed.replicate(trainer.evaluated_model(state), trainer.local_mesh)
    tally = trainer.tally(eqx.filter(model, eqx.is_array), trainer.held_out, keys)
    reference = jax.jit(lambda keys: config.task.reference(config.task.draw_batch(keys)))(keys)
    return np.asarray(tally.nll) - np.asarray(reference.nll)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("changes", nargs="*", default=[""])
    parser.add_argument("--preset", default="gp-1d")
    parser.add_argument("--updates", type=int, default=800)
    options = parser.parse_args()
    prepare_jax(1)
    print(
        f"| {options.preset}, {options.updates} updates | gap, all steps | from step {LATE} on |\n|---|---|---|"
    )
    length = {"updates": options.updates, "evaluate_every": options.updates}
    for changes in options.changes:
        config = changed(PRESETS[options.preset], changes)
        gap = gaps(from_dict(to_dict(config) | length))
        print(f"| {changes or '–'} | {gap.mean():.3f} | {gap[:, LATE - 1 :].mean():.3f} |", flush=True)


if __name__ == "__main__":
    main()
