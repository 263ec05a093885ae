"""How much faster `learn_many` and `predict_many` are than single calls: python benchmarks/many.py [PRECISION]

Processor time and time of day of both per picture, in turns, medians of several rounds: for prepared pictures, for
drawings of 105×105 pixels as arrays and files, and for pictures of 300×300, whose ink has to be found. The time of
day says something only on a quiet machine: `predict_many` takes all cores, single calls take one.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from mann import Glyphs, OneShotLearner, load_trained
from mann.online.learner import default_model
from mann.trained import with_precision

CLASSES, DRAWINGS, ROUNDS = 64, 4, 8


def main(precision: str) -> None:
    parent = OneShotLearner(with_precision(load_trained(default_model()), precision))
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
        large = [Image.fromarray(picture).resize((300, 300)) for picture in pictures]
        kinds = {"prepared": prepared, "arrays": pictures, "files": files, "300×300": large}
        for kind, given in kinds.items():
            for name, (single, together) in calls.items():
                (one, one_day), (many, many_day) = measure(single, together, given)
                print(
                    f"{name:8}{kind:9} processor: single {one:5.2f} ms, many {many:5.2f} ms, × {one / many:4.1f}"
                    f"   time of day: {one_day:5.2f} ms, {many_day:5.2f} ms, × {one_day / many_day:4.1f}",
                    flush=True,
                )


def measure(one: Callable, two: Callable, given: list) -> list[tuple[float, float]]:
    """Milliseconds per picture of each, in turns: of the processor, and of the day."""
    taken: list[list[tuple[float, float]]] = [[], []]
    for round_ in range(ROUNDS + 1):
        for times, call in zip(taken, (one, two), strict=True):
            began, day = time.process_time(), time.perf_counter()
            call(given)
            if round_:  # the first one compiles
                times.append((time.process_time() - began, time.perf_counter() - day))
    return [
        tuple(1e3 * statistics.median(part) / len(given) for part in zip(*times, strict=True))
        for times in taken
    ]


if __name__ == "__main__":
    main(*sys.argv[1:2] or ["float32"])
