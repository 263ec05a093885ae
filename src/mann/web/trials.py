"""Trials of the human experiment in one SQLite file, safe under concurrent writers."""

import contextlib
import csv
import io
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from mann.errors import MannError

FORMAT = 1  # of the file, in its user_version
WAIT = 10_000  # milliseconds that a writer waits for another
SCHEMA = """
CREATE TABLE IF NOT EXISTS trials (
    id TEXT PRIMARY KEY,
    participant TEXT NOT NULL,
    started TEXT NOT NULL,
    finished TEXT,
    scored INTEGER NOT NULL,
    dataset TEXT NOT NULL,
    model TEXT NOT NULL,
    classes INTEGER NOT NULL,
    length INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS answers (
    trial TEXT NOT NULL REFERENCES trials (id),
    step INTEGER NOT NULL,
    instance INTEGER NOT NULL,
    label INTEGER NOT NULL,
    answer INTEGER NOT NULL,
    network INTEGER NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (trial, step)
);
"""


class TrialInfo(NamedTuple):
    id: str
    participant: str
    scored: bool
    dataset: str
    model: str
    classes: int
    length: int


class Answer(NamedTuple):
    step: int  # from 1
    instance: int  # how many times the class has been seen, this step included
    label: int  # the right one
    answer: int  # the participant's
    network: int  # the network's
    seconds: float  # that the participant took


def default_path() -> Path:
    """`$XDG_DATA_HOME/mann/trials.sqlite`, else `~/.local/share/mann/trials.sqlite`."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "mann" / "trials.sqlite"


class TrialStore:
    """Every call opens its own connection: threads and processes may share the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MannError(f"The folder {path.parent} cannot be created: {error.strerror}.") from None
        with self._open() as connection:
            found = connection.execute("PRAGMA user_version").fetchone()[0]
            if found > FORMAT:
                raise MannError(f"{path} was written by a newer version of mann: update this one.")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(SCHEMA)
            connection.execute(f"PRAGMA user_version = {FORMAT}")

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are all kept at the end, or none of them."""
        try:
            connection = sqlite3.connect(self.path, timeout=WAIT / 1000)
            try:
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA synchronous = NORMAL")  # with WAL, safe but for a power cut
                with connection:
                    yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise MannError(f"The file of trials {self.path} cannot be used: {error}.") from None

    def begin(self, trial: TrialInfo) -> None:
        with self._open() as connection:
            connection.execute(
                "INSERT INTO trials (id, participant, scored, dataset, model, classes, length, started) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*trial, _now()),
            )

    def add(self, trial: str, answer: Answer, last: bool) -> None:
        """Keep an answer; with the last one the trial is finished."""
        with self._open() as connection:
            connection.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", (trial, *answer))
            if last:
                connection.execute("UPDATE trials SET finished = ? WHERE id = ?", (_now(), trial))

    def export(self) -> str:
        """Every answer as CSV, with its trial, oldest first."""
        text = io.StringIO(newline="")
        with self._open() as connection:
            rows = connection.execute(
                "SELECT participant, trial, started, finished, scored, dataset, model, classes, length, step, "
                "instance, label, answer, network, answer = label AS correct, network = label AS network_correct, "
                "seconds FROM answers JOIN trials ON trials.id = answers.trial ORDER BY started, trial, step"
            )
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(column[0] for column in rows.description)
            writer.writerows(rows)
        return text.getvalue()

    def scored(self) -> list[tuple[str, str, str, Answer]]:
        """Participant, trial, data set and answer, for every answer of a finished, scored trial."""
        with self._open() as connection:
            rows = connection.execute(
                "SELECT participant, trial, dataset, step, instance, label, answer, network, seconds FROM answers "
                "JOIN trials ON trials.id = answers.trial WHERE scored AND finished IS NOT NULL "
                "ORDER BY started, trial, step"
            ).fetchall()
        return [(*row[:3], Answer(*row[3:])) for row in rows]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
