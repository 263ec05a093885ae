"""`mann reproduce NAME`: one of the paper's tables or figures, from training to the comparison."""

import dataclasses
import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from mann.commands import parse, prepare_jax
from mann.errors import MannError

if TYPE_CHECKING:
    from mann.experiments.entries import Entry, Record


@dataclasses.dataclass(frozen=True)
class Arguments:
    name: tyro.conf.Positional[str]
    """The experiment; `mann reproduce --help` lists them."""
    scale: Literal["smoke", "quick", "full"] = "quick"
    """smoke: seconds, tiny networks on glyphs, to see that all works; quick: a tenth of the training;
    full: what stands in results/."""
    runs: str = "runs"
    """Where networks are trained: in RUNS/SCALE/ENTRY, shared between experiments."""
    results: str = ""
    """Where records are written, in RESULTS/NAME; empty: results for full, RUNS/SCALE/results otherwise."""
    only: str = "*"
    """Measure only the entries whose name matches this pattern, such as '*-mann-*'; then others elsewhere."""
    dim: int = 0
    """regression: only the functions of 1, 2 or 3 variables; 0 means all."""
    list: bool = False
    """List the entries and which of them are done, without measuring anything."""
    devices: int = 0
    """CPU devices to split the batch over; 0 means one for each core."""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        from mann.experiments import EXPERIMENTS

        print(USAGE.format(names="\n".join(f"  {n:<16}{about}" for n, about in EXPERIMENTS.items())), end="")
        return 0 if arguments else 2
    options = parse(Arguments, "reproduce", "Train, test and compare with the paper.", arguments)
    prepare_jax(options.devices)
    from mann.experiments import load_experiment
    from mann.experiments.entries import TEST_EPISODES, read_record, write_record
    from mann.report import print_table

    experiment = load_experiment(options.name)
    entries: list[Entry] = experiment.entries(options.scale)
    runs = Path(options.runs) / options.scale
    results = Path(options.results or ("results" if options.scale == "full" else runs / "results"))
    episodes = TEST_EPISODES[options.scale]
    if options.dim and options.name != "regression":
        raise MannError("Only the experiment regression has dimensions: leave --dim out.")
    if options.dim not in (0, 1, 2, 3):
        raise MannError(f"Regression is defined for 1, 2 or 3 dimensions, not {options.dim}.")
    part = f"gp-{options.dim}d-*" if options.dim else "*"
    chosen = [entry for entry in entries if all(fnmatch.fnmatch(entry.name, p) for p in (part, options.only))]
    if not chosen:
        names = ", ".join(entry.name for entry in entries)
        raise MannError(f"No entry of {options.name} matches {options.only!r}. There are: {names}.")

    records: dict[str, Record] = {}
    for number, entry in enumerate(entries, start=1):
        path = results / options.name / f"{entry.name}.json"
        about = {"name": entry.name, "label": entry.label, "experiment": options.name, "scale": options.scale}
        if path.exists():
            record = read_record(path)
            if all(record.get(key) == value for key, value in about.items()) and entry.made(record):
                records[entry.name] = record
            elif entry in chosen:
                raise MannError(
                    f"{path} was made with another configuration: move it away, or choose another --results."
                )
        done = entry.name in records
        if options.list:
            print(f"{'done' if done else '    '}  {entry.name}")
        elif entry in chosen and not done:
            print(f"[{number}/{len(entries)}] {entry.name}", flush=True)
            measured = entry.measure(runs / entry.name, episodes)
            if measured is None:
                print("Stopped and saved; the same command goes on from there.")
                return 130
            records[entry.name] = about | entry.description() | measured
            write_record(path, records[entry.name])
    if options.list:
        return 0
    table = experiment.table(records)
    write_record(results / options.name / "table.json", table._asdict())
    print_table(table)
    if hasattr(experiment, "figures"):
        pictures: list[Path] = experiment.figures(records, results / options.name / "figures")
        for path in pictures[::2]:  # each is drawn twice, as PNG and SVG
            print(f"Picture: {path}")
    missing = len(entries) - len(records)
    if missing:
        print(f"{missing} of {len(entries)} entries are still to be measured.")
    return 0


USAGE = """usage: mann reproduce NAME [--scale smoke|quick|full] [--runs DIR]

Train, test on classes never seen, and compare with the paper. Stop it at any time: the same
command goes on from there. `mann report` makes a page with figures from the results.

experiments:
{names}

`mann reproduce NAME --help` explains the options, for example:
  mann reproduce table1 --scale full --list            what it will train, and what is done
  mann reproduce table2 --scale full --only '15-*'     a part of it; the rest on another machine
  mann reproduce regression --dim 1 --scale full       functions of one variable
"""
