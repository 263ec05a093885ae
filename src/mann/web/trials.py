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
from mann.files import data_dir
from mann.store.sqlite import create_database

APPLICATION = int.from_bytes(b"mann")  # in the file's application_id
FORMAT = 1  # in its user_version
WAIT_SECONDS = 3.0  # that a writer waits for another
SCHEMA = """
CREATE TABLE trials (
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
CREATE TABLE answers (
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
    """`trials.sqlite` in the user's data folder (`~/.local/share/mann` on Linux)."""
    return data_dir() / "trials.sqlite"


class StoreError(MannError):
    """The file of trials cannot be used, at least not now."""


class TrialStore:
    """Every call opens its own connection: threads and processes may share the file.

    A file that is not there is created, unless for reading only; any other must be a file of trials, and nothing
    is changed in it otherwise.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path, self._mode = path, "ro" if read_only else "rw"
        if not read_only and not os.path.lexists(path):
            self._create()
        with self._open() as connection:
            self._check(connection)

    def _create(self) -> None:
        try:
            create_database(self.path, SCHEMA, APPLICATION, FORMAT)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"The file of trials {self.path} cannot be created: {error}.") from None

    def _check(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application == APPLICATION and version > FORMAT:
            raise StoreError(f"{self.path} was written by a newer version of mann: update this one.")
        # The first files had no application_id.
        if application not in (0, APPLICATION) or version != FORMAT or _layout(connection) != _own_layout():
            raise StoreError(
                f"{self.path} is no file of trials, or it was altered: choose another. It is as it was before."
            )

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are all kept at the end, or none of them."""
        try:
            address = f"{self.path.absolute().as_uri()}?mode={self._mode}"
            connection = sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS)
            try:
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA synchronous = NORMAL")  # with WAL, safe but for a power cut
                with connection:
                    yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise StoreError(f"The file of trials {self.path} cannot be used: {error}.") from None

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


def _layout(connection: sqlite3.Connection) -> list[list[tuple[object, ...]]]:
    """Names, types and keys of the columns of both tables."""
    return [connection.execute(f"PRAGMA table_info({table})").fetchall() for table in ("trials", "answers")]


def _own_layout() -> list[list[tuple[object, ...]]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        return _layout(connection)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
