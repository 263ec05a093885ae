"""How much faster `learn_many` and `predict_many` are than single calls: python benchmarks/many.py

Processor time of both per picture, in turns, the least of several rounds: for prepared pictures, arrays and files.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from mann import Glyphs, OneShotLearner

CLASSES, DRAWINGS, ROUNDS = 64, 4, 8


def main() -> None:
    parent = OneShotLearner.from_pretrained()
    images = Glyphs(classes=CLASSES).load().images[:, :DRAWINGS]
    labels = [label for label in range(CLASSES) for _ in range(DRAWINGS)]
    pictures = list(255 * images.reshape(-1, *images.shape[2:]))
    prepared = [parent.prepare(picture) for picture in pictures]
    learner = parent.sibling(seed=0)
    learner.learn_many(prepared[::DRAWINGS], labels[::DRAWINGS])

    def learn_single(pictures: list) -> None:
        new = parent.sibling(seed=0)
        for picture, label in zip(pictures, labels, strict=True):
            new.learn_one(picture, label)
        assert new.memory is not None  # which waits for the last example

    def learn_together(pictures: list) -> None:
        new = parent.sibling(seed=0)
        new.learn_many(pictures, labels)
        assert new.memory is not None

    calls: dict[str, tuple[Callable, Callable]] = {
        "learn": (learn_single, learn_together),
        "predict": (lambda all_: [learner.predict_one(one) for one in all_], learner.predict_many),
    }
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{number}.png") for number in range(len(pictures))]
        for file, picture in zip(files, pictures, strict=True):
            Image.fromarray(picture).save(file)
        for kind, given in (("prepared", prepared), ("arrays", pictures), ("files", files)):
            for name, (single, together) in calls.items():
                one, many = (1e3 * seconds / len(given) for seconds in measure(single, together, given))
                print(f"{name:8}{kind:9} single {one:.2f} ms   many {many:.2f} ms   × {one / many:.1f}")


def measure(one: Callable, two: Callable, given: list) -> list[float]:
    """The least processor time of each, in turns."""
    best = [float("inf"), float("inf")]
    for round_ in range(ROUNDS + 1):
        for place, call in enumerate((one, two)):
            began = time.process_time()
            call(given)
            if round_:  # the first one compiles
                best[place] = min(best[place], time.process_time() - began)
    return best


if __name__ == "__main__":
    main()
