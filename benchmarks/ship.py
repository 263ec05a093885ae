"""Make the weights of a finished run part of the package, with a card.

    python benchmarks/ship.py RUN NAME

RUN was trained with `mann train NAME`. The card says how the weights came about, and how well they do on 2000
episodes of test classes or functions: `mann eval NAME` should agree within the interval.
"""

import json
import sys
from pathlib import Path

from mann.commands import prepare_jax

EPISODES = 2000
TARGET = Path(__file__).parents[1] / "src" / "mann" / "pretrained"


def main(run: Path, name: str) -> None:
    prepare_jax()
    from mann.episodes import Classification
    from mann.evaluation import choose_task, evaluate, test_drawings
    from mann.training.presets import PRESETS
    from mann.weights import load_trained, save_trained

    trained = load_trained(run)
    assert trained.config == PRESETS[name], f"{run} was not trained with `mann train {name}`"
    task = choose_task(trained)
    drawings, context = None, {}
    if isinstance(task, Classification):
        drawings, dataset, class_range = test_drawings(trained)
        context = {"dataset": dataset, "class_range": class_range}
    tested = evaluate(trained._replace(name=name), task, drawings, episodes=EPISODES, **context)
    update = trained.description["best"]["update"]
    card = {
        "name": name,
        "command": f"mann train {name}",
        "seed": trained.config.seed,
        "update": update,
        "episodes": update * trained.config.batch,
        "chosen": "best accuracy on held-out training classes (instances 2 to 10)"
        if drawings
        else "best log-likelihood on held-out functions",
        "libraries": json.loads((run / "env.json").read_text())["sessions"][-1]["libraries"],
        "evaluation_command": f"mann eval {name} --episodes {EPISODES}",
        "evaluation": tested.to_json(),
    }
    description = {"classes": trained.description["classes"], "card": card}
    save_trained(TARGET / f"{name}.safetensors", trained._replace(description=description))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
