"""Measure the presets: what `mann train --help` says of them comes from here.

    python tools/presets.py RUNS

RUNS holds finished runs named like their presets (`mann train omniglot-5 --run RUNS/omniglot-5`). Each is tested
on 2000 episodes of test classes or functions; presets without a run keep what was measured before. The time of a
whole run is its number of updates times that of an update, timed here on all cores. Writes
src/mann/training/measured.json.
"""

import json
import sys
import time
from pathlib import Path

from mann.runtime import prepare_jax

EPISODES = 2000
SHOWN = (1, 2, 5, 10)
DISPATCHES = 10
TARGET = Path(__file__).parents[1] / "src" / "mann" / "training" / "measured.json"


def main(runs: Path) -> None:
    prepare_jax()
    from mann.evaluation import evaluate
    from mann.files import write_atomically
    from mann.trained import load_trained
    from mann.training import distributed
    from mann.training.presets import PRESETS
    from mann.training.run import Run
    from mann.training.trainer import Trainer

    measured = json.loads(TARGET.read_text())
    for name, config in PRESETS.items():
        run = Run(runs / name)
        if not Run.exists(run.folder) or run.read("metrics.jsonl")[-1]["update"] < config.updates:
            print(f"{name}: no finished run in {run.folder}")
            continue
        assert run.read_config() == config, f"{name}: the run has another configuration"
        trained = load_trained(run.folder)
        tested = evaluate(trained, episodes=EPISODES)
        content = tested.to_json()
        if "instances" in content:
            result = {
                "dataset": tested.dataset,
                "class_ids": list(tested.class_range),
                "instances": SHOWN,
                "accuracy": [round(content["instances"][i - 1]["accuracy"], 4) for i in SHOWN],
            }
        else:
            result = {"late_gap": round(content["late_gap"]["value"], 4)}
        sources = config.task.load(config.data)
        trainer = Trainer(config, sources.train, sources.held_out, distributed.make_mesh(config.shares))
        state, _ = trainer.advance(trainer.initial_state(), config.dispatch)
        seconds = []
        for _ in range(DISPATCHES):
            began = time.perf_counter()
            state, _ = trainer.advance(state, config.dispatch)
            seconds.append((time.perf_counter() - began) / config.dispatch)
        measured[name] = result | {
            "episodes": EPISODES,
            "best_update": trained.description["best"]["update"],
            "minutes": round(config.updates * min(seconds) / 60, 1),
            "devices": trainer.mesh.size,
        }
        print(name, measured[name])
    write_atomically(TARGET, (json.dumps(measured, indent=2) + "\n").encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
