"""`mann eval MODEL`: how well a trained model does on classes that it never saw."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from mann.commands import parse
from mann.errors import MannError
from mann.files import check_writable, write_json
from mann.runtime import prepare_jax

if TYPE_CHECKING:
    from mann.trained import Trained

WITHIN = "20"  # things of one alphabet, as in Lake et al.


@dataclasses.dataclass(frozen=True)
class Arguments:
    model: tyro.conf.Positional[str]
    """A shipped name (such as omniglot-5), a run folder, or a .safetensors file."""
    episodes: int = 2000
    """Test episodes; more make the intervals narrower."""
    dataset: str = ""
    """A kind of data set, such as omniglot, or the path of a folder, one folder per class; empty: as trained."""
    classes: int = 0
    """Classes in an episode; 0: as trained. Only models with string labels take another number."""
    length: int = 0
    """Samples in an episode; 0: as trained, or 10 per class if --classes is given."""
    alphabets: Literal["", "across", "within", "mixed"] = ""
    """Alphabets of an episode's classes; empty: across all. Within alone: 20 things of one, each shown once."""
    teach_once: str = ""
    """Instead of episodes: teach so many things by one example of each, then ask, such as 5,20,100,423."""
    slots: int = 0
    """Slots of the memory; 0: as trained. A learner may have more than its network was trained with."""
    devices: int = 0
    """CPU devices to use; 0 means one for each core."""
    json: str = ""
    """Write the result to this file as JSON."""


def main(arguments: list[str]) -> int:
    options = parse(
        Arguments,
        "eval",
        "Accuracy by instance on test classes, or likelihood by step on test functions, without learning.",
        arguments,
    )
    if options.json:
        check_writable(Path(options.json))
    prepare_jax(options.devices)
    from rich.progress import Progress

    from mann.commands.console import print_evaluation
    from mann.evaluation import evaluate
    from mann.trained import load_trained, with_slots

    trained = load_trained(options.model)
    if options.slots:
        trained = with_slots(trained, options.slots)
    if options.teach_once or (options.alphabets == "within" and not (options.classes or options.length)):
        return _teach_once(trained, options)
    with Progress(transient=True) as bar:
        bar_id = bar.add_task("test episodes", total=options.episodes)
        result = evaluate(
            trained,
            dataset=options.dataset,
            classes=options.classes,
            length=options.length,
            alphabets=options.alphabets,
            episodes=options.episodes,
            progress=lambda done, total: bar.update(bar_id, completed=done),
        )
    print_evaluation(result, trained)
    if options.json:
        write_json(Path(options.json), result.to_json())
    return 0


def _teach_once(trained: "Trained", options: Arguments) -> int:
    from rich.progress import Progress

    from mann.commands.console import plain_console, plain_table
    from mann.teaching import teach_once

    if options.alphabets == "mixed":
        raise MannError(
            "Things are taught within one alphabet or across all: --alphabets mixed is for episodes."
        )
    try:
        things = [int(word) for word in (options.teach_once or WITHIN).split(",")]
    except ValueError:
        raise MannError(f"--teach-once takes numbers such as 5,20,100, not {options.teach_once!r}.") from None
    with Progress(transient=True) as bar:
        bar_id = bar.add_task("teaching and asking", total=None)
        rows = teach_once(
            trained,
            things,
            dataset=options.dataset,
            alphabets=options.alphabets or "across",
            progress=lambda done, total: bar.update(bar_id, completed=done, total=total),
        )
    table = plain_table(
        right=("things", "answered", "95 % interval", "forced", "nearest", "known or new", "questions")
    )
    for row in rows:
        area = "" if row.area is None else f"{row.area:.3f}"
        value, low, high, samples = row.answered
        interval = f"{100 * low:.1f} – {100 * high:.1f}"
        others = (f"{100 * cell.value:.1f}" for cell in (row.forced, row.nearest))
        table.add_row(str(row.things), f"{100 * value:.1f}", interval, *others, area, str(samples))
    console = plain_console()
    where = " within one alphabet" if options.alphabets == "within" else ""
    console.print(f"{trained.name}: taught once{where}, then asked about another drawing of each")
    console.print(table)
    console.print(
        "Right in %: as the learner answers; forced, where it may not say that something is new; nearest, the "
        "nearest neighbour in the network's own embedding. Known or new: area under the curve of precision and "
        "recall."
    )
    if options.json:
        content = {
            "model": trained.name,
            "alphabets": options.alphabets or "across",
            "teach_once": [row.to_json() for row in rows],
        }
        write_json(Path(options.json), content)
    return 0
