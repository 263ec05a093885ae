"""`mann reproduce NAME`: one of the paper's tables or figures, from training to the comparison."""

import dataclasses
import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import tyro

from mann.commands import parse
from mann.errors import MannError
from mann.files import write_json
from mann.runtime import prepare_jax
from mann.text import listing

if TYPE_CHECKING:
    from mann.experiments.entries import Entry
    from mann.experiments.records import Record, Records


@dataclasses.dataclass(frozen=True)
class Arguments:
    name: tyro.conf.Positional[str]
    """The experiment; `mann reproduce --help` lists them."""
    scale: Literal["smoke", "quick", "full"] = "quick"
    """smoke: tiny networks on glyphs, for seconds; quick: a tenth of the training; full: what is in results/."""
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

        print(USAGE.format(names=listing(EXPERIMENTS)), end="")
        return 0 if arguments else 2
    options = parse(Arguments, "reproduce", "Train, test and compare with the paper.", arguments)
    prepare_jax(options.devices)
    from mann.commands.console import print_table
    from mann.experiments import figures_folder, load_experiment
    from mann.experiments.records import reading_records, write_table
    from mann.experiments.scales import TEST_EPISODES

    experiment = load_experiment(options.name)
    entries = experiment.entries(options.scale)
    chosen = _choose(entries, options)
    runs = Path(options.runs) / options.scale
    results = Path(options.results or ("results" if options.scale == "full" else runs / "results"))
    folder = results / options.name
    records = _read(entries, chosen, options, folder)
    if options.list:
        for entry in entries:
            print(f"{'done' if entry.name in records else '    '}  {entry.name}")
        return 0
    for number, entry in enumerate(entries, start=1):
        if entry in chosen and entry.name not in records:
            print(f"[{number}/{len(entries)}] {entry.name}", flush=True)
            measurement = entry.measure(runs / entry.name, TEST_EPISODES[options.scale])
            if measurement is None:
                print("Stopped and saved; the same command goes on from there.")
                return 130
            record = cast("Record", _about(entry, options) | entry.description() | measurement)
            write_json(folder / f"{entry.name}.json", record, indent=1)
            records[entry.name] = record
    with reading_records(folder):
        table = experiment.table(records)
    write_table(folder, table)
    print_table(table)
    with reading_records(folder):
        pictures = experiment.save_figures(records, figures_folder(results, options.name))
    for path in pictures:
        print(f"Picture: {path}")
    missing = len(entries) - len(records)
    if missing:
        print(f"{missing} of {len(entries)} entries are still to be measured.")
    return 0


def _choose(entries: "list[Entry]", options: Arguments) -> "list[Entry]":
    """The entries that --dim and --only ask for."""
    if options.dim and options.name != "regression":
        raise MannError("Only the experiment regression has dimensions: leave --dim out.")
    if options.dim not in (0, 1, 2, 3):
        raise MannError(f"Regression is defined for 1, 2 or 3 dimensions, not {options.dim}.")
    part = f"gp-{options.dim}d-*" if options.dim else "*"
    chosen = [entry for entry in entries if all(fnmatch.fnmatch(entry.name, p) for p in (part, options.only))]
    if not chosen:
        names = ", ".join(entry.name for entry in entries)
        raise MannError(f"No entry of {options.name} matches {options.only!r}. There are: {names}.")
    return chosen


def _read(entries: "list[Entry]", chosen: "list[Entry]", options: Arguments, folder: Path) -> "Records":
    """The records that there are. One of another configuration is an error if its entry is to be measured."""
    from mann.experiments.records import read_record, reading_records

    records: Records = {}
    for entry in entries:
        path = folder / f"{entry.name}.json"
        if not path.exists():
            continue
        record = read_record(path)
        with reading_records(folder):
            same = all(record.get(key) == value for key, value in _about(entry, options).items())
            up_to_date = same and entry.matches(record)
        if up_to_date:
            records[entry.name] = record
        elif entry in chosen:
            raise MannError(
                f"{path} was made with another configuration: move it away, or choose another --results."
            )
    return records


def _about(entry: "Entry", options: Arguments) -> dict[str, Any]:
    """The first fields of a record."""
    return {"name": entry.name, "label": entry.label, "experiment": options.name, "scale": options.scale}


USAGE = """usage: mann reproduce NAME [--scale smoke|quick|full] [--runs DIR]

Train, test on classes never seen, and compare with the paper. Stop it at any
time: the same command goes on from there. `mann report` makes a page with
figures from the results.

experiments:
{names}

`mann reproduce NAME --help` explains the options, for example:
  mann reproduce table1 --scale full --list          what is done, what is not
  mann reproduce table2 --scale full --only '15-*'   a part; the rest elsewhere
  mann reproduce regression --dim 1 --scale full     functions of one variable
"""
