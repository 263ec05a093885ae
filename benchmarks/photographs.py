"""How many of ten hand-drawn shapes the shipped learner recognises in photographs, by how they were taken.

    python benchmarks/photographs.py seen|unseen [ROUNDS]

The photographs are made up (`tests/photographs.py`). In each round the learner is shown one picture of each of ten
shapes and asked about another drawing of each: shown scans, and shown photographs of the same kind as it is asked.
`unseen` are other shapes, pens, lights and desks than those with which the way from picture to ink was made.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))


def main(which: str, rounds: int) -> None:
    from mann.runtime import prepare_jax

    prepare_jax(1)
    from tests.photographs import CONDITIONS, SEEN_ACCIDENTS, SHAPES, UNSEEN, UNSEEN_ACCIDENTS, Camera

    from mann import OneShotLearner
    from mann.data.ink import normalise_image

    parts = {"seen": (SHAPES, SEEN_ACCIDENTS, 0), "unseen": (UNSEEN, UNSEEN_ACCIDENTS, 10**6)}
    shapes, accidents, first = parts[which]
    parent = OneShotLearner.from_pretrained()

    def photographs(condition: str, seed: int) -> list[np.ndarray]:
        widths = (600, 1000, 1500)
        return [
            normalise_image(
                CONDITIONS[condition](Camera(first + seed + k, accidents, widths[(seed + k) % 3]), strokes)
            )
            for k, strokes in enumerate(shapes.values())
        ]

    def score(shown: Sequence[np.ndarray], asked: Sequence[np.ndarray], seed: int) -> np.ndarray:
        """How many are right among the ten labels, and how many if "something new" is an answer too."""
        learner, right = parent.sibling(seed=seed), np.zeros(2)
        for picture, shape in zip(shown, shapes, strict=True):
            learner.learn_one(picture, shape)
        for picture, shape in zip(asked, shapes, strict=True):
            chances = learner.predict_proba_one(picture)
            answered = max(chances, key=chances.__getitem__)
            del chances[None]
            right += (max(chances, key=chances.__getitem__) == shape, answered == shape)
        return right

    print(
        f"{which}: right of ten, mean of {rounds} rounds; in brackets with 'something new' as an answer too"
    )
    print(f"{'asked':20s} {'shown scans':>14s} {'shown the same':>16s}")
    scanned = [photographs("scan", 10_000 * turn) for turn in range(rounds)]
    for number, condition in enumerate(CONDITIONS, start=1):
        totals = np.zeros((2, 2))
        for turn in range(rounds):
            seed = 10_000 * turn + 100 * number
            asked = photographs(condition, seed + 50)
            for row, shown in enumerate((scanned[turn], photographs(condition, seed))):
                totals[row] += score(shown, asked, turn)
        scans, same = (f"{all_right:.1f} ({said:.1f})" for all_right, said in totals / rounds)
        print(f"{condition:20s} {scans:>14s} {same:>16s}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3)
