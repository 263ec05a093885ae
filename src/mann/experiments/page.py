"""The page of results, docs/results.md, and the pages of single experiments."""

import os
from pathlib import Path

from mann.errors import MannError
from mann.experiments import EXPERIMENTS, figures_folder, load_experiment
from mann.experiments.records import Records, Table, load_records, reading_records, write_table
from mann.experiments.tables import markdown_table
from mann.files import write_atomically


def write_report(results: Path, docs: Path) -> Path:
    """Write docs/results.md and the pages of single experiments; only what has records appears.

    Tables and figures are written beside the records, where `mann reproduce` writes them too: records may have come
    from several machines. The pages link to the figures.
    """
    sections = []
    for name in EXPERIMENTS:
        records = load_records(results / name)
        if records:
            with reading_records(results / name):
                sections.append(_write_experiment(name, records, figures_folder(results, name), docs))
    if not sections:
        raise MannError(
            f"There are no records in {results}: make some with `mann reproduce NAME --scale full`, or say where "
            "they are with --results."
        )
    path = docs / "results.md"
    write_atomically(path, "\n".join([INTRODUCTION, *sections]).encode())
    return path


def _write_experiment(name: str, records: Records, folder: Path, docs: Path) -> str:
    """Draw the figures of one experiment to `folder`, write its table and its page, if it has one; its section."""
    experiment = load_experiment(name)
    table = experiment.table(records)
    write_table(folder.parent, table)
    address = Path(os.path.relpath(folder, docs)).as_posix()
    links = [f"{address}/{path.name}" for path in experiment.save_figures(records, folder)]
    if experiment.page is not None:
        page = experiment.page(records).replace("](figures/", f"]({address}/")
        write_atomically(docs / f"{name}.md", page.encode())
    return results_section(name, table, links)


INTRODUCTION = """# Results

Made by `mann report` from the records in `results/`, which `mann reproduce NAME --scale full` wrote: configuration,
training curve and test of every run. All tests are on classes never trained on (Omniglot 1201–1623) or on functions
never trained on, 2000 episodes, with 95 % intervals over episodes. Training on Omniglot used classes 1–1100;
classes 1101–1200 were held out to choose the best checkpoint, and curves of training show the accuracy on them.
Time is the number of updates times the median time of an update in that run (regression: its whole wall-clock
time), on the cores that it had (`environment` in its record). Runs on one core shared the machine with another.
"""


def results_section(name: str, table: Table, pictures: list[str]) -> str:
    """One experiment as Markdown."""
    lines = [f"## {table.title}", "", f"`mann reproduce {name} --scale full`", ""]
    lines += [markdown_table(table.columns, table.rows), "", table.note, ""]
    for picture in pictures:
        lines += [f"![{table.title}]({picture})", ""]
    return "\n".join(lines)
