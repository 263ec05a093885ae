"""Results for people: tables in the terminal, and the page of results."""

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mann.data.cache import write_atomically
from mann.episodes import Classification
from mann.errors import MannError
from mann.evaluation import Evaluation, first_instance_ceiling, paper_rows
from mann.experiments import EXPERIMENTS, load_experiment
from mann.experiments.entries import Record, read_record
from mann.experiments.entries import Table as Tabulated
from mann.experiments.tables import markdown_table
from mann.weights import Trained

WIDTH = 170  # characters that the widest table needs


def print_evaluation(result: Evaluation, trained: Trained, console: Console | None = None) -> None:
    """Ours by instance with 95 % intervals, beside the paper's and the human row."""
    console = console or Console(highlight=False)
    task = result.task
    if not isinstance(task, Classification):
        _print_regression(result, console)
        return
    first, last = result.class_range or (0, 0)
    console.print(
        f"{result.model}: {result.episodes} episodes of {task.classes} classes, length {task.steps}, "
        f"{'one-hot' if task.labels == 'onehot' else 'string'} labels"
    )
    seen = trained.description["classes"]
    console.print(
        f"Tested on {result.dataset} classes {first}–{last}; trained on {seen['dataset']} classes "
        f"{seen['trained'][0]}–{seen['trained'][1]}"
    )
    rows = paper_rows(trained.config.model, task)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("instance", justify="right")
    table.add_column("accuracy", justify="right")
    table.add_column("95 % interval", justify="right")
    table.add_column("samples", justify="right")
    for row in rows:
        table.add_column("human (paper)" if row.model == "Human" else f"{row.model} (paper)", justify="right")
    for number, cell in enumerate(result.instances, start=1):
        if cell.samples == 0:
            continue
        paper = [f"{row.accuracy[number]:.1f}" if number in row.accuracy else "" for row in rows]
        table.add_row(
            str(number),
            f"{100 * cell.value:.1f}",
            f"{100 * cell.low:.1f} – {100 * cell.high:.1f}",
            str(cell.samples),
            *paper,
        )
    console.print(table)
    console.print(
        f"Accuracy in %. A new class can be guessed at best with {100 * first_instance_ceiling(task):.1f} % "
        "on its 1st instance."
    )


def _print_regression(result: Evaluation, console: Console) -> None:
    found = result.likelihood
    assert found is not None
    console.print(f"{result.model}: {result.episodes} functions, {result.task.steps} samples of each")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("step", "nll", "GP's nll", "gap", "error²", "GP's error²", "in 50 %", "in 95 %"):
        table.add_column(name, justify="right", no_wrap=True)
    steps = result.task.steps
    for step in sorted({1, 2, 5, *range(10, steps + 1, 10), steps}):
        if step > steps:
            continue
        i = step - 1
        nll, error = (
            {name: values[i] for name, values in both.items()} for both in (found.nll, found.squared_error)
        )
        table.add_row(
            str(step),
            f"{nll['model']:.3f}",
            f"{nll['gp']:.3f}",
            f"{nll['model'] - nll['gp']:.3f} ±{found.half_width['gap'][i]:.3f}",
            f"{error['model']:.3f}",
            f"{error['gp']:.3f}",
            *(f"{100 * found.coverage[band]['model'][i]:.0f} %" for band in ("50", "95")),
        )
    console.print(table)
    if late := found.late_gap:
        console.print(
            f"Mean gap from step {late['first_step']} on: {late['value']:.3f} ±{late['half_width']:.3f} nats "
            "per point"
        )
    console.print(
        "nll: negative log-likelihood in nats per point, lower is better; GP: the exact process. ±: half of the "
        "95 % interval.\nLast columns: how many samples lie inside the model's 50 % and 95 % band."
    )


def print_table(table: Tabulated, console: Console | None = None) -> None:
    """A table of an experiment; it is not squeezed into a narrow terminal."""
    console = console or Console(highlight=False)
    console.width = max(console.width, WIDTH)
    console.print(f"\n{table.title}", style="bold")
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(table.columns):
        shown.add_column(column, justify="left" if i < 2 else "right", no_wrap=i < 2)
    for row in table.rows:
        shown.add_row(*map(Text, row))
    console.print(shown)
    console.print(Text(table.note))


def load_records(folder: Path) -> dict[str, Record]:
    """The records of one experiment, by entry name."""
    paths = sorted(path for path in folder.glob("*.json") if path.name != "table.json")
    return {path.stem: read_record(path) for path in paths}


def write_report(results: Path, docs: Path) -> Path:
    """Write docs/results.md, its figures, and the pages of single experiments; only what has records appears."""
    sections = []
    for name in EXPERIMENTS:
        records = load_records(results / name)
        if records:
            experiment = load_experiment(name)
            pictures = []
            if hasattr(experiment, "figures"):
                pictures = experiment.figures(records, docs / "images")
            if hasattr(experiment, "page"):
                write_atomically(docs / f"{name}.md", experiment.page(records).encode())
            sections.append(results_section(name, experiment.table(records), pictures, docs))
    if not sections:
        raise MannError(
            f"There are no records in {results}: make some with `mann reproduce NAME --scale full`, or say where "
            "they are with --results."
        )
    path = docs / "results.md"
    write_atomically(path, "\n".join([INTRODUCTION, *sections]).encode())
    return path


INTRODUCTION = """# Results

Made by `mann report` from the records in `results/`, which `mann reproduce NAME --scale full` wrote: configuration,
training curve and test of every run. All tests are on classes never trained on (Omniglot 1201–1623) or on functions
never trained on, 2000 episodes, with 95 % intervals over episodes. Training on Omniglot used classes 1–1100;
classes 1101–1200 were held out to choose the best checkpoint, and curves of training show the accuracy on them.
Time is the number of updates times the median time of an update in that run (regression: its whole wall-clock
time), on the cores that it had (`environment` in its record). Runs on one core shared the machine with another.
"""


def results_section(name: str, table: Tabulated, pictures: list[Path], docs: Path) -> str:
    """One experiment as Markdown."""
    lines = [f"## {table.title}", "", f"`mann reproduce {name} --scale full`", ""]
    lines += [markdown_table(table.columns, table.rows), "", table.note, ""]
    for path in pictures:
        if path.suffix == ".png":
            lines += [f"![{table.title}]({path.relative_to(docs).as_posix()})", ""]
    return "\n".join(lines)
