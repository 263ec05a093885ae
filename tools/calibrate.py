"""Find anew how a learner with some shipped weights tells what is new, and write it into their file.

    python tools/calibrate.py NAME [NAME …]

It looks at the classes held out from training alone; then what the card says of things taught once is measured
anew, on test classes. `tools/ship.py` does the same for weights that it ships; `python benchmarks/novelty.py NAME`
measures how often the learner is right about what is new.
"""

import sys
from pathlib import Path

from tqdm import tqdm

from mann.runtime import prepare_jax

TARGET = Path(__file__).parents[1] / "src" / "mann" / "pretrained"
THINGS = (5, 20, 100, 423)  # taught once, for the card
HOW = (
    "at even odds, 2 % of the known things are called new: logistic and quantile "
    "regression on held-out classes, with 1 to 100 things known, each shown 1 to 8 times "
    "(mann.teaching.calibrate_novelty)"
)


def main(*names: str) -> None:
    prepare_jax()
    from mann.teaching import calibrate_novelty, teach_once
    from mann.trained import load_trained, save_trained

    for name in names:
        trained = load_trained(name)
        with tqdm(desc=name, unit="number of things") as bar:

            def show(done: int, total: int, bar: tqdm = bar) -> None:
                bar.total = total
                bar.update(done - bar.n)

            novelty = calibrate_novelty(trained, progress=show)
        print(name, novelty)
        trained.description["novelty"] = novelty._asdict()
        trained.description["card"]["novelty"] = HOW
        half = trained.description["card"].get("stored_in") == "float16"
        trained.description["card"]["teach_once"] = [row.to_json() for row in teach_once(trained, THINGS)]
        save_trained(TARGET / f"{name}.safetensors", trained, half=half)


if __name__ == "__main__":
    main(*sys.argv[1:])
