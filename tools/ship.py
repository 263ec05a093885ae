"""Make the weights of the best of some finished runs part of the package, with a card.

    python tools/ship.py [--half] NAME[:SLOTS] RUN [RUN …]

The runs were trained with `mann train NAME --seed S` for different S. The best is the one that did best on held-out
training classes or functions. What ships runs in float32, whatever it was trained in. The card says how the weights
came about, and how well they do on 2000 episodes of test classes or functions: `mann eval NAME` should agree within
the interval. With SLOTS, the memory of what ships has that many, whatever it had in training; with --half, weights
are rounded to half precision and kept so. For a network that states novelty, how a learner tells what is new is
found on held-out classes (`tools/calibrate.py`), and the card also says how many things a learner knows when each
was shown once.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from calibrate import HOW, THINGS

from mann.runtime import prepare_jax

if TYPE_CHECKING:
    from mann.trained import Trained

EPISODES = 2000
TARGET = Path(__file__).parents[1] / "src" / "mann" / "pretrained"


def held_out_score(trained: "Trained", episodes: int = 120) -> float:
    """On held-out episodes, the same ones whatever the seed: those that a run watches are its own."""
    import equinox as eqx
    import jax

    from mann.files import is_array
    from mann.training import distributed
    from mann.training.validation import make_tally

    config, mesh = trained.config, distributed.local_mesh(distributed.make_mesh(len(jax.devices())))
    arrays, static = eqx.partition(trained.model, is_array)
    sources = config.task.load(config.data)
    tally = make_tally(config.task, config.persistent, static, mesh)
    keys = jax.random.split(jax.random.key(0), episodes)
    arrays, source = distributed.replicate((arrays, sources.held_out), mesh)
    return float(config.task.score(config.task.record(tally(arrays, source, keys))))


def main(name: str, *runs: Path, half: bool = False) -> None:
    prepare_jax()
    import jax
    import jax.numpy as jnp

    from mann.evaluation import evaluate
    from mann.tasks import ManyThings
    from mann.teaching import calibrate_novelty, teach_once
    from mann.trained import load_trained, save_trained, with_precision, with_slots
    from mann.training.presets import PRESETS

    name, _, slots = name.partition(":")
    candidates = {run: load_trained(run) for run in runs}
    for run, trained in candidates.items():
        preset = PRESETS[name]
        model = dataclasses.replace(trained.config.model, precision=preset.model.precision)
        as_preset = dataclasses.replace(trained.config, seed=preset.seed, model=model)
        assert as_preset == preset, f"{run} was not trained with `mann train {name}`"
    scores = {run: held_out_score(trained) for run, trained in candidates.items()}
    best = max(scores, key=lambda run: scores[run])
    precision = candidates[best].config.model.precision
    trained = with_precision(candidates[best], "float32")
    trained = with_slots(trained, int(slots)) if slots else trained
    if half:
        rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.float16).astype(leaf.dtype), trained.model)
        trained = trained._replace(model=rounded)
    tested = evaluate(trained._replace(name=name), episodes=EPISODES)
    update = trained.description["best"]["update"]
    many = isinstance(trained.config.task, ManyThings)
    judged_by = "loss" if many else "accuracy (instances 2 to 10)"
    card = {
        "name": name,
        "command": f"mann train {name} --seed {trained.config.seed}",
        "started_from": trained.description.get("started", {}).get("name"),
        "seed": trained.config.seed,
        "trained_in": precision,
        "stored_in": "float16" if half else "float32",
        "held_out_scores": {f"seed {candidates[run].config.seed}": round(scores[run], 4) for run in runs},
        "update": update,
        "episodes": update * trained.config.batch,
        "chosen": f"seed and update with the best {judged_by} on held-out training classes"
        if tested.class_range
        else "seed and update with the best log-likelihood on held-out functions",
        "libraries": json.loads((best / "env.json").read_text())["sessions"][-1]["libraries"],
        "evaluation_command": f"mann eval {name} --episodes {EPISODES}",
        "evaluation": tested.to_json(),
    }
    description = {"classes": trained.description["classes"], "card": card}
    if many:
        card["trained_with_slots"] = candidates[best].model.memory.slots
        description["novelty"] = calibrate_novelty(trained)._asdict()
        card["novelty"] = HOW
        trained = trained._replace(name=name, description=description)
        card["teach_once_command"] = f"mann eval {name} --teach-once {','.join(map(str, THINGS))}"
        card["teach_once"] = [row.to_json() for row in teach_once(trained, THINGS)]
    save_trained(TARGET / f"{name}.safetensors", trained._replace(description=description), half=half)


if __name__ == "__main__":
    name, *runs = (argument for argument in sys.argv[1:] if argument != "--half")
    main(name, *map(Path, runs), half="--half" in sys.argv)
