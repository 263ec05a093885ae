"""Results for people: tables in the terminal."""

import math

from rich.console import Console
from rich.table import Table

from mann.episodes import Classification
from mann.evaluation import Evaluation, first_instance_ceiling, paper_rows
from mann.weights import Trained


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
    console.print(f"{result.model}: {result.episodes} functions, {result.task.steps} samples of each")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("step", "model nll", "exact GP nll", "gap", "squared error"):
        table.add_column(name, justify="right")
    steps = result.task.steps
    for step in sorted({1, 2, 5, *range(10, steps + 1, 10), steps}):
        if step <= steps:
            ours, gp = result.nll["model"][step - 1], result.nll.get("gp", [math.nan] * steps)[step - 1]
            error = result.squared_error[step - 1]
            table.add_row(str(step), f"{ours:.3f}", f"{gp:.3f}", f"{ours - gp:.3f}", f"{error:.3f}")
    console.print(table)
    console.print("Negative log-likelihood in nats per point: lower is better.")
