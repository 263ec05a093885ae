"""What a person sees while training: a live display in a terminal, plain lines elsewhere."""

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mann.training.config import Config


class Observer:
    """Is told what happens in a run, and does nothing about it; the base of those that do.

    Examples:
        >>> class Losses(Observer):
        ...     def __init__(self):
        ...         self.values = []
        ...
        ...     def progress(self, update, loss):
        ...         self.values.append(loss)
    """

    def start(self, config: Config, folder: Path, data: str, devices: int, update: int) -> None:
        """Before the first update of this session.

        Args:
            config: of the run.
            folder: of the run.
            data: what it is trained and watched on, in a sentence.
            devices: that share the work.
            update: that it starts from; 0 for a new run.
        """

    def progress(self, update: int, loss: float) -> None:
        """After each call to the devices.

        Args:
            update: how many are done.
            loss: of the last one.
        """

    def evaluated(self, record: dict[str, Any]) -> None:
        """After each evaluation on held-out episodes.

        Args:
            record: the line of metrics.jsonl, with `update`, `loss`, `held_out_loss` and what the task adds.
        """

    def warn(self, message: str) -> None:
        """Something that the user should know and that does not end the run."""

    def stop(self) -> None:
        """At the end of this session, whatever the reason."""


class PlainDisplay(Observer):
    """One line for each evaluation."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)

    def start(self, config: Config, folder: Path, data: str, devices: int, update: int) -> None:
        self.config = config
        self.first: tuple[int, float] | None = None  # update and time after the first call, which compiles
        start = f", from update {update}" if update else ""
        self.console.print(
            f"Training in {folder}: {config.updates} updates of {config.batch} episodes{start}, "
            f"{devices} device{'s' if devices > 1 else ''}\nData: {data}",
            soft_wrap=True,
        )

    def progress(self, update: int, loss: float) -> None:
        if self.first is None:
            self.first = update, time.monotonic()

    def evaluated(self, record: dict[str, Any]) -> None:
        self.console.print(self.summary(record), soft_wrap=True)

    def warn(self, message: str) -> None:
        self.console.print(f"[yellow]Warning:[/] {message}", soft_wrap=True)

    def rate(self, update: int) -> str:
        """Updates per second since the first call; not known before the second."""
        if self.first is None or update == self.first[0]:
            return "–"
        return f"{(update - self.first[0]) / max(time.monotonic() - self.first[1], 1e-9):.1f}"

    def summary(self, record: dict[str, Any]) -> str:
        update = record["update"]
        parts = [
            f"update {update:>6}",
            f"{record['episodes']:>7} episodes",
            f"{self.rate(update):>5} updates/s",
            f"loss {record['loss']:.3f}",
        ]
        if "classes" in record:
            parts.append(f"{record['classes']} classes")
        return "  ".join([*parts, self.config.task.headline(record)])


class LiveDisplay(PlainDisplay):
    """A progress bar with rate and time left, and the evaluations scrolling above it."""

    def start(self, config: Config, folder: Path, data: str, devices: int, update: int) -> None:
        super().start(config, folder, data, devices, update)
        self.bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[episodes]} episodes  {task.fields[rate]} updates/s"),
            TextColumn("loss {task.fields[loss]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=self.console,
        )
        self.task = self.bar.add_task(
            "training", total=config.updates, completed=update, episodes=0, rate="–", loss="–"
        )
        self.bar.start()

    def progress(self, update: int, loss: float) -> None:
        super().progress(update, loss)
        self.bar.update(
            self.task,
            completed=update,
            episodes=update * self.config.batch,
            rate=self.rate(update),
            loss=f"{loss:.3f}",
        )

    def stop(self) -> None:
        self.bar.stop()


def make_display() -> Observer:
    """Live in a terminal, plain lines elsewhere."""
    console = Console(highlight=False)
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)
