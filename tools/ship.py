"""Make the weights of the best of some finished runs part of the package, with a card.

    python tools/ship.py NAME RUN [RUN …]

The runs were trained with `mann train NAME --seed S` for different S. The best is the one that did best on held-out
training classes or functions. The card says how the weights came about, and how well they do on 2000 episodes of
test classes or functions: `mann eval NAME` should agree within the interval.
"""

import dataclasses
import json
import sys
from pathlib import Path

from mann.runtime import prepare_jax

EPISODES = 2000
TARGET = Path(__file__).parents[1] / "src" / "mann" / "pretrained"


def main(name: str, *runs: Path) -> None:
    prepare_jax()
    from mann.evaluation import evaluate
    from mann.trained import load_trained, save_trained
    from mann.training.presets import PRESETS

    candidates = {run: load_trained(run) for run in runs}
    for run, trained in candidates.items():
        as_preset = dataclasses.replace(trained.config, seed=PRESETS[name].seed)
        assert as_preset == PRESETS[name], f"{run} was not trained with `mann train {name}`"
    scores = {run: trained.description["best"]["score"] for run, trained in candidates.items()}
    best = max(scores, key=lambda run: scores[run])
    trained = candidates[best]
    tested = evaluate(trained._replace(name=name), episodes=EPISODES)
    update = trained.description["best"]["update"]
    card = {
        "name": name,
        "command": f"mann train {name} --seed {trained.config.seed}",
        "seed": trained.config.seed,
        "held_out_scores": {f"seed {candidates[run].config.seed}": round(scores[run], 4) for run in runs},
        "update": update,
        "episodes": update * trained.config.batch,
        "chosen": "seed and update with the best accuracy on held-out training classes (instances 2 to 10)"
        if tested.class_range
        else "seed and update with the best log-likelihood on held-out functions",
        "libraries": json.loads((best / "env.json").read_text())["sessions"][-1]["libraries"],
        "evaluation_command": f"mann eval {name} --episodes {EPISODES}",
        "evaluation": tested.to_json(),
    }
    description = {"classes": trained.description["classes"], "card": card}
    save_trained(TARGET / f"{name}.safetensors", trained._replace(description=description))


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
