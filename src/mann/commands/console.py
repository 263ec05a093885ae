"""Tables in the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mann.evaluation import Evaluation
from mann.experiments.records import Table as ExperimentTable
from mann.trained import Trained

WIDTH = 170  # characters that the widest table needs


def plain_console() -> Console:
    """Without colours for numbers and names."""
    return Console(highlight=False)


def plain_table(left: Sequence[str] = (), right: Sequence[str] = (), wrap: bool = True) -> Table:
    """Without lines: columns of words, then columns of numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right", no_wrap=not wrap)
    return table


def print_evaluation(result: Evaluation, trained: Trained, console: Console | None = None) -> None:
    """A test with 95 % intervals, beside the paper's rows where it has them."""
    console = console or plain_console()
    console.print(f"{result.model}: {result.task.describe(result.episodes)}", soft_wrap=True)
    seen = trained.description.get("classes")
    if result.class_range is not None and seen:
        first, last = result.class_range
        console.print(
            f"Tested on {result.dataset} classes {first}–{last}; trained on {seen['dataset']} classes "
            f"{seen['trained'][0]}–{seen['trained'][1]}",
            soft_wrap=True,
        )
    network = trained.config.model
    paper = result.task.paper_rows(network.controller.kind, network.memory.kind)
    columns, rows, notes = result.result.table(paper)
    table = plain_table(right=columns, wrap=False)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for note in notes:
        console.print(note)


def print_table(table: ExperimentTable, console: Console | None = None) -> None:
    """A table of an experiment; it is not squeezed into a narrow terminal."""
    console = console or plain_console()
    console.width = max(console.width, WIDTH)
    console.print(f"\n{table.title}", style="bold")
    grid = plain_table()
    for i, column in enumerate(table.columns):
        grid.add_column(column, justify="left" if i < 2 else "right", no_wrap=i < 2)
    for row in table.rows:
        grid.add_row(*map(Text, row))
    console.print(grid)
    console.print(Text(table.note))
