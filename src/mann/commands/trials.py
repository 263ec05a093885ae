"""`mann trials`: what people did against the machine."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from mann.commands import parse
from mann.errors import MannError
from mann.files import write_atomically, writing

if TYPE_CHECKING:
    from mann.web.trials import Answer, TrialStore

DESCRIPTION = """What people did in the human experiment of `mann serve`.

    mann trials summary                  accuracy by instance: people, network
    mann trials export > trials.csv      every answer, one per line

The summary counts finished, scored trials; the export has everything, trial runs included (column scored). A
participant is a browser, under a random name; nothing else is known about them.
"""


@dataclasses.dataclass(frozen=True)
class Arguments:
    action: tyro.conf.Positional[Literal["export", "summary"]]
    """export: CSV; summary: a table."""
    file: str = ""
    """The SQLite file; empty: the one that `mann serve` uses."""
    out: str = ""
    """Write the CSV to this file in place of standard output."""


def main(arguments: list[str]) -> int:
    options = parse(Arguments, "trials", DESCRIPTION, arguments)
    from mann.web.trials import TrialStore, default_path

    path = Path(options.file) if options.file else default_path()
    if not path.is_file():
        raise MannError(f"There are no trials yet ({path} does not exist): run `mann serve` and take part.")
    store = TrialStore(path, read_only=True)
    if options.action == "summary":
        return _summarise(store)
    text = store.export()
    if not options.out:
        print(text, end="")
        return 0
    with writing(out := Path(options.out)):
        write_atomically(out, text.encode())
    print(f"Wrote {text.count(chr(10)) - 1} answers to {options.out}")
    return 0


def _summarise(store: "TrialStore") -> int:
    answers = store.scored()
    if not answers:
        raise MannError(
            "There is no finished, scored trial yet: the first trial of a participant is a trial run."
        )
    from mann.commands.console import plain_console, plain_table
    from mann.metrics import INSTANCES
    from mann.paper import paper_human
    from mann.web.experiment import CLASSES

    console = plain_console()
    for dataset in sorted({name for _, _, name, _ in answers}):
        chosen = [(trial, answer) for _, trial, name, answer in answers if name == dataset]
        participants = len({person for person, _, name, _ in answers if name == dataset})
        trials = sorted({trial for trial, _ in chosen})
        console.print(f"{dataset}: {participants} participant(s), {len(trials)} scored trial(s)")
        interval = "95 % interval"
        table = plain_table(
            right=("instance", "people", interval, "network", interval, "answers", "human (paper)")
        )
        paper = paper_human(CLASSES)
        for instance in range(1, INSTANCES + 1):
            here = [(trial, answer) for trial, answer in chosen if answer.instance == instance]
            if here:
                people, network = _intervals(here, trials)
                human = f"{paper[instance]:.1f}" if instance in paper else ""
                table.add_row(str(instance), *people, *network, str(len(here)), human)
        console.print(table)
    console.print("Accuracy in %. The paper: nine participants, two scored trials each.")
    return 0


def _intervals(here: "list[tuple[str, Answer]]", trials: list[str]) -> list[tuple[str, str]]:
    """Accuracy with its interval, of the people and of the network; trials count as independent."""
    import numpy as np

    from mann.statistics import wilson_by_episode

    count = np.array([sum(trial == name for name, _ in here) for trial in trials], float)
    cells = []
    for field in ("answer", "network"):
        right = [
            sum(trial == name and getattr(answer, field) == answer.label for name, answer in here)
            for trial in trials
        ]
        value, low, high, _ = wilson_by_episode(np.array(right, float), count)
        cells.append((f"{100 * value:.1f}", f"{100 * low:.1f} – {100 * high:.1f}"))
    return cells
