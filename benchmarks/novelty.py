"""How often a learner calls something new, by the number of things known and of examples of each.

    python benchmarks/novelty.py [MODEL [QUESTIONS]] [--held-out]

Things that were never taught should be called new, other drawings of those that were should not. On classes that
no training and no tuning has met; with --held-out on those held out from training.
"""

import sys

from tqdm import tqdm

from mann.runtime import prepare_jax


def main(model: str = "omniglot-many", questions: int = 2000, *, held_out: bool = False) -> None:
    prepare_jax()
    from mann.teaching import novelty_rates
    from mann.trained import load_trained

    with tqdm(desc=model, unit="row") as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        rows = novelty_rates(load_trained(model), held_out=held_out, questions=questions, progress=show)
    print("| things known | shown | new, called new | known, called new | known, named rightly |")
    print("|---|---|---|---|---|")
    for row in rows:
        cells = (
            "" if share is None else f"{100 * share.value:.1f} ({100 * share.low:.1f}–{100 * share.high:.1f})"
            for share in (row.new, row.known, row.right)
        )
        print(f"| {row.things} | {row.shows} | {' | '.join(cells)} |")


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--held-out"]
    main(*arguments[:1], *map(int, arguments[1:]), held_out="--held-out" in sys.argv)
